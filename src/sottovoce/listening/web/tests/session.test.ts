import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api, Refused, SessionGone } from "../src/api";
import type { Teller } from "../src/patience";
import { arrivedWith, Session } from "../src/session";
import { Store } from "../src/store";
import { fakeServer, type Asked } from "./fakes";
import { faults } from "./schema";

const first = { kind: "notice", id: "n1", progress: 0, title: "Hello", text: "", rest_seconds: 0 } as const;
const second = { ...first, id: "n2", progress: 0.5 };
const answer = { screen: "n1", given: { kind: "notice" }, seconds: 1, plays: {} } as const;
const teller: Teller = { waiting: vi.fn(), back: vi.fn() };
const api = new Api("http://study.test/");
const gone = { status: 404, body: { code: "unknown-session", detail: "no such session" } };
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
const open = () => Session.open(api, new Store(), teller);

beforeEach(() => {
  localStorage.clear();
  window.history.replaceState(null, "", "/");
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.clearAllMocks();
});

function server(
  answers: (asked: Asked) => ReturnType<Parameters<typeof fakeServer>[0]> | undefined = () => undefined,
) {
  return fakeServer((asked) => {
    const special = answers(asked);
    if (special !== undefined) return special;
    if (asked.path === "/api/sessions")
      return { status: 201, body: { token: "tok", title: "A study", screen: first } };
    const title = asked.path.endsWith("/screen") ? { title: "A study" } : {};
    return { body: { screen: asked.path.endsWith("/answers") ? second : first, feedback: null, ...title } };
  });
}

