"""What is played is what is in the file: an AudioWorklet takes down the samples on their way out.

A 16-bit integer over 32768 has no rounding and gains of one change nothing. But a browser counts time in
seconds: where the second at which a clip starts is no whole sample by 1e-12, it reads between two samples,
and a silent one comes out as 1e-13. So samples count as equal within 1e-10, 200 dB below full scale.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

ROUNDING = 1e-10
TAP = """async () => {
  const { context, node } = window.__sottovoceTap;
  const code = `registerProcessor('recorder', class extends AudioWorkletProcessor {
    constructor() {
      super();
      this.blocks = [];
      this.port.onmessage = () => { this.port.postMessage(this.blocks); this.blocks = []; };
    }
    process([input]) {
      this.blocks.push(input.length ? input.map((channel) => channel.slice()) : [new Float32Array(128)]);
      return true;
    }
  })`;
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
  const recorder = new AudioWorkletNode(context, 'recorder', { numberOfOutputs: 1 });
  node.connect(recorder).connect(context.destination);
  window.recorder = recorder;
}"""
TAKE = """() => new Promise((resolve) => {
  window.recorder.port.onmessage = ({ data }) => {
    const widths = data.map((block) => block.length);
    const all = new Float32Array(128 * data.length);
    data.forEach((block, i) => all.set(block[0], 128 * i));
    const bytes = new Uint8Array(all.buffer);
    let text = '';
    for (const byte of bytes) text += String.fromCharCode(byte);
    resolve([window.__sottovoceTap.context.sampleRate, Math.max(1, ...widths), btoa(text)]);
  };
  window.recorder.port.postMessage('take');
})"""


def take(page: Any) -> tuple[float, np.ndarray]:
    """The rate and the samples that went out since the last time: float32, (time,)."""
    rate, channels, text = page.evaluate(TAKE)
    assert channels == 1, "a clip of one channel goes out as one"
    return rate, np.frombuffer(base64.b64decode(text), dtype=np.float32)


def sounding(heard: np.ndarray) -> np.ndarray:
    """Without the silence before and after."""
    loud = np.flatnonzero(np.abs(heard) > ROUNDING)
    return heard[loud[0] : loud[-1] + 1]


def equal(played: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Where two stretches of sound have the same samples."""
    return np.abs(played - expected) <= ROUNDING


def file_samples(maker: Any, key: str) -> np.ndarray:
    import soundfile

    samples, _ = soundfile.read(maker.folder / "audio" / f"{key}.wav", dtype="int16")
    return (samples / 32768).astype(np.float32)


