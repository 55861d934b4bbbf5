import { TryLater } from "./api";

const FIRST_SECONDS = 1;
const LONGEST_SECONDS = 30;

/** What waits: an answer, or something that the page needs to go on. */
export type Matter = "answer" | "page";

/** Told when a request has to wait, and when the server is back. retry: tries at once. */
export interface Teller {
  waiting(matter: Matter, retry: () => void): void;
  back(matter: Matter): void;
}

/**
 * Asks again until the server answers, ever more seldom, and at once when the network is back.
 * The waits are spread at random, so that many listeners do not come back at the same moment.
 */
export async function persist<T>(ask: () => Promise<T>, matter: Matter, teller: Teller): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      const result = await ask();
      if (tries > 0) teller.back(matter);
      return result;
    } catch (error) {
      if (!(error instanceof TryLater)) throw error;
      const backoff = Math.min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** tries) * (0.75 + 0.5 * Math.random());
      await pause(error.after_seconds ?? backoff, (go) => teller.waiting(matter, go));
    }
  }
}

function pause(seconds: number, tell: (go: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const go = () => {
      clearTimeout(timer);
      window.removeEventListener("online", go);
      resolve();
    };
    const timer = setTimeout(go, 1000 * seconds);
    window.addEventListener("online", go);
    tell(go);
  });
}
