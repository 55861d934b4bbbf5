import { beforeEach, expect, test } from "vitest";
import { Deck } from "../src/deck";
import { cut, Mix } from "../src/mix";
import { FakeContext, fakeSound } from "./fakes";

const ones = (length: number) => ({ rate_hz: 1000, channels: [new Float32Array(length).fill(1)] });

beforeEach(fakeSound);

test("a whole clip is left as it is", () => {
  const wav = ones(100);
  expect(cut(wav, [0, 0.1], 0.1)).toBe(wav);
});

test("ends that were cut are faded over 5 ms, the clip's own are not", () => {
  const part = cut(ones(100), [0.02, 0.1], 0.1).channels[0]!;
  expect(part.length).toBe(80);
  [0, 0.2, 0.4, 0.6, 0.8, 1].forEach((value, i) => expect(part[i]).toBeCloseTo(value, 6));
  expect(part[79]).toBe(1);
});

test("a new region starts over with the clip that is heard, as one play", async () => {
  const deck = new Deck(
    new Map([
      ["A", ones(100)],
      ["B", ones(100)],
    ]),
  );
  const mix = new Mix(deck);
  await mix.hear("B");
  mix.setRegion(0.02, 0.06);
  expect(FakeContext.sources.length).toBe(2);
  expect(FakeContext.sources[0]!.stopped).not.toBeNull();
  expect(FakeContext.sources[1]!.buffer!.channels.map((samples) => samples.length)).toEqual([40, 40]);
  expect(deck.now).toBe("B");
  expect(deck.plays).toEqual({ A: 0, B: 1 });
});

test("the position runs round the region", async () => {
  const deck = new Deck(new Map([["A", ones(100)]]));
  const mix = new Mix(deck);
  mix.setRegion(0.02, 0.06);
  await mix.hear("A");
  const context = deck.output.context as unknown as FakeContext;
  context.currentTime += 0.05;
  expect(mix.position_seconds).toBeCloseTo(0.03, 9);
});

test("silence that is asked for while the browser makes up its mind stays silence", async () => {
  const deck = new Deck(new Map([["A", ones(100)]]));
  const mix = new Mix(deck);
  const hearing = mix.hear("A");
  mix.stop();
  await hearing;
  expect(FakeContext.sources.length).toBe(0);
});
