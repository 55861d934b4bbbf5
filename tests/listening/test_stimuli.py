"""Sounds as the page gets them: bits, lengths, headers, levels, anchors, tones, rendered changes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import freqz

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, StoreError, UnknownName
from sottovoce.listening.session.session_course import SessionCourse
from sottovoce.listening.study.seating import lay_out
from sottovoce.listening.study.stimuli import StimulusStore, prepare
from sottovoce.listening.study.study_file import read_study
from sottovoce.listening.study.test_sounds import lowpass, to_wav, tones
from sottovoce.perception.degradations.perturbation_space import Direction


def shelf_of(maker: Any, content: dict[str, Any], tell: Any = None) -> StimulusStore:
    return prepare(read_study(maker.write(content)), maker.folder / "cache", tell)


def samples_of(wav: bytes) -> np.ndarray:
    """As another reader has them, in 16-bit steps."""
    samples, _ = soundfile.read(io.BytesIO(wav), dtype="int16")
    return samples


def file_of(maker: Any, name: str) -> np.ndarray:
    samples, _ = soundfile.read(maker.folder / "audio" / f"{name}.wav", dtype="int16")
    return samples


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean((samples / 32768.0) ** 2)))


def test_a_wav_by_hand() -> None:
    wav = to_wav(np.array([1, -2], dtype=np.int16), 8000, 3)
    assert wav == (
        b"RIFF\x2a\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00"
        b"\x02\x00\x10\x00data\x06\x00\x00\x00\x01\x00\xfe\xff\x00\x00"
    )
    with pytest.raises(InputError, match="expected at most 1 samples, got 2"):
        to_wav(np.zeros(2, dtype=np.int16), 8000, 1)


def test_as_it_is_means_bit_for_bit_with_silence_at_the_end(maker: Any) -> None:
    content = maker.content("naming")
    maker.clip("w3", samples=5000)
    shelf = shelf_of(maker, content)
    for name in ("w0", "w3", "w4-adv"):
        samples = samples_of(shelf.wav(name))
        own = file_of(maker, name)
        assert len(samples) == 5000
        np.testing.assert_array_equal(samples[: len(own)], own)
        assert not samples[len(own) :].any()
    assert shelf.rate("w0") == 16000
    assert shelf.seconds("w0") == 5000 / 16000


@pytest.mark.parametrize("test", ["naming", "abx", "same-different", "mushra", "preference", "closer"])
def test_all_sounds_of_a_block_have_one_size_and_one_header(maker: Any, test: str) -> None:
    content = maker.content(test)
    if test != "same-different":
        for name in ("w1", "w1-adv"):
            maker.clip(name, samples=4700)
    study = read_study(maker.write(content))
    shelf = prepare(study, maker.folder / "cache")
    keys = {key for seat in range(4) for trial in lay_out(study, seat) for key in trial.roles.values()}
    assert keys
    assert len({len(shelf.wav(key)) for key in keys}) == 1
    assert len({shelf.wav(key)[:44] for key in keys}) == 1


def test_everything_a_session_asks_for_is_on_the_shelf(maker: Any) -> None:
    content = maker.content("same-different") | {"headphones": {}, "volume": True}
    content["attention"] = [{"clip": "w5", "choices": ["tea", "sea"], "answer": "sea"}]
    study = read_study(maker.write(content))
    shelf = prepare(study, maker.folder / "cache")
    course = SessionCourse(study, seat=0)
    steps = [course.next_step([])]
    for planned in course.layout:
        steps += [course._compare(planned, {})] if planned.test == "same-different" else []
    assert all(key in shelf for step in steps for key in step.roles.values())
    for key in ("noise:volume", "tone:plain", "tone:quiet", "tone:antiphase", "w5"):
        assert key in shelf
    with pytest.raises(UnknownName, match="unknown sound 'w7'"):
        shelf.wav("w7")


def test_blocks_that_share_a_clip_share_a_length_and_others_do_not(maker: Any) -> None:
    content = maker.content("naming")
    content["blocks"][0]["items"] = ["w0", "w1"]
    content["blocks"].append({"test": "preference", "items": [{"a": "w2", "b": "w2-adv"}]})
    for name in ("w2", "w2-adv"):
        maker.clip(name, samples=9000)
    shelf = shelf_of(maker, content)
    assert (len(samples_of(shelf.wav("w0"))), len(samples_of(shelf.wav("w2")))) == (4000, 9000)
    content["blocks"].append({"test": "preference", "items": [{"a": "w1", "b": "w2"}]})
    shelf = shelf_of(maker, content)
    assert (len(samples_of(shelf.wav("w0"))), len(samples_of(shelf.wav("w2")))) == (9000, 9000)


def test_matched_levels(maker: Any) -> None:
    content = maker.content("preference") | {"level": "matched"}
    for number in range(6):
        maker.clip(f"w{number}", rms=0.01 * (number + 1))
    shelf = shelf_of(maker, content)
    levels = [rms_db(samples_of(shelf.wav(key))[:4000]) for key in content["clips"]]
    assert max(levels) - min(levels) < 0.01
    # The mean of all twelve, in decibels, as measured in the files.
    files = np.mean([rms_db(file_of(maker, name)) for name in content["clips"]])
    assert levels[0] == pytest.approx(files, abs=0.01)


@pytest.mark.parametrize("size", [32767, -32768])
def test_matching_never_clips_but_turns_all_down_together(maker: Any, size: int) -> None:
    """A clip of one click as strong as noise would have a peak far over full scale."""
    content = maker.content("preference", items=[{"a": "w0", "b": "w1"}]) | {"level": "matched"}
    click = np.zeros(4000, dtype=np.int16)
    click[100] = size
    soundfile.write(maker.folder / "audio" / "w0.wav", click, 16000, subtype="PCM_16")
    maker.clip("w1", rms=0.3)
    shelf = shelf_of(maker, content)
    one, two = (samples_of(shelf.wav(key)) for key in ("w0", "w1"))
    assert np.abs(one.astype(int)).max() == 32767
    assert rms_db(one) == pytest.approx(rms_db(two), abs=0.01)


def test_matched_by_lufs(maker: Any) -> None:
    import pyloudnorm

    content = maker.content("preference", items=[{"a": "w0", "b": "w1"}])
    content |= {"level": "matched", "loudness": "lufs"}
    maker.clip("w0", rms=0.01, samples=16000)
    maker.clip("w1", rms=0.1, samples=16000)
    shelf = shelf_of(maker, content)
    meter = pyloudnorm.Meter(16000)
    one, two = (meter.integrated_loudness(samples_of(shelf.wav(key)) / 32768) for key in ("w0", "w1"))
    assert one == pytest.approx(two, abs=0.02)
    maker.clip("w0", samples=4000)
    with pytest.raises(InputError, match=r"expected 0.4 s or more to measure LUFS, got 0.25"):
        shelf_of(maker, content)


def test_a_clip_of_zeros_is_left_alone(maker: Any) -> None:
    content = maker.content("preference", items=[{"a": "w0", "b": "w1"}]) | {"level": "matched"}
    soundfile.write(maker.folder / "audio" / "w0.wav", np.zeros(4000, dtype=np.int16), 16000)
    shelf = shelf_of(maker, content)
    assert not samples_of(shelf.wav("w0")).any()
    np.testing.assert_array_equal(samples_of(shelf.wav("w1")), file_of(maker, "w1"))


@pytest.mark.parametrize(
    ("rate", "hz"), [(16000, 3500), (16000, 7000), (48000, 3500), (48000, 7000), (8000, 3500)]
)
def test_anchors_pass_and_stop_as_bs1534_asks(rate: int, hz: int) -> None:
    click = np.zeros(4001)
    click[2000] = 1.0
    answer = lowpass(click, rate, hz)
    np.testing.assert_allclose(answer, answer[::-1], atol=1e-12)
    places = np.array([0.0, hz / 2, hz, hz * 8 / 7, hz * 9 / 7])
    _, response = freqz(answer, worN=places[2 * places <= rate], fs=rate)
    found = 20 * np.log10(np.abs(response) + 1e-12)
    assert np.abs(found[:3]).max() < 0.1
    assert (found[3:4] < -25).all() and (found[4:] < -50).all()


def test_anchors_of_a_study(maker: Any) -> None:
    """White noise loses what is above the edge: its power falls by half from 8 to about 3.75 kHz."""
    shelf = shelf_of(maker, maker.content("mushra"))
    whole = samples_of(shelf.wav("w0"))
    np.testing.assert_array_equal(whole, file_of(maker, "w0"))
    for hz in (3500, 7000):
        anchor = samples_of(shelf.wav(f"anchor:{hz}:w0")).astype(float)
        power = np.abs(np.fft.rfft(anchor)) ** 2
        edge = int(hz * len(anchor) / 16000)
        stop = int(hz * 8 / 7 * len(anchor) / 16000) + 1
        assert power[stop:].sum() < 1e-4 * power.sum()
        before = np.abs(np.fft.rfft(whole.astype(float))) ** 2
        assert power[:edge].sum() == pytest.approx(before[:edge].sum(), rel=0.03)


def test_an_anchor_that_overshoots_turns_its_block_down(maker: Any) -> None:
    square = np.where(np.sin(2 * np.pi * 1000 * np.arange(4000) / 16000) >= 0, 32767, -32767).astype(np.int16)
    content = maker.content("mushra", items=[{"reference": "w0", "clips": ["w0-adv"]}])
    for name in ("w0", "w0-adv"):
        soundfile.write(maker.folder / "audio" / f"{name}.wav", square, 16000, subtype="PCM_16")
    shelf = shelf_of(maker, content)
    anchor, whole = samples_of(shelf.wav("anchor:3500:w0")), samples_of(shelf.wav("w0"))
    assert np.abs(anchor.astype(int)).max() == 32767
    # No sample is flattened at full scale, and the reference went down with the anchor.
    assert (np.abs(anchor.astype(int)) == 32767).sum() < 100
    assert np.abs(whole.astype(int)).max() < 32000
    np.testing.assert_array_equal(whole, samples_of(shelf.wav("w0-adv")))


def test_tones_of_the_headphone_check() -> None:
    made = {name: tone.astype(float) for name, tone in tones(16000).items()}
    assert {tone.shape for tone in made.values()} == {(16000, 2)}
    plain, quiet, antiphase = (made[f"tone:{name}"] for name in ("plain", "quiet", "antiphase"))
    np.testing.assert_array_equal(plain[:, 0], plain[:, 1])
    np.testing.assert_array_equal(antiphase[:, 0], -antiphase[:, 1])
    np.testing.assert_array_equal(antiphase[:, 0], plain[:, 0])
    assert 20 * np.log10(np.std(plain) / np.std(quiet)) == pytest.approx(6.0, abs=0.01)
    spectrum = np.abs(np.fft.rfft(plain[:, 0]))
    assert spectrum.argmax() == 200
    assert np.abs(plain[:10]).max() < 0.01 * np.abs(plain).max()


def test_tones_have_one_size(maker: Any) -> None:
    shelf = shelf_of(maker, maker.content("abx") | {"headphones": {}})
    wavs = [shelf.wav(f"tone:{name}") for name in ("plain", "quiet", "antiphase")]
    assert len({len(wav) for wav in wavs}) == 1 and len({wav[:44] for wav in wavs}) == 1
    assert wavs[0][22:24] == b"\x02\x00"


def test_noise_to_set_the_volume_by_is_as_loud_as_the_clips(maker: Any) -> None:
    content = maker.content("naming")
    maker.clip("w0", rms=0.1)
    maker.clip("w1", rms=0.02)
    noise = samples_of(shelf_of(maker, content).wav("noise:volume"))
    half = len(noise) // 2
    loud, soft = (rms_db(part[2400:-2400]) for part in (noise[:half], noise[half:]))
    assert loud == pytest.approx(-20.0, abs=0.5)
    assert soft == pytest.approx(20 * np.log10(0.02), abs=0.5)


def test_that_noise_is_as_loud_as_clips_that_were_matched(maker: Any) -> None:
    content = maker.content("preference", items=[{"a": "w0", "b": "w1"}]) | {"level": "matched"}
    maker.clip("w0", rms=0.1)
    maker.clip("w1", rms=0.001)
    noise = samples_of(shelf_of(maker, content).wav("noise:volume"))
    half = len(noise) // 2
    # Both clips are brought to the mean of -20 and -60 dB.
    for part in (noise[:half], noise[half:]):
        assert rms_db(part[2400:-2400]) == pytest.approx(-40.0, abs=0.5)


def test_rendered_strengths_are_those_of_the_direction(maker: Any) -> None:
    content = maker.content("same-different", items=[{"reference": "w0", "direction": "mulaw"}])
    shelf = shelf_of(maker, content)
    batch = AudioBatch.of([file_of(maker, "w0") / 32768], 16000, ["w0"])
    direction = Direction.parse("mulaw")
    for strength in (0.0, 50.0, 100.0):
        expected = direction.at(strength)(batch, draws=Draws(3)).clip(0).numpy() * 32768
        found = samples_of(shelf.wav(f"render:mulaw:{strength:g}:w0"))
        assert np.abs(found - expected).max() <= 1.0
    assert len([key for key in shelf.keys() if key.startswith("render:mulaw")]) == 11  # noqa: SIM118


def test_the_sentinel_is_noise_almost_as_strong_as_the_clip(maker: Any) -> None:
    shelf = shelf_of(maker, maker.content("same-different"))
    noise = samples_of(shelf.wav("render:white:100:w0")) - file_of(maker, "w0").astype(float)
    # 2 dB below it, as in perception.collection.
    assert rms_db(file_of(maker, "w0")) - rms_db(noise) == pytest.approx(2.0, abs=0.05)


def test_what_was_rendered_is_found_again(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = maker.content("same-different")
    told: list[tuple[float, str]] = []
    shelf = shelf_of(maker, content, lambda share, what: told.append((share, what)))
    assert told[0] == (0.0, "white of w0") and told[-1][0] == 1.0
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    before = shelf.wav("render:eq:50:w2")

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("rendered again")

    monkeypatch.setattr(Direction, "render", fail)
    assert shelf_of(maker, content).wav("render:eq:50:w2") == before
    # Another sound under the same name is another sound.
    maker.clip("w2", rms=0.02)
    with pytest.raises(AssertionError, match="rendered again"):
        shelf_of(maker, content)


def test_a_folder_that_cannot_be_written(maker: Any, tmp_path: Path) -> None:
    study = read_study(maker.write(maker.content("same-different")))
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(StoreError, match="cannot read or write rendered clips"):
        prepare(study, place)
