"""An ear made of published psychoacoustics: the peripheral ear and the detection step of ITU-R BS.1387.

It replaces a listener where there are no answers of people; what it says is simulated. It follows the
FFT-based ear model of BS.1387-1 (Annex 2): the weighting of the outer and middle ear, bands a quarter of a
Bark wide, internal noise, spreading that grows with the level, forward smearing, and the just noticeable step
s(L) of an excitation. Where it differs, and why, is in the docstring of `Auditory`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.perception.ears.ear import Ear, check_pair

HOP_SECONDS = 0.02
"""From one frame to the next; a frame lasts two of them."""
LOWEST_HZ, HIGHEST_HZ = 80.0, 18000.0
BAND_BARK = 0.25
HEARING_BARK = 24.0
"""The width of hearing: a change that is just heard in the mean over all of it has distance 1."""
INTEGRATION_SECONDS = 0.2
"""How long the ear adds up evidence (temporal integration)."""
LOWER_DB = 27.0
"""How fast excitation falls towards lower frequencies, a Bark."""
COMPRESSION = 0.4
"""The power of the excitation in which contributions of several bands add up."""
FLOOR = 1e-6
"""Power of an empty band, 60 dB below the softest sound that is heard."""
SMEAR_STEPS = 5
"""Forward smearing reaches back 2^5 frames, 0.64 s."""
NEPER = math.log(10.0) / 10.0
"""A decibel of power, as a natural logarithm."""


@final
@dataclass(frozen=True, kw_only=True)
class Auditory(Ear):
    """An ear of published psychoacoustics (ITU-R BS.1387); at a distance of 1 half of all listeners notice.

    It counts differences of excitation in just noticeable steps:

    - In a band the ear averages squared steps over 0.2 s. A lasting step counts in full, a fluctuation about
      it for less, because a listener remembers levels and not the course of every frame.
    - Over frequency the evidence adds up as independent probabilities do, 1 - 0.5^(mean of q^b), the mean
      over the 24 Bark of hearing.
    - Over time the strongest moment and the clip's mean count alike (`pool_over_time`).
    - A tone keeps its level when it spreads, and internal noise is added after spreading, as in the filter
      bank of BS.1387: in its FFT model a tone loses 13 dB and is heard in quiet from 16 dB SPL on.
    - A step is taken at the louder of both excitations, so that the clips can change places, and a listener
      who compares two clips from memory needs a larger one (`memory_db`; Durlach & Braida 1969).

    `fluctuation`, `memory_db` and the mean over 24 Bark are choices of this model, made so that thresholds of
    tones in noise and of changes of level come out near published ones; ratings of codecs were not used. What
    to expect: a tone of 1 kHz is heard in quiet at 8 dB SPL, in white noise 2 to 3 dB below the level of its
    critical band; a change of level from 1.9, 1.2 and 0.7 dB on for a tone of 40, 60 and 80 dB SPL, and from
    0.8 dB on for white noise of 60 dB SPL. Phase is not heard; events within a frame or two, such as gaps of
    a few milliseconds and fast modulation, are heard less than by people.

    full_scale_db: sound pressure level in dB SPL of a sine of amplitude 1, 40 to 120; 92 as in BS.1387 plays
        speech of an RMS of -25 dB re. full scale at 70 dB SPL. Clips at 8 kHz or more.
    exponent: b, the steepness of detection, 2 or more; BS.1387 has 4 and 6.
    fluctuation: weight of a squared fluctuation against a squared lasting step, 0 to 1.
    memory_db: what memory adds to the just noticeable step in dB, as variances add; 0 or more.

    >>> ear, clips = sv.ears.Auditory(), sv.testing.example_clips(16000)
    >>> bool(ear.distance(clips, clips).max() < 1e-6)  # equal clips
    True
    >>> ear.probability(torch.tensor([0.0, 1.0])).tolist()
    [0.0, 0.5]
    """

    name: ClassVar[str] = "auditory"
    title: ClassVar[str] = "auditory model"

    full_scale_db: float = 92.0
    exponent: float = 4.0
    fluctuation: float = 0.25
    memory_db: float = 0.5

    def __post_init__(self) -> None:
        if not 40.0 <= self.full_scale_db <= 120.0:
            raise InputError(
                f"full_scale_db: expected 40 to 120, got {self.full_scale_db}; give the sound pressure level "
                "of a full-scale sine in dB."
            )
        if not (self.exponent >= 2.0 and 0.0 <= self.fluctuation <= 1.0 and self.memory_db >= 0.0):
            raise InputError(
                "expected exponent of 2 or more, fluctuation from 0 to 1 and memory_db of 0 or more, got "
                f"{self.exponent}, {self.fluctuation} and {self.memory_db}."
            )

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        """`(batch,)` in just noticeable differences; gradient to both clips, zero where they are equal."""
        check_pair(clean, changed)
        frames = _frames(clean.lengths, _hop(clean.sample_rate))
        # Made anew, so that no gradient reaches the padding.
        both = torch.cat([pair.with_waveforms(pair.waveforms).waveforms for pair in (clean, changed)])
        first, second = self.excitation_db(both, clean.sample_rate).chunk(2)
        step = torch.hypot(step_db(torch.maximum(first, second)), first.new_tensor(self.memory_db))
        steps = (second - first) / step
        inside = torch.arange(steps.shape[2], device=steps.device) < frames.to(steps.device)[:, None]
        steps = steps.masked_fill(~inside[:, None], 0.0)
        return pool_over_time(self._evidence(steps), inside, self.exponent)

    def probability(self, distance: Tensor) -> Tensor:
        return 1.0 - torch.exp2(-(distance**self.exponent))

    def excitation_db(self, waveforms: Tensor, sample_rate: int) -> Tensor:
        """Excitation of the ear, its own noise included: `(batch, time)` to `(batch, bands, frames)`, dB."""
        if sample_rate < 8000:
            raise InputError(f"the auditory model needs clips at 8000 Hz or more, got {sample_rate} Hz.")
        ear = _periphery(sample_rate, waveforms.device, waveforms.dtype)
        gain = 10.0 ** (self.full_scale_db / 20.0)
        bands = ear.weights @ _power(gain * waveforms, sample_rate)
        return (_smear(_spread(bands, ear), ear) + ear.noise).log() / NEPER

    def _evidence(self, steps: Tensor) -> Tensor:
        """Distance to the power b at each moment, `(batch, frames)`, of steps `(batch, bands, frames)`."""
        looks = round(INTEGRATION_SECONDS / HOP_SECONDS)
        ends = pad(steps, (looks // 2, looks - 1 - looks // 2))
        lasting = avg_pool1d(ends, looks, 1).square()
        whole = avg_pool1d(ends.square(), looks, 1)
        # Rounding may make the variance slightly negative in float32.
        squared = lasting + self.fluctuation * (whole - lasting).relu()
        return BAND_BARK / HEARING_BARK * (squared ** (self.exponent / 2)).sum(dim=1)


def pool_over_time(evidence: Tensor, inside: Tensor, exponent: float) -> Tensor:
    """A distance `(batch,)` from the evidence of each moment, `(batch, frames)`, a distance to a power.

    The strongest moment and the mean of a clip's own frames (`inside`) count alike: a short event in a long
    clip is heard, and nothing grows with the length alone. 0 where there is no evidence, and no slope.
    """
    evidence = evidence.masked_fill(~inside, 0.0)
    pooled = 0.5 * (evidence.amax(dim=1) + evidence.sum(dim=1) / inside.sum(dim=1))
    # A root has no finite slope at zero; below a hundredth of a step this one falls linearly to zero.
    root: Tensor = pooled / (pooled + 0.01**exponent) ** (1.0 - 1.0 / exponent)
    return root


def step_db(level_db: Tensor) -> Tensor:
    """The just noticeable step of an excitation of a level (BS.1387-1, Annex 2, probability of detection)."""
    level = level_db.clamp_min(0.1)
    curve = ((9.01033e-11 * level + 5.05622e-6) * level - 1.02438e-3) * level + 0.0550197
    return 5.95072 * (6.39468 / level) ** 1.71332 + curve * level - 0.198719


def bark(frequency_hz: float) -> float:
    """The pitch scale of BS.1387 (Schroeder), which is not Zwicker's of the masking module."""
    return 7.0 * math.asinh(frequency_hz / 650.0)


