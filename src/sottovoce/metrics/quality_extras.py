"""Quality measures of other packages, all optional, behind one interface.

ViSQOL and Zimtohrli model hearing, CDPAM and DNSMOS were trained on what people said. Each hears one clip at
a time, at a rate of its own. A clip that one of them cannot score has no value, and a reason.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.errors import MissingExtra
from sottovoce.metrics.distortion import ClipMean
from sottovoce.metrics.quality import aligned

Floats = NDArray[np.float64]
JUDGES = 'pip install "sottovoce[judges]"'


class PairScore(ClipMean):
    """A score of a clean clip and a changed one, mean over clips. A subclass writes `score`.

    A changed clip that is late or early by whole samples is aligned first, as for PESQ.

    rate_hz: the rate that the measure works at; other rates, from `lowest_rate_hz` on, are resampled to it.
    shortest_seconds: shorter clips have no score.
    better: whether a higher or a lower score is good.
    """

    measured: ClassVar[Literal["always", "pairs", "named"]] = "named"
    rate_hz: ClassVar[int]
    lowest_rate_hz: ClassVar[int] = 8000
    shortest_seconds: ClassVar[float]
    better: ClassVar[Literal["higher", "lower"]]

    @abstractmethod
    def score(self, clean: Floats, changed: Floats) -> float:
        """The score of two clips `(time,)` at `rate_hz` of equal length; NaN where it has none."""

    @final
    def values(self, trial: Trial) -> Tensor:
        scores = [self._try(trial, row)[0] for row in range(len(trial.clean))]
        return torch.tensor(scores, dtype=torch.float64)

    @final
    def reasons(self, trial: Trial, parts: Tensor) -> dict[str, str]:
        unscored = (~parts.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
        return {trial.clean.ids[row]: self._try(trial, row)[1] for row in unscored}

    def _try(self, trial: Trial, row: int) -> tuple[float, str]:
        """The score of one clip, or NaN and why."""
        both = aligned(trial.clean.select([row]), trial.adversarial.select([row]))
        pair = [batch.clip(0).detach().cpu().double().numpy() for batch in both]
        rate = trial.clean.sample_rate
        if rate < self.lowest_rate_hz:
            return math.nan, f"{self.title} needs {self.lowest_rate_hz} Hz or more, got {rate} Hz"
        if len(pair[0]) < self.shortest_seconds * rate:
            got = f"{len(pair[0]) / rate:.3g} s"
            return math.nan, f"{self.title} needs {self.shortest_seconds:g} s or more, got {got}"
        for clip, what in zip(pair, ("clean", "changed"), strict=True):
            if not clip.any():
                return math.nan, f"the {what} clip is silent"
        value = self.score(*(_resample(clip, rate, self.rate_hz) for clip in pair))
        return value, "" if math.isfinite(value) else f"{self.title} found no speech to compare"


@final
class Visqol(PairScore):
    """ViSQOL in its mode for speech (Chinen et al. 2020): an opinion from 1 to about 4.6, equal clips.

    Needs the package visqol-python (`pip install "sottovoce[judges]"`). Clips from 1 s on, at 16 kHz.

    >>> sv.metrics.Visqol.better, sv.metrics.Visqol.rate_hz, sv.metrics.Visqol.shortest_seconds
    ('higher', 16000, 1.0)
    >>> sv.measure("clean.wav", "changed.wav", metrics="visqol")["visqol"]  # doctest: +SKIP
    """

    name, title = "visqol", "ViSQOL"
    rate_hz, shortest_seconds, better = 16000, 1.0, "higher"

    def score(self, clean: Floats, changed: Floats) -> float:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                return float(_visqol().measure_from_arrays(clean, changed, self.rate_hz).moslqo)
        except (IndexError, ValueError):
            # The package raises these where no patch of the clean clip is loud enough.
            return math.nan


@final
class Zimtohrli(PairScore):
    """Zimtohrli (Alakuijala et al. 2025): a distance of two sounds by a model of hearing, 0 for equal clips.

    Needs the package zimtohrli (`pip install "sottovoce[judges]"`). Clips from 0.25 s on, at 48 kHz.

    >>> sv.metrics.Zimtohrli.better, sv.metrics.Zimtohrli.rate_hz
    ('lower', 48000)
    >>> sv.measure("clean.wav", "changed.wav", metrics="zimtohrli")["zimtohrli"]  # doctest: +SKIP
    """

    # Below 84 ms the package reads past its own memory and takes the whole program down.
    name, title = "zimtohrli", "Zimtohrli"
    rate_hz, shortest_seconds, better = 48000, 0.25, "lower"

    def score(self, clean: Floats, changed: Floats) -> float:
        return float(_extra("zimtohrli", self.title, JUDGES).Pyohrli().distance(clean, changed))


@final
class Cdpam(PairScore):
    """CDPAM (Manocha et al. 2021): a distance learned from people's answers, 0 for equal clips.

    Needs the package cdpam (`pip install --no-deps cdpam`). Clips from 0.1 s on, at 22.05 kHz.

    >>> sv.metrics.Cdpam.better, sv.metrics.Cdpam.rate_hz
    ('lower', 22050)
    >>> sv.measure("clean.wav", "changed.wav", metrics="cdpam")["cdpam"]  # doctest: +SKIP
    """

    name, title = "cdpam", "CDPAM"
    rate_hz, shortest_seconds, better = 22050, 0.1, "lower"

    def score(self, clean: Floats, changed: Floats) -> float:
        return float(_weighted_distance(*(_acoustics(clip.tobytes()) for clip in (clean, changed))))


@final
class Dnsmos(PairScore):
    """DNSMOS of the changed clip (Reddy et al. 2022): an opinion from 1 to 5, without a reference.

    The overall opinion of ITU-T P.835, as a network predicts it. Needs the packages speechmos and onnxruntime
    (`pip install "sottovoce[judges]"`). Clips from 0.5 s on, at 16 kHz.

    >>> sv.metrics.Dnsmos.better, sv.metrics.Dnsmos.rate_hz
    ('higher', 16000)
    >>> sv.measure("clean.wav", "changed.wav", metrics="dnsmos")["dnsmos"]  # doctest: +SKIP
    """

    name, title = "dnsmos", "DNSMOS"
    rate_hz, shortest_seconds, better = 16000, 0.5, "higher"

    def score(self, clean: Floats, changed: Floats) -> float:
        return _opinion(changed.tobytes())


@final
class DnsmosChange(PairScore):
    """DNSMOS of the changed clip less that of the clean one: below 0 where the change made it worse.

    See `dnsmos`, which it needs.

    >>> sv.metrics.DnsmosChange.better, sv.metrics.DnsmosChange.rate_hz
    ('higher', 16000)
    >>> sv.measure("clean.wav", "changed.wav", metrics="dnsmos-change")["dnsmos-change"]  # doctest: +SKIP
    """

    name, title = "dnsmos-change", "DNSMOS, change"
    rate_hz, shortest_seconds, better = 16000, 0.5, "higher"

    def score(self, clean: Floats, changed: Floats) -> float:
        return _opinion(changed.tobytes()) - _opinion(clean.tobytes())


def _resample(clip: Floats, from_hz: int, to_hz: int) -> Floats:
    if from_hz == to_hz:
        return clip
    # Imported here: clips at the right rate need it as little as they do when they are loaded.
    import soxr

    resampled: Floats = soxr.resample(clip, from_hz, to_hz, quality="HQ")
    # Filters ring over full scale, where some of these packages refuse a clip.
    return resampled.clip(-1.0, 1.0)


def _extra(module: str, title: str, command: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing(module, title, command) from error


def _folder(module: str, title: str, command: str) -> Path:
    """Where a package lies, without importing it."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise _missing(module, title, command)
    return Path(found.origin).parent


