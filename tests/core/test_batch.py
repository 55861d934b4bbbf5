"""Audio batches: padding, masks, selection, and every way in which they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError


def two() -> AudioBatch:
    return AudioBatch.of([[0.5, -0.25, 1.0], [0.125]], 8000, ["long", "short"])


def test_clips_are_padded_with_zeros_at_the_end() -> None:
    batch = two()
    assert batch.waveforms.tolist() == [[0.5, -0.25, 1.0], [0.125, 0.0, 0.0]]
    assert batch.waveforms.dtype == torch.float32
    assert batch.lengths.tolist() == [3, 1]
    assert batch.ids == ("long", "short")
    assert len(batch) == 2
    assert batch.ragged
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]


def test_ids_default_to_positions() -> None:
    assert AudioBatch.of([np.zeros(2), np.zeros(2, dtype=np.float64)], 8000).ids == ("0", "1")


def test_select_cuts_to_the_longest_picked() -> None:
    short = two().select([1])
    assert short.waveforms.tolist() == [[0.125]]
    assert short.lengths.tolist() == [1]
    assert short.ids == ("short",)
    assert not short.ragged
    assert two().select([1, 0]).waveforms.tolist() == [[0.125, 0.0, 0.0], [0.5, -0.25, 1.0]]


def test_clip_has_no_padding() -> None:
    assert two().clip(1).tolist() == [0.125]


def test_with_waveforms_cuts_energy_and_gradient_in_the_padding() -> None:
    leaf = torch.full((2, 3), 2.0, requires_grad=True)
    changed = two().with_waveforms(leaf)
    assert changed.waveforms.tolist() == [[2.0, 2.0, 2.0], [2.0, 0.0, 0.0]]
    changed.waveforms.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    assert changed.ids == ("long", "short") and changed.sample_rate == 8000


def test_to_keeps_everything() -> None:
    moved = two().to("cpu")
    assert moved.waveforms.tolist() == two().waveforms.tolist()
    assert moved.ids == two().ids and moved.sample_rate == 8000


def make(**changes: object) -> AudioBatch:
    content: dict[str, object] = {
        "waveforms": torch.zeros(2, 4),
        "lengths": torch.tensor([4, 2]),
        "sample_rate": 8000,
        "ids": ("a", "b"),
    }
    return AudioBatch(**{**content, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"waveforms": torch.zeros(2, 4, dtype=torch.int16)}, "scale integers"),
        ({"waveforms": torch.zeros(4)}, "mix stereo down"),
        ({"waveforms": torch.zeros(0, 4)}, "empty batch"),
        ({"lengths": torch.tensor([1.0, 0.5])}, "not seconds"),
        ({"lengths": torch.tensor([4])}, "int64 lengths of shape"),
        ({"lengths": torch.tensor([4, 0])}, "clip 'b': expected a length from 1 to 4 samples, got 0"),
        ({"lengths": torch.tensor([5, 2])}, "clip 'a': expected a length from 1 to 4 samples, got 5"),
        ({"ids": ("a", "a")}, "got 2 of which 1 differ"),
        ({"ids": ("a",)}, "expected 2 different ids"),
        ({"sample_rate": 0}, "above 0 Hz, got 0"),
        ({"waveforms": torch.tensor([[0.0, torch.nan, 0, 0], [0, 0, 0, 0]])}, "clip 'a': expected finite"),
        ({"waveforms": torch.tensor([[0, 0, 0, 0], [torch.inf, 0, 0, 0]])}, "clip 'b': expected finite"),
        ({"waveforms": torch.tensor([[0, 0, 0, 0.0], [0, -3.0, 0, 0]])}, "clip 'b'.*peak of 3"),
        ({"waveforms": torch.tensor([[0, 0, 0, 0.0], [0, 0, 0.1, 0]])}, "sound there; pad with zeros"),
    ],
)
def test_bad_batches(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**changes)


def test_bad_clips() -> None:
    with pytest.raises(InputError, match="got none"):
        AudioBatch.of([], 8000)
    with pytest.raises(InputError, match=r"mono clips.*\(5, 2\) at position 1"):
        AudioBatch.of([np.zeros(5), np.zeros((5, 2))], 8000)
    with pytest.raises(InputError, match="length from 1"):
        AudioBatch.of([np.zeros(5), np.zeros(0)], 8000)
    with pytest.raises(InputError, match=r"shape \(2, 3\), got \(2, 4\)"):
        two().with_waveforms(torch.zeros(2, 4))
