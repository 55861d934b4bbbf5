/** Where sound goes: the browser's output, run at the rate of the clips so that nothing is resampled. */

export interface Output {
  readonly context: AudioContext;
  /** All sound passes through here, unchanged. */
  readonly node: AudioNode;
}

declare global {
  interface Window {
    /**
     * With `?tap=1` in the address: the output now in use, for tests that capture what is played. A test
     * connects `node` to an AudioWorkletNode of its own; nothing else of the page changes.
     */
    __sottovoceTap?: Output;
  }
}

export class NoAudio extends Error {}

let current: (Output & { asked_hz: number }) | null = null;

/** The output for clips of a rate. One at a time: browsers allow few contexts, and an old one is closed. */
export function openOutput(rate_hz: number): Output {
  if (current !== null && current.asked_hz === rate_hz) return current;
  void current?.context.close();
  const context = openContext(rate_hz);
  const node = context.createGain();
  node.connect(context.destination);
  current = { context, node, asked_hz: rate_hz };
  if (new URLSearchParams(window.location.search).get("tap") === "1")
    window.__sottovoceTap = { context, node };
  return current;
}

function openContext(rate_hz: number): AudioContext {
  if (typeof AudioContext === "undefined") throw new NoAudio();
  try {
    return new AudioContext({ sampleRate: rate_hz });
  } catch (error) {
    // A rate outside of the browser's range: it resamples to that of the device.
    console.warn(`No output at ${rate_hz} Hz; the browser resamples.`, error);
    return new AudioContext();
  }
}

/** Lets sound out; browsers do not before the first click or key press. False where it is still held back. */
export async function unlock(output: Output, patience_ms = 400): Promise<boolean> {
  if (output.context.state === "running") return true;
  if (navigator.userActivation?.hasBeenActive === false) return false;
  const waited = new Promise<void>((resolve) => setTimeout(resolve, patience_ms));
  await Promise.race([output.context.resume().catch(() => undefined), waited]);
  return (output.context.state as AudioContextState) === "running";
}
