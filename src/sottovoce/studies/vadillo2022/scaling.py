"""A perturbation turned up or down to a distortion that is asked for (section 3.3)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.universal_attack import Perturbation
from sottovoce.metrics.vocal_parts import FLOOR


def to_l2(perturbation: Perturbation, norm: float) -> Perturbation:
    """The perturbation with this L2 norm, the same for every clip; one of zeros stays so."""
    exact = perturbation.waveform.double()
    size = float(exact.norm())
    return replace(perturbation, waveform=(exact * (norm / size)).float()) if size else perturbation


def to_db_max(perturbation: Perturbation, clean: AudioBatch, level_db: float) -> Tensor:
    """The perturbation over each clip, `(batch, time)`, with dB_x,max(v) = `level_db` on it (eq. 1).

    A clip without a sound of its own counts as half a 16-bit step loud, as in the metric.
    """
    laid = perturbation.over(clean).double()
    peaks = laid.abs().amax(dim=1)
    wanted = clean.waveforms.double().abs().amax(dim=1).clamp_min(FLOOR) * 10.0 ** (level_db / 20.0)
    gain = torch.where(peaks > 0, wanted / peaks, torch.zeros_like(peaks))
    return (laid * gain[:, None]).to(clean.waveforms.dtype)
