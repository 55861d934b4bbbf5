import { h } from "./dom";
import { texts } from "./texts";

/**
 * The shortcuts of one screen. Letters and digits can be switched off, for those whose own software uses them
 * (WCAG 2.1.4); Space and Enter stay.
 */
export class Keys {
  private readonly actions = new Map<string, () => void>();
  private readonly allowed: () => boolean;
  private readonly listener = (event: KeyboardEvent) => this.handle(event);

  constructor(allowed: () => boolean) {
    this.allowed = allowed;
    document.addEventListener("keydown", this.listener);
  }

  bind(key: string, action: () => void): void {
    this.actions.set(key, action);
  }

  close(): void {
    document.removeEventListener("keydown", this.listener);
    this.actions.clear();
  }

  private handle(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || event.defaultPrevented) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = this.actions.get(key);
    if (action === undefined || usesItself(event.target, key)) return;
    if (key.length === 1 && key !== " " && !this.allowed()) return;
    event.preventDefault();
    action();
  }
}

/** Whether what has the focus does something of its own with a key. */
function usesItself(target: EventTarget | null, key: string): boolean {
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  if (target instanceof HTMLInputElement) {
    if (target.type === "radio") return key === " " && !target.checked;
    if (target.type === "checkbox") return key === " ";
    return target.type !== "range";
  }
  const pressable = target instanceof HTMLButtonElement || target instanceof HTMLAnchorElement;
  return pressable && (key === " " || key === "Enter");
}

/** The sign of a key beside what it does. Screen readers hear of it through aria-keyshortcuts. */
export function keySign(key: string): HTMLElement {
  return h("kbd", { "aria-hidden": "true" }, texts.keys[key] ?? key.toUpperCase());
}

export function keyName(key: string): string {
  return key === " " ? "Space" : key;
}
