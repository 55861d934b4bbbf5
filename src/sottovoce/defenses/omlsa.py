"""Optimally modified log-spectral amplitude estimation, a baseline of speech enhancement.

Cohen and Berdugo, "Speech enhancement for non-stationary noise environments" (Signal Processing 2001), with
their noise estimate by minima-controlled recursive averaging, MCRA (IEEE Signal Processing Letters 2002).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.defenses.enhancement import NEXT_TO_NOTHING, OVERLAP, ROUNDING, OverlappingFrames
from sottovoce.errors import InputError

# MCRA: smoothing of the spectrum, of its presence and of the noise; what counts as speech.
SPECTRUM_KEPT, PRESENCE_KEPT, NOISE_KEPT, SPEECH_RATIO = 0.8, 0.2, 0.95, 5.0
MINIMUM_SECONDS = 1.0
# Of OMLSA: smoothing of the a-priori SNR, bins of local and global means to either side,
# limits between which speech is neither sure nor excluded, limits of a peak, and the largest q.
PRIOR_KEPT, LOCAL, GLOBAL = 0.7, 1, 15
LEAST, MOST = 10.0**-1.0, 10.0**-0.5
PEAK = (1.0, 10.0)
LARGEST_ABSENCE = 0.95
# Below this a-posteriori SNR the gain is as it is at it; a cell has no gradient there.
_LEAST_POSTERIOR, _LEAST_PRIOR = 1e-3, 10.0**-2.5


@final
@dataclass(frozen=True, kw_only=True)
class Omlsa(Transform):
    """OMLSA: log-spectral amplitudes, weighted by the probability of speech (Cohen and Berdugo 2001).

    The noise is tracked through the clip by the minima of its spectrum (MCRA), so it may change slowly. The
    gradient is exact; whether a cell counts as speech is a step and has none.

    smoothing: weight of the past in the a-priori SNR, from 0 to below 1.
    floor_db: the gain in dB where there is no speech, below 0.

    >>> silence = sv.AudioBatch.of([[0.0] * 16000], sample_rate=16000)
    >>> noisy = sv.defenses.Gaussian(sigma=0.01)(silence, draws=sv.Draws(0))
    >>> filtered = sv.defenses.Omlsa()(noisy, draws=sv.Draws(0))
    >>> bool(filtered.length_l2 < 0.5 * noisy.length_l2)  # at least 6 dB less noise
    True
    """

    smoothing: float = 0.92
    floor_db: float = -25.0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise InputError(
                f"smoothing: expected a number from 0 to below 1, got {self.smoothing}; 0.92 is usual."
            )
        if not -math.inf < self.floor_db < 0:
            raise InputError(f"floor_db: expected a number below 0, got {self.floor_db}; -25 is usual.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        frames = OverlappingFrames.at(batch.sample_rate)
        frames.check(batch)
        spectrum = frames.split(batch.waveforms)
        energy = frames.energy(batch).clamp_min(NEXT_TO_NOTHING)[..., None]
        # As if every frame had a whole window: those at the ends of a clip have less.
        power = (spectrum.real.square() + spectrum.imag.square()) / energy
        window = max(2, round(MINIMUM_SECONDS * batch.sample_rate / frames.hop))
        noise = follow_noise(power, window, first=OVERLAP - 1)
        found = estimate(power / noise, smoothing=self.smoothing)
        presence = speech_presence(found)
        # A geometric mean: the logarithm of the amplitude is what is estimated.
        floor = math.log(10.0 ** (self.floor_db / 20.0))
        gains = torch.exp(presence * found.gain.log() + (1.0 - presence) * floor)
        filtered = torch.view_as_complex(torch.view_as_real(spectrum) * gains[..., None])
        return frames.join(filtered, batch.waveforms.shape[1])


class GainEstimate(NamedTuple):
    """For each cell `(frames, batch, bins)`: a-priori SNR xi, v = gamma xi / (1 + xi), gain for speech."""

    prior: Tensor
    v: Tensor
    gain: Tensor


def follow_noise(power: Tensor, window: int, first: int = 0) -> Tensor:
    """The noise's power in each cell, from what came before it and the cell itself, `(frames, batch, bins)`.

    window: frames in which speech must have paused in every bin. first: the frame that it begins with.
    """
    kept = NOISE_KEPT + (1.0 - NOISE_KEPT) * presence_by_minima(power.detach(), window, first)
    noise = smooth_bins(power[min(first, len(power) - 1)], 1)
    found = []
    for weight, now in zip(kept.unbind(), power.unbind(), strict=True):
        # The likelier speech is, the less a cell tells of the noise.
        noise = torch.lerp(now, noise, weight)
        found.append(noise)
    return torch.stack(found).clamp_min(ROUNDING)


@torch.no_grad()
def presence_by_minima(power: Tensor, window: int, first: int = 0) -> Tensor:
    """Probability of speech in each cell, from its ratio to the recent minimum, `(frames, batch, bins)`."""
    smooth = smooth_bins(power[min(first, len(power) - 1)], 1)
    least, lately, presence = smooth, smooth, torch.zeros_like(smooth)
    found = []
    for place, now in enumerate(smooth_bins(power, 1).unbind()):
        smooth = torch.lerp(now, smooth, SPECTRUM_KEPT)
        if place and place % window == 0:
            least, lately = torch.minimum(lately, smooth), smooth
        else:
            least, lately = torch.minimum(least, smooth), torch.minimum(lately, smooth)
        there = (smooth > SPEECH_RATIO * least.clamp_min(ROUNDING)).to(power)
        presence = torch.lerp(there, presence, PRESENCE_KEPT)
        found.append(presence)
    return torch.stack(found)


def estimate(posterior: Tensor, *, smoothing: float) -> GainEstimate:
    """From each cell's power over the noise's, `(frames, batch, bins)`, by the decision-directed rule."""
    posterior = posterior.clamp_min(_LEAST_POSTERIOR)
    fresh = (1.0 - smoothing) * (posterior - 1.0).clamp_min(0.0)
    carried = torch.full_like(posterior[0], smoothing)
    priors, vs, gains = [], [], []
    for now, above in zip(posterior.unbind(), fresh.unbind(), strict=True):
        prior = (carried + above).clamp_min(_LEAST_PRIOR)
        wiener = prior / (1.0 + prior)
        v = wiener * now
        gain = lsa_gain(wiener, v)
        carried = smoothing * gain.square() * now
        priors.append(prior)
        vs.append(v)
        gains.append(gain)
    return GainEstimate(torch.stack(priors), torch.stack(vs), torch.stack(gains))


def lsa_gain(wiener: Tensor, v: Tensor) -> Tensor:
    """The gain of Ephraim and Malah (1985): xi / (1 + xi) exp(E1(v) / 2)."""
    return wiener * torch.exp(0.5 * exponential_integral(v))


def exponential_integral(v: Tensor) -> Tensor:
    """E1 of values above 0, within 3e-7: formulas 5.1.53 and 5.1.56 of Abramowitz and Stegun."""
    small, large = v.clamp(max=1.0), v.clamp(min=1.0)
    near = _polynomial(small, _NEAR) - small.log()
    far = torch.exp(-large) / large * _polynomial(large, _ABOVE) / _polynomial(large, _BELOW)
    return torch.where(v < 1.0, near, far)


_NEAR = (-0.57721566, 0.99999193, -0.24991055, 0.05519968, -0.00976004, 0.00107857)
_ABOVE = (0.2677737343, 8.6347608925, 18.0590169730, 8.5733287401, 1.0)
_BELOW = (3.9584969228, 21.0996530827, 25.6329561486, 9.5733223454, 1.0)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Coefficients from the constant on."""
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def speech_presence(found: GainEstimate) -> Tensor:
    """P(speech) of each cell `(frames, batch, bins)`, given its SNRs and an a-priori probability.

    The latter comes from means of the a-priori SNR over time and bins.
    """
    mean = torch.zeros_like(found.prior[0])
    means = []
    # Of the frames before.
    for prior in found.prior.unbind():
        means.append(mean)
        mean = torch.lerp(prior, mean, PRIOR_KEPT)
    over_time = torch.stack(means)
    local, everywhere = (between(smooth_bins(over_time, reach)) for reach in (LOCAL, GLOBAL))
    frame = frame_presence(over_time.mean(dim=2))[..., None]
    absence = (1.0 - local * everywhere * frame).clamp(max=LARGEST_ABSENCE)
    odds = absence / (1.0 - absence) * (1.0 + found.prior) * torch.exp(-found.v)
    return 1.0 / (1.0 + odds)


