import { NotGiven, Refused, SessionGone, type Api } from "./api";
import { persist, type Teller } from "./patience";
import type { Answer, Joined, Next } from "./protocol";
import type { Store } from "./store";

const SESSION = "sottovoce.session";
const PENDING = "sottovoce.pending";
const JOINING = "sottovoce.joining";
/** Parameters of the address that are for the page and not from a recruiting site. */
const OWN = ["tap", "new"];

interface Kept {
  token: string;
  title: string;
  arrived_with: Record<string, string>;
}

interface Pending {
  token: string;
  answer: Answer;
}

interface Joining {
  token: string;
  arrived_with: Record<string, string>;
}

/**
 * One listener's way through the study. The token is kept in the address's fragment, which is not sent to
 * servers, and in the browser; an answer is kept in the browser until the server has it.
 */
export class Session {
  readonly token: string;
  title: string;
  private readonly api: Api;
  private readonly store: Store;
  private readonly teller: Teller;

  private constructor(api: Api, store: Store, teller: Teller, kept: Kept) {
    this.api = api;
    this.store = store;
    this.teller = teller;
    this.token = kept.token;
    this.title = kept.title;
    store.write(SESSION, kept);
    showToken(kept.token);
  }

  /** Comes back to the session of this address or browser, or begins one. */
  static async open(api: Api, store: Store, teller: Teller): Promise<{ session: Session; next: Next }> {
    const arrived_with = arrivedWith(window.location.search);
    const kept = findKept(store, arrived_with);
    if (kept !== null) {
      const session = new Session(api, store, teller, kept.kept);
      try {
        const next = await session.catchUp();
        if (session.title === "") await session.current();
        return { session, next };
      } catch (error) {
        // A token that the address names is the listener's business; one left over in the browser is not.
        if (!(error instanceof SessionGone) || kept.named) throw error;
      }
    }
    return Session.begin(api, store, teller);
  }

  /**
   * Begins a new session. Its token is made here and kept until the server has answered: whoever asks again
   * after a lost reply, even in a new tab, gets the same session and not a second one.
   */
  static async begin(api: Api, store: Store, teller: Teller): Promise<{ session: Session; next: Next }> {
    const arrived_with = arrivedWith(window.location.search);
    const joining = findJoining(store, arrived_with);
    let joined: Joined;
    try {
      joined = await persist(() => api.join(joining), "page", teller);
    } catch (error) {
      store.remove(JOINING);
      // The token that was kept has been used up, for another version of the study or too long ago.
      if (error instanceof SessionGone) return Session.begin(api, store, teller);
      throw error;
    }
    store.remove(JOINING);
    store.remove(PENDING);
    const session = new Session(api, store, teller, {
      token: joined.token,
      title: joined.title,
      arrived_with,
    });
    return { session, next: { screen: joined.screen, feedback: null } };
  }

  /** Sends an answer, however long it takes, and gives what comes next. */
  async send(answer: Answer): Promise<Next> {
    this.store.write(PENDING, { token: this.token, answer } satisfies Pending);
    try {
      const next = await persist(() => this.api.answer(this.token, answer), "answer", this.teller);
      this.store.remove(PENDING);
      return next;
    } catch (error) {
      if (error instanceof NotGiven || error instanceof Refused || error instanceof SessionGone) {
        this.store.remove(PENDING);
      }
      if (error instanceof NotGiven) return this.current();
      throw error;
    }
  }

  audio(name: string): Promise<ArrayBuffer> {
    return persist(() => this.api.audio(this.token, name), "page", this.teller);
  }

  private async current(): Promise<Next> {
    const standing = await persist(() => this.api.screen(this.token), "page", this.teller);
    this.title = standing.title;
    return standing;
  }

  /** An answer that was on its way when the tab closed is sent first. */
  private catchUp(): Promise<Next> {
    const pending = this.store.read<Pending>(PENDING);
    return pending?.token === this.token ? this.send(pending.answer) : this.current();
  }
}

/** What a recruiting site put in the address, as far as the server takes it. */
export function arrivedWith(search: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(search)) {
    if (OWN.includes(name)) continue;
    if (/^[A-Za-z0-9_-]{1,64}$/.test(name) && value.length <= 200 && Object.keys(found).length < 20) {
      found[name] = value;
    } else {
      console.warn(`The address's parameter ${name} is left out: not a plain name, or too long.`);
    }
  }
  return found;
}

function findKept(store: Store, arrived_with: Record<string, string>): { kept: Kept; named: boolean } | null {
  if (new URLSearchParams(window.location.search).has("new")) return null;
  const kept = store.read<Kept>(SESSION);
  const named = /^#s=([A-Za-z0-9_-]{1,64})$/.exec(window.location.hash)?.[1];
  if (named !== undefined) {
    const title = kept?.token === named ? kept.title : "";
    return { kept: { token: named, title, arrived_with }, named: true };
  }
  // Another listener at the same machine comes with other parameters, and gets a session of their own.
  return kept !== null && sameEntries(kept.arrived_with, arrived_with) ? { kept, named: false } : null;
}

function findJoining(store: Store, arrived_with: Record<string, string>): Joining {
  const kept = store.read<Joining>(JOINING);
  if (kept !== null && sameEntries(kept.arrived_with, arrived_with)) return kept;
  const joining = { token: makeToken(), arrived_with };
  store.write(JOINING, joining);
  return joining;
}

/** 256 random bits in base64url. */
function makeToken(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function sameEntries(a: Record<string, string>, b: Record<string, string>): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

function showToken(token: string): void {
  const address = new URL(window.location.href);
  address.searchParams.delete("new");
  address.hash = `s=${token}`;
  window.history.replaceState(null, "", address);
}
