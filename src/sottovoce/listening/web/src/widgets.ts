import type { Deck } from "./deck";
import { h, setAttribute, setText } from "./dom";
import { keyName, keySign, type Keys } from "./keys";
import type { Given } from "./messages";
import { list, texts } from "./texts";

/** What a screen works with. `submit` takes one answer, and then no more. */
export interface Stage {
  readonly deck: Deck;
  readonly keys: Keys;
  submit(given: Given): void;
  /** Called when the screen leaves. */
  onLeave(action: () => void): void;
}

/** A screen as shown: `refresh` brings it up to date with what was heard and chosen. */
export interface View {
  root: HTMLElement;
  refresh(): void;
  /** Called once the screen is there. */
  begin?(): void;
}

export function heading(text: string, teaching = false): HTMLElement {
  const title = h("h1", { tabindex: -1 }, text);
  return teaching ? h("div", {}, h("p", { class: "practice" }, texts.practice), title) : title;
}

export function button(
  text: string,
  key: string | null,
  keys: Keys,
  action: () => void,
  kind = "",
): HTMLButtonElement {
  const element = h("button", { type: "button", class: kind }, h("span", {}, text));
  if (key !== null) {
    element.append(keySign(key));
    element.setAttribute("aria-keyshortcuts", keyName(key));
    keys.bind(key, () => element.disabled || action());
  }
  element.addEventListener("click", action);
  return element;
}

/** A button that plays clips one after the other, and says which were heard. */
export function player(
  stage: Stage,
  labels: readonly string[],
  text: string,
  key: string,
  gap_seconds = 0,
): { root: HTMLButtonElement; refresh(): void; play(): Promise<void> } {
  const { deck, keys } = stage;
  const play = async () => {
    await deck.play(labels, gap_seconds);
  };
  const sounds = () => deck.now !== null && labels.includes(deck.now);
  const root = button(text, key, keys, () => void play(), "play");
  root.dataset["play"] = labels.join(" ");
  root.prepend(h("span", { class: "icon", "aria-hidden": "true" }));
  const state = h("span", { class: "visually-hidden" });
  root.append(state);
  return {
    root,
    play,
    refresh() {
      const heard = labels.every((label) => deck.heard.has(label));
      setAttribute(root, "data-state", sounds() ? "playing" : heard ? "heard" : "fresh");
      setText(state, heard ? ` (${texts.heard})` : "");
    },
  };
}

export interface Option<T> {
  value: T;
  text: string;
  key: string | null;
}

/** One of several: native radio buttons, so that arrows, Tab and screen readers work as everywhere. */
export function choice<T>(
  stage: Stage,
  legend: HTMLElement | string,
  options: readonly Option<T>[],
  changed: () => void,
  layout: "rows" | "grid" | "line" = "rows",
): { root: HTMLElement; value(): T | null } {
  let value: T | null = null;
  const name = `choice-${Math.random().toString(36).slice(2)}`;
  const rows = options.map((option) => {
    const input = h("input", { type: "radio", name, value: String(option.value) });
    const take = () => {
      value = option.value;
      changed();
    };
    input.addEventListener("change", take);
    if (option.key !== null) {
      input.setAttribute("aria-keyshortcuts", option.key);
      stage.keys.bind(option.key, () => {
        input.checked = true;
        input.focus();
        take();
      });
    }
    return h(
      "label",
      { class: "option" },
      input,
      h("span", {}, option.text),
      option.key && keySign(option.key),
    );
  });
  const root = h("fieldset", { class: `choice ${layout}` }, h("legend", {}, legend), ...rows);
  return { root, value: () => value };
}

/** Letters for the options of a list, as far as they go. */
export function letter(place: number): string | null {
  return place < 26 ? String.fromCharCode(97 + place) : null;
}

/** The button to go on, and what is still to be done before it. missing: nothing when all is done. */
export function onward(
  stage: Stage,
  missing: () => string[],
  answer: () => Given,
): { root: HTMLElement; refresh(): void } {
  const go = () => {
    if (missing().length === 0) stage.submit(answer());
  };
  const element = button(texts.continue, "Enter", stage.keys, go, "primary");
  element.dataset["submit"] = "";
  const hint = h("p", { class: "hint", id: "hint" });
  element.setAttribute("aria-describedby", "hint");
  return {
    root: h("div", { class: "onward" }, element, hint),
    refresh() {
      const left = missing();
      element.disabled = left.length > 0;
      setText(hint, left.length > 0 ? `${texts.missing.before} ${list(left)}.` : "");
    },
  };
}

/** What was not heard to its end yet, in words. */
export function unheard(deck: Deck, labels: readonly string[], names: readonly string[] = labels): string[] {
  const left = names.filter((_, i) => !deck.heard.has(labels[i]!));
  return left.length > 0 ? [texts.missing.hear(list(left))] : [];
}
