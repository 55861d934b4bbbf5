import type { Deck } from "./deck";
import { Keys } from "./keys";
import type { Given } from "./messages";
import type { Stage, View } from "./widgets";

export interface Outcome {
  given: Given;
  seconds: number;
}

/**
 * Shows a screen until it is answered, once. What was shown stays to be seen, but not to be used, until
 * something else takes its place.
 */
export function perform(
  place: HTMLElement,
  deck: Deck,
  shortcuts: () => boolean,
  show: (stage: Stage) => View,
): Promise<Outcome> {
  return new Promise((resolve) => {
    const keys = new Keys(shortcuts);
    const endings: (() => void)[] = [() => keys.close(), () => deck.stop()];
    let begun = 0;
    let answered = false;
    const stage: Stage = {
      deck,
      keys,
      onLeave: (action) => endings.push(action),
      submit(given) {
        if (answered) return;
        answered = true;
        const seconds = Math.min(86_400, (performance.now() - begun) / 1000);
        deck.watch = () => undefined;
        endings.forEach((end) => end());
        view.root.inert = true;
        view.root.setAttribute("aria-busy", "true");
        resolve({ given, seconds });
      },
    };
    const view = show(stage);
    view.root.classList.add("screen");
    deck.watch = () => view.refresh();
    place.replaceChildren(view.root);
    view.refresh();
    begun = performance.now();
    view.root.querySelector<HTMLElement>("h1")?.focus();
    window.scrollTo(0, 0);
    view.begin?.();
  });
}
