import { FADE_SECONDS, ramp, toBuffer, type Deck } from "./deck";
import { unlock } from "./output";
import type { Wav } from "./wav";

/**
 * All clips of a screen at once, of which one is heard (ITU-R BS.1534's instant switching).
 *
 * The clips are the channels of a single buffer, so that they cannot drift apart; a switch is a crossfade of
 * gains. A screen has at most 16 clips of 2 channels: the 32 that browsers allow.
 */
export class Mix {
  private source: AudioBufferSourceNode | null = null;
  private gains = new Map<string, GainNode>();
  private begun = 0;
  private turn = 0;
  private region: [number, number];
  private readonly deck: Deck;
  readonly seconds: number;

  constructor(deck: Deck) {
    this.deck = deck;
    this.seconds = Math.max(...deck.labels.map((label) => length(deck.wav(label)) / deck.wav(label).rate_hz));
    this.region = [0, this.seconds];
  }

  get playing(): boolean {
    return this.source !== null;
  }

  get loopRegion(): readonly [number, number] {
    return this.region;
  }

  /** Where in the clips the sound is, in seconds. */
  get position_seconds(): number {
    if (!this.playing) return this.region[0];
    const passed = this.deck.output.context.currentTime - this.begun;
    return this.region[0] + (passed % (this.region[1] - this.region[0]));
  }

  /** Switches to a clip, and starts the sound where there is none. False where the browser holds it back. */
  async hear(label: string): Promise<boolean> {
    const turn = ++this.turn;
    if (!this.playing) {
      if (!(await unlock(this.deck.output))) return false;
      // Another clip was asked for, or silence, while the browser made up its mind.
      if (turn !== this.turn) return true;
      this.start(label);
    }
    const now = this.deck.output.context.currentTime;
    for (const [name, gain] of this.gains) ramp(gain.gain, name === label ? 1 : 0, now);
    if (this.deck.now !== label) this.deck.begin(label);
    this.deck.heard.add(label);
    this.deck.watch();
    return true;
  }

  stop(): void {
    this.turn++;
    if (this.source === null) return;
    const now = this.deck.output.context.currentTime;
    for (const gain of this.gains.values()) ramp(gain.gain, 0, now);
    this.source.stop(now + FADE_SECONDS);
    this.source = null;
    this.gains.clear();
    this.deck.now = null;
    this.deck.watch();
  }

  /** Loops a part of the clips, from the start of that part. */
  setRegion(begin_seconds: number, end_seconds: number): void {
    this.region = [begin_seconds, end_seconds];
    const label = this.deck.now;
    if (!this.playing || label === null) return;
    this.stop();
    this.start(label);
    this.deck.now = label;
    this.deck.watch();
  }

  private start(label: string): void {
    const { context, node } = this.deck.output;
    const parts = this.deck.labels.map((name) => cut(this.deck.wav(name), this.region, this.seconds));
    const longest = Math.max(...parts.map(length));
    const channels = parts.flatMap((part) => part.channels).map((samples) => padded(samples, longest));
    const source = context.createBufferSource();
    source.buffer = toBuffer(context, { rate_hz: parts[0]!.rate_hz, channels });
    source.loop = true;
    const splitter = context.createChannelSplitter(channels.length);
    source.connect(splitter);
    let at = 0;
    this.deck.labels.forEach((name, i) => {
      const gain = context.createGain();
      gain.gain.value = name === label ? 1 : 0;
      const merger = context.createChannelMerger(parts[i]!.channels.length);
      for (let channel = 0; channel < parts[i]!.channels.length; channel++)
        splitter.connect(merger, at++, channel);
      merger.connect(gain).connect(node);
      this.gains.set(name, gain);
    });
    source.start();
    this.source = source;
    this.begun = context.currentTime;
  }
}

function length(wav: Wav): number {
  return wav.channels[0]!.length;
}

function padded(samples: Float32Array<ArrayBuffer>, size: number): Float32Array<ArrayBuffer> {
  if (samples.length === size) return samples;
  const longer = new Float32Array(size);
  longer.set(samples);
  return longer;
}

/** A part of a clip. Ends that were cut out of its middle are faded, so that the loop does not click. */
export function cut(wav: Wav, [begin, end]: readonly [number, number], whole_seconds: number): Wav {
  if (begin <= 0 && end >= whole_seconds) return wav;
  const from = Math.round(begin * wav.rate_hz);
  const to = Math.round(end * wav.rate_hz);
  const fade = Math.min(Math.round(FADE_SECONDS * wav.rate_hz), Math.floor((to - from) / 2));
  const channels = wav.channels.map((samples) => {
    const part = samples.slice(from, to);
    for (let i = 0; i < Math.min(fade, part.length); i++) {
      if (begin > 0) part[i]! *= i / fade;
      if (end < whole_seconds) part[part.length - 1 - i]! *= i / fade;
    }
    return part;
  });
  return { rate_hz: wav.rate_hz, channels };
}
