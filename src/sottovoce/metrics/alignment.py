"""Whether a changed clip lies earlier or later than the clean one, and the part that both then share.

A copy that is a few samples late sounds the same, yet what it differs by is as loud as the clip. Whole
samples are undone; polarity, gain and drift are not. What an attack adds moves nothing: its shift is 0.
"""

from __future__ import annotations

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.metrics.signal_distortion import as_samples, check_shapes, valid_mask
from sottovoce.perception.ears.ear import check_pair

MAX_SHIFT_SECONDS = 0.5
KEPT_RESIDUE = 0.8
"""A shift must leave less than this share of what no shift leaves unexplained (1 dB)."""
# A residue (40 dB down) at which clips lie where they should: one sample more or less leaves more than that
# of anything above 25 Hz at 16 kHz, and 80 Hz at 48 kHz.
_SAME = 1e-4


def find_shifts(
    clean: Tensor,
    changed: Tensor,
    lengths: Tensor,
    *,
    sample_rate: int,
    max_shift_seconds: float = MAX_SHIFT_SECONDS,
) -> Tensor:
    """How many samples later each changed clip `(batch, time)` is than the clean one: `(batch,)` int64.

    The lag with the highest correlation over the part that both clips share, at most half of a clip away and
    with half of its energy or more. It counts only where it explains clearly more of the clip than no shift
    does. Of a periodic sound, of silence and of a clip buried in noise nobody can tell where it lies: 0. A
    clip upside down is in place too.
    """
    check_shapes(clean, changed)
    lengths = lengths.detach().cpu()
    shifts = torch.zeros(len(clean), dtype=torch.int64)
    pair = as_samples(clean, lengths), as_samples(changed, lengths)
    # Most pairs are attacked clips, which a look at lag 0 shows to be in place.
    rows = (_residue(_at_zero(*pair)) > _SAME).nonzero()[:, 0]
    widest = min(int(max_shift_seconds * sample_rate), int(lengths.max()) // 2)
    if not len(rows) or not widest:
        return shifts
    lags = torch.arange(-widest, widest + 1)
    for row in rows.tolist():  # one at a time: a transform as long as the clip fills the cache by itself
        size = int(lengths[row])
        alike = _correlations(pair[0][row, :size], pair[1][row, :size], lags)
        alike = alike.masked_fill(lags.abs() > size // 2, -1.0)
        # Of equal peaks, which a periodic sound has, the nearest.
        best = int((alike - 1e-9 * lags.abs()).argmax())
        if alike[best] > 0 and _residue(alike[best]) < KEPT_RESIDUE * _residue(alike[widest]):
            shifts[row] = lags[best]
    return shifts


def overlap(clean: AudioBatch, changed: AudioBatch, shifts: Tensor) -> tuple[AudioBatch, AudioBatch]:
    """The parts of both clips that lie over each other once `shifts (batch,)` are undone."""
    check_pair(clean, changed)
    if not bool(shifts.any()):
        return clean, changed
    shifts = shifts.to(clean.device)
    lengths = clean.lengths - shifts.abs().to(clean.lengths.device)
    width = int(lengths.max())
    inside = valid_mask(lengths, width).to(clean.device)
    cut = [
        _from(batch.waveforms, start, width).masked_fill(~inside, 0.0)
        for batch, start in ((clean, (-shifts).clamp_min(0)), (changed, shifts.clamp_min(0)))
    ]
    shared = AudioBatch(cut[0], lengths, clean.sample_rate, clean.ids)
    return shared, shared.with_waveforms(cut[1])


def cut_to_overlap(
    clean: Tensor, changed: Tensor, *, sample_rate: int, max_shift_seconds: float = MAX_SHIFT_SECONDS
) -> tuple[Tensor, Tensor, int]:
    """What two clips `(time,)` of any lengths share, and how many samples the changed one was late."""
    size = max(len(clean), len(changed))
    padded = [torch.nn.functional.pad(clip, (0, size - len(clip)))[None] for clip in (clean, changed)]
    found = find_shifts(
        padded[0],
        padded[1],
        torch.tensor([size]),
        sample_rate=sample_rate,
        max_shift_seconds=max_shift_seconds,
    )
    shift = int(found[0])
    clean, changed = clean[max(0, -shift) :], changed[max(0, shift) :]
    shared = min(len(clean), len(changed))
    return clean[:shared], changed[:shared], shift


def _from(waveforms: Tensor, starts: Tensor, width: int) -> Tensor:
    """`width` samples of each row from a place of its own on."""
    places = starts[:, None] + torch.arange(width, device=waveforms.device)
    return waveforms.gather(1, places.clamp_max(waveforms.shape[1] - 1))


def _at_zero(clean: Tensor, changed: Tensor) -> Tensor:
    """Correlation without a shift, `(batch,)`; 0 where a clip is silent."""
    both = (clean * changed).sum(dim=1)
    scale = clean.square().sum(dim=1) * changed.square().sum(dim=1)
    return torch.where(scale > 0, both / scale.clamp_min(torch.finfo(scale.dtype).tiny).sqrt(), 0.0)


def _correlations(clean: Tensor, changed: Tensor, lags: Tensor) -> Tensor:
    """Correlation of clean[n] and changed[n + lag] where both are, `(lags,)`; 0 where too little is."""
    size = len(clean)
    points = next_fast_len(size + int(lags.max()), real=True)
    spectra = torch.fft.rfft(torch.stack([clean, changed]), n=points)
    products = torch.fft.irfft(spectra[0].conj() * spectra[1], n=points)[lags % points]
    energy = torch.nn.functional.pad(torch.stack([clean, changed]).square().cumsum(dim=1), (1, 0))
    first, last = (-lags).clamp(0, size), (size - lags).clamp(0, size)
    shared_clean = energy[0, last] - energy[0, first]
    shared_changed = energy[1, (last + lags).clamp(0, size)] - energy[1, (first + lags).clamp(0, size)]
    # Else the hum before a word that was cut out of the other clip would be a match.
    heard = torch.minimum(shared_clean / energy[0, -1], shared_changed / energy[1, -1]) > 0.5
    scale = (shared_clean * shared_changed).clamp_min(torch.finfo(energy.dtype).tiny).sqrt()
    return torch.where(heard, products / scale, 0.0).clamp(-1.0, 1.0)


def _residue(correlation: Tensor) -> Tensor:
    """Share of a clip's energy that the other, at its best gain, does not explain."""
    return 1.0 - correlation.square()
