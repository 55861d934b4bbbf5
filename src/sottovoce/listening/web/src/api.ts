import type { Answer, Join, Joined, Next, Standing } from "./protocol";

/** The server cannot answer now and may later: no network, too busy, its database away. */
export class TryLater extends Error {
  readonly after_seconds: number | null;
  constructor(message: string, after_seconds: number | null = null) {
    super(message);
    this.after_seconds = after_seconds;
  }
}

/** The server does not know the session, or has closed it. */
export class SessionGone extends Error {}

/** The answer belongs to a screen that is not the one given out: another tab was faster. */
export class NotGiven extends Error {}

/** The server will not take this, now or later. */
export class Refused extends Error {}

const PATIENCE_MS = 20_000;

export class Api {
  private readonly base: string;

  constructor(base: string) {
    this.base = base;
  }

  join(join: Join): Promise<Joined> {
    return this.json("api/sessions", { method: "POST", body: JSON.stringify(join) });
  }

  screen(token: string): Promise<Standing> {
    return this.json(`api/sessions/${encodeURIComponent(token)}/screen`, {});
  }

  answer(token: string, answer: Answer): Promise<Next> {
    const path = `api/sessions/${encodeURIComponent(token)}/answers`;
    return this.json(path, { method: "POST", body: JSON.stringify(answer) });
  }

  async audio(token: string, name: string): Promise<ArrayBuffer> {
    const headers = { Authorization: `Bearer ${token}` };
    const response = await this.ask(`api/audio/${encodeURIComponent(name)}`, { headers });
    return duringTransfer(response.arrayBuffer());
  }

  private async json<T>(path: string, init: RequestInit): Promise<T> {
    const headers = { "Content-Type": "application/json" };
    const response = await this.ask(path, { ...init, headers });
    return (await duringTransfer(response.json())) as T;
  }

  private async ask(path: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(new URL(path, this.base), {
        ...init,
        cache: "no-store",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
    } catch (error) {
      throw new TryLater(String(error));
    }
    if (!response.ok) throw await problem(response);
    return response;
  }
}

/** A body that breaks off is a matter of the network too. */
async function duringTransfer<T>(body: Promise<T>): Promise<T> {
  try {
    return await body;
  } catch (error) {
    throw new TryLater(String(error));
  }
}

async function problem(response: Response): Promise<Error> {
  const { code, detail } = await readProblem(response);
  const said = typeof detail === "string" ? detail : JSON.stringify(detail);
  if (response.status === 409 && code === "not-given") return new NotGiven(said);
  if (code === "unknown-session" || response.status === 410) return new SessionGone(said);
  if (code === "try-again" || [408, 425, 429].includes(response.status) || response.status >= 500) {
    const after = Number(response.headers.get("Retry-After") ?? NaN);
    return new TryLater(said, Number.isFinite(after) ? after : null);
  }
  return new Refused(said);
}

async function readProblem(response: Response): Promise<{ code: string; detail: unknown }> {
  try {
    const body = (await response.json()) as { code?: unknown; detail?: unknown } | null;
    return { code: String(body?.code ?? ""), detail: body?.detail ?? response.statusText };
  } catch {
    return { code: "", detail: response.statusText };
  }
}
