"""M5: mixtures at exact SNRs, speakers that were not trained on, and pairs whose names are hidden."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyloudnorm
import pytest
import soundfile
import torch

from sottovoce.core.draws import Draws
from sottovoce.data.load import Clip, Corpus, Entry
from sottovoce.defenses.denoiser import LOSSES, DenoiserNetwork, DenoiserShape, save_denoiser
from sottovoce.errors import InputError
from sottovoce.studies.manocha2020 import denoiser_setup as m5_bench
from sottovoce.studies.manocha2020.denoiser_setup import TRANCHES_DB, mix, systems, unheard
from sottovoce.studies.manocha2020.judges import Judge
from sottovoce.studies.manocha2020.metric_as_loss import STUDY
from sottovoce.studies.manocha2020.preference_pairs import LOUDNESS_LUFS, level
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice

RATE = 16000


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained networks of every loss but one; they change clips a little."""
    folder = tmp_path_factory.mktemp("weights")
    for number, loss in enumerate(LOSSES[:-1]):
        network = DenoiserNetwork(DenoiserShape(width=2, octaves=2), seed=number)
        torch.nn.init.constant_(network.out, 0.01)
        save_denoiser(folder / f"denoiser-{loss}.safetensors", network, {"trained_on": "ann,bob"})
    return folder


def speech(id: str, seconds: float = 1.5) -> Clip:
    time = np.arange(int(seconds * RATE)) / RATE
    sound = np.rint(6000 * np.sin(2 * np.pi * 220 * time) * np.sin(2 * np.pi * time) ** 2) / 32768
    return Clip(id, torch.from_numpy(sound.astype(np.float32)), RATE, "")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_mixtures_have_their_snr() -> None:
    found = mix([speech("one"), speech("two")], None, 1.0, Draws(0))
    assert [one.snr_db for one in found] == [*TRANCHES_DB, *TRANCHES_DB]
    for one in found:
        assert len(one.clean) == RATE
        noise = one.noisy.astype(np.float64) - one.clean
        measured = 10 * np.log10(np.sum(one.clean.astype(np.float64) ** 2) / np.sum(noise**2))
        assert measured == pytest.approx(one.snr_db, abs=0.01)
        assert np.abs(one.noisy).max() < 1.0
    assert len({one.noise for one in found[:4]}) > 1


def test_recorded_noises_are_used_where_given(tmp_path: Path) -> None:
    for number in (1, 2):
        sound = 0.1 * np.random.default_rng(number).standard_normal(RATE)
        soundfile.write(tmp_path / f"street_{number}.wav", sound, RATE)
    found = mix([speech("one"), speech("two")], str(tmp_path), 1.0, Draws(0))
    assert {one.noise for one in found} == {"street_1", "street_2"}


def test_speakers_in_training_are_left_out(weights: Path) -> None:
    entries = tuple(Entry(name, Path(name), "", facts={"speaker": name}) for name in ("ann", "cid", "bob"))
    parts, absent = systems(weights)
    assert [entry.id for entry in unheard(Corpus("three", entries), parts)] == ["cid"]
    assert list(absent) == [LOSSES[-1]]
    with pytest.raises(InputError, match="the denoisers were trained on all of its speakers"):
        unheard(Corpus("one", entries[:1]), parts)


def test_versions_are_equally_loud() -> None:
    source = np.random.default_rng(0)
    sounds = {"a": 0.3 * source.standard_normal(RATE), "b": 0.001 * source.standard_normal(RATE)}
    found = level(sounds)
    meter = pyloudnorm.Meter(RATE)
    for sound in found.values():
        assert meter.integrated_loudness(sound) == pytest.approx(LOUDNESS_LUFS, abs=0.01)
    # A click that would not fit turns all of them down alike.
    sounds["c"] = np.where(np.arange(RATE) == 5, 1.0, 1e-4 * source.standard_normal(RATE))
    found = level(sounds)
    assert max(np.abs(sound).max() for sound in found.values()) == pytest.approx(0.98)
    assert meter.integrated_loudness(found["a"]) == pytest.approx(meter.integrated_loudness(found["b"]))
    assert meter.integrated_loudness(found["a"]) < LOUDNESS_LUFS - 1


def test_the_study_compares_and_leaves_pairs(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        m5_bench, "JUDGES", (Judge(id="pesq", title="PESQ", name="segmental-snr", better="higher"),)
    )
    bench, result, page = run_study(
        STUDY, Choice(data="prompts:en", model=str(weights), clips=1), tmp_path / "study", device="cpu"
    )
    assert "simulated listeners" in page.read_text()
    assert set(bench.heard) == {"noisy", "wiener", "omlsa", *LOSSES[:-1]}
    titles = [sheet.title for sheet in result.sheets]
    assert titles[0] == "Trends that the paper reports"
    (table,) = (sheet for sheet in result.sheets if sheet.title.startswith("PESQ"))
    assert len(table.rows) == 9
    assert len(table.columns) == 1 + len(TRANCHES_DB) + 1
    folder = tmp_path / "study" / "M5" / "pairs"
    pairs, keys = rows_of(folder / "pairs.csv"), rows_of(folder / "key.csv")
    # One clip at four SNRs, against seven other systems.
    assert len(pairs) == len(keys) == 4 * 7
    assert [one["pair"] for one in pairs] == [one["pair"] for one in keys]
    assert all("learned" in (one["a_system"], one["b_system"]) for one in keys)
    assert {one["a_system"] == "learned" for one in keys} == {True, False}
    names = {one[column] for one in pairs for column in ("reference", "a", "b")}
    assert names == {path.stem for path in (folder / "audio").iterdir()}
    # Of each mixture the clean clip, ours, and seven others.
    assert len(names) == 4 * 9
    assert not any(system in (folder / "pairs.csv").read_text() for system in ("learned", "omlsa", "wiener"))
    sound, rate = soundfile.read(folder / "audio" / f"{pairs[0]['a']}.wav")
    assert rate == RATE
    assert pyloudnorm.Meter(RATE).integrated_loudness(sound) == pytest.approx(LOUDNESS_LUFS, abs=0.1)


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m5_bench, "JUDGES", (Judge(id="pesq", title="PESQ", name="no-such-metric"),))
    bench, result, _ = run_study(
        STUDY, Choice(data="prompts:en", model=str(tmp_path), clips=1), tmp_path / "study", device="cpu"
    )
    assert set(bench.absent) == {*LOSSES, "pesq"}
    assert not (tmp_path / "study" / "M5" / "pairs").exists()
    assert len(result.sheets[-1].rows) == len(LOSSES) + 1