@final
@dataclass(frozen=True)
class _Periphery:
    """Constants of the ear at a sample rate.

    weights: `(bands, bins)`, power of the spectrum to that of bands. noise: `(bands, 1)`.
    upper_db: `(bands, 1)`, how fast excitation falls upwards at level 0, a Bark. decay: `(bands, 1)`,
    what is left after a frame.
    """

    weights: Tensor
    noise: Tensor
    upper_db: Tensor
    decay: Tensor


@lru_cache(maxsize=8)
def _periphery(sample_rate: int, device: torch.device, dtype: torch.dtype) -> _Periphery:
    top = min(HIGHEST_HZ, sample_rate / 2)
    count = math.ceil((bark(top) - bark(LOWEST_HZ)) / BAND_BARK - 1e-9)
    edges = bark(LOWEST_HZ) + BAND_BARK * torch.arange(count + 1, dtype=torch.float64)
    edges[-1] = bark(top)
    edges_hz = 650.0 * (edges / 7.0).sinh()
    centres_hz = 650.0 * ((edges[1:] + edges[:-1]) / 14.0).sinh()[:, None]
    khz = centres_hz / 1000.0
    noise = 10.0 ** (0.1456 * khz**-0.8)
    upper_db = 24.0 + 230.0 / centres_hz
    decay_seconds = 0.008 + 100.0 / centres_hz * (0.030 - 0.008)
    tables = (_weights(edges_hz, sample_rate), noise, upper_db, (-HOP_SECONDS / decay_seconds).exp())
    return _Periphery(*(table.to(device, dtype) for table in tables))


