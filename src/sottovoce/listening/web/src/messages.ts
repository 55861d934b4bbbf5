/** Short names for parts of the protocol. */
import type { Answer, Next, Slot } from "./protocol";

export type Screen = Next["screen"];
export type Kind = Screen["kind"];
export type ScreenOf<K extends Kind> = Extract<Screen, { kind: K }>;
export type Given = Answer["given"];

/** The clips that a screen plays, in the order in which they are shown. */
export function slotsOf(screen: Screen): Slot[] {
  switch (screen.kind) {
    case "volume":
    case "attention":
    case "naming":
      return [screen.clip];
    case "headphones":
      return screen.clips;
    case "abx":
      return [screen.a, screen.b, screen.x];
    case "same-different":
      return [screen.first, screen.second];
    case "mushra":
      return [screen.reference, ...screen.clips];
    case "preference":
      return [...(screen.reference ? [screen.reference] : []), screen.a, screen.b];
    case "closer":
      return [screen.reference, screen.a, screen.b];
    default:
      return [];
  }
}
