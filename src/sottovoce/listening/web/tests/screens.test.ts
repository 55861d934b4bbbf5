import { afterEach, beforeEach, expect, test, vi, type MockInstance } from "vitest";
import { Deck, loadDeck } from "../src/deck";
import { slotsOf, type Kind, type Screen } from "../src/messages";
import { perform, type Outcome } from "../src/perform";
import { showScreen } from "../src/screens";
import { FakeContext, FakeGain, fakeSound, finishSound, wavFile } from "./fakes";
import { faults } from "./schema";
import examples from "./screens.json";

let shortcuts = true;
let place: HTMLElement;
let listening: MockInstance<typeof document.addEventListener>;

beforeEach(() => {
  fakeSound();
  shortcuts = true;
  place = document.createElement("div");
  document.body.replaceChildren(place);
  vi.spyOn(window, "scrollTo").mockImplementation(() => undefined);
  listening = vi.spyOn(document, "addEventListener");
});

afterEach(() => {
  // Screens that a test leaves without an answer would take keys from the next one.
  for (const [kind, listener] of listening.mock.calls) document.removeEventListener(kind, listener);
  vi.restoreAllMocks();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Shows the example of a kind. given: null until it is answered. */
async function show(kind: Kind, change: Partial<Record<string, unknown>> = {}) {
  const screen = { ...examples.find((one) => one.kind === kind), ...change } as unknown as Screen;
  const deck = await loadDeck(
    slotsOf(screen),
    async () => wavFile([1000, -1000, 500, 0]),
    () => undefined,
  );
  const shown = { deck, given: null as Outcome["given"] | null, fits: () => faults("Answer", message()) };
  const message = () => ({ screen: screen.id, given: shown.given, seconds: 1, plays: deck.plays });
  void perform(
    place,
    deck,
    () => shortcuts,
    (stage) => showScreen(screen, stage),
  ).then(({ given }) => (shown.given = given));
  return shown;
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 0));
const find = <T extends HTMLElement>(selector: string) => place.querySelector<T>(selector)!;
const submit = () => find<HTMLButtonElement>("[data-submit]");

async function press(...keys: string[]): Promise<void> {
  for (const key of keys) {
    (document.activeElement ?? document.body).dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }),
    );
    await settle();
  }
}

async function hear(...keys: string[]): Promise<void> {
  for (const key of keys) {
    await press(key);
    await finishSound();
  }
}

test("consent: yes or no", async () => {
  const yes = await show("consent");
  await press("y");
  expect(yes.given).toEqual({ kind: "consent", agreed: true });
  expect(yes.fits()).toEqual([]);
  const no = await show("consent");
  find("[data-decline]").click();
  await settle();
  expect(no.given).toEqual({ kind: "consent", agreed: false });
});

test("notice: go on", async () => {
  const shown = await show("notice");
  expect(document.activeElement?.tagName).toBe("H1");
  await press("Enter");
  expect(shown.given).toEqual({ kind: "notice" });
  expect(shown.fits()).toEqual([]);
});

test("a break lasts as long as it says", async () => {
  vi.useFakeTimers();
  const screen = { ...examples.find((one) => one.kind === "notice"), rest_seconds: 3 } as unknown as Screen;
  void perform(
    place,
    new Deck(new Map()),
    () => true,
    (stage) => showScreen(screen, stage),
  );
  expect(submit().disabled).toBe(true);
  vi.advanceTimersByTime(2700);
  expect(submit().disabled).toBe(true);
  expect(place.textContent).toContain("1 s");
  vi.advanceTimersByTime(500);
  expect(submit().disabled).toBe(false);
});

test("volume: loops until it is stopped, and must be played", async () => {
  const shown = await show("volume");
  await press("Enter");
  expect(shown.given).toBeNull();
  await press(" ");
  expect(FakeContext.sources[0]!.loop).toBe(true);
  await press(" ");
  expect(FakeContext.sources[0]!.stopped).not.toBeNull();
  await press("Enter");
  expect(shown.given).toEqual({ kind: "volume" });
  expect(shown.deck.plays).toEqual({ noise: 1 });
  expect(shown.fits()).toEqual([]);
});

test("headphones: three sounds in one go, half a second apart", async () => {
  const shown = await show("headphones");
  await press("2", "Enter");
  expect(shown.given).toBeNull();
  await press(" ");
  const samples = FakeContext.sources[0]!.buffer!.channels[0]!;
  expect(samples.length).toBe(3 * 4 + 2 * 8000);
  expect([...samples.slice(8004, 8008)]).toEqual([1000, -1000, 500, 0].map((one) => one / 32768));
  await finishSound();
  await press("Enter");
  expect(shown.given).toEqual({ kind: "headphones", choice: 1 });
  expect(shown.deck.plays).toEqual({ "1": 1, "2": 1, "3": 1 });
  expect(shown.fits()).toEqual([]);
});

