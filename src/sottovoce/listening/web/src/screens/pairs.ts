/** Screens that compare two clips: ABX, preference, closer, same or different. */
import { h, setText } from "../dom";
import type { Given, ScreenOf } from "../messages";
import type { Slot } from "../protocol";
import { texts } from "../texts";
import { button, choice, heading, onward, player, unheard, type Stage, type View } from "../widgets";

type Confidence = "low" | "medium" | "high";
type Side = "a" | "b";

const CONFIDENCES: readonly Confidence[] = ["low", "medium", "high"];

export function showAbx(screen: ScreenOf<"abx">, stage: Stage): View {
  const slots = [screen.a, screen.b, screen.x];
  const labels = slots.map((slot) => slot.label);
  const plays = slots.map((slot, i) => player(stage, [slot.label], texts.clip(slot.label), "abx"[i]!));
  const refresh = () => [...plays, go].forEach((part) => part.refresh());
  const sides = sideOptions(screen.a, screen.b, texts.xIs);
  const sure = CONFIDENCES.map((value) => ({ value, text: texts.confidences[value], key: value[0]! }));
  const side = choice(stage, screen.question, sides, refresh, "line");
  const confidence = choice(stage, texts.confidence, sure, refresh, "line");
  const missing = () => [
    ...unheard(stage.deck, labels),
    ...(side.value() === null ? [texts.missing.choose] : []),
    ...(confidence.value() === null ? [texts.missing.sure] : []),
  ];
  const answer = (): Given => ({ kind: "abx", choice: side.value()!, confidence: confidence.value()! });
  const go = onward(stage, missing, answer);
  const players = h("div", { class: "players" }, ...plays.map((play) => play.root));
  const title = heading(texts.listenTitle, screen.teaching);
  return { root: h("div", {}, title, players, side.root, confidence.root, go.root), refresh };
}

/** Preference and closer ask the same way: which of two. */
export function showPair(screen: ScreenOf<"preference"> | ScreenOf<"closer">, stage: Stage): View {
  const reference = screen.reference ?? null;
  const slots = [...(reference ? [reference] : []), screen.a, screen.b];
  const name = (slot: Slot) => (slot === reference ? texts.reference : texts.clip(slot.label));
  const said = (slot: Slot) => (slot === reference ? texts.missing.theReference : slot.label);
  const key = (slot: Slot) => (slot === reference ? "r" : slot === screen.a ? "a" : "b");
  const plays = slots.map((slot) => player(stage, [slot.label], name(slot), key(slot)));
  const refresh = () => [...plays, go].forEach((part) => part.refresh());
  const side = choice(stage, screen.question, sideOptions(screen.a, screen.b, texts.clip), refresh, "line");
  const missing = () => [
    ...unheard(
      stage.deck,
      slots.map((slot) => slot.label),
      slots.map(said),
    ),
    ...(side.value() === null ? [texts.missing.choose] : []),
  ];
  const go = onward(stage, missing, () => ({ kind: screen.kind, choice: side.value()! }));
  const players = h("div", { class: "players" }, ...plays.map((play) => play.root));
  const title = heading(texts.listenTitle, screen.teaching);
  return { root: h("div", {}, title, players, side.root, go.root), refresh };
}

/** Plays the pair by itself and takes the answer in one key: a listener does this a hundred times. */
export function showSameDifferent(screen: ScreenOf<"same-different">, stage: Stage): View {
  const labels = [screen.first.label, screen.second.label];
  const play = player(stage, labels, texts.playPair, " ", screen.gap_seconds);
  const lamps = [texts.first, texts.second].map((text) => h("span", { class: "lamp" }, text));
  const ready = () => labels.every((label) => stage.deck.heard.has(label));
  const tell = (different: boolean) => () => {
    if (ready()) stage.submit({ kind: "same-different", different });
  };
  const same = button(texts.same, "s", stage.keys, tell(false), "answer");
  const different = button(texts.different, "d", stage.keys, tell(true), "answer");
  same.dataset["choice"] = "same";
  different.dataset["choice"] = "different";
  const players = h(
    "div",
    { class: "players" },
    play.root,
    h("span", { class: "lamps", "aria-hidden": "true" }, ...lamps),
  );
  const question = h("p", { class: "question" }, screen.question);
  const answers = h("div", { class: "answers" }, same, different);
  const hint = h("p", { class: "hint", id: "hint" });
  for (const one of [same, different]) one.setAttribute("aria-describedby", "hint");
  return {
    root: h("div", {}, heading(texts.listenTitle, screen.teaching), players, question, answers, hint),
    refresh() {
      play.refresh();
      lamps.forEach((lamp, i) => lamp.classList.toggle("on", stage.deck.now === labels[i]));
      setText(hint, ready() ? "" : texts.missing.both);
      same.disabled = different.disabled = !ready();
    },
    begin: () => void play.play(),
  };
}

function sideOptions(a: Slot, b: Slot, text: (label: string) => string) {
  const sides: [Side, Slot][] = [
    ["a", a],
    ["b", b],
  ];
  return sides.map(([value, slot], i) => ({ value, text: text(slot.label), key: String(i + 1) }));
}
