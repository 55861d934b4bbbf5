import type { Kind, Screen } from "../messages";
import type { Stage, View } from "../widgets";
import { showAttention, showHeadphones, showVolume } from "./checks";
import { showMushra } from "./mushra";
import { showNaming } from "./naming";
import { showAbx, showPair, showSameDifferent } from "./pairs";
import { showQuestionnaire } from "./questionnaire";
import { showConsent, showDone, showNotice } from "./reading";

type Show<K extends Kind> = (screen: Extract<Screen, { kind: K }>, stage: Stage) => View;

/** How each kind of screen is shown. */
export const shows: { readonly [K in Kind]: Show<K> } = {
  consent: showConsent,
  notice: showNotice,
  volume: showVolume,
  headphones: showHeadphones,
  attention: showAttention,
  naming: showNaming,
  abx: showAbx,
  "same-different": showSameDifferent,
  mushra: showMushra,
  preference: showPair,
  closer: showPair,
  questionnaire: showQuestionnaire,
  done: showDone,
};

export function showScreen(screen: Screen, stage: Stage): View {
  const view = (shows[screen.kind] as Show<Kind>)(screen, stage);
  view.root.dataset["kind"] = screen.kind;
  view.root.dataset["screen"] = screen.id;
  return view;
}
