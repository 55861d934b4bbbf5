"""Random numbers belong to the seed, the turn and the clip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws


def clips(*ids: str, lengths: tuple[int, ...] | None = None) -> AudioBatch:
    sizes = lengths or (6,) * len(ids)
    return AudioBatch.of([[0.0] * size for size in sizes], 8000, ids)


def test_a_row_depends_on_its_id_alone() -> None:
    alone = Draws(1).normal(clips("b"))
    together = Draws(1).normal(clips("a", "b", "c"))
    assert torch.equal(alone[0], together[1])
    assert not torch.equal(together[0], together[1])


def test_a_shorter_clip_hears_the_start_of_the_same_stream() -> None:
    long = Draws(1).uniform(clips("a", "b", lengths=(6, 6)))
    short = Draws(1).uniform(clips("a", "b", lengths=(6, 2)))
    assert torch.equal(long[1, :2], short[1, :2])
    assert short[1, 2:].tolist() == [0.0] * 4


def test_asking_twice_gives_the_same_and_a_turn_gives_others() -> None:
    batch = clips("a")
    draws = Draws(5)
    assert torch.equal(draws.normal(batch), draws.normal(batch))
    seen = [draws, draws.turn("step", 1), draws.turn("step", 2), draws.turn("step", "1"), Draws(6)]
    numbers = {tuple(stream.normal(batch)[0].tolist()) for stream in seen}
    assert len(numbers) == 5


def test_turns_add_up() -> None:
    assert Draws(1).turn("a", 2).turn("b") == Draws(1, ("a", 2, "b"))
    # A name that holds the separator is not two turns.
    batch = clips("x")
    joined, parted = Draws(1).turn("a'\x1f'b"), Draws(1).turn("a", "b")
    assert not torch.equal(joined.normal(batch), parted.normal(batch))


def test_distributions() -> None:
    batch = AudioBatch.of([[0.0] * 20000], 8000)
    normal, uniform = Draws(3).normal(batch), Draws(3).uniform(batch)
    # Standard errors at n = 20000: 0.007 for the mean, 0.005 for the deviation of a normal.
    assert abs(float(normal.mean())) < 0.03 and abs(float(normal.std()) - 1.0) < 0.03
    assert float(uniform.min()) >= -1.0 and float(uniform.max()) < 1.0
    assert abs(float(uniform.mean())) < 0.03 and abs(float(uniform.var()) - 1.0 / 3.0) < 0.02
    assert normal.dtype == uniform.dtype == torch.float32


def test_fractions() -> None:
    fractions = Draws(3).fractions(clips("a", "b"), 4)
    assert fractions.shape == (2, 4)
    assert float(fractions.min()) >= 0.0 and float(fractions.max()) < 1.0
    assert torch.equal(fractions[1:], Draws(3).fractions(clips("b"), 4))


def test_samples_follow_the_batch_in_precision() -> None:
    batch = AudioBatch(torch.zeros(1, 4, dtype=torch.float64), torch.tensor([4]), 8000, ("a",))
    assert Draws(0).normal(batch).dtype == torch.float64


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(), name=st.text(), path=st.lists(st.one_of(st.text(), st.integers()), max_size=3))
def test_any_seed_name_and_turn(seed: int, name: str, path: list[str | int]) -> None:
    one, two = Draws(seed).turn(*path), Draws(seed, tuple(path))
    assert one.generator(name).random() == two.generator(name).random()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_noise_on_a_gpu_belongs_to_the_clip(kind: str) -> None:
    batch = AudioBatch.of([[0.0] * 5000, [0.0] * 9000], 16000, ["one", "two"]).to("cuda")
    draw = getattr(Draws(3).turn("a"), kind)
    whole = draw(batch)
    assert torch.equal(draw(batch.select([1]))[0], whole[1])
    assert torch.equal(draw(batch.select([0]))[0], whole[0, :5000])
    assert not whole[0, 5000:].any()
    assert not torch.equal(getattr(Draws(3).turn("b"), kind)(batch), whole)
    # Deviations of a standard normal and of a uniform between -1 and 1.
    assert float(whole[1].std()) == pytest.approx({"normal": 1.0, "uniform": 3**-0.5}[kind], rel=0.03)