test("attention: a word", async () => {
  const shown = await show("attention");
  await hear(" ");
  await press("c", "Enter");
  expect(shown.given).toEqual({ kind: "attention", choice: "candle" });
  expect(shown.fits()).toEqual([]);
});

test("naming: a word and a grade, once the clip was heard", async () => {
  const shown = await show("naming");
  await press("e", "2", "Enter");
  expect(shown.given).toBeNull();
  expect(place.textContent).toContain("Before you go on: hear the clip to the end.");
  await hear(" ");
  await press("Enter");
  expect(shown.given).toEqual({ kind: "naming", choice: "left", naturalness: 2 });
  expect(shown.fits()).toEqual([]);
});

test("naming by mouse", async () => {
  const shown = await show("naming");
  find("[data-play]").click();
  await finishSound();
  const radios = [...place.querySelectorAll<HTMLInputElement>("input[type=radio]")];
  radios.find((radio) => radio.value === "stop")!.click();
  radios.find((radio) => radio.value === "5")!.click();
  submit().click();
  await settle();
  expect(shown.given).toEqual({ kind: "naming", choice: "stop", naturalness: 5 });
});

test("ABX: all three are heard to the end before an answer", async () => {
  const shown = await show("abx");
  await press("1", "h");
  await hear("a", "b");
  await press("x", "a");
  expect(place.textContent).toContain("Before you go on: hear X to the end.");
  expect(submit().disabled).toBe(true);
  await hear("x");
  await press("Enter");
  expect(shown.given).toEqual({ kind: "abx", choice: "a", confidence: "high" });
  expect(shown.deck.plays).toEqual({ A: 2, B: 1, X: 2 });
  expect(shown.fits()).toEqual([]);
});

test("a clip that is asked for stops the one that plays", async () => {
  await show("abx");
  await press("a", "b");
  expect(FakeContext.sources.map((source) => source.stopped !== null)).toEqual([true, false]);
});

test("two clips that are asked for at once do not sound together", async () => {
  const { deck } = await show("abx");
  await Promise.all([deck.play(["A"]), deck.play(["B"])]);
  expect(FakeContext.sources.length).toBe(1);
  expect(deck.plays).toEqual({ A: 0, B: 1, X: 0 });
});

test("same or different: plays by itself, and one key answers", async () => {
  const shown = await show("same-different");
  await press("s");
  expect(shown.given).toBeNull();
  await settle();
  expect(FakeContext.sources[0]!.buffer!.channels[0]!.length).toBe(2 * 4 + 4800);
  await finishSound();
  await press("d");
  expect(shown.given).toEqual({ kind: "same-different", different: true });
  expect(shown.deck.plays).toEqual({ first: 1, second: 1 });
  expect(shown.fits()).toEqual([]);
});

test("preference and closer: one of two", async () => {
  const preference = await show("preference");
  await hear("a", "b");
  await press("2", "Enter");
  expect(preference.given).toEqual({ kind: "preference", choice: "b" });
  expect(preference.fits()).toEqual([]);
  const closer = await show("closer");
  await hear("a", "b");
  await press("1", "Enter");
  expect(closer.given).toBeNull();
  await hear("r");
  await press("Enter");
  expect(closer.given).toEqual({ kind: "closer", choice: "a" });
  expect(closer.fits()).toEqual([]);
});

function rate(label: string, value: number): void {
  const slider = find<HTMLInputElement>(`[data-rate="${label}"]`);
  slider.value = String(value);
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}

