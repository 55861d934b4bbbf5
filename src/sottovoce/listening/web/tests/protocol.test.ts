import { expect, test } from "vitest";
import type { Screen } from "../src/messages";
import written from "../src/protocol.ts?raw";
import { shows } from "../src/screens";
import { faults } from "./schema";
import screens from "./screens.json";
// @ts-expect-error: a script without types
import { types } from "../types.mjs";

test("the page's types are those of the protocol", async () => {
  expect(written).toBe(await types());
});

test("every kind of screen is shown, and has an example that fits the protocol", () => {
  expect(new Set(screens.map((screen) => screen.kind))).toEqual(new Set(Object.keys(shows)));
  for (const screen of screens as unknown as Screen[])
    expect(faults("Next", { screen, feedback: null })).toEqual([]);
});

test("the schema refuses what does not fit", () => {
  expect(
    faults("Answer", { screen: "s", given: { kind: "abx", choice: "c", confidence: "low" } }),
  ).not.toEqual([]);
  expect(
    faults("Answer", { screen: "s", given: { kind: "mushra", ratings: { "1": 101, "2": 3 } } }),
  ).not.toEqual([]);
});
