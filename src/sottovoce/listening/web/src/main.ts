import { Api, SessionGone } from "./api";
import { h } from "./dom";
import { Frame } from "./frame";
import { NoAudio } from "./output";
import { runSession, UnknownScreen } from "./plugins";
import { Session } from "./session";
import { Store } from "./store";
import "./style.css";
import { texts } from "./texts";

const api = new Api(document.baseURI);
const store = new Store();
const frame = new Frame(store);

async function go(opening: typeof Session.open): Promise<void> {
  frame.stage.replaceChildren(h("p", { class: "loading" }, texts.joining));
  try {
    const { session, next } = await opening(api, store, frame);
    frame.setTitle(session.title);
    frame.stage.replaceChildren();
    await runSession(session, next, frame);
  } catch (error) {
    console.error(error);
    explain(error);
  }
}

function explain(error: unknown): void {
  const { trouble } = texts;
  const reload = { text: trouble.reload, run: () => window.location.reload() };
  if (error instanceof SessionGone) {
    frame.fail(trouble.goneTitle, trouble.gone, {
      text: trouble.startAgain,
      run: () => void go(Session.begin),
    });
  } else if (error instanceof NoAudio) {
    frame.fail(trouble.noAudioTitle, trouble.noAudio);
  } else if (error instanceof UnknownScreen) {
    frame.fail(trouble.refusedTitle, trouble.unknownScreen, reload);
  } else {
    frame.fail(trouble.refusedTitle, error instanceof Error ? error.message : String(error), reload);
  }
}

void go(Session.open);
