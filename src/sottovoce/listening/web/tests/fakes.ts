/** Stand-ins for what jsdom does not have: sound, and a server. */
import { vi } from "vitest";

class FakeParam {
  value = 1;
  readonly ramps: [number, number][] = [];
  cancelScheduledValues(): void {}
  setValueAtTime(value: number): void {
    this.value = value;
  }
  linearRampToValueAtTime(value: number, at: number): void {
    this.value = value;
    this.ramps.push([value, at]);
  }
}

class FakeNode {
  readonly to: { node: FakeNode; output: number; input: number }[] = [];
  connect(node: FakeNode, output = 0, input = 0): FakeNode {
    this.to.push({ node, output, input });
    return node;
  }
}

export class FakeGain extends FakeNode {
  readonly gain = new FakeParam();
}

export class FakeSource extends FakeNode {
  buffer: { channels: Float32Array[] } | null = null;
  loop = false;
  stopped: number | null = null;
  onended: (() => void) | null = null;
  start(): void {
    FakeContext.sources.push(this);
  }
  stop(at: number): void {
    this.stopped = at;
  }
}

export class FakeContext {
  static sources: FakeSource[] = [];
  static all: FakeContext[] = [];
  state = "suspended";
  currentTime = 0;
  readonly destination = new FakeNode();
  readonly sampleRate: number;
  constructor(options?: { sampleRate: number }) {
    this.sampleRate = options?.sampleRate ?? 48000;
    FakeContext.all.push(this);
  }
  async resume(): Promise<void> {
    this.state = "running";
  }
  async close(): Promise<void> {
    this.state = "closed";
  }
  createGain = () => new FakeGain();
  createBufferSource = () => new FakeSource();
  createChannelSplitter = () => new FakeNode();
  createChannelMerger = () => new FakeNode();
  createBuffer(count: number, length: number) {
    const channels = Array.from({ length: count }, () => new Float32Array(length));
    return { channels, copyToChannel: (samples: Float32Array, i: number) => channels[i]!.set(samples) };
  }
}

export function fakeSound(): void {
  FakeContext.sources = [];
  vi.stubGlobal("AudioContext", FakeContext);
}

/** Lets what is playing come to its end. */
export async function finishSound(): Promise<void> {
  await vi.waitFor(() => {
    if (FakeContext.sources.length === 0) throw new Error("nothing plays");
  });
  FakeContext.sources.splice(0).forEach((source) => source.onended?.());
}

/** A PCM-16 WAV file from interleaved samples. */
export function wavFile(samples: number[], channels = 1, rate_hz = 16000): ArrayBuffer {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at: number, letters: string) =>
    [...letters].forEach((one, i) => view.setUint8(at + i, one.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, channels, true);
  view.setUint32(24, rate_hz, true);
  view.setUint32(28, 2 * channels * rate_hz, true);
  view.setUint16(32, 2 * channels, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, i) => view.setInt16(44 + 2 * i, sample, true));
  return view.buffer as ArrayBuffer;
}

export interface Asked {
  method: string;
  path: string;
  body: unknown;
  authorization: string | null;
}

/** Answers the page's requests with what `reply` says, and notes them. */
export function fakeServer(
  reply: (asked: Asked) => { status?: number; body: unknown; headers?: Record<string, string> } | Error,
) {
  const asked: Asked[] = [];
  const fetch = async (url: URL | string, init: RequestInit = {}): Promise<Response> => {
    const one = {
      method: init.method ?? "GET",
      path: new URL(url).pathname,
      body: init.body === undefined ? null : JSON.parse(String(init.body)),
      authorization: new Headers(init.headers).get("Authorization"),
    };
    asked.push(one);
    const answer = reply(one);
    if (answer instanceof Error) throw answer;
    const body = answer.body instanceof ArrayBuffer ? answer.body : JSON.stringify(answer.body);
    return new Response(body, { status: answer.status ?? 200, headers: answer.headers ?? {} });
  };
  vi.stubGlobal("fetch", fetch);
  return asked;
}
