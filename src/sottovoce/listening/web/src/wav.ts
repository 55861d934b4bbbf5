/** What a WAV file holds: one array of samples for each channel, each exactly its 16-bit integer / 32768. */
export interface Wav {
  rate_hz: number;
  channels: Float32Array<ArrayBuffer>[];
}

export class WavError extends Error {}

const PCM = 1;
const EXTENSIBLE = 0xfffe;

/**
 * Reads a PCM-16 WAV file. The browser's own decoder is left out, since it may resample or dither;
 * here a sample that is played is a sample of the file.
 */
export function readWav(file: ArrayBuffer): Wav {
  const view = new DataView(file);
  if (view.byteLength < 12 || tag(view, 0) !== "RIFF" || tag(view, 8) !== "WAVE") {
    throw new WavError("expected a WAV file, got something else");
  }
  const chunks = findChunks(view);
  const format = chunks.get("fmt ");
  const data = chunks.get("data");
  if (format === undefined || format.size < 16 || data === undefined) {
    throw new WavError("expected a WAV file with fmt and data chunks, got one without");
  }
  const { rate_hz, count } = readFormat(view, format);
  return { rate_hz, channels: readSamples(view, data, count) };
}

interface Chunk {
  start: number;
  size: number;
}

function tag(view: DataView, at: number): string {
  return String.fromCharCode(...[0, 1, 2, 3].map((i) => view.getUint8(at + i)));
}

function findChunks(view: DataView): Map<string, Chunk> {
  const found = new Map<string, Chunk>();
  for (let at = 12; at + 8 <= view.byteLength;) {
    const start = at + 8;
    // A writer that streams leaves the size open; what is there is what counts.
    const size = Math.min(view.getUint32(at + 4, true), view.byteLength - start);
    found.set(tag(view, at), { start, size });
    at = start + size + (size % 2);
  }
  return found;
}

function readFormat(view: DataView, chunk: Chunk): { rate_hz: number; count: number } {
  let code = view.getUint16(chunk.start, true);
  if (code === EXTENSIBLE && chunk.size >= 26) code = view.getUint16(chunk.start + 24, true);
  const count = view.getUint16(chunk.start + 2, true);
  const rate_hz = view.getUint32(chunk.start + 4, true);
  const bits = view.getUint16(chunk.start + 14, true);
  if (code !== PCM || bits !== 16 || count < 1 || rate_hz < 1) {
    throw new WavError(`expected 16-bit PCM, got format ${code} of ${bits} bits and ${count} channels`);
  }
  return { rate_hz, count };
}

function readSamples(view: DataView, data: Chunk, count: number): Float32Array<ArrayBuffer>[] {
  const length = Math.floor(data.size / 2 / count);
  return Array.from({ length: count }, (_, channel) => {
    const samples = new Float32Array(length);
    for (let i = 0; i < length; i++) {
      samples[i] = view.getInt16(data.start + 2 * (i * count + channel), true) / 32768;
    }
    return samples;
  });
}
