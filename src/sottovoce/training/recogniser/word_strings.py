"""Strings of recorded words, laid out by number on the CPU and rendered in one gather on any device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sottovoce.training.recogniser.recogniser_pack import FULL_SCALE, RecogniserPack

SAMPLE_RATE = 16_000
FADE = 80
"""Samples (5 ms) over which an item comes in and goes out, so that no cut clicks."""
LEVEL = 0.05
"""Root mean square of a rendered string."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How strings are put together; ranges are uniform and include both ends.

    equalise: 0 leaves each item as loud as it was recorded, 1 makes all of a string alike.
    """

    words: tuple[int, int] = (2, 6)
    sentences: tuple[int, int] = (1, 1)
    gap_seconds: tuple[float, float] = (0.0, 0.2)
    edge_seconds: tuple[float, float] = (0.0, 0.1)
    speed: tuple[float, float] = (1.0, 1.0)
    equalise: float = 0.7


class ItemBank:
    """All items of a pack: the sound on a device, what is needed to lay it out on the CPU."""

    def __init__(self, pack: RecogniserPack, device: torch.device | str = "cpu") -> None:
        self.samples = torch.as_tensor(pack.samples).to(device)
        self.lengths = pack.lengths
        self.starts = pack.starts
        self.texts: list[str] = pack.texts.tolist()
        self.words = np.flatnonzero(pack.kind == "word")
        self.sentences = np.flatnonzero(pack.kind == "sentence")
        # In 64 bits: a running sum over hours of sound.
        power = np.concatenate([[0.0], np.cumsum((pack.samples / FULL_SCALE) ** 2)])
        energy = power[self.starts + self.lengths] - power[self.starts]
        self.levels = np.sqrt(np.maximum(energy / self.lengths, 1e-10))


@dataclass(frozen=True, kw_only=True)
class StringLayout:
    """Where items go in each row of a batch, `(rows, places)`; past a row's last item spans are zero.

    items: places in the bank. begins, spans: samples of the row. gains, speeds: of each item.
    lengths: of the rows in samples, `(rows,)`. texts: what the rows say.
    """

    items: np.ndarray
    begins: np.ndarray
    spans: np.ndarray
    gains: np.ndarray
    speeds: np.ndarray
    lengths: np.ndarray
    texts: tuple[str, ...]


def lay_out(
    bank: ItemBank,
    items: np.ndarray,
    counts: np.ndarray,
    gaps: np.ndarray,
    speeds: np.ndarray,
    equalise: float,
) -> StringLayout:
    """Items `(rows, places)`, of which the first `counts (rows,)` are heard, one after the other.

    gaps: samples of silence before each item and, in the last column, after the last: `(rows, places + 1)`.
    """
    heard = np.arange(items.shape[1]) < counts[:, None]
    spans = np.where(heard, bank.lengths[items] / speeds, 0).astype(np.int64)
    before = np.where(heard, gaps[:, :-1], 0)
    begins = np.cumsum(before + spans, axis=1) - spans
    names = [
        " ".join(bank.texts[item] for item in row[:count])
        for row, count in zip(items.tolist(), counts.tolist(), strict=True)
    ]
    return StringLayout(
        items=items,
        begins=begins,
        spans=spans,
        gains=(LEVEL / bank.levels[items]) ** equalise,
        speeds=speeds,
        lengths=(before + spans).sum(axis=1) + gaps[:, -1],
        texts=tuple(names),
    )


def draw_plan(
    bank: ItemBank, random: np.random.Generator, style: Style, *, strings: int = 0, sentences: int = 0
) -> StringLayout:
    """Rows of random words, then rows of random sentences."""
    kinds = [(bank.words, strings, style.words), (bank.sentences, sentences, style.sentences)]
    rows, most = strings + sentences, max(style.words[1], style.sentences[1])
    items = np.concatenate([random.choice(places, (number, most)) for places, number, _ in kinds if number])
    counts = np.concatenate([random.integers(*size, number, endpoint=True) for _, number, size in kinds])
    gaps = random.uniform(*style.gap_seconds, (rows, most + 1))
    gaps[:, [0, -1]] = random.uniform(*style.edge_seconds, (rows, 2))
    speeds = random.uniform(*style.speed, (rows, most))
    return lay_out(bank, items, counts, (gaps * SAMPLE_RATE).astype(np.int64), speeds, style.equalise)


def read_out(bank: ItemBank, places: np.ndarray) -> StringLayout:
    """Each item in a row of its own, as it is."""
    items, alone = places[:, None], np.ones(len(places), dtype=np.int64)
    return lay_out(bank, items, alone, np.zeros((len(places), 2), np.int64), np.ones(items.shape), 0.0)


def render(bank: ItemBank, plan: StringLayout, *, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Waveforms `(rows, time)` on the bank's device and lengths `(rows,)`; time is a multiple of `multiple`.

    Every row has the same level, and zeros past its length.
    """
    device = bank.samples.device

    def send(values: np.ndarray, kind: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values)).to(device, kind, non_blocking=True)

    width = -(-int(plan.lengths.max()) // multiple) * multiple
    begins, lengths = send(plan.begins), send(plan.lengths)
    time = torch.arange(width, device=device).expand(len(begins), -1).contiguous()
    place = (torch.searchsorted(begins, time, right=True) - 1).clamp_min(0)
    # Items that are not heard share their begin with the end of the last one that is.
    place = torch.minimum(place, send((plan.spans > 0).sum(axis=1) - 1).unsqueeze(1))
    since = time - begins.gather(1, place)
    span = send(plan.spans).gather(1, place)
    position = since * send(plan.speeds, torch.float32).gather(1, place)
    last = send(bank.lengths[plan.items] - 1).gather(1, place)
    before = position.long().clamp_min(0).minimum(last)
    start = send(bank.starts[plan.items]).gather(1, place)
    left, right = bank.samples[start + before], bank.samples[start + (before + 1).minimum(last)]
    sound = torch.lerp(left.float(), right.float(), position - before)
    ramp = torch.minimum(since + 1, span - since).clamp(0, FADE) / FADE
    waveforms = sound * ramp * send(plan.gains, torch.float32).gather(1, place) / FULL_SCALE
    return waveforms * (LEVEL / rms(waveforms, lengths)).unsqueeze(1), lengths


def rms(waveforms: Tensor, lengths: Tensor) -> Tensor:
    """Root mean square of rows `(rows, time)` that are zero past their lengths, `(rows,)`."""
    return (waveforms.square().sum(dim=1) / lengths).sqrt().clamp_min(1e-8)
