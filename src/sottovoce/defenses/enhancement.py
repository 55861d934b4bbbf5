"""Speech enhancement: a filter that recovers part of what smoothing noise costs a recogniser.

Scalart and Filho, "Speech enhancement based on a priori signal to noise estimation" (ICASSP 1996).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError

NoiseSource = Literal["estimate", "gaussian", "mad"]
WINDOW_SECONDS = 0.032
OVERLAP = 4
QUIET_SHARE = 0.1
NEIGHBOURS = 8
# The variance of rounding to 16 bits: no clip is cleaner than that.
ROUNDING = 2.0**-30 / 12.0
LOWEST_RATE = 500
# Replaces the window's energy where a frame holds nothing but padding, to divide by.
NEXT_TO_NOTHING = 1e-9


@final
@dataclass(frozen=True, kw_only=True)
class Asnr(Transform):
    """Wiener filter on an a-priori SNR, estimated from frame to frame (Scalart and Filho 1996).

    It removes noise, such as that of `gaussian`, before a recogniser hears it. The gain of a cell of the
    spectrogram is xi / (1 + xi); its a-priori SNR xi is `smoothing` times that of the frame before, as the
    filter left it, plus the rest times what the frame itself shows above the noise (the decision-directed
    rule). The gradient is exact, through frames, gains and the noise estimate.

    noise: where the level of the noise comes from. "estimate": the quietest tenth of the clip's own frames,
        with a median over 17 bins. "gaussian" or "mad": the known noise in front of this filter.
    sigma: of that noise, where full scale is 1; with "gaussian" and "mad" only.
    smoothing: weight of the past, from 0 to below 1.
    floor_db: the least gain in dB, below 0. -10 dB gave fewer word errors than -20 dB: recognisers are
        troubled less by even noise than by holes and chirps.

    >>> silence = sv.AudioBatch.of([[0.0] * 16000], sample_rate=16000)
    >>> noisy = sv.defenses.Gaussian(sigma=0.01)(silence, draws=sv.Draws(0))
    >>> filtered = sv.defenses.Asnr(noise="gaussian", sigma=0.01)(noisy, draws=sv.Draws(0))
    >>> bool(filtered.length_l2 < 0.5 * noisy.length_l2)  # at least 6 dB less noise
    True
    """

    noise: NoiseSource = "estimate"
    sigma: float | None = None
    smoothing: float = 0.98
    floor_db: float = -10.0

    def __post_init__(self) -> None:
        if self.noise not in ("estimate", "gaussian", "mad"):
            raise InputError(f"noise: expected 'estimate', 'gaussian' or 'mad', got {self.noise!r}.")
        if self.noise == "estimate" and self.sigma is not None:
            raise InputError(
                "sigma: expected none with noise=estimate, which measures the noise itself, got "
                f"{self.sigma}; leave it out, or set noise to gaussian or mad."
            )
        if self.noise != "estimate" and (self.sigma is None or not 0 < self.sigma < math.inf):
            raise InputError(
                f"sigma: noise={self.noise} needs the sigma of the noise in front of this filter, above 0, "
                f"got {self.sigma}; write asnr(noise={self.noise},sigma=0.01)."
            )
        if not 0 <= self.smoothing < 1:
            raise InputError(
                f"smoothing: expected a number from 0 to below 1, got {self.smoothing}; 0.98 is usual."
            )
        if not -math.inf < self.floor_db < 0:
            raise InputError(f"floor_db: expected a number below 0, got {self.floor_db}; -10 is usual.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        frames = OverlappingFrames.at(batch.sample_rate)
        frames.check(batch)
        spectrum = frames.split(batch.waveforms)
        power = spectrum.real.square() + spectrum.imag.square()
        energy = frames.energy(batch)
        density = self._density(power, energy, frames).clamp_min(ROUNDING)
        # Frames at the ends of a clip hold less noise than others; those of the padding hold none.
        noise = density * energy.clamp_min(NEXT_TO_NOTHING)[..., None]
        gains = wiener_gains(power / noise, smoothing=self.smoothing, floor=10.0 ** (self.floor_db / 20.0))
        # Complex times real would make the gains complex first.
        filtered = torch.view_as_complex(torch.view_as_real(spectrum) * gains[..., None])
        return frames.join(filtered, batch.waveforms.shape[1])

    def _density(self, power: Tensor, energy: Tensor, frames: OverlappingFrames) -> Tensor:
        """The noise's power over that of a white noise of variance 1, `(batch or 1, bins)`."""
        if self.sigma is None:
            return estimate_density(power, energy)
        if self.noise == "gaussian":
            return power.new_full((1, power.shape[2]), self.sigma**2)
        return self.sigma**2 * mad_density(frames).to(power)


