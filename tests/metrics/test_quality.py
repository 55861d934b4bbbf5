"""Quality metrics: the libraries behind them as references, and a reason for every clip without a value."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import numpy as np
import pesq
import pyloudnorm
import pystoi
import pytest
import soxr
import torch

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.data.embedded import embedded
from sottovoce.errors import InputError, MissingExtra
from sottovoce.metrics import pesq_workers, quality
from sottovoce.metrics.masking_excess import MaskingExcess, MaskingMax, MaskingShare
from sottovoce.metrics.pesq_workers import CRASHED, score_pairs
from sottovoce.metrics.shared_pairs import once_a_pair
from sottovoce.perception.masking.threshold import Masker
from sottovoce.testing import check_metric
from sottovoce.testing.checks.check_metric import example_trial

RATE = 16000
METRICS = [
    quality.Pesq,
    quality.PesqNb,
    quality.Stoi,
    quality.Estoi,
    quality.Fwssnr,
    quality.CepstralDistance,
    quality.LogLikelihoodRatio,
    quality.LoudnessChange,
    quality.LevelChange,
    quality.Shift,
    MaskingMax,
]
PERFECT = {"pesq": 4.64, "pesq-nb": 4.55, "stoi": 1, "estoi": 1, "fwssnr": 35, "cd": 0, "llr": 0}
NEUTRAL = {**PERFECT, "loudness-change": 0, "level-change": 0, "shift": 0}


def trial_of(clean: Sequence[np.ndarray], changed: Sequence[np.ndarray], rate: int = RATE) -> Trial:
    ids = [f"clip-{place}" for place in range(len(clean))]
    batches = [AudioBatch.of(list(clips), rate, ids) for clips in (clean, changed)]
    nothing, no = ("",) * len(ids), (False,) * len(ids)
    return Trial(batches[0], batches[1], nothing, None, nothing, nothing, no, no)


def speech(seconds: float, start: float = 0.0, rate: int = RATE) -> np.ndarray:
    """Shipped words one after the other."""
    corpus = embedded()
    clips = [corpus.load(entry, rate).waveform.numpy() for entry in list(corpus)[:12]]
    return np.concatenate(clips)[round(start * rate) : round((start + seconds) * rate)]


def noisy(clip: np.ndarray, sigma: float = 0.01, seed: int = 0) -> np.ndarray:
    added = sigma * np.random.default_rng(seed).standard_normal(len(clip))
    return np.clip(clip + added, -1.0, 1.0).astype(np.float32)


def score(metric: quality.ClipMean, clean: np.ndarray, changed: np.ndarray, rate: int = RATE) -> float:
    return float(metric.measure(trial_of([clean], [changed], rate))[0, 0])


def reason(metric: quality.ClipMean, clean: np.ndarray, changed: np.ndarray, rate: int = RATE) -> str:
    trial = trial_of([clean], [changed], rate)
    parts = metric.measure(trial)
    assert not bool(parts.isfinite().all())
    return metric.reasons(trial, parts)["clip-0"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rate", [16000, 1000])
def test_the_laws_hold(metric: type[quality.ClipMean], rate: int):
    trial = example_trial()
    if rate != 16000:
        clean, changed = (
            AudioBatch(batch.waveforms, batch.lengths, rate, batch.ids)
            for batch in (trial.clean, trial.adversarial)
        )
        trial = trial_of(
            [clean.clip(row).numpy() for row in range(4)],
            [changed.clip(row).numpy() for row in range(4)],
            rate,
        )
    check_metric(metric(), trial)
    parts = metric().measure(trial)
    unscored = (~parts.isfinite().all(dim=1)).sum()
    assert len(metric().reasons(trial, parts)) == int(unscored)  # each has its reason


@pytest.mark.parametrize("name", NEUTRAL)
def test_equal_clips_have_the_best_score(name: str):
    (metric,) = (each() for each in METRICS if each.name == name)
    assert score(metric, speech(3), speech(3)) == pytest.approx(NEUTRAL[name], abs=0.005)


def test_scores_are_those_of_the_libraries():
    clips = [speech(2), speech(3, 2), speech(1.5, 5)]
    changed = [noisy(clip, seed=place) for place, clip in enumerate(clips)]
    trial = trial_of(clips, changed)
    pairs = list(zip(clips, changed, strict=True))
    for metric, expected in (
        (quality.Pesq(), [pesq.pesq(RATE, one, two, "wb") for one, two in pairs]),
        (quality.PesqNb(), [pesq.pesq(RATE, one, two, "nb") for one, two in pairs]),
        (quality.Stoi(), [pystoi.stoi(one, two, RATE) for one, two in pairs]),
        (quality.Estoi(), [pystoi.stoi(one, two, RATE, extended=True) for one, two in pairs]),
        (quality.LoudnessChange(), [_lufs(two) - _lufs(one) for one, two in pairs]),
    ):
        assert metric.measure(trial)[:, 0].tolist() == pytest.approx(expected, abs=1e-4)


def _lufs(clip: np.ndarray) -> float:
    return float(pyloudnorm.Meter(RATE).integrated_loudness(clip.astype(np.float64)))


def test_pesq_hears_other_rates_at_16_khz():
    clean = soxr.resample(speech(3), RATE, 24000).clip(-1, 1)
    changed = noisy(clean)
    back = [soxr.resample(clip.astype(np.float64), 24000, RATE) for clip in (clean, changed)]
    expected = pesq.pesq(RATE, back[0], back[1], "wb")
    assert score(quality.Pesq(), clean, changed, 24000) == pytest.approx(expected, abs=1e-3)
    slow = [soxr.resample(clip, RATE, 8000).clip(-1, 1) for clip in (speech(3), noisy(speech(3)))]
    assert score(quality.PesqNb(), *slow, 8000) == pytest.approx(pesq.pesq(8000, *slow, "nb"), abs=1e-3)


def test_gain_is_seen_by_level_and_loudness_alone():
    clean = speech(3)
    half = 20 * math.log10(0.5)
    for metric, expected in (
        (quality.LevelChange(), half),
        (quality.LoudnessChange(), half),
        (quality.Pesq(), 4.64),
        (quality.Stoi(), 1.0),
        (quality.Fwssnr(), 35.0),
        (quality.CepstralDistance(), 0.0),
        (quality.LogLikelihoodRatio(), 0.0),
    ):
        assert score(metric, clean, clean / 2) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("samples", [161, -40])
def test_a_copy_that_is_late_or_early_is_not_noise(name: str, samples: int):
    (metric,) = (each() for each in METRICS if each.name == name)
    clean = speech(3)
    silence = np.zeros(abs(samples), dtype=np.float32)
    late = np.concatenate([silence, clean])[: len(clean)]
    early = np.concatenate([clean[abs(samples) :], silence])
    expected = samples / 16 if name == "shift" else NEUTRAL[name]
    assert score(metric, clean, late if samples > 0 else early) == pytest.approx(expected, abs=0.01)


def test_polarity_is_not_undone():
    clean = speech(2)
    assert score(quality.Shift(), clean, -clean) == 0.0
    assert score(quality.LevelChange(), clean, -clean) == pytest.approx(0.0)


SILENCE, ONE = np.zeros(16000, dtype=np.float32), np.full(1, 0.5, dtype=np.float32)
WORDS = {
    "pesq": "quarter of a second",
    "pesq-nb": "quarter of a second",
    "stoi": "0.4 s",
    "estoi": "0.4 s",
    "fwssnr": "30 ms",
    "cd": "30 ms",
    "llr": "30 ms",
    "loudness-change": "0.4 s",
}


@pytest.mark.parametrize("name", WORDS)
def test_a_short_clip_is_unscored(name: str):
    (metric,) = (each() for each in METRICS if each.name == name)
    assert WORDS[name] in reason(metric, ONE, ONE)
    assert WORDS[name] in reason(metric, speech(0.02, 0.4), noisy(speech(0.02, 0.4)))


@pytest.mark.parametrize("name", [*WORDS, "level-change"])
def test_silence_is_unscored(name: str):
    (metric,) = (each() for each in METRICS if each.name == name)
    assert reason(metric, SILENCE, SILENCE) == "both clips are silent"
    if name not in ("fwssnr", "cd", "llr"):  # which have a worst value
        assert reason(metric, SILENCE, noisy(SILENCE)) == "the clean clip is silent"
        assert reason(metric, noisy(SILENCE), SILENCE) == "the changed clip is silent"


@pytest.mark.parametrize("name", ["pesq", "pesq-nb", "stoi", "estoi", "fwssnr", "loudness-change"])
def test_a_low_rate_is_unscored(name: str):
    (metric,) = (each() for each in METRICS if each.name == name)
    assert "8000 Hz or more, got 4000" in reason(metric, speech(2), noisy(speech(2)), 4000)


def test_other_reasons():
    hiss = np.full(8000, 1e-4, dtype=np.float32) * np.sign(np.sin(np.arange(8000))).astype(np.float32)
    assert "-70 LUFS" in reason(quality.LoudnessChange(), hiss, hiss / 2)
    # A word of 0.2 s in a pause: pauses are cut out before STOI looks.
    word = np.concatenate([SILENCE, noisy(np.zeros(3200, dtype=np.float32), 0.1), SILENCE])
    assert "pauses" in reason(quality.Stoi(), word, word)


def test_only_clips_without_a_value_have_a_reason():
    clips = [speech(1), SILENCE, speech(1, 1), speech(0.1, 2)]
    trial = trial_of(clips, [noisy(clip) for clip in clips])
    metric = quality.Pesq()
    parts = metric.measure(trial)
    assert parts[:, 0].isfinite().tolist() == [True, False, True, False]
    assert set(metric.reasons(trial, parts)) == {"clip-1", "clip-3"}
    assert metric.summarise(parts.numpy()).n == 2


def test_clipping_costs_quality():
    clean = speech(3)
    clipped = np.clip(20 * clean / np.abs(clean).max(), -1, 1)
    assert score(quality.Pesq(), clean, clipped) < 3.0
    assert score(quality.Fwssnr(), clean, clipped) < 30.0
    assert score(quality.LevelChange(), clean, clipped) > 6.0


def test_pesq_without_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quality, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"sottovoce\[quality\]"):
        quality.Pesq().measure(trial_of([speech(1)], [speech(1)]))


def test_pairs_that_do_not_fit_are_refused():
    clean, changed = AudioBatch.of([speech(1)], RATE), AudioBatch.of([speech(1)], 8000)
    with pytest.raises(InputError, match="one rate"):
        quality.aligned(clean, changed)
    with pytest.raises(InputError, match="one shape"):
        quality.aligned(clean, AudioBatch.of([speech(2)], RATE))
    with pytest.raises(InputError, match="finite"):
        AudioBatch.of([np.array([0.1, np.nan])], RATE)


def test_workers_answer_in_order_and_live_on():
    pairs = [(speech(seconds, seconds), noisy(speech(seconds, seconds))) for seconds in (1.0, 2.0, 0.1, 1.5)]
    found = [score_pairs(pairs, RATE, "wb", workers=2) for _ in range(2)]
    expected = [pesq.pesq(RATE, *pairs[place], "wb") for place in (0, 1, 3)]
    for answers in found:
        assert [answers[place][0] for place in (0, 1, 3)] == pytest.approx(expected, abs=1e-5)
        assert math.isnan(answers[2][0]) and "quarter" in answers[2][1]


def test_a_worker_that_dies_costs_one_clip():
    clip = speech(1)
    pairs = [(clip, noisy(clip)), (None, None), (clip, noisy(clip))]  # a worker has no answer to None
    answers = score_pairs(pairs, RATE, "wb", workers=1)  # type: ignore[arg-type]
    assert [text for _, text in answers] == ["", CRASHED, ""]
    assert answers[0] == answers[2]


@pytest.mark.slow
def test_a_crash_of_the_library_is_a_reason():
    # Bursts of sound with pauses between them: more utterances than the library has room for.
    burst = noisy(np.zeros(6400, dtype=np.float32), 0.2)
    many = np.tile(np.concatenate([burst, np.zeros(6400, dtype=np.float32)]), 60)
    assert len(many) > pesq_workers.ALONE_SECONDS * RATE
    assert reason(quality.Pesq(), many, noisy(many)) == CRASHED


def test_workers_do_not_run_the_script_again(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np
            from sottovoce.metrics.pesq_workers import score_pairs
            print("once")
            clip = np.sin(np.arange(8000, dtype=np.float32) ** 1.5 / 99)
            print([round(value, 2) for value, _ in score_pairs([(clip, clip)] * 3, 16000, "wb", workers=2)])
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == ["once", "[4.64, 4.64, 4.64]"], done.stderr
    assert done.stderr == ""


def test_work_on_a_pair_is_done_once_and_forgotten_with_it():
    asked = []

    @once_a_pair
    def count(clean: AudioBatch, changed: AudioBatch) -> int:
        asked.append((clean.ids, changed.ids))
        return len(asked)

    clean, other = AudioBatch.of([ONE], RATE), AudioBatch.of([ONE], RATE)
    changed = AudioBatch.of([ONE / 2], RATE)
    assert [count(clean, changed), count(clean, changed)] == [1, 1]
    assert count(other, changed) == 2  # the same changed clips beside others
    assert count(clean, clean) == 3


def test_masking_metrics_are_the_maskers():
    clip = speech(1)
    trial = trial_of([clip, clip], [noisy(clip), clip])
    masker = Masker(RATE)
    excess = masker.excess(trial.delta, masker.threshold(trial.clean))
    assert torch.equal(MaskingShare().measure(trial)[:, 0], excess.share.double())
    assert torch.equal(MaskingExcess().measure(trial)[:, 0], excess.mean_db.double())
    found = MaskingMax().measure(trial)
    assert float(found[0, 0]) == float(excess.max_db[0])
    # Of what was not touched there is no worst cell.
    assert float(found[1, 0]) == -math.inf
    assert MaskingMax().reasons(trial, found) == {"clip-1": "nothing was added"}
    assert MaskingMax().summarise(found.numpy()).n == 1
