/** Screens to read: consent, notices and breaks, the end. */
import { h, paragraphs, setText } from "../dom";
import type { ScreenOf } from "../messages";
import type { Feedback } from "../protocol";
import { arrivedWith } from "../session";
import { texts } from "../texts";
import { button, heading, type Stage, type View } from "../widgets";

export function showConsent(screen: ScreenOf<"consent">, stage: Stage): View {
  const answer = (agreed: boolean) => () => stage.submit({ kind: "consent", agreed });
  const yes = button(texts.agree, "y", stage.keys, answer(true), "primary");
  const no = button(texts.disagree, "n", stage.keys, answer(false));
  yes.dataset["submit"] = "";
  no.dataset["decline"] = "";
  const buttons = h("div", { class: "onward" }, yes, no);
  return {
    root: h("div", {}, heading(screen.title), paragraphs(screen.text), buttons),
    refresh: () => undefined,
  };
}

export function showNotice(screen: ScreenOf<"notice">, stage: Stage): View {
  const go = button(texts.continue, "Enter", stage.keys, () => stage.submit({ kind: "notice" }), "primary");
  go.dataset["submit"] = "";
  // The count itself would be read out every second; that it is over is said once.
  const count = h("p", { class: "hint", "aria-hidden": "true" });
  const over = h("p", { class: "visually-hidden", role: "status" });
  const root = h(
    "div",
    {},
    heading(screen.title),
    paragraphs(screen.text),
    h("div", { class: "onward" }, go, count, over),
  );
  const end = performance.now() + 1000 * screen.rest_seconds;
  const refresh = () => {
    const left = Math.ceil((end - performance.now()) / 1000);
    go.disabled = left > 0;
    setText(count, left > 0 ? texts.rest(left) : "");
    if (left <= 0 && screen.rest_seconds > 0) setText(over, texts.restOver);
  };
  if (screen.rest_seconds > 0) {
    const ticker = setInterval(refresh, 250);
    stage.onLeave(() => clearInterval(ticker));
  }
  return { root, refresh };
}

export function showDone(screen: ScreenOf<"done">, stage: Stage): View {
  const root = h("div", {}, heading(screen.title), paragraphs(screen.text));
  if (screen.code) root.append(codeBox(screen.code, stage));
  const link = safeLink(screen.link);
  root.append(
    link
      ? h("p", {}, h("a", { href: link, class: "button primary" }, texts.goBack))
      : h("p", {}, texts.canClose),
  );
  // Who came from a recruiting site came alone; without one, a lab may have the next listener at hand.
  if (Object.keys(arrivedWith(window.location.search)).length === 0) {
    root.append(h("p", {}, h("a", { href: "?new=1", class: "button" }, texts.another)));
  }
  return { root, refresh: () => undefined };
}

/** What is said after a teaching trial. */
export function showFeedback(feedback: Feedback, stage: Stage, done: () => void): View {
  const go = button(texts.continue, "Enter", stage.keys, done, "primary");
  go.dataset["submit"] = "";
  const title = heading(texts.feedback);
  const text = paragraphs(feedback.text);
  const root = h("div", { class: feedback.right ? "feedback right" : "feedback wrong" }, title, text);
  root.append(h("div", { class: "onward" }, go));
  return { root, refresh: () => undefined };
}

function codeBox(code: string, stage: Stage): HTMLElement {
  const output = h("output", { class: "code", tabindex: 0, "aria-label": texts.code }, code);
  const said = h("span", { role: "status" });
  const copy = button(
    texts.copy,
    "c",
    stage.keys,
    () => void copyText(output, code).then((text) => setText(said, text)),
  );
  copy.dataset["copy"] = "";
  return h(
    "div",
    { class: "code-box" },
    h("p", {}, texts.code),
    output,
    h("div", { class: "onward" }, copy, said),
  );
}

async function copyText(element: HTMLElement, text: string): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
    return texts.copied;
  } catch {
    // Plain http has no clipboard: the code is selected instead.
    window.getSelection()?.selectAllChildren(element);
    return texts.copyByHand;
  }
}

/** Only web addresses: a link that runs script is none. */
function safeLink(link: string | null): string | null {
  return link !== null && /^https?:\/\//i.test(link) ? link : null;
}
