import { h, setText } from "./dom";
import type { Matter, Teller } from "./patience";
import type { Store } from "./store";
import { texts } from "./texts";

const SHORTCUTS = "sottovoce.shortcuts";
const NEWS_MS = 4000;

/** What surrounds the screens: title, progress, news of the connection, the switch for shortcuts. */
export class Frame implements Teller {
  private readonly store: Store;
  private readonly retries = new Set<() => void>();
  private news: ReturnType<typeof setTimeout> | undefined;
  private shortcuts: HTMLInputElement;

  constructor(store: Store) {
    this.store = store;
    this.shortcuts = h("input", { type: "checkbox" });
    this.shortcuts.checked = store.read<boolean>(SHORTCUTS) ?? true;
    this.shortcuts.addEventListener("change", () => {
      store.write(SHORTCUTS, this.shortcuts.checked);
      this.showKeys();
    });
    part("footer").replaceChildren(h("label", {}, this.shortcuts, h("span", {}, texts.shortcuts)));
    this.showKeys();
  }

  get stage(): HTMLElement {
    return part("stage");
  }

  readonly allowsShortcuts = (): boolean => this.shortcuts.checked;

  setTitle(title: string): void {
    document.title = title || texts.pageTitle;
    setText(part("title"), title);
  }

  setProgress(progress: number): void {
    const bar = part("progress") as HTMLProgressElement;
    bar.hidden = false;
    bar.value = progress;
    bar.setAttribute("aria-label", texts.progress);
  }

  waiting(matter: Matter, retry: () => void): void {
    clearTimeout(this.news);
    this.retries.add(retry);
    const { kept, keptTabOnly, waiting } = texts.trouble;
    const text = matter === "page" ? waiting : this.store.lasting ? kept : keptTabOnly;
    const now = h("button", { type: "button" }, texts.trouble.retry);
    now.addEventListener("click", () => this.retryAll());
    // A message that stands already is left alone: a screen reader need not say it at every try.
    if (part("status").querySelector("p")?.textContent !== text)
      part("status").replaceChildren(h("p", {}, text), now);
  }

  back(matter: Matter): void {
    clearTimeout(this.news);
    this.retries.clear();
    const text = matter === "answer" ? texts.trouble.sent : texts.trouble.back;
    part("status").replaceChildren(h("p", {}, text));
    this.news = setTimeout(() => part("status").replaceChildren(), NEWS_MS);
  }

  /** Says that the page cannot go on, and what to do. */
  fail(title: string, text: string, action?: { text: string; run: () => void }): void {
    const head = h("h1", { tabindex: -1 }, title);
    const root = h("div", { class: "screen", role: "alert" }, head, h("p", {}, text));
    if (action !== undefined) {
      const go = h("button", { type: "button", class: "primary" }, action.text);
      go.addEventListener("click", action.run);
      root.append(h("div", { class: "onward" }, go));
    }
    this.stage.replaceChildren(root);
    head.focus();
  }

  private retryAll(): void {
    const all = [...this.retries];
    this.retries.clear();
    all.forEach((retry) => retry());
  }

  private showKeys(): void {
    document.body.classList.toggle("no-shortcuts", !this.shortcuts.checked);
  }
}

function part(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element;
}
