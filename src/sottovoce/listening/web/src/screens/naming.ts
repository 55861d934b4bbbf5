import { h } from "../dom";
import type { ScreenOf } from "../messages";
import { texts } from "../texts";
import { choice, heading, letter, onward, player, unheard, type Stage, type View } from "../widgets";

export function showNaming(screen: ScreenOf<"naming">, stage: Stage): View {
  const { label } = screen.clip;
  const play = player(stage, [label], texts.play, " ");
  const refresh = () => {
    play.refresh();
    go.refresh();
  };
  const words = screen.choices.map((word, i) => ({ value: word, text: word, key: letter(i) }));
  const grades = screen.scale.map((text, i) => ({
    value: i + 1,
    text: `${i + 1}. ${text}`,
    key: String(i + 1),
  }));
  const word = choice(stage, screen.question, words, refresh, "grid");
  const grade = choice(stage, screen.scale_question, grades, refresh);
  const missing = () => [
    ...unheard(stage.deck, [label], [texts.missing.theClip]),
    ...(word.value() === null ? [texts.missing.choose] : []),
    ...(grade.value() === null ? [texts.missing.scale] : []),
  ];
  const go = onward(stage, missing, () => ({
    kind: "naming",
    choice: word.value()!,
    naturalness: grade.value()!,
  }));
  const players = h("div", { class: "players" }, play.root);
  const title = heading(texts.listenTitle, screen.teaching);
  return { root: h("div", {}, title, players, word.root, grade.root, go.root), refresh };
}
