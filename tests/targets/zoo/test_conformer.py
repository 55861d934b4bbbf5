"""The Conformer: frames by hand, positions by their law, padding by the contract, the shipped size."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from sottovoce.errors import InputError
from sottovoce.targets.zoo import conformer
from sottovoce.targets.zoo.conformer import (
    SHORTEST,
    TOKENS,
    Conformer,
    ConformerSize,
    count_output,
    rotate,
    subsample,
)
from sottovoce.targets.zoo.recogniser_targets import VOCABULARY, recogniser, spell_with
from sottovoce.testing import check_target

SMALL = ConformerSize(bands=20, maps=8, width=16, blocks=2, heads=2, kernel=5)


def small(seed: int = 0) -> Conformer:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Conformer(SMALL).requires_grad_(False)
        # Fresh weights say the blank everywhere; sharper ones give texts to compare.
        model.output.weight *= 8.0
        return model.eval()


@pytest.mark.parametrize(
    ("samples", "rows"),
    # Frames 1 + floor((n - 400) / 160), then twice floor((f - 3) / 2) + 1:
    # 1,360 -> 7 -> 3 -> 1; 16,000 -> 98 -> 48 -> 23; 48,000 -> 298 -> 148 -> 73.
    [(1_360, 1), (16_000, 23), (48_000, 73)],
)
def test_rows_by_hand(samples: int, rows: int) -> None:
    assert count_output(torch.tensor(samples)).item() == rows
    log_probs, frames = small()(torch.zeros(1, samples), torch.tensor([samples]))
    assert log_probs.shape == (1, rows, 29)
    assert frames.tolist() == [rows]
    assert log_probs.exp().sum(dim=2) == pytest.approx(1.0, abs=1e-5)


def test_the_shortest_clip_gives_one_row_and_a_shorter_one_none() -> None:
    assert count_output(torch.tensor([SHORTEST - 1, SHORTEST])).tolist() == [0, 1]
    assert subsample(torch.tensor([6, 7, 10, 11])).tolist() == [0, 1, 1, 2]


def test_a_small_one_keeps_the_contract() -> None:
    check_target(spell_with(small()))


def test_rotation_keeps_lengths_and_makes_products_depend_on_the_distance() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 8, generator=generator)
    queries = rotate(query.expand(1, 1, 12, 8))
    keys = rotate(key.expand(1, 1, 12, 8))
    assert queries.norm(dim=-1).flatten().tolist() == pytest.approx([query.norm().item()] * 12, rel=1e-5)
    products = (queries @ keys.transpose(2, 3))[0, 0]
    # Frames 3 and 1 are as far apart as frames 9 and 7, and not as 1 and 3.
    assert products[3, 1].item() == pytest.approx(products[9, 7].item(), abs=1e-4)
    assert abs(products[3, 1].item() - products[1, 3].item()) > 1e-2
    assert torch.equal(queries[0, 0, 0], query)


def test_the_first_pair_turns_by_one_radian_a_frame() -> None:
    turned = rotate(torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, 1, 3, 4))[0, 0]
    # Features 0 and 2 are a pair of speed 1: (cos t, sin t); the other two stay zero.
    assert turned[1].tolist() == pytest.approx([0.5403023, 0.0, 0.8414710, 0.0])
    assert turned[2].tolist() == pytest.approx([-0.4161468, 0.0, 0.9092974, 0.0])


def test_the_shipped_size_fits() -> None:
    count = sum(value.numel() for value in Conformer().parameters())
    # By hand. Subsampling: 64*10 + 64*(64*9+1) + 144*(64*19+1) = 212,816. A block: two feed-forwards of
    # 288 + 576*145 + 144*577 = 166,896, attention 288 + 432*145 + 144*145 = 83,808, convolution
    # 288 + 288*145 + 144*16 + 288 + 144*145 = 65,520, norm 288: 483,408. Output: 29*145 = 4,205.
    assert count == 212_816 + 8 * 483_408 + 4_205
    assert 2 * count < 12e6


def test_the_vocabulary_is_blank_space_apostrophe_and_letters() -> None:
    assert TOKENS == len(VOCABULARY.letters) == 29
    assert VOCABULARY.encode("Go, don't".replace(",", "")) == [9, 17, 1, 6, 17, 16, 2, 22]
    assert VOCABULARY.decode([9, 17, 1, 6, 17, 16, 2, 22]) == "go don't"


def test_sizes_that_cannot_be_split_are_refused() -> None:
    with pytest.raises(InputError, match="expected a width that is a multiple of 8"):
        ConformerSize(width=100, heads=4)
    with pytest.raises(InputError, match="odd kernel"):
        ConformerSize(kernel=16)


def test_weights_are_stored_in_16_bits_and_run_in_32(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.torch.save_file(
        {name: value.half() for name, value in Conformer().state_dict().items()}, path
    )
    target = recogniser(weights=str(path))
    assert path.stat().st_size < 12_000_000
    assert {value.dtype for value in target.module.state_dict().values()} == {torch.float32}
    assert not target.module.training
    assert not any(value.requires_grad for value in target.module.parameters())


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    safetensors.torch.save_file({"weight": torch.zeros(3)}, tmp_path / "strange")
    for name in ("absent", "text", "strange"):
        with pytest.raises(InputError, match="no Conformer of the shipped size"):
            conformer.load(weights=tmp_path / name)
