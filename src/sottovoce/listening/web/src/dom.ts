type Child = Node | string | null;

/** An element with attributes and children. An attribute that is false is left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A study's text: blank lines part paragraphs, single line ends stay. */
export function paragraphs(text: string): HTMLElement {
  const blocks = text.split(/\n\s*\n/).filter((block) => block.trim() !== "");
  return h("div", { class: "prose" }, ...blocks.map((block) => h("p", {}, block.trim())));
}

/** Sets text only where it changed, so that live regions do not repeat themselves. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
