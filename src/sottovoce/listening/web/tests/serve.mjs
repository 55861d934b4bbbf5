// A stand-in for the server, for looking at the page: one screen of every kind. `npm run build`, then
// `npm run dev` and http://127.0.0.1:8766. `?start=N` begins at screen N. POST /mock/down and /mock/up.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";

const page = new URL("../../page/", import.meta.url);
const screens = JSON.parse(readFileSync(new URL("screens.json", import.meta.url), "utf8"));
const kinds = {
  html: "text/html",
  js: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
  txt: "text/plain",
};
const policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const title = "Small noises in speech";
const sessions = new Map();
let down = false;

/** A clip that is told from others by its samples: pure tones of a pitch that hangs on the name. */
export function wav(name, rate = 16000, seconds = 0.8) {
  const samples = Int16Array.from({ length: rate * seconds }, (_, i) => {
    const pitch = 200 + ((37 * [...name].reduce((sum, one) => sum + one.charCodeAt(0), 0)) % 600);
    return Math.round(6000 * Math.sin((2 * Math.PI * pitch * i) / rate) * Math.min(1, i / 800));
  });
  const head = Buffer.alloc(44);
  head.write("RIFF", 0);
  head.writeUInt32LE(36 + samples.byteLength, 4);
  head.write("WAVEfmt ", 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(rate, 24);
  head.writeUInt32LE(2 * rate, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36);
  head.writeUInt32LE(samples.byteLength, 40);
  return Buffer.concat([head, Buffer.from(samples.buffer)]);
}

function reply(response, status, body, type = "application/json") {
  response.writeHead(status, {
    "Content-Type": type,
    "Content-Security-Policy": policy,
    "Cache-Control": "no-store",
  });
  response.end(Buffer.isBuffer(body) ? body : JSON.stringify(body));
}

async function readBody(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return JSON.parse(text || "{}");
}

function answerOne(session, answer) {
  const known = session.answers.find((one) => one.screen === answer.screen);
  const screen = screens[session.place];
  if (known === undefined && answer.screen !== screen.id) return null;
  let feedback = null;
  if (known === undefined) {
    session.answers.push(answer);
    session.place = Math.min(session.place + 1, screens.length - 1);
    if (screen.teaching)
      feedback = { right: true, text: "The word was “up”. The clip was a plain recording." };
  }
  return { screen: screens[session.place], feedback };
}

async function serve(request, response) {
  const url = new URL(request.url, "http://localhost");
  const [, first, second, third, fourth] = url.pathname.split("/");
  if (first === "mock") {
    if (second === "answers")
      return reply(
        response,
        200,
        [...sessions.values()].map((one) => one.answers),
      );
    down = second === "down";
    return reply(response, 200, {});
  }
  if (first !== "api") {
    const file = first === "" ? "index.html" : first;
    return reply(response, 200, readFileSync(new URL(file, page)), kinds[file.split(".").at(-1)]);
  }
  if (down) return reply(response, 503, { code: "try-again", detail: "the database is down" });
  if (second === "audio") return reply(response, 200, wav(third), "audio/wav");
  if (third === undefined) {
    const { arrived_with, token } = await readBody(request);
    if (!sessions.has(token))
      sessions.set(token, { place: Number(arrived_with?.start ?? 0), answers: [], arrived_with });
    return reply(response, 201, {
      token,
      title,
      screen: screens[sessions.get(token).place],
    });
  }
  const session = sessions.get(third);
  if (session === undefined)
    return reply(response, 404, { code: "unknown-session", detail: "unknown session" });
  if (fourth === "screen")
    return reply(response, 200, { screen: screens[session.place], feedback: null, title });
  const next = answerOne(session, await readBody(request));
  return next === null
    ? reply(response, 409, { code: "not-given", detail: "not given out" })
    : reply(response, 200, next);
}

const port = Number(process.env.PORT ?? 8766);
createServer((request, response) => {
  serve(request, response).catch((error) =>
    reply(response, 404, { code: "not-found", detail: String(error) }),
  );
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}`));
