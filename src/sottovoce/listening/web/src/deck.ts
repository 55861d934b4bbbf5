import { openOutput, unlock, type Output } from "./output";
import { readWav, type Wav } from "./wav";

/** Long enough that a switch does not click, short enough that it feels instant. */
export const FADE_SECONDS = 0.005;
const LOOK_MS = 40;

interface Span {
  label: string;
  begin_seconds: number;
  end_seconds: number;
}

interface Voice {
  source: AudioBufferSourceNode;
  fader: GainNode;
  ticker: ReturnType<typeof setInterval>;
}

/** The clips of one screen, loaded and ready. Counts what is played and what was heard to its end. */
export class Deck {
  readonly plays: Record<string, number> = {};
  readonly heard = new Set<string>();
  /** The label that sounds now. */
  now: string | null = null;
  /** Called when anything above changes. */
  watch: () => void = () => undefined;
  private voice: Voice | null = null;
  /** Counts starts and stops: what was overtaken while it waited for the browser does not start. */
  private turn = 0;
  private readonly clips: ReadonlyMap<string, Wav>;
  private readonly rate_hz: number;

  constructor(clips: ReadonlyMap<string, Wav>) {
    this.clips = clips;
    const rates = new Set([...clips.values()].map((clip) => clip.rate_hz));
    if (rates.size > 1)
      console.warn(`Clips of ${[...rates].join(", ")} Hz on one screen; the browser resamples.`);
    this.rate_hz = [...rates][0] ?? 0;
    if (rates.size > 0) openOutput(this.rate_hz);
    for (const label of clips.keys()) this.plays[label] = 0;
  }

  get output(): Output {
    return openOutput(this.rate_hz);
  }

  get labels(): string[] {
    return [...this.clips.keys()];
  }

  get playing(): boolean {
    return this.voice !== null;
  }

  wav(label: string): Wav {
    const clip = this.clips.get(label);
    if (clip === undefined) throw new Error(`no clip ${label}`);
    return clip;
  }

  /**
   * Plays clips after each other, as one buffer: no scheduling lies between them. False where the browser
   * holds sound back until a click.
   */
  async play(labels: readonly string[], gap_seconds = 0): Promise<boolean> {
    this.stop();
    const turn = this.turn;
    if (!(await unlock(this.output))) return false;
    if (turn !== this.turn) return true;
    const { wav, spans } = join(
      labels.map((label) => [label, this.wav(label)] as const),
      gap_seconds,
    );
    const source = this.start(wav);
    const begun = this.output.context.currentTime;
    const waiting = [...spans];
    const look = (at_seconds: number) => {
      while (waiting[0] !== undefined && at_seconds >= waiting[0].begin_seconds)
        this.begin(waiting.shift()!.label);
      for (const span of spans) if (at_seconds >= span.end_seconds) this.heard.add(span.label);
      this.watch();
    };
    const ticker = setInterval(() => look(this.output.context.currentTime - begun), LOOK_MS);
    this.voice = { ...source, ticker };
    source.source.onended = () => {
      if (this.voice?.source !== source.source) return;
      look(Infinity);
      this.finish();
    };
    look(0);
    return true;
  }

  /** Plays one clip over and over. */
  async loop(label: string): Promise<boolean> {
    this.stop();
    const turn = this.turn;
    if (!(await unlock(this.output))) return false;
    if (turn !== this.turn) return true;
    const source = this.start(this.wav(label), true);
    this.voice = { ...source, ticker: setInterval(() => undefined, 60_000) };
    this.begin(label);
    this.heard.add(label);
    this.watch();
    return true;
  }

  stop(): void {
    this.turn++;
    if (this.voice === null) return;
    const { source, fader } = this.voice;
    const end = this.output.context.currentTime + FADE_SECONDS;
    ramp(fader.gain, 0, this.output.context.currentTime);
    source.stop(end);
    this.finish();
  }

  /** Notes that a clip sounds from now on. */
  begin(label: string): void {
    this.now = label;
    this.plays[label] = (this.plays[label] ?? 0) + 1;
  }

  private start(wav: Wav, loop = false): { source: AudioBufferSourceNode; fader: GainNode } {
    const { context, node } = this.output;
    const source = context.createBufferSource();
    const fader = context.createGain();
    source.buffer = toBuffer(context, wav);
    source.loop = loop;
    source.connect(fader).connect(node);
    source.start();
    return { source, fader };
  }

  private finish(): void {
    if (this.voice !== null) clearInterval(this.voice.ticker);
    this.voice = null;
    this.now = null;
    this.watch();
  }
}

/** Clips one after the other with silence between them, and when each begins and ends. */
function join(clips: readonly (readonly [string, Wav])[], gap_seconds: number): { wav: Wav; spans: Span[] } {
  const rate_hz = clips[0]![1].rate_hz;
  const count = Math.max(...clips.map(([, wav]) => wav.channels.length));
  const gap = Math.round(gap_seconds * rate_hz);
  const total = clips.reduce((sum, [, wav]) => sum + wav.channels[0]!.length, gap * (clips.length - 1));
  const channels = Array.from({ length: count }, () => new Float32Array(total));
  const spans: Span[] = [];
  let at = 0;
  for (const [label, wav] of clips) {
    const length = wav.channels[0]!.length;
    channels.forEach((into, i) => into.set(wav.channels[i] ?? wav.channels[0]!, at));
    spans.push({ label, begin_seconds: at / rate_hz, end_seconds: (at + length) / rate_hz });
    at += length + gap;
  }
  return { wav: { rate_hz, channels }, spans };
}

export function toBuffer(context: BaseAudioContext, wav: Wav): AudioBuffer {
  const buffer = context.createBuffer(wav.channels.length, Math.max(1, wav.channels[0]!.length), wav.rate_hz);
  wav.channels.forEach((samples, i) => buffer.copyToChannel(samples, i));
  return buffer;
}

/** Takes a gain to a value within FADE_SECONDS, from wherever it is. */
export function ramp(gain: AudioParam, value: number, now: number): void {
  gain.cancelScheduledValues(now);
  gain.setValueAtTime(gain.value, now);
  gain.linearRampToValueAtTime(value, now + FADE_SECONDS);
}

/** Fetches the clips of a screen. tell: how much of them is there, from 0 to 1. */
export async function loadDeck(
  slots: readonly { label: string; audio: string }[],
  fetchAudio: (name: string) => Promise<ArrayBuffer>,
  tell: (part: number) => void,
): Promise<Deck> {
  let there = 0;
  tell(0);
  const clips = await Promise.all(
    slots.map(async ({ label, audio }) => {
      const wav = readWav(await fetchAudio(audio));
      tell(++there / slots.length);
      return [label, wav] as const;
    }),
  );
  return new Deck(new Map(clips));
}
