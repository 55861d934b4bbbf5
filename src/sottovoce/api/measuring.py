"""Measuring what changed between clips: `measure`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.api.measure_pairs import (
    MeasuredPair,
    all_to_json,
    find_metrics,
    find_pairs,
    load_pair,
    measure_pairs,
    pair_to_json,
)
from sottovoce.api.object_texts import metric_names
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import Metric
from sottovoce.data.load import Clip
from sottovoce.errors import InputError

Sound = str | os.PathLike[str] | Tensor | NDArray[Any] | AudioBatch


def measure(
    clean: Sound,
    changed: Sound,
    metrics: str | Metric | Iterable[str | Metric | type[Metric]] | None = None,
    *,
    sample_rate: int | None = None,
    align: bool = False,
) -> dict[str, Any]:
    """Measure what changed between two clips: signal-to-noise ratio, quality, audibility ... Returns a dict.

    The same as `sottovoce measure --json`. Needs no model.

    clean, changed: two files; two folders, in which files of the same name are pairs; two waveforms
        `(time,)`; or two `AudioBatch`, such as `trial.clean` and `trial.adversarial`.
    metrics: names or objects, such as ["snr", "p-heard"]; `sottovoce parts metric` lists all. None: all that
        are about audio, except those that have to be named, such as visqol.
    sample_rate: of waveforms, in Hz.
    align: for files: undo a shift of up to a second, and cut both to what they share.

    For one pair: a dict from metric to value; a metric without a finite value is None, and "unscored" has the
    reason. For folders and batches: "summary" (means with intervals), "pairs" (a dict for each) and "failed".

    >>> import sottovoce as sv
    >>> import torch
    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> round(sv.measure(clean, 1.1 * clean, metrics=["snr"], sample_rate=16000)["snr"], 3)
    20.0
    """
    names = metric_names(metrics) or []
    found = find_metrics(names)
    one = True
    failed: dict[str, str] = {}
    if isinstance(clean, AudioBatch) and isinstance(changed, AudioBatch):
        one, pairs = False, iter(_of_batches(clean, changed))
    elif isinstance(clean, Tensor | np.ndarray) and isinstance(changed, Tensor | np.ndarray):
        pairs = iter([_of_waveforms(clean, changed, sample_rate)])
    elif isinstance(clean, str | os.PathLike) and isinstance(changed, str | os.PathLike):
        one, pairs = not Path(clean).is_dir(), _of_files(Path(clean), Path(changed), align, failed)
    else:
        raise InputError(
            f"measure expected two files, two folders, two waveforms or two batches, got "
            f"{type(clean).__name__} and {type(changed).__name__}."
        )
    figures = measure_pairs(pairs, found, asked=bool(names))
    if not figures.names:
        raise InputError(next(iter(failed.values())))
    return pair_to_json(figures) if one else all_to_json(figures, failed)


def _of_files(clean: Path, changed: Path, align: bool, failed: dict[str, str]) -> Iterator[MeasuredPair]:
    for paths in find_pairs(clean, changed)[0]:
        try:
            yield load_pair(paths, align=align)
        except InputError as error:
            failed[paths.name] = str(error)


def _of_batches(clean: AudioBatch, changed: AudioBatch) -> list[MeasuredPair]:
    if clean.sample_rate != changed.sample_rate or clean.lengths.tolist() != changed.lengths.tolist():
        raise InputError(
            "measure expected two batches of the same clips, got different sample rates or lengths."
        )
    rate = clean.sample_rate
    return [
        MeasuredPair(name, _clip(name, clean.clip(row), rate), _clip(name, changed.clip(row), rate), None, ())
        for row, name in enumerate(clean.ids)
    ]


def _of_waveforms(
    clean: Tensor | NDArray[Any], changed: Tensor | NDArray[Any], sample_rate: int | None
) -> MeasuredPair:
    if sample_rate is None:
        raise InputError("measure expected sample_rate= with waveforms, got none; give it in Hz.")
    if clean.ndim != 1 or clean.shape != changed.shape:
        raise InputError(
            f"measure expected two waveforms (time,) of one length, got {tuple(clean.shape)} and "
            f"{tuple(changed.shape)}."
        )
    return MeasuredPair(
        "pair", _clip("pair", clean, sample_rate), _clip("pair", changed, sample_rate), None, ()
    )


def _clip(name: str, samples: Tensor | NDArray[Any], sample_rate: int) -> Clip:
    waveform = torch.as_tensor(samples).detach().cpu().to(torch.float32)
    return Clip(name, waveform, sample_rate, "")
