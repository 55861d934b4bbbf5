import { h, setAttribute, setText } from "../dom";
import type { ScreenOf } from "../messages";
import { Mix } from "../mix";
import type { Slot } from "../protocol";
import { list, texts } from "../texts";
import { button, heading, onward, type Stage, type View } from "../widgets";

const KEYS = "123456789abcdef";
const SHORTEST_SECONDS = 0.25;
const STEP_SECONDS = 0.01;

export function showMushra(screen: ScreenOf<"mushra">, stage: Stage): View {
  const { deck, keys } = stage;
  const mix = new Mix(deck);
  stage.onLeave(() => mix.stop());
  const lanes = screen.clips.map((slot, i) => lane(slot, keyOf(slot, i), stage, mix, () => refresh()));
  const reference = switchButton(stage, mix, screen.reference.label, texts.reference, "r");
  let heardLast = screen.reference.label;
  const play = button(
    texts.play,
    " ",
    keys,
    () => (mix.playing ? mix.stop() : void mix.hear(heardLast)),
    "play",
  );
  play.prepend(h("span", { class: "icon", "aria-hidden": "true" }));
  play.dataset["toggle"] = "";
  const region = loopRegion(mix);
  stage.onLeave(region.close);

  const labels = screen.clips.map((slot) => slot.label);
  const missing = () => {
    const silent = [screen.reference.label, ...labels].filter((label) => !deck.heard.has(label));
    const open = labels.filter((_, i) => lanes[i]!.rating() === null);
    const names = silent.map((label) =>
      label === screen.reference.label ? texts.missing.theReference : label,
    );
    return [
      ...(silent.length > 0 ? [texts.missing.listen(list(names))] : []),
      ...(open.length > 0 ? [texts.missing.rate(list(open))] : []),
    ];
  };
  const ratings = () => Object.fromEntries(lanes.map((one, i) => [labels[i]!, one.rating()!]));
  const go = onward(stage, missing, () => ({ kind: "mushra", ratings: ratings() }));
  const refresh = () => {
    heardLast = deck.now ?? heardLast;
    setText(play.querySelector("span:not(.icon)")!, mix.playing ? texts.stop : texts.play);
    setAttribute(play, "data-state", mix.playing ? "playing" : "fresh");
    reference.refresh();
    lanes.forEach((one) => one.refresh());
    go.refresh();
  };
  const bands = h(
    "div",
    { class: "bands", "aria-hidden": "true" },
    ...texts.bands.map((text) => h("span", {}, text)),
  );
  const board = h("div", { class: "board" }, bands, ...lanes.map((one) => one.root));
  const players = h("div", { class: "players" }, play, reference.root);
  const title = heading(screen.question, screen.teaching);
  return { root: h("div", { class: "mushra" }, title, players, region.root, board, go.root), refresh };
}

/** A clip's own letter or digit where that is its label, else by place; R is the reference's. */
function keyOf(slot: Slot, place: number): string {
  return /^[0-9a-qs-z]$/i.test(slot.label) ? slot.label.toLowerCase() : KEYS[place]!;
}

/** A clip's button and its slider. A rating counts once the slider was touched, also where it did not move. */
function lane(slot: Slot, key: string, stage: Stage, mix: Mix, changed: () => void) {
  let rating: number | null = null;
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 100,
    step: 1,
    value: 50,
    "aria-label": texts.rating(slot.label),
  });
  slider.dataset["rate"] = slot.label;
  const value = h("output", { class: "rating", "aria-hidden": "true" });
  const take = () => {
    rating = Number(slider.value);
    changed();
  };
  for (const kind of ["input", "change", "pointerup"]) slider.addEventListener(kind, take);
  const hear = switchButton(stage, mix, slot.label, slot.label, key, () => slider.focus());
  hear.root.prepend(h("span", { class: "visually-hidden" }, texts.clip("")));
  return {
    root: h("div", { class: "lane" }, hear.root, slider, value),
    rating: () => rating,
    refresh() {
      hear.refresh();
      slider.classList.toggle("unrated", rating === null);
      slider.setAttribute("aria-valuetext", rating === null ? texts.unrated : texts.band(rating));
      setText(value, rating === null ? "–" : String(rating));
    },
  };
}

function switchButton(stage: Stage, mix: Mix, label: string, text: string, key: string, after?: () => void) {
  const hear = () => void mix.hear(label);
  const root = button(text, null, stage.keys, hear, "switch");
  root.dataset["play"] = label;
  root.setAttribute("aria-keyshortcuts", key);
  root.append(h("kbd", { "aria-hidden": "true" }, key.toUpperCase()));
  stage.keys.bind(key, () => {
    hear();
    after?.();
  });
  return {
    root,
    refresh() {
      root.setAttribute("aria-pressed", String(stage.deck.now === label));
      setAttribute(
        root,
        "data-state",
        stage.deck.now === label ? "playing" : stage.deck.heard.has(label) ? "heard" : "fresh",
      );
    },
  };
}

/** Two sliders that choose the part that loops, and a mark that shows where the sound is. */
function loopRegion(mix: Mix) {
  const most = mix.seconds;
  const range = (text: string, value: number) =>
    h("input", { type: "range", min: 0, max: most, step: STEP_SECONDS, value, "aria-label": text });
  const from = range(texts.loopFrom, 0);
  const to = range(`${texts.loopFrom} … ${texts.loopTo}`, most);
  from.dataset["loop"] = "from";
  to.dataset["loop"] = "to";
  to.value = String(most);
  const fromText = h("output", {});
  const toText = h("output", {});
  const mark = h("progress", { max: most, value: 0, "aria-hidden": "true" });
  const gap = Math.min(SHORTEST_SECONDS, most);
  // The slider's grid may end short of the clip: its last step is the clip's end.
  const chosen = (): [number, number] => {
    const end = Number(to.value);
    return [Number(from.value), end >= most - STEP_SECONDS ? most : end];
  };
  const show = () => {
    const [begin, end] = chosen();
    setText(fromText, texts.seconds(begin));
    setText(toText, texts.seconds(end));
    from.setAttribute("aria-valuetext", texts.seconds(begin));
    to.setAttribute("aria-valuetext", texts.seconds(end));
  };
  const hold = (moved: HTMLInputElement) => {
    if (moved === from) from.value = String(Math.min(Number(from.value), Number(to.value) - gap));
    else to.value = String(Math.max(Number(to.value), Number(from.value) + gap));
    show();
  };
  // The sound follows when the slider is let go; while it moves, the numbers do.
  for (const slider of [from, to]) {
    slider.addEventListener("input", () => hold(slider));
    slider.addEventListener("change", () => mix.setRegion(...chosen()));
  }
  const whole = h("button", { type: "button" }, texts.wholeClip);
  whole.addEventListener("click", () => {
    from.value = "0";
    to.value = to.max;
    mix.setRegion(0, most);
    show();
  });
  const ticker = setInterval(() => (mark.value = mix.position_seconds), 100);
  show();
  const root = h(
    "div",
    { class: "region", role: "group", "aria-label": texts.loopFrom },
    mark,
    h("label", {}, h("span", {}, texts.loopFrom), from, fromText),
    h("label", {}, h("span", {}, texts.loopTo), to, toText),
    whole,
  );
  return { root, close: () => clearInterval(ticker) };
}
