"""How good a changed clip still sounds beside the clean one, by measures that others use too.

A clip that a measure cannot score has no value, and `reasons` says why; it never counts as 0. Every pair is
aligned first: where the changed clip is clearly early or late, both are cut to what they share
(`sottovoce.metrics.alignment`), and `shift` tells by how much. An attack shifts nothing.

PESQ, STOI, fwSSNR, CD and LLR do not see a change of gain: `loudness-change` and `level-change` do.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.errors import MissingExtra
from sottovoce.metrics import segmental
from sottovoce.metrics import signal_distortion as signal
from sottovoce.metrics.alignment import find_shifts, overlap
from sottovoce.metrics.distortion import ClipMean
from sottovoce.metrics.pesq_workers import score_pairs
from sottovoce.metrics.segmental import LOWEST_RATE_HZ
from sottovoce.metrics.shared_pairs import once_a_pair

Samples = NDArray[np.float64]

STOI_SECONDS = 0.4
"""30 frames of 25.6 ms that step by half: what one value of STOI looks at."""
LOUDNESS_SECONDS = 0.4
"""One block of the loudness measure."""
_STOI_SHORT = "too short once pauses are cut out: STOI looks at 0.4 s of speech"


class QualityScores(NamedTuple):
    """values: `(batch,)` float64, NaN where there is none. reasons: why, "" where there is a value."""

    values: Tensor
    reasons: tuple[str, ...]


class Unscored(Exception):
    """A clip without a value; the text is the reason."""


class Quality(ClipMean):
    """A measure of pairs that are aligned first. A subclass writes `score`."""

    @abstractmethod
    def score(self, clean: AudioBatch, changed: AudioBatch) -> QualityScores:
        """The values of pairs that lie over each other."""

    @final
    def values(self, trial: Trial) -> Tensor:
        return self.score(*aligned(trial.clean, trial.adversarial)).values

    @final
    def reasons(self, trial: Trial, parts: Tensor) -> dict[str, str]:
        rows = (~parts.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
        if not rows:
            return {}
        clean = trial.clean.select(rows)
        again = self.score(*aligned(clean, trial.adversarial.select(rows)))
        return {clip: reason for clip, reason in zip(clean.ids, again.reasons, strict=True) if reason}


@once_a_pair
def shifts_of(clean: AudioBatch, changed: AudioBatch) -> Tensor:
    """By how many samples each changed clip is late, `(batch,)`."""
    return find_shifts(clean.waveforms, changed.waveforms, clean.lengths, sample_rate=clean.sample_rate)


def aligned(clean: AudioBatch, changed: AudioBatch) -> tuple[AudioBatch, AudioBatch]:
    """Both clips cut to what they share; the same batches where nothing is shifted."""
    return overlap(clean, changed, shifts_of(clean, changed))


class PesqMos(Quality):
    """PESQ on the scale of mean opinions (ITU-T P.862). Clips at other rates are resampled to 16 kHz."""

    measured: ClassVar[Literal["always", "pairs", "named"]] = "pairs"
    unit: ClassVar[str] = "MOS"
    mode: ClassVar[Literal["wb", "nb"]] = "wb"
    rates_hz: ClassVar[tuple[int, ...]] = (16000,)

    @final
    def score(self, clean: AudioBatch, changed: AudioBatch) -> QualityScores:
        if find_spec("pesq") is None:
            raise MissingExtra(
                "PESQ needs the package pesq, which is not installed; pip install 'sottovoce[quality]' (it "
                "needs a C compiler)."
            )
        reasons = [_refusal(*clip, clean.sample_rate) for clip in _clips(clean, changed)]
        rate = clean.sample_rate if clean.sample_rate in self.rates_hz else 16000
        pairs = [
            (_resampled(one, clean.sample_rate, rate), _resampled(two, clean.sample_rate, rate))
            for (one, two), reason in zip(_clips(clean, changed), reasons, strict=True)
            if not reason
        ]
        answers = iter(score_pairs(pairs, rate, self.mode) if pairs else [])
        return _scores([(np.nan, reason) if reason else next(answers) for reason in reasons])


@final
class Pesq(PesqMos):
    """PESQ, wide band (ITU-T P.862.2): speech quality from 1, bad, to 4.64, an untouched clip.

    Needs the package pesq (`pip install 'sottovoce[quality]'`). Clips from a quarter of a second on.

    >>> (clip,) = sv.open_data("prompts:en", limit=1, sample_rate=16000).load()
    >>> found = sv.measure(clip.waveform, clip.waveform, metrics="pesq", sample_rate=16000)
    >>> round(found["pesq"], 2)
    4.64
    """

    name, title = "pesq", "PESQ"


@final
class PesqNb(PesqMos):
    """PESQ, narrow band (ITU-T P.862.1), as on a telephone: 1, bad, to 4.55, an untouched clip.

    Needs the package pesq (`pip install 'sottovoce[quality]'`). Clips from a quarter of a second on.

    >>> (clip,) = sv.open_data("prompts:en", limit=1, sample_rate=16000).load()
    >>> found = sv.measure(clip.waveform, clip.waveform, metrics="pesq-nb", sample_rate=16000)
    >>> round(found["pesq-nb"], 2)
    4.55
    """

    name, title = "pesq-nb", "PESQ, narrow band"
    mode: ClassVar[Literal["wb", "nb"]] = "nb"
    rates_hz: ClassVar[tuple[int, ...]] = (8000, 16000)


class Intelligibility(Quality):
    """Short-time objective intelligibility: correlation of band envelopes over 0.4 s; 1 for equal clips."""

    extended: ClassVar[bool] = False

    @final
    def score(self, clean: AudioBatch, changed: AudioBatch) -> QualityScores:
        return _each(clean, changed, lambda one, two, rate: _stoi(one, two, rate, self.extended))


@final
class Stoi(Intelligibility):
    """How well words can be understood, from 0 to 1, an untouched clip (STOI, Taal et al. 2011).

    Needs 0.4 s of speech once pauses are cut out. A change of gain does not count.

    >>> (clip,) = sv.open_data("prompts:en", limit=1, sample_rate=16000).load()
    >>> found = sv.measure(clip.waveform, 0.5 * clip.waveform, metrics="stoi", sample_rate=16000)
    >>> round(found["stoi"], 3)
    1.0
    """

    name, title = "stoi", "STOI"


@final
class Estoi(Intelligibility):
    """Extended STOI, from 0 to 1, an untouched clip: for noise that comes and goes (Jensen and Taal 2016).

    Needs 0.4 s of speech once pauses are cut out. A change of gain does not count.

    >>> (clip,) = sv.open_data("prompts:en", limit=1, sample_rate=16000).load()
    >>> found = sv.measure(clip.waveform, 0.5 * clip.waveform, metrics="estoi", sample_rate=16000)
    >>> round(found["estoi"], 3)
    1.0
    """

    measured: ClassVar[Literal["always", "pairs", "named"]] = "pairs"
    name, title = "estoi", "extended STOI"
    extended: ClassVar[bool] = True


class FrameMean(Quality):
    """One of the three measures that come from the same short frames (`sottovoce.metrics.segmental`)."""

    which: ClassVar[Literal["fwssnr_db", "cd", "llr"]]

    @final
    def score(self, clean: AudioBatch, changed: AudioBatch) -> QualityScores:
        values: Tensor = getattr(_segmental(clean, changed), self.which)
        known = values.isfinite().tolist()
        return QualityScores(
            values, tuple("" if known[row] else self._reason(clean, row) for row in range(len(clean)))
        )

    @final
    def _reason(self, clean: AudioBatch, row: int) -> str:
        if self.which == "fwssnr_db" and clean.sample_rate < LOWEST_RATE_HZ:
            return _too_slow(clean.sample_rate)
        if int(clean.lengths[row]) < segmental.frame_samples(clean.sample_rate):
            return "shorter than one frame of 30 ms"
        return "both clips are silent"


@final
class Fwssnr(FrameMean):
    """Frequency-weighted segmental SNR in dB, from -10 to 35, which an untouched clip has.

    The mean over 30 ms frames; a critical band weighs by what the clip has there (Hu and Loizou 2008). Needs
    a sample rate of 8 kHz or more. A change of gain does not count.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> round(sv.measure(clean, clean, metrics="fwssnr", sample_rate=16000)["fwssnr"], 3)
    35.0
    """

    name, title, unit, which = "fwssnr", "frequency-weighted segmental SNR", "dB", "fwssnr_db"


@final
class CepstralDistance(FrameMean):
    """Distance of the smoothed log spectra of 30 ms frames in dB, from 0, equal clips, to 10.

    From the cepstra of linear prediction; the worst 5 % of frames are left out (Hu and Loizou 2008). A change
    of gain does not count.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> round(sv.measure(clean, 0.5 * clean, metrics="cd", sample_rate=16000)["cd"], 3)
    0.0
    """

    name, title, unit, which = "cd", "cepstral distance", "dB", "cd"


@final
class LogLikelihoodRatio(FrameMean):
    """How badly the changed clip's spectral envelope (formants) fits the clean one's, from 0 to 2.

    Of linear prediction in 30 ms frames; the worst 5 % of frames are left out (Hu and Loizou 2008). A change
    of gain does not count.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> round(sv.measure(clean, 0.5 * clean, metrics="llr", sample_rate=16000)["llr"], 3)
    0.0
    """

    measured: ClassVar[Literal["always", "pairs", "named"]] = "pairs"
    name, title, which = "llr", "log-likelihood ratio", "llr"


@final
class LoudnessChange(Quality):
    """How much louder the changed clip is, in loudness units (ITU-R BS.1770, gated); one unit is 1 dB.

    Clips from 0.4 s on that are louder than -70 LUFS.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> found = sv.measure(clean, 0.5 * clean, metrics="loudness-change", sample_rate=16000)
    >>> round(found["loudness-change"], 2)
    -6.02
    """

    measured: ClassVar[Literal["always", "pairs", "named"]] = "pairs"
    name, title, unit = "loudness-change", "change of loudness", "LU"

    def score(self, clean: AudioBatch, changed: AudioBatch) -> QualityScores:
        return _each(clean, changed, lambda one, two, rate: _lufs(two, rate) - _lufs(one, rate))


@final
class LevelChange(Quality):
    """How much higher the RMS level of the changed clip is, in dB.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> found = sv.measure(clean, 0.5 * clean, metrics="level-change", sample_rate=16000)
    >>> round(found["level-change"], 2)
    -6.02
    """

    measured: ClassVar[Literal["always", "pairs", "named"]] = "pairs"
    name, title, unit = "level-change", "change of level", "dB"

    def score(self, clean: AudioBatch, changed: AudioBatch) -> QualityScores:
        levels = [
            signal.as_samples(each.waveforms, each.lengths).square().sum(dim=1) for each in (clean, changed)
        ]
        reasons = [_silence(*(float(level[row]) for level in levels)) for row in range(len(clean))]
        scored = torch.tensor([not reason for reason in reasons])
        return QualityScores(
            (10.0 * (levels[1] / levels[0]).log10()).where(scored, torch.nan), tuple(reasons)
        )


@final
class Shift(ClipMean):
    """How late the changed clip is, in ms; 0 where it is in place, or where that cannot be told.

    >>> clean = 0.1 * torch.randn(16000, generator=torch.Generator().manual_seed(0))
    >>> late = torch.cat([torch.zeros(160), clean[:-160]])  # 10 ms at 16 kHz
    >>> sv.measure(clean, late, metrics="shift", sample_rate=16000)["shift"]
    10.0
    """

    measured: ClassVar[Literal["always", "pairs", "named"]] = "pairs"
    name, title, unit = "shift", "shift", "ms"

    def values(self, trial: Trial) -> Tensor:
        return 1000.0 * shifts_of(trial.clean, trial.adversarial).double() / trial.clean.sample_rate


@once_a_pair
def _segmental(clean: AudioBatch, changed: AudioBatch) -> segmental.Segmental:
    return segmental.segmental(
        clean.waveforms, changed.waveforms, clean.lengths, sample_rate=clean.sample_rate
    )


def _each(
    clean: AudioBatch, changed: AudioBatch, judge: Callable[[Samples, Samples, int], float]
) -> QualityScores:
    """Scores of a measure that takes one pair at a time."""
    answers = []
    for one, two in _clips(clean, changed):
        reason = _refusal(one, two, clean.sample_rate)
        try:
            answers.append((np.nan, reason) if reason else (judge(one, two, clean.sample_rate), ""))
        except Unscored as unscored:
            answers.append((np.nan, str(unscored)))
    return _scores(answers)


def _scores(answers: Sequence[tuple[float, str]]) -> QualityScores:
    values = torch.tensor([value for value, _ in answers], dtype=torch.float64)
    return QualityScores(values, tuple(reason for _, reason in answers))


def _clips(clean: AudioBatch, changed: AudioBatch) -> Iterator[tuple[Samples, Samples]]:
    """Pairs without their padding, `(time,)` float64."""
    for row in range(len(clean)):
        one, two = (batch.clip(row).detach().cpu().double().numpy() for batch in (clean, changed))
        yield one, two


def _refusal(clean: Samples, changed: Samples, sample_rate: int) -> str:
    """Why no measure of speech can score a pair; "" where it can."""
    if sample_rate < LOWEST_RATE_HZ:
        return _too_slow(sample_rate)
    return _silence(float(np.abs(clean).max()), float(np.abs(changed).max()))


def _too_slow(sample_rate: int) -> str:
    return f"needs a sample rate of {LOWEST_RATE_HZ} Hz or more, got {sample_rate}"


def _silence(clean: float, changed: float) -> str:
    if clean == 0.0 and changed == 0.0:
        return "both clips are silent"
    return (
        "the clean clip is silent" if clean == 0.0 else "the changed clip is silent" if changed == 0.0 else ""
    )


def _resampled(samples: Samples, from_hz: int, to_hz: int) -> NDArray[np.float32]:
    if from_hz != to_hz:
        # Imported here, as the libraries below are: a run that does not ask for them starts sooner.
        import soxr

        samples = soxr.resample(samples, from_hz, to_hz, quality="HQ")
    return samples.astype(np.float32)


def _stoi(clean: Samples, changed: Samples, sample_rate: int, extended: bool) -> float:
    if len(clean) < STOI_SECONDS * sample_rate:
        raise Unscored(_STOI_SHORT)
    import pystoi

    state = np.random.get_state()
    # The library adds a tiny dither from the global source: always the same one here, and put back after.
    np.random.seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            value = float(pystoi.stoi(clean, changed, sample_rate, extended=extended))
    finally:
        np.random.set_state(state)
    if value == 1e-5:  # what the library gives where it has too little
        raise Unscored(_STOI_SHORT)
    if value == 0.0 or not np.isfinite(value):
        raise Unscored("no envelope to compare")
    return value


def _lufs(samples: Samples, sample_rate: int) -> float:
    if len(samples) < LOUDNESS_SECONDS * sample_rate:
        raise Unscored(f"shorter than {LOUDNESS_SECONDS} s, one block of the loudness measure")
    import pyloudnorm

    with np.errstate(all="ignore"):
        level = float(pyloudnorm.Meter(sample_rate).integrated_loudness(samples))
    if not np.isfinite(level):
        raise Unscored("quieter than -70 LUFS, where the loudness measure begins")
    return level
