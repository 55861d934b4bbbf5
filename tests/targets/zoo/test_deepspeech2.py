"""Deep Speech 2 with random weights: frames by hand, padding by the contract, files of other sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from sottovoce.errors import InputError
from sottovoce.targets.zoo.deepspeech2 import DeepSpeech2, DeepSpeech2Size, count_output
from sottovoce.targets.zoo.recogniser_targets import deepspeech2
from sottovoce.testing import check_target


@pytest.fixture
def weights(tmp_path: Path) -> str:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = DeepSpeech2(DeepSpeech2Size(maps=2, layers=5, width=8))
    state = model.state_dict()
    # Fresh weights say one letter everywhere; sharper ones give texts to compare.
    state["output.weight"] *= 8.0
    safetensors.torch.save_file(state, tmp_path / "small.safetensors")
    return str(tmp_path / "small.safetensors")


# 400 -> 1 -> 1; 560 -> 2 -> 1; 720 -> 3 -> 2; 16,000 -> 98 -> 49: half the frames, rounded up.
@pytest.mark.parametrize(
    ("samples", "frames", "rows"), [(400, 1, 1), (560, 2, 1), (720, 3, 2), (16_000, 98, 49)]
)
def test_rows_by_hand(samples: int, frames: int, rows: int, weights: str) -> None:
    assert count_output(torch.tensor(frames)).item() == rows
    module = deepspeech2(weights, maps=2, width=8).module
    log_probs, counted = module(torch.zeros(1, samples), torch.tensor([samples]))
    assert log_probs.shape == (1, rows, 29)
    assert counted.tolist() == [rows]
    assert log_probs.exp().sum(dim=2) == pytest.approx(1.0, abs=1e-5)


def test_it_keeps_the_contract(weights: str) -> None:
    check_target(deepspeech2(weights, maps=2, width=8))


def test_parameters_by_hand() -> None:
    count = sum(
        value.numel() for value in DeepSpeech2(DeepSpeech2Size(maps=2, layers=2, width=8)).parameters()
    )
    # Convolutions 2*(11*41+1) and 2*(2*11*21+1); norm 2*40; each direction of a layer 4*8*(inputs+8+2), with
    # 40 and then 16 inputs; norm 2*16; output 29*17.
    assert count == 904 + 926 + 80 + 2 * 32 * (50 + 26) + 32 + 493


def test_a_file_of_another_size_is_refused(weights: str, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"Deep Speech 2 with 2 maps and 5 layers of width 16, got .*own size"
    ):
        deepspeech2(weights, maps=2, width=16)
    with pytest.raises(
        InputError, match=r"absent: expected a file of weights, got no such file; check the path"
    ):
        deepspeech2(str(tmp_path / "absent"))