def between(ratio: Tensor) -> Tensor:
    """0 up to the lower limit, 1 from the upper one on, and in between as its logarithm."""
    share: Tensor = (ratio.clamp(LEAST, MOST) / LEAST).log() / math.log(MOST / LEAST)
    return share.clamp(0.0, 1.0)


def frame_presence(means: Tensor) -> Tensor:
    """P(speech) of whole frames `(frames, batch)`, from their mean a-priori SNR.

    1 while that rises, and after a peak for as long as it stays near the peak.
    """
    before = torch.cat([torch.zeros_like(means[:1]), means[:-1]])
    loud = means > LEAST
    rises = loud & (means > before)
    places = torch.arange(len(means), device=means.device)[:, None].expand_as(means)
    last = torch.where(rises, places, -1).cummax(dim=0).values
    peaks = means.clamp(*PEAK).gather(0, last.clamp_min(0))
    falling = between(means / peaks)
    return torch.where(rises, torch.ones_like(means), torch.where(loud & (last >= 0), falling, 0.0))


def smooth_bins(values: Tensor, reach: int) -> Tensor:
    """Weighted means over bins to either side, `(..., bins)`: a Hann window; past the ends as at them."""
    reach = min(reach, values.shape[-1] - 1)
    window = torch.hann_window(2 * reach + 3, periodic=False, dtype=torch.float64)[1:-1]
    kernel = (window / window.sum()).to(values)
    rows = values.reshape(-1, 1, values.shape[-1])
    padded = torch.nn.functional.pad(rows, (reach, reach), mode="replicate")
    found: Tensor = torch.nn.functional.conv1d(padded, kernel[None, None])
    return found.view(values.shape)
