/** The whole page, jsPsych included, against a server in memory. */
import { expect, test, vi } from "vitest";
import { fakeServer, fakeSound, finishSound, wavFile } from "./fakes";
import html from "../index.html?raw";
import { faults } from "./schema";
import screens from "./screens.json";

test("a session runs from consent to the end, with feedback after a teaching trial", async () => {
  const body = /<body>([^]*)<\/body>/.exec(html)![1]!;
  document.body.innerHTML = body;
  fakeSound();
  vi.spyOn(window, "scrollTo").mockImplementation(() => undefined);
  const course = ["consent", "naming", "done"].map((kind) => screens.find((screen) => screen.kind === kind)!);
  let at = 0;
  const asked = fakeServer(({ path, method }) => {
    if (path.startsWith("/api/audio/")) return { body: wavFile([1, 2, 3]) };
    if (method === "GET") throw new Error("nothing else is asked for");
    if (path === "/api/sessions")
      return { status: 201, body: { token: "t1", title: "A study", screen: course[0] } };
    at++;
    return {
      body: {
        screen: course[at],
        feedback: at === 2 ? { right: false, text: "Not quite: the answer is up." } : null,
      },
    };
  });
  const there = (text: string) => vi.waitFor(() => expect(document.body.textContent).toContain(text));
  const press = (key: string) =>
    document.activeElement!.dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }),
    );

  await import("../src/main");
  await there("I agree");
  expect(document.title).toBe("A study");
  press("y");
  await there("Which word do you hear?");
  press(" ");
  await finishSound();
  press("c");
  press("4");
  press("Enter");
  await there("Not quite: the answer is up.");
  press("Enter");
  await there("SV-7K2M-Q9");
  expect(document.querySelector("progress")!.value).toBe(1);

  const answers = asked
    .filter((one) => one.path.endsWith("/answers"))
    .map((one) => one.body as { given: unknown });
  expect(answers.map((answer) => answer.given)).toEqual([
    { kind: "consent", agreed: true },
    { kind: "naming", choice: "up", naturalness: 4 },
  ]);
  answers.forEach((answer) => expect(faults("Answer", answer)).toEqual([]));
});
