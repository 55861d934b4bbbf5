import { expect, test } from "vitest";
import { readWav, WavError } from "../src/wav";
import { wavFile } from "./fakes";

test("a sample is its integer over 32768, exactly", () => {
  const { rate_hz, channels } = readWav(wavFile([-32768, -1, 0, 1, 32767], 1, 22050));
  expect(rate_hz).toBe(22050);
  expect(channels.map((samples) => [...samples])).toEqual([[-1, -(2 ** -15), 0, 2 ** -15, 1 - 2 ** -15]]);
});

test("every 16-bit integer comes back", () => {
  const all = Array.from({ length: 65536 }, (_, i) => i - 32768);
  const [samples] = readWav(wavFile(all)).channels;
  expect([...samples!].every((sample, i) => sample * 32768 === i - 32768)).toBe(true);
});

test("channels are taken apart", () => {
  const { channels } = readWav(wavFile([16384, -16384, 8192, -8192], 2));
  expect(channels.map((samples) => [...samples])).toEqual([
    [0.5, 0.25],
    [-0.5, -0.25],
  ]);
});

test("other chunks are passed over, those of odd size too", () => {
  const plain = new Uint8Array(wavFile([16384]));
  const extra = [0x4c, 0x49, 0x53, 0x54, 3, 0, 0, 0, 1, 2, 3, 0];
  const file = Uint8Array.from([...plain.slice(0, 36), ...extra, ...plain.slice(36)]);
  expect([...readWav(file.buffer).channels[0]!]).toEqual([0.5]);
});

test("what is no PCM-16 WAV file is refused in words", () => {
  const eightBit = wavFile([0]);
  new DataView(eightBit).setUint16(34, 8, true);
  expect(() => readWav(eightBit)).toThrow("expected 16-bit PCM, got format 1 of 8 bits and 1 channels");
  expect(() => readWav(new ArrayBuffer(4))).toThrow(WavError);
  expect(() => readWav(wavFile([0]).slice(0, 20))).toThrow("fmt and data");
});
