"""A simulated collection with an ear whose every answer is known beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce import registry
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.load import Clip, Corpus, Entry, Recording
from sottovoce.errors import InputError
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.jnd import simulated_answers as module
from sottovoce.perception.jnd.answers import read_answers
from sottovoce.perception.jnd.references import Cut, Reference, cut_references
from sottovoce.perception.jnd.session_plan import SessionPlan
from sottovoce.perception.jnd.simulated_answers import (
    Collection,
    SimulatedPair,
    listen,
    render_table,
    simulate,
)

RATE = 16_000


@final
@dataclass(frozen=True, kw_only=True)
class Meter(Ear):
    """Hears a change from an SNR of 30 dB on: P is 0 above it and 1 below, 0.5 at it."""

    name: ClassVar[str] = "meter"
    title: ClassVar[str] = "SNR meter"

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        noise = torch.linalg.vector_norm(changed.waveforms - clean.waveforms, dim=1)
        return 10 ** (30 / 20) * noise / torch.linalg.vector_norm(clean.waveforms, dim=1)

    def probability(self, distance: Tensor) -> Tensor:
        return 1 - torch.exp2(-(distance**8))


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> None:
    build = registry.build
    monkeypatch.setattr(
        module.registry, "build", lambda kind, name, **more: Meter() if kind == "ear" else build(kind, name)
    )


def references(count: int, seconds: float = 0.25) -> list[Reference]:
    source = np.random.default_rng(0)
    found = []
    for number in range(count):
        samples = np.rint(source.standard_normal(int(seconds * RATE)) * 1500) / 32768
        waveform = torch.from_numpy(samples.astype(np.float32))
        clip = Clip(f"r{number}", waveform, RATE, "", facts={"speaker": f"s{number % 5}"})
        found.append(Reference(clip, "train" if number % 5 else "test"))
    return found


def only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collection, "path", lambda self, clip: name)


SMALL = Collection(people=2, plan=SessionPlan(teaching=0, comparisons=12), lapse=0.02, spread=0.05, explore=0)


def test_jnds_are_where_the_ear_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # "sign" runs from 60 to 10 dB: 30 dB, where the meter hears half, is at a strength of 60.
    only("sign", monkeypatch)
    found = simulate(tmp_path / "set", references(6), SMALL)
    assert found.listeners == found.simulated == 4 and found.answers == 4 * 36 and found.sentinels == 4 * 6
    answers = read_answers(tmp_path / "set")
    asked = [one for one in answers.answers if not one.sentinel]
    assert {one.direction for one in asked} == {"sign"}
    assert all(one.listener.startswith("simulated-") and one.simulated for one in answers.answers)
    assert np.median([one.strength for one in asked]) == pytest.approx(60.0, abs=6.5)
    assert 0.35 < np.mean([one.different for one in asked]) < 0.65
    right = [one.different == (one.strength > 60) for one in asked if abs(one.strength - 60) > 10]
    assert np.mean(right) > 0.9


def test_splits_speakers_and_clips_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only("sign", monkeypatch)
    given = references(6)
    simulate(tmp_path / "set", given, SMALL)
    answers = read_answers(tmp_path / "set")
    assert answers.splits == {f"r{k}": "train" if k % 5 else "test" for k in range(6)}
    np.testing.assert_array_equal(answers.clip("r3"), given[3].clip.waveform.numpy())
    place = answers.places["r3-obvious"]
    assert answers.pack.speakers[place] == "s3" and answers.pack.split[place] == "train"
    noise = answers.clip("r3-obvious") - answers.clip("r3")
    assert 20 * np.log10(np.linalg.norm(answers.clip("r3")) / np.linalg.norm(noise)) == pytest.approx(
        2, abs=0.1
    )
    about = json.loads((tmp_path / "set" / "about.json").read_text())
    assert about["what"] == "answers of simulated listeners, not of people"
    assert sum(about["sessions"].values()) == 4


def test_a_clip_against_itself_is_the_same_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only("equal", monkeypatch)
    simulate(tmp_path / "set", references(3), SMALL)
    asked = [one for one in read_answers(tmp_path / "set").answers if not one.sentinel]
    assert all(one.changed == one.reference for one in asked)
    assert np.mean([one.different for one in asked]) < 0.1


@pytest.mark.slow
def test_the_answers_do_not_hang_on_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only("sign", monkeypatch)
    given = references(6)
    simulate(tmp_path / "one", given, SMALL)
    simulate(tmp_path / "two", given, SMALL, processes=2)
    lines = [(tmp_path / name / "answers.jsonl").read_bytes() for name in ("one", "two")]
    assert lines[0] == lines[1]


def test_what_is_heard_is_what_is_stored() -> None:
    """A change of less than half a 16-bit step is no change."""
    pair = SimulatedPair("r", (np.random.default_rng(0).standard_normal(4000) * 100).astype(np.int16), "sign")
    (rows,) = render_table([pair], RATE, Collection(levels=3))
    assert rows.shape == (4, 4000) and rows.dtype == np.int16
    # 60 dB under an RMS of 100 steps is a tenth of a step.
    np.testing.assert_array_equal(rows[0], pair.samples)
    distances = listen(Meter(), [pair], [rows], RATE, "cpu")
    assert distances.shape == (1, 4) and distances[0, 0] == 0.0
    # 10 dB is 20 dB beyond the meter's JND, 2 dB is 28 dB beyond it; rounding is within 1 %.
    assert distances[0, 2:] == pytest.approx([10.0, 10 ** (28 / 20)], rel=0.02)


def test_paths_come_in_their_shares_and_leave_out_what_they_must() -> None:
    collection = Collection(without=("mp3", "griffin-lim"))
    paths = [collection.path(f"r{number}") for number in range(2000)]
    assert paths.count("gain") / 2000 == pytest.approx(0.08, abs=0.02)
    assert paths.count("equal") / 2000 == pytest.approx(0.03, abs=0.015)
    assert not any("mp3" in one or "griffin" in one for one in paths)
    mixed = [one for one in paths if "@" in one]
    assert len(mixed) / 2000 == pytest.approx(0.7 * 0.6, abs=0.04)


def test_what_cannot_be_made_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**settings: float) -> None:
        raise InputError("expected an MP3 encoder, got none; install one.")

    monkeypatch.setattr(module, "MAKERS", {**module.MAKERS, "mp3": refuse})
    assert module.find_impossible() == {"mp3": "expected an MP3 encoder, got none; install one."}


def test_too_few_references_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 references or more"):
        simulate(tmp_path / "set", references(2), SMALL)
    with pytest.raises(InputError, match="2 levels"):
        Collection(levels=1)


def speech(lengths: list[float], silent: bool = False) -> Corpus:
    """Clips that are loud in their second half only, of one speaker each."""

    def read(number: int, seconds: float) -> Recording:
        samples = np.random.default_rng(number).standard_normal(int(seconds * RATE)) * 0.1
        samples[: len(samples) // 2] *= 0.0
        return Recording(samples * (0.0 if silent else 1.0), RATE)

    def entries() -> Iterator[Entry]:
        for number, seconds in enumerate(lengths):
            yield Entry(
                f"w/{number}_nohash_0", Path("made"), "yes", source=lambda n=number, s=seconds: read(n, s)
            )

    return Corpus("speechcommands-test", tuple(entries()))


def test_references_are_cut_where_speech_is() -> None:
    corpus = speech([4.0] * 8)
    found = cut_references([corpus], 20, Cut(), Draws(0))
    assert [one.clip.id for one in found[:2]] == ["r00000", "r00001"]
    for one in found:
        seconds = len(one.clip.waveform) / RATE
        assert 1.0 <= seconds <= 2.0
        rms_db = 10 * np.log10(np.mean(one.clip.waveform.numpy().astype(float) ** 2))
        assert -35.2 < rms_db < -17.8
        steps = one.clip.waveform.double().numpy() * 32768
        np.testing.assert_array_equal(steps, np.rint(steps))
    speakers = {one.clip.facts["speaker"]: one.split for one in found}
    assert set(speakers) == {f"speechcommands/{number}" for number in range(8)}
    assert sorted(speakers.values()).count("train") == 6
    # The same again from the same seed, others from another.
    again = cut_references([corpus], 20, Cut(), Draws(0))
    assert all(torch.equal(a.clip.waveform, b.clip.waveform) for a, b in zip(found, again, strict=True))


def test_silence_cannot_be_asked_about() -> None:
    with pytest.raises(InputError, match="pieces with speech"):
        cut_references([speech([2.0], silent=True)], 2, Cut(), Draws(0))