def recolour(maker: Any, content: dict[str, Any], rate: int) -> dict[str, Any]:
    """The same study with clips at another rate, 0.3 s long."""
    clips = {
        key: clip | maker.clip(key, samples=3 * rate // 10, rate=rate)
        for key, clip in content["clips"].items()
    }
    return {**content, "clips": clips, "volume": False}


@pytest.mark.parametrize("rate", [16000, 24000])
def test_abx_plays_the_files(open_hall: Any, visit: Any, maker: Any, rate: int) -> None:
    hall = open_hall(recolour(maker, maker.content("abx", per_listener=1), rate))
    listener = visit(hall, bypass_csp=True).come("?tap=1")
    listener.until("abx")
    listener.page.evaluate(TAP)
    played = {}
    for label in "ABX":
        take(listener.page)
        listener.hear(label, label.lower())
        rate_out, heard = take(listener.page)
        assert rate_out == rate
        played[label] = sounding(heard)
    listener.finish()
    roles = hall.rows()[-1].roles
    assert (
        set(roles) == {"A", "B", "X"} and roles["A"] != roles["B"] and roles["X"] in (roles["A"], roles["B"])
    )
    for label, key in roles.items():
        expected = sounding(file_samples(maker, key))
        assert len(expected) > 0.29 * rate
        assert played[label].shape == expected.shape, (label, key)
        assert equal(played[label], expected).all(), (label, key)


@pytest.mark.slow
def test_dither_is_played_as_it_came(open_hall: Any, visit: Any, maker: Any) -> None:
    """One step up or down of the file, the same whenever it is fetched, and nothing lost on the way out."""
    hall = open_hall({**maker.content("abx", per_listener=1), "volume": False, "dither": True})
    listener = visit(hall, bypass_csp=True).come("?tap=1")
    listener.until("abx")
    shown = listener.shown()
    sounds = {label: listener.fetch(shown[label.lower()])[0][:, 0].astype(int) for label in "ABX"}
    listener.page.evaluate(TAP)
    for label in "ABX":
        take(listener.page)
        listener.hear(label, label.lower())
        played, expected = sounding(take(listener.page)[1]), sounding(sounds[label] / 32768)
        assert played.shape == expected.shape and equal(played, expected).all()
    listener.finish()
    for label, key in hall.rows()[-1].roles.items():
        apart = sounds[label] - np.rint(32768 * file_samples(maker, key)).astype(int)
        assert set(apart.tolist()) == {-1, 0, 1}


@pytest.mark.slow
def test_a_pair_has_its_gap_to_the_sample(open_hall: Any, visit: Any, maker: Any) -> None:
    """Two clips and 0.2 s between them: 3200 zeros at 16 kHz, neither more nor fewer."""
    block = {"per_listener": 1, "comparisons": 2, "sentinels": 1, "teaching": 1, "gap_seconds": 0.2}
    hall = open_hall({**maker.content("same-different", **block), "volume": False})
    listener = visit(hall, bypass_csp=True).come("?tap=1")
    listener.until("same-different")
    page = listener.page
    shown = listener.shown()
    first, second = (listener.fetch(shown[which])[0][:, 0] / 32768 for which in ("first", "second"))
    page.locator('[data-play="First Second"][data-state=heard]').wait_for()
    page.evaluate(TAP)
    take(page)
    page.keyboard.press("Space")
    page.locator('[data-play="First Second"][data-state=playing]').wait_for()
    page.locator('[data-play="First Second"][data-state=heard]').wait_for()
    rate, heard = take(page)
    played, expected = sounding(heard), sounding(np.concatenate([first, np.zeros(3200), second]))
    assert rate == 16000
    assert played.shape == expected.shape and equal(played, expected).all()


@pytest.mark.slow
def test_mushra_loops_without_a_seam_and_switches_in_place(open_hall: Any, visit: Any, maker: Any) -> None:
    """A loop is the file end to end; another clip goes on at the same sample, 5 ms after the switch."""
    hall = open_hall({**maker.content("mushra", per_listener=1, anchors_hz=[]), "volume": False})
    listener = visit(hall, bypass_csp=True).come("?tap=1")
    listener.until("mushra")
    page = listener.page
    shown = listener.shown()
    sounds = {
        slot["label"]: (listener.fetch(slot)[0][:, 0] / 32768).astype(np.float32)
        for slot in (shown["reference"], *shown["clips"])
    }
    other = next(label for label in "AB" if not np.array_equal(sounds[label], sounds["Reference"]))
    page.evaluate(TAP)
    take(page)
    page.keyboard.press("r")
    page.wait_for_timeout(800)
    page.keyboard.press(other.lower())
    page.wait_for_timeout(800)
    _, heard = take(page)
    heard = heard[np.flatnonzero(np.abs(heard) > ROUNDING)[0] :]
    clip, changed = sounds["Reference"], sounds[other]
    loops = len(heard) // len(clip) + 2
    start = np.flatnonzero(clip)[0]
    steady = np.tile(clip, loops)[start : start + len(heard)]
    switched = np.tile(changed, loops)[start : start + len(heard)]
    same, new = equal(heard, steady), equal(heard, switched)
    leave = int(np.flatnonzero(~same)[0])
    arrive = len(heard) - int(np.flatnonzero(~new[::-1])[0])
    assert leave > 2 * len(clip), "two loops and more went by before the switch"
    assert 0 < arrive - leave <= 0.006 * 16000, "all between is the crossfade of 5 ms"
    assert len(heard) - arrive > len(clip)
