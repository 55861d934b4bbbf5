import { initJsPsych, ParameterType, type JsPsych, type JsPsychPlugin, type TrialType } from "jspsych";
import { Deck, loadDeck } from "./deck";
import { h } from "./dom";
import type { Frame } from "./frame";
import { slotsOf, type Kind, type Screen } from "./messages";
import { perform } from "./perform";
import type { Feedback, Next } from "./protocol";
import { showScreen, shows } from "./screens";
import { showFeedback } from "./screens/reading";
import type { Session } from "./session";
import { texts } from "./texts";

const VERSION = "0.1.0";

/** The server sent a screen of a kind that this page does not have. */
export class UnknownScreen extends Error {}

/**
 * Runs a session in jsPsych, from a first screen to the last. The timeline is not known beforehand: the
 * server's reply to each answer says what comes next, and that is appended.
 */
export async function runSession(session: Session, first: Next, frame: Frame): Promise<void> {
  const timeline: ReturnType<typeof trialsOf>[number][] = [];
  const go = (next: Next) => void timeline.push(...trialsOf(next, plugins));
  const plugins = makePlugins(session, frame, go);
  go(first);
  const jsPsych = initJsPsych({ display_element: frame.stage });
  await jsPsych.run(timeline);
}

type Plugins = ReturnType<typeof makePlugins>;

function trialsOf({ screen, feedback }: Next, plugins: Plugins) {
  const type = plugins.screens[screen.kind];
  if (type === undefined) throw new UnknownScreen(screen.kind);
  return [...(feedback ? [{ type: plugins.feedback, feedback }] : []), { type, screen }];
}

function makePlugins(session: Session, frame: Frame, go: (next: Next) => void) {
  const kinds = Object.keys(shows) as Kind[];
  const screens = Object.fromEntries(kinds.map((kind) => [kind, screenPlugin(kind, session, frame, go)]));
  return {
    screens: screens as Record<Kind, ReturnType<typeof screenPlugin>>,
    feedback: feedbackPlugin(frame),
  };
}

/** A jsPsych plugin for one kind of screen: loads its clips, shows it, and sends the answer. */
function screenPlugin(kind: Kind, session: Session, frame: Frame, go: (next: Next) => void) {
  const info = {
    name: `sottovoce-${kind}`,
    version: VERSION,
    parameters: { screen: { type: ParameterType.OBJECT, default: undefined } },
    data: { answer: { type: ParameterType.OBJECT } },
  } as const;
  return class implements JsPsychPlugin<typeof info> {
    static readonly info = info;
    readonly jsPsych: JsPsych;

    constructor(jsPsych: JsPsych) {
      this.jsPsych = jsPsych;
    }

    async trial(place: HTMLElement, trial: TrialType<typeof info>) {
      const screen = trial.screen as Screen;
      tidy(this.jsPsych);
      frame.setProgress(screen.progress);
      const deck = await load(place, screen, session);
      const { given, seconds } = await perform(place, deck, frame.allowsShortcuts, (stage) =>
        showScreen(screen, stage),
      );
      const answer = { screen: screen.id, given, seconds, plays: deck.plays };
      go(await session.send(answer));
      return { answer };
    }
  };
}

function feedbackPlugin(frame: Frame) {
  const info = {
    name: "sottovoce-feedback",
    version: VERSION,
    parameters: { feedback: { type: ParameterType.OBJECT, default: undefined } },
    data: {},
  } as const;
  return class implements JsPsychPlugin<typeof info> {
    static readonly info = info;
    readonly jsPsych: JsPsych;

    constructor(jsPsych: JsPsych) {
      this.jsPsych = jsPsych;
    }

    async trial(place: HTMLElement, trial: TrialType<typeof info>) {
      const feedback = trial.feedback as Feedback;
      // Nothing is sent: the notice stands for having read it.
      const done = { kind: "notice" } as const;
      await perform(place, new Deck(new Map()), frame.allowsShortcuts, (stage) =>
        showFeedback(feedback, stage, () => stage.submit(done)),
      );
      return {};
    }
  };
}

/** jsPsych makes its place a stop of the Tab key, where there is nothing to do. */
function tidy(jsPsych: JsPsych): void {
  jsPsych.getDisplayContainerElement().removeAttribute("tabindex");
}

async function load(place: HTMLElement, screen: Screen, session: Session): Promise<Deck> {
  const slots = slotsOf(screen);
  if (slots.length === 0) return new Deck(new Map());
  const bar = h("progress", { max: 1, value: 0, "aria-label": texts.loading });
  place.replaceChildren(
    h("div", { class: "screen loading" }, h("p", { role: "status" }, texts.loading), bar),
  );
  return loadDeck(
    slots,
    (name) => session.audio(name),
    (part) => (bar.value = part),
  );
}