test("MUSHRA: every clip is heard and rated", async () => {
  const shown = await show("mushra");
  await press("r", "1", "2", "3", "4");
  ["1", "2", "3", "4"].forEach((label, i) => rate(label, 10 * i));
  expect(place.textContent).toContain("Before you go on: listen to 5 and rate 5.");
  rate("5", 100);
  expect(submit().disabled).toBe(true);
  await press("5");
  expect(document.activeElement).toBe(find('[data-rate="5"]'));
  await press("Enter");
  expect(shown.given).toEqual({ kind: "mushra", ratings: { "1": 0, "2": 10, "3": 20, "4": 30, "5": 100 } });
  expect(shown.deck.plays).toEqual({ reference: 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": 1 });
  expect(shown.fits()).toEqual([]);
});

test("MUSHRA: a slider that is touched and left where it is counts", async () => {
  await show("mushra");
  find('[data-rate="3"]').dispatchEvent(new Event("pointerup", { bubbles: true }));
  expect(place.textContent).toContain("rate 1, 2, 4 and 5");
});

test("MUSHRA: clips sound together from one source, and a switch is a crossfade of 5 ms", async () => {
  await show("mushra");
  await press("r", "2");
  expect(FakeContext.sources.length).toBe(1);
  const source = FakeContext.sources[0]!;
  expect(source.loop).toBe(true);
  expect(source.buffer!.channels.length).toBe(6);
  const gains = source.to[0]!.node.to.map(({ node }) => node.to[0]!.node as FakeGain);
  expect(gains.map((gain) => gain.gain.value)).toEqual([0, 0, 1, 0, 0, 0]);
  expect(gains[2]!.gain.ramps.at(-1)).toEqual([1, 0.005]);
});

test("questionnaire: what is required is asked for, what is not may stay open", async () => {
  const shown = await show("questionnaire");
  submit().click();
  expect(place.querySelectorAll("[role=alert]:not(:empty)").length).toBe(3);
  expect(document.activeElement?.id).toBe("q-age");
  find<HTMLInputElement>("#q-age").value = "many";
  submit().click();
  expect(place.textContent).toContain("Please give a number.");
  find<HTMLInputElement>("#q-age").value = "41,5";
  find<HTMLInputElement>('input[value="A little"]').click();
  find<HTMLSelectElement>("#q-device").value = "Earbuds";
  submit().click();
  await settle();
  expect(shown.given).toEqual({
    kind: "questionnaire",
    answers: { age: 41.5, ears: "A little", device: "Earbuds" },
  });
  expect(shown.fits()).toEqual([]);
});

test("done: code, copy and a link that is a web address", async () => {
  await show("done");
  expect(find(".code").textContent).toBe("SV-7K2M-Q9");
  expect(find<HTMLAnchorElement>("a").href).toBe("https://app.prolific.com/submissions/complete?cc=SV7K2MQ9");
  await show("done", { link: "javascript:alert(1)", code: null });
  expect(place.querySelector('a:not([href="?new=1"]), .code')).toBeNull();
});

test("done: another listener may begin, unless a recruiting site sent this one", async () => {
  const another = () => place.querySelector('a[href="?new=1"]')?.textContent;
  try {
    window.history.replaceState(null, "", "/?tap=1#s=tok");
    await show("done");
    expect(another()).toBe("Another listener");
    window.history.replaceState(null, "", "/?PROLIFIC_PID=p7#s=tok");
    await show("done");
    expect(another()).toBeUndefined();
  } finally {
    window.history.replaceState(null, "", "/");
  }
});

test("letters and digits can be switched off; Space and Enter stay", async () => {
  shortcuts = false;
  const shown = await show("attention");
  await hear(" ");
  await press("a");
  expect(submit().disabled).toBe(true);
  find<HTMLInputElement>('input[value="winter"]').click();
  await press("Enter");
  expect(shown.given).toEqual({ kind: "attention", choice: "winter" });
});

test("keys with a modifier, and keys typed into a field, are left alone", async () => {
  const shown = await show("consent");
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "y", ctrlKey: true, bubbles: true }));
  await settle();
  expect(shown.given).toBeNull();
  const form = await show("questionnaire");
  find("#q-remarks").focus();
  await press("Enter");
  expect(form.given).toBeNull();
});

test("an answer is given once", async () => {
  const shown = await show("consent");
  const [yes, no] = [submit(), find("[data-decline]")];
  yes.click();
  no.click();
  await settle();
  expect(shown.given).toEqual({ kind: "consent", agreed: true });
  expect(find(".screen").inert).toBe(true);
});

test("every control has a name", async () => {
  for (const { kind } of examples) {
    await show(kind as Kind);
    for (const input of place.querySelectorAll("input, select")) {
      const label =
        input.getAttribute("aria-label") ?? (input as HTMLInputElement).labels?.[0]?.textContent ?? "";
      expect(label.trim(), `${kind} ${input.outerHTML}`).not.toBe("");
    }
    for (const button of place.querySelectorAll("button, a")) {
      expect((button.getAttribute("aria-label") ?? button.textContent)!.trim(), kind).not.toBe("");
    }
    expect(place.querySelectorAll("h1").length, kind).toBe(1);
  }
});