def _weights(edges_hz: Tensor, sample_rate: int) -> Tensor:
    """`(bands, bins)`: each bin shared among the bands that it overlaps, and weighted by the outer ear."""
    size = 2 * _hop(sample_rate)
    width = sample_rate / size
    bins_hz = torch.arange(size // 2 + 1, dtype=torch.float64) * width
    low = torch.maximum(edges_hz[:-1, None], bins_hz - width / 2)
    high = torch.minimum(edges_hz[1:, None], bins_hz + width / 2)
    share = (high - low).relu() / width
    khz = bins_hz.clamp_min(1.0) / 1000.0
    outer_db = -2.184 * khz**-0.8 + 6.5 * (-0.6 * (khz - 3.3).square()).exp() - 0.001 * khz**3.6
    return share * 10.0 ** (outer_db / 10.0)


def _hop(sample_rate: int) -> int:
    return round(HOP_SECONDS * sample_rate)


def _frames(lengths: Tensor, hop: int) -> Tensor:
    """Frames of each clip; a frame that only touches it would see a cut and not a sound."""
    return (lengths + hop // 2) // hop + 1


def _power(waveforms: Tensor, sample_rate: int) -> Tensor:
    """Power spectrum, `(batch, bins, frames)`, frame n about sample n hops; a sine of amplitude 1 has 1."""
    hop = _hop(sample_rate)
    width = waveforms.shape[1]
    after = hop * int(_frames(torch.tensor(width), hop)) - width
    window = _window(2 * hop, waveforms.device, waveforms.dtype)
    spectrum = torch.stft(
        pad(waveforms, (hop, after)), 2 * hop, hop, window=window, center=False, return_complex=True
    )
    return spectrum.real.square() + spectrum.imag.square()


@lru_cache(maxsize=8)
def _window(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    hann = torch.hann_window(size, dtype=torch.float64)
    return (2.0 * hann / (size * hann.square().sum()).sqrt()).to(device, dtype)


def _spread(bands: Tensor, ear: _Periphery) -> Tensor:
    """Excitation over the basilar membrane, `(batch, bands, frames)`: louder bands reach further up."""
    count = bands.shape[1]
    bands = bands.clamp_min(FLOOR)
    level_db = bands.log() / NEPER
    upper = torch.exp(-NEPER * BAND_BARK * (ear.upper_db - 0.2 * level_db).clamp_min(1.0))
    lower = 10.0 ** (-LOWER_DB * BAND_BARK / 10.0)
    source = bands**COMPRESSION
    ratio = upper**COMPRESSION
    places = torch.arange(count, device=bands.device, dtype=bands.dtype)
    distance = places - places[:, None]
    downward = torch.where(distance > 0, lower ** (COMPRESSION * distance), torch.zeros_like(distance))
    total = source + downward @ source
    reach = source
    for step in range(1, count):
        reach = reach[:, :-1] * ratio[:, : count - step]
        total = total + pad(reach, (0, 0, step, 0))
    return total ** (1.0 / COMPRESSION)


def _smear(excitation: Tensor, ear: _Periphery) -> Tensor:
    """Forward masking: a first-order decay over frames, or the excitation itself where that is more."""
    smeared = (1.0 - ear.decay) * excitation
    for step in range(SMEAR_STEPS):
        reach = 2**step
        smeared = smeared + ear.decay**reach * pad(smeared, (reach, 0))[..., :-reach]
    return torch.maximum(smeared, excitation)