def _missing(module: str, title: str, command: str) -> MissingExtra:
    return MissingExtra(f"{title} needs the package {module}, which is not installed; {command}.")


@cache
def _visqol() -> Any:
    scorer = _extra("visqol", Visqol.title, JUDGES).VisqolApi()
    # Without its lattice the package would switch to another scale, with no more than a warning.
    _extra("ai_edge_litert", Visqol.title, JUDGES)
    scorer.create(mode="speech", use_lattice_model=True)
    return scorer


_DNSMOS_SAMPLES = 144160
# Published with the model: from what the network says to the scale of opinions.
_DNSMOS_OVERALL = (-0.06766283, 1.11546468, 0.04602535)


@lru_cache(maxsize=4)
def _opinion(samples: bytes) -> float:
    """The overall opinion of one clip (P.835), the mean over windows of 9.01 s that step by a second.

    Kept for a while, because a clean clip is often held against several others.
    """
    clip = np.frombuffer(samples).astype(np.float32)
    while len(clip) < _DNSMOS_SAMPLES:
        clip = np.concatenate([clip, clip])
    rate = Dnsmos.rate_hz
    starts = range(0, rate * max(1, len(clip) // rate - 9), rate)
    windows = [clip[None, start : start + _DNSMOS_SAMPLES] for start in starts]
    raw = [_dnsmos().run(None, {"input_1": window})[0][0, 2] for window in windows]
    return float(np.polyval(_DNSMOS_OVERALL, raw).mean())


@cache
def _dnsmos() -> Any:
    # The package itself asks for librosa; its network of P.835 hears the waveform and does without.
    folder = _folder("speechmos", Dnsmos.title, JUDGES)
    runtime = _extra("onnxruntime", Dnsmos.title, JUDGES)
    return runtime.InferenceSession(str(folder / "dnsmos_models" / "sig_bak_ovr.onnx"))


@cache
def _cdpam() -> dict[str, Tensor]:
    """The weights in the package. Its module needs outdated packages, so the network is rebuilt here."""
    folder = _folder("cdpam", Cdpam.title, "pip install --no-deps cdpam")
    path = folder / "CDPAM_trained" / "scratchJNDdefault_best_model.pth"
    # An old pickle, which torch's safe reader refuses; it is trusted as much as the package that holds it.
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=False)["state"]
    return state


@lru_cache(maxsize=4)
@torch.no_grad()
def _acoustics(clip: bytes) -> Tensor:
    """What CDPAM keeps of how a clip sounds, `(512,)` of length 1: 16 convolutions, four of which halve.

    Kept for a while, because it takes seconds, and a clean clip is often held against several others.
    """
    state = _cdpam()
    x = torch.from_numpy(np.frombuffer(clip) * 32768.0).round().float()[None, None]
    for layer in range(16):
        kernel, norm = f"base_encoder.encoder.{layer}", f"base_encoder.ebatch.{layer}"
        x = torch.nn.functional.conv1d(x, state[f"{kernel}.weight"], state[f"{kernel}.bias"], padding=7)
        x = torch.nn.functional.batch_norm(
            x,
            state[f"{norm}.running_mean"],
            state[f"{norm}.running_var"],
            state[f"{norm}.weight"],
            state[f"{norm}.bias"],
        )
        x = torch.nn.functional.leaky_relu(x, 0.1)
        if layer % 4 == 3:
            x = x[:, :, ::2]
    # The other half encodes what is said, and is left out of the distance.
    return torch.nn.functional.normalize(x.mean(dim=2)[0, :512], dim=0)


def _weighted_distance(one: Tensor, other: Tensor) -> Tensor:
    """Weighted differences of two sounds after each of four linear layers, added up."""
    state = _cdpam()
    pair = torch.stack([one, other])
    total = torch.zeros(())
    for layer in range(4):
        linear = f"model_dist.convs.{layer}.0"
        pair = torch.nn.functional.linear(pair, state[f"{linear}.weight"], state[f"{linear}.bias"])
        if layer < 3:
            pair = torch.nn.functional.leaky_relu(pair)
        total = total + ((pair[1] - pair[0]) * state[f"model_dist.chan_w.{layer}"]).abs().sum()
    return total