test("a listener joins with what the recruiting site said", async () => {
  window.history.replaceState(null, "", "/?PROLIFIC_PID=p7&workerId=w&tap=1");
  const asked = server();
  const { session, next } = await open();
  expect(asked).toEqual([
    {
      method: "POST",
      path: "/api/sessions",
      body: { arrived_with: { PROLIFIC_PID: "p7", workerId: "w" }, token: expect.stringMatching(TOKEN) },
      authorization: null,
    },
  ]);
  expect(faults("Join", asked[0]!.body)).toEqual([]);
  expect(session.title).toBe("A study");
  expect(next.screen).toEqual(first);
  expect(window.location.href).toMatch(/\/\?PROLIFIC_PID=p7&workerId=w&tap=1#s=tok$/);
});

test("parameters that the server would refuse are left out", () => {
  vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const long = "x".repeat(201);
  expect(arrivedWith(`?hitId=h&a%20b=1&long=${long}&new=1&empty=`)).toEqual({ hitId: "h", empty: "" });
});

test("a closed tab comes back to the same session, by the browser's memory", async () => {
  server();
  await open();
  window.history.replaceState(null, "", "/");
  const asked = server();
  const { session } = await open();
  expect(asked.map((one) => one.path)).toEqual(["/api/sessions/tok/screen"]);
  expect(session.title).toBe("A study");
});

test("an address with a token comes back to the same session in any browser", async () => {
  window.history.replaceState(null, "", "/#s=other");
  const asked = server();
  const { session } = await open();
  expect(asked.map((one) => one.path)).toEqual(["/api/sessions/other/screen"]);
  expect(session.title).toBe("A study");
});

test("a reply that was lost is asked for again with the same token, in a new tab too", async () => {
  const asked = server(() => new TypeError("offline"));
  const closed = open();
  await vi.advanceTimersByTimeAsync(5000);
  expect(asked.length).toBeGreaterThan(2);
  const again = server();
  await open();
  window.dispatchEvent(new Event("online"));
  await closed;
  const tokens = [...asked, ...again].map((one) => (one.body as { token: string }).token);
  expect(tokens[0]).toMatch(TOKEN);
  expect(new Set(tokens).size).toBe(1);
  expect(localStorage.getItem("sottovoce.joining")).toBeNull();
});

test("every session has a token of its own", async () => {
  const tokens = new Set<string>();
  for (const listener of ["one", "two", "three"]) {
    window.history.replaceState(null, "", `/?PROLIFIC_PID=${listener}`);
    const asked = server();
    await open();
    tokens.add((asked[0]!.body as { token: string }).token);
  }
  expect(tokens.size).toBe(3);
});

test("a token that was used up gives way to another", async () => {
  server(() => new TypeError("offline"));
  const opening = open();
  await vi.advanceTimersByTimeAsync(0);
  const answers = [gone];
  const asked = server(() => answers.shift());
  window.dispatchEvent(new Event("online"));
  await opening;
  const tokens = asked.map((one) => (one.body as { token: string }).token);
  expect(new Set(tokens).size).toBe(2);
  expect(tokens.length).toBe(2);
});

test("another listener at the same machine gets a session of their own", async () => {
  window.history.replaceState(null, "", "/?PROLIFIC_PID=one");
  server();
  await open();
  window.history.replaceState(null, "", "/?PROLIFIC_PID=two");
  const asked = server();
  await open();
  expect(asked.map((one) => one.path)).toEqual(["/api/sessions"]);
});

test("?new begins a session, once", async () => {
  server();
  await open();
  window.history.replaceState(null, "", "/?new=1");
  const asked = server();
  await open();
  expect(asked.map((one) => one.path)).toEqual(["/api/sessions"]);
  expect(window.location.search).toBe("");
});

test("a token left over from another study is forgotten; one in the address is reported", async () => {
  server();
  await open();
  window.history.replaceState(null, "", "/");
  const asked = server(({ path }) => (path.endsWith("/screen") ? gone : undefined));
  await open();
  expect(asked.map((one) => one.path)).toEqual(["/api/sessions/tok/screen", "/api/sessions"]);
  await expect(open()).rejects.toThrow(SessionGone);
});

test("an answer that cannot be sent is kept, sent again, and makes one row", async () => {
  const { session } = (server(), await open());
  const rows = new Map<string, unknown>();
  const failures = [
    new TypeError("offline"),
    { status: 503, body: { code: "try-again", detail: "" } },
    { status: 502, body: "" },
  ];
  const asked = server(({ path, body }) => {
    if (!path.endsWith("/answers")) return undefined;
    rows.set((body as typeof answer).screen, body);
    return failures.shift();
  });
  const sending = session.send(answer);
  await vi.advanceTimersByTimeAsync(0);
  expect(JSON.parse(localStorage.getItem("sottovoce.pending")!)).toEqual({ token: "tok", answer });
  expect(teller.waiting).toHaveBeenLastCalledWith("answer", expect.any(Function));
  await vi.advanceTimersByTimeAsync(10_000);
  expect((await sending).screen.id).toBe("n2");
  expect(asked.length).toBe(4);
  expect([...rows]).toEqual([["n1", answer]]);
  expect(faults("Answer", asked[0]!.body)).toEqual([]);
  expect(localStorage.getItem("sottovoce.pending")).toBeNull();
  expect(teller.back).toHaveBeenCalledWith("answer");
});

test("waits double up to half a minute, and end when the network is back", async () => {
  const { session } = (server(), await open());
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  let down = true;
  const asked = server(() => (down ? new TypeError("offline") : undefined));
  const sending = session.send(answer);
  const counts = [];
  for (const seconds of [0, 1, 2, 4, 8, 16, 30, 30]) {
    await vi.advanceTimersByTimeAsync(1000 * seconds);
    counts.push(asked.length);
  }
  expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  down = false;
  window.dispatchEvent(new Event("online"));
  await sending;
  expect(asked.length).toBe(9);
  vi.restoreAllMocks();
});

test("the server says how long to wait", async () => {
  const { session } = (server(), await open());
  const busy = [{ status: 429, body: { code: "slow-down", detail: "" }, headers: { "Retry-After": "7" } }];
  const asked = server(() => busy.shift());
  const sending = session.send(answer);
  await vi.advanceTimersByTimeAsync(6900);
  expect(asked.length).toBe(1);
  await vi.advanceTimersByTimeAsync(200);
  await sending;
  expect(asked.length).toBe(2);
});

test("an answer that was on its way when the tab closed is sent first", async () => {
  const { session } = (server(), await open());
  server(() => new TypeError("offline"));
  void session.send(answer);
  await vi.advanceTimersByTimeAsync(0);
  const asked = server();
  const { next } = await open();
  expect(asked.map((one) => [one.method, one.path])).toEqual([["POST", "/api/sessions/tok/answers"]]);
  expect(asked[0]!.body).toEqual(answer);
  expect(next.screen.id).toBe("n2");
});

test("an answer that another tab was faster with gives way to the screen that is due", async () => {
  const { session } = (server(), await open());
  const late = { status: 409, body: { code: "not-given", detail: "" } };
  const asked = server(({ path }) =>
    path.endsWith("/answers") ? late : { body: { screen: second, feedback: null, title: "A study" } },
  );
  expect((await session.send(answer)).screen.id).toBe("n2");
  expect(asked.map((one) => one.path)).toEqual(["/api/sessions/tok/answers", "/api/sessions/tok/screen"]);
  expect(localStorage.getItem("sottovoce.pending")).toBeNull();
});

test("an answer that is refused is not sent for ever", async () => {
  const { session } = (server(), await open());
  server(() => ({ status: 422, body: { code: "invalid", detail: "choice: expected a or b" } }));
  const error = await session.send(answer).catch((one: unknown) => one);
  expect(error).toBeInstanceOf(Refused);
  expect((error as Error).message).toBe("choice: expected a or b");
  expect(localStorage.getItem("sottovoce.pending")).toBeNull();
});

test("clips are asked for with the session's token", async () => {
  const { session } = (server(), await open());
  const asked = server(() => ({ body: new ArrayBuffer(3) }));
  expect((await session.audio("x1")).byteLength).toBe(3);
  expect(asked).toEqual([{ method: "GET", path: "/api/audio/x1", body: null, authorization: "Bearer tok" }]);
});