@final
@dataclass(frozen=True)
class OverlappingFrames:
    """Overlapping frames under a sine window, to the spectrum and back.

    Frames that are split and joined again give the clip. The first ones start before the clip, and the last
    end after it.
    """

    hop: int

    @classmethod
    def at(cls, sample_rate: int) -> OverlappingFrames:
        """Frames of 32 ms, one every 8 ms."""
        if sample_rate < LOWEST_RATE:
            raise InputError(
                f"speech enhancement needs clips at {LOWEST_RATE} Hz or more, got {sample_rate} Hz; a sample "
                "rate is in samples per second."
            )
        return cls(round(WINDOW_SECONDS * sample_rate / OVERLAP))

    @property
    def size(self) -> int:
        """Samples of a frame."""
        return OVERLAP * self.hop

    @property
    def before(self) -> int:
        """Samples of the first frame that lie before the clip."""
        return self.size - self.hop

    def count(self, width: int) -> int:
        """Frames that overlap a clip of so many samples."""
        return (width + self.size - 1) // self.hop

    def check(self, batch: AudioBatch) -> None:
        """Refuse clips that do not fill a frame: noise cannot be told from speech there."""
        short = int(batch.lengths.argmin())
        if int(batch.lengths[short]) < self.size:
            raise InputError(
                f"clip {batch.ids[short]!r}: speech enhancement needs at least {self.size} samples "
                f"({1000 * WINDOW_SECONDS:.0f} ms), got {int(batch.lengths[short])}; drop the clip."
            )

    def split(self, waveforms: Tensor) -> Tensor:
        """`(batch, time)` to spectra `(frames, batch, bins)`."""
        width = waveforms.shape[1]
        after = self.count(width) * self.hop - width
        padded = torch.nn.functional.pad(waveforms, (self.before, after))
        pieces = padded.unfold(1, self.size, self.hop).transpose(0, 1)
        spectrum: Tensor = torch.fft.rfft(pieces * sine_window(self.size).to(waveforms))
        return spectrum

    def join(self, spectrum: Tensor, width: int) -> Tensor:
        """`(frames, batch, bins)` to `(batch, width)`."""
        # The squares of the window add up to half the overlap.
        window = sine_window(self.size).to(spectrum.real) * (2.0 / OVERLAP)
        count, rows = spectrum.shape[:2]
        pieces = (torch.fft.irfft(spectrum, n=self.size) * window).view(count, rows, OVERLAP, self.hop)
        joined = pieces.new_zeros(count + OVERLAP - 1, rows, self.hop)
        for place, piece in enumerate(pieces.unbind(dim=2)):
            joined[place : place + count] += piece
        whole: Tensor = joined.transpose(0, 1).reshape(rows, -1)
        return whole[:, self.before : self.before + width]

    def energy(self, batch: AudioBatch) -> Tensor:
        """Energy of the window inside the clip, `(frames, batch)`: 0 in the padding."""
        places = torch.arange(self.count(batch.waveforms.shape[1]), device=batch.device)
        starts = places * self.hop - self.before
        squares = sine_window(self.size).square()
        up_to = torch.nn.functional.pad(squares.cumsum(dim=0), (1, 0)).to(batch.device)
        first, last = (-starts).clamp_min(0)[:, None], (batch.lengths - starts[:, None]).clamp(0, self.size)
        return (up_to[last] - up_to[first]).to(batch.waveforms.dtype)


