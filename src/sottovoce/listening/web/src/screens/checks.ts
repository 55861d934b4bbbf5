/** Screens before the test itself: volume, headphones, attention. */
import { h, paragraphs, setAttribute, setText } from "../dom";
import type { ScreenOf } from "../messages";
import { texts } from "../texts";
import { button, choice, heading, letter, onward, player, unheard, type Stage, type View } from "../widgets";

const GAP_SECONDS = 0.5;

export function showVolume(screen: ScreenOf<"volume">, stage: Stage): View {
  const { deck, keys } = stage;
  const { label } = screen.clip;
  const toggle = () => (deck.playing ? deck.stop() : void deck.loop(label));
  const play = button(texts.play, " ", keys, toggle, "play");
  play.dataset["play"] = label;
  play.dataset["toggle"] = "";
  play.prepend(h("span", { class: "icon", "aria-hidden": "true" }));
  const missing = () => (deck.heard.has(label) ? [] : [texts.missing.play]);
  const go = onward(stage, missing, () => ({ kind: "volume" }));
  const root = h(
    "div",
    {},
    heading(texts.volumeTitle),
    paragraphs(screen.text),
    h("div", { class: "players" }, play),
    go.root,
  );
  return {
    root,
    refresh() {
      setText(play.querySelector("span:not(.icon)")!, deck.playing ? texts.stop : texts.play);
      setAttribute(play, "data-state", deck.playing ? "playing" : "fresh");
      go.refresh();
    },
  };
}

export function showHeadphones(screen: ScreenOf<"headphones">, stage: Stage): View {
  const labels = screen.clips.map((slot) => slot.label);
  const play = player(stage, labels, texts.playThree, " ", GAP_SECONDS);
  const lamps = labels.map((label) => h("span", { class: "lamp" }, label));
  const options = labels.map((label, i) => ({ value: i, text: texts.sound(label), key: String(i + 1) }));
  const refresh = () => {
    play.refresh();
    lamps.forEach((lamp, i) => lamp.classList.toggle("on", stage.deck.now === labels[i]));
    go.refresh();
  };
  const pick = choice(stage, screen.question, options, refresh, "line");
  const missing = () => [
    ...unheard(stage.deck, labels, labels.map(texts.missing.theSound)),
    ...(pick.value() === null ? [texts.missing.choose] : []),
  ];
  const go = onward(stage, missing, () => ({ kind: "headphones", choice: pick.value()! }));
  const players = h(
    "div",
    { class: "players" },
    play.root,
    h("span", { class: "lamps", "aria-hidden": "true" }, ...lamps),
  );
  const root = h("div", {}, heading(texts.listenTitle, screen.teaching), players, pick.root, go.root);
  return { root, refresh };
}

export function showAttention(screen: ScreenOf<"attention">, stage: Stage): View {
  const { label } = screen.clip;
  const play = player(stage, [label], texts.play, " ");
  const options = screen.choices.map((word, i) => ({ value: word, text: word, key: letter(i) }));
  const refresh = () => {
    play.refresh();
    go.refresh();
  };
  const pick = choice(stage, screen.question, options, refresh, "grid");
  const missing = () => [
    ...unheard(stage.deck, [label], [texts.missing.theSentence]),
    ...(pick.value() === null ? [texts.missing.choose] : []),
  ];
  const go = onward(stage, missing, () => ({ kind: "attention", choice: pick.value()! }));
  const players = h("div", { class: "players" }, play.root);
  return {
    root: h("div", {}, heading(texts.listenTitle, screen.teaching), players, pick.root, go.root),
    refresh,
  };
}
