import { h, setText } from "../dom";
import type { ScreenOf } from "../messages";
import type { Question } from "../protocol";
import { texts } from "../texts";
import { button, heading, type Stage, type View } from "../widgets";

/** Up to so many choices are shown as buttons, more in a menu. */
const SHOWN = 7;
const LONGEST = 4000;

interface Field {
  root: HTMLElement;
  first: HTMLElement;
  /** Null where nothing was given. */
  value(): string | number | null;
  /** What is wrong with it, or nothing. */
  fault(): string;
  say(fault: string): void;
}

export function showQuestionnaire(screen: ScreenOf<"questionnaire">, stage: Stage): View {
  const fields = screen.questions.map(makeField);
  const send = () => {
    fields.forEach((field) => field.say(field.fault()));
    const wrong = fields.find((field) => field.fault() !== "");
    if (wrong !== undefined) return wrong.first.focus();
    const given = fields.map((field, i) => [screen.questions[i]!.name, field.value()] as const);
    const answers = Object.fromEntries(given.filter(([, value]) => value !== null)) as Record<
      string,
      string | number
    >;
    stage.submit({ kind: "questionnaire", answers });
  };
  const go = button(texts.continue, "Enter", stage.keys, send, "primary");
  go.dataset["submit"] = "";
  const root = h(
    "div",
    {},
    heading(screen.title),
    ...fields.map((field) => field.root),
    h("div", { class: "onward" }, go),
  );
  return { root, refresh: () => undefined };
}

function makeField(question: Question): Field {
  const asks = question.kind === "choice" && question.choices.length <= SHOWN ? radioField : inputField;
  return asks(question);
}

function radioField(question: Question): Field {
  const error = faultLine(question);
  const inputs = question.choices.map((text) =>
    h("input", { type: "radio", name: `q-${question.name}`, value: text }),
  );
  const rows = inputs.map((input) => h("label", { class: "option" }, input, h("span", {}, input.value)));
  const root = h("fieldset", { class: "choice rows" }, h("legend", {}, ...wording(question)), ...rows, error);
  const value = () => inputs.find((input) => input.checked)?.value ?? null;
  const fault = () => (question.required && value() === null ? texts.needAnswer : "");
  const say = (text: string) => {
    setText(error, text);
    inputs.forEach((input) => mark(input, error, text));
  };
  return { root, first: inputs[0]!, value, fault, say };
}

function inputField(question: Question): Field {
  const error = faultLine(question);
  const input = control(question);
  input.id = `q-${question.name}`;
  const root = h(
    "div",
    { class: "field" },
    h("label", { for: input.id }, ...wording(question)),
    input,
    error,
  );
  const text = () => input.value.trim();
  const value = () => (text() === "" ? null : question.kind === "number" ? toNumber(text()) : text());
  const fault = () => {
    if (text() === "") return question.required ? texts.needAnswer : "";
    return question.kind === "number" && !Number.isFinite(toNumber(text())) ? texts.needNumber : "";
  };
  const say = (fault: string) => {
    setText(error, fault);
    mark(input, error, fault);
  };
  return { root, first: input, value, fault, say };
}

function control(question: Question): HTMLInputElement | HTMLSelectElement {
  const required = { "aria-required": String(question.required) };
  if (question.kind === "choice") {
    const options = question.choices.map((text) => h("option", { value: text }, text));
    return h("select", required, h("option", { value: "" }, texts.choose), ...options);
  }
  // A field for numbers would drop what is not one without a word, and take no decimal comma.
  const mode = question.kind === "number" ? { inputmode: "decimal" } : {};
  return h("input", { type: "text", autocomplete: "off", maxlength: LONGEST, ...required, ...mode });
}

function toNumber(text: string): number {
  return Number(text.replace(",", "."));
}

function wording(question: Question): (string | HTMLElement)[] {
  return question.required
    ? [question.text]
    : [question.text, h("span", { class: "quiet" }, ` (${texts.optional})`)];
}

function faultLine(question: Question): HTMLElement {
  return h("p", { class: "fault", id: `fault-${question.name}`, role: "alert" });
}

function mark(input: HTMLElement, error: HTMLElement, fault: string): void {
  input.setAttribute("aria-invalid", String(fault !== ""));
  input.setAttribute("aria-describedby", error.id);
}