def sine_window(size: int) -> Tensor:
    """The square root of the periodic Hann window, `(size,)` float64."""
    return torch.hann_window(size, dtype=torch.float64).sqrt()


def estimate_density(power: Tensor, energy: Tensor) -> Tensor:
    """The mean over each clip's quietest frames, then the median over neighbouring bins, `(batch, bins)`.

    The median leaves lines out, which smoothing noise has none of: a lasting tone is not taken for noise.

    power: `(frames, batch, bins)`. energy: `(frames, batch)`, see `OverlappingFrames.energy`.
    """
    full = energy.amax()
    whole = energy > 0.999 * full
    count = (QUIET_SHARE * whole.sum(dim=0)).ceil()
    loudness = power.detach().mean(dim=2).masked_fill(~whole, torch.inf)
    rank = loudness.argsort(dim=0, stable=True).argsort(dim=0)
    weights = (rank < count).to(power) / (count * full)
    mean = torch.einsum("tb,tbf->bf", weights, power)
    reach = min(NEIGHBOURS, mean.shape[1] - 1)
    around = torch.nn.functional.pad(mean[:, None], (reach, reach), mode="reflect")[:, 0]
    return around.unfold(1, 2 * reach + 1, 1).median(dim=2).values


def mad_density(frames: OverlappingFrames) -> Tensor:
    """That of moving-average-difference noise with a sigma of 1, through the window, `(1, bins)` float64.

    Its covariance is 1/2 at lag 0 and -1/4 at lag 1, each of which the window weighs by its own.
    """
    window = sine_window(frames.size)
    lag = (window[1:] * window[:-1]).sum() / window.square().sum()
    radians = torch.linspace(0.0, math.pi, frames.size // 2 + 1, dtype=torch.float64)
    return ((1.0 - lag * radians.cos()) / 2.0)[None]


def wiener_gains(posterior: Tensor, *, smoothing: float, floor: float) -> Tensor:
    """Gains of cells from their power over the noise's, both `(frames, batch, bins)`; see `Asnr`.

    Before the first frame there was no speech. floor: the least gain.
    """
    gains: Tensor = _Gains.apply(posterior, smoothing, floor)  # type: ignore[no-untyped-call]
    return gains


@final
class _Gains(torch.autograd.Function):
    """The rule has a gradient of its own because thousands of small steps are slow to record and to retrace.

    With gamma the power over the noise's, G the gain and a the smoothing, frame t has
    xi_t = a G_{t-1}^2 gamma_{t-1} + (1 - a) max(gamma_t - 1, 0) and G_t = xi_t / (1 + xi_t).
    """

    @staticmethod
    def forward(ctx: Any, posterior: Tensor, smoothing: float, floor: float) -> Tensor:
        gains = (posterior - 1.0).clamp_min_(0.0).mul_(1.0 - smoothing)
        squared, above = torch.zeros_like(posterior[0]), torch.empty_like(posterior[0])
        before = posterior[0]
        for prior, now in zip(gains.unbind(), posterior.unbind(), strict=True):
            prior.addcmul_(squared, before, value=smoothing)
            torch.add(prior, 1.0, out=above)
            # What was the a-priori SNR becomes the gain.
            torch.square(prior.div_(above).clamp_min_(floor), out=squared)
            before = now
        ctx.save_for_backward(posterior, gains)
        ctx.smoothing, ctx.floor = smoothing, floor
        return gains

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        posterior, gains = ctx.saved_tensors
        smoothing: float = ctx.smoothing
        # dG / dxi = 1 / (1 + xi)^2; none where the floor holds.
        steep = (1.0 - gains).square().masked_fill(gains <= ctx.floor, 0.0)
        prior = steep * slope
        coupling = (2.0 * smoothing) * steep * gains * posterior
        later = torch.zeros_like(prior[0])
        for now, weight in zip(reversed(prior.unbind()), reversed(coupling.unbind()), strict=True):
            later = now.addcmul_(weight, later)
        gradient = (1.0 - smoothing) * prior.masked_fill(posterior <= 1.0, 0.0)
        gradient[:-1].addcmul_(gains[:-1].square(), prior[1:], value=smoothing)
        return gradient, None, None
