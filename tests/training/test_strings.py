"""Strings of words, laid out and rendered by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sottovoce.training.recogniser.recogniser_pack import of_items
from sottovoce.training.recogniser.word_strings import (
    LEVEL,
    ItemBank,
    Style,
    draw_plan,
    lay_out,
    read_out,
    render,
    rms,
)

WORDS = ("yes", "no", "stop")


def bank() -> ItemBank:
    """Three words of 200, 300 and 400 samples, at constant levels of 1,000, 2,000 and 4,000; one sentence."""
    levels = (1_000, 2_000, 4_000, 500)
    items = [
        np.full(count, level, np.int16) for count, level in zip((200, 300, 400, 1_000), levels, strict=True)
    ]
    return ItemBank(
        of_items(
            items,
            texts=[*WORDS, "turn it off"],
            split=["train"] * 4,
            kind=["word"] * 3 + ["sentence"],
            source=["x"] * 4,
        )
    )


def test_items_follow_each_other_after_their_gaps() -> None:
    plan = lay_out(
        bank(),
        np.array([[2, 0, 1], [1, 1, 1]]),
        np.array([2, 1]),
        np.array([[10, 20, 30, 40], [0, 1, 1, 5]]),
        np.ones((2, 3)),
        0.0,
    )
    assert plan.texts == ("stop yes", "no")
    # 10 + 400 + 20 + 200 + 40; the third gap belongs to an item that is not heard.
    assert plan.lengths.tolist() == [670, 305]
    assert plan.begins[0, :2].tolist() == [10, 430]
    assert plan.spans.tolist() == [[400, 200, 0], [300, 0, 0]]
    assert plan.gains.tolist() == [[1.0] * 3] * 2


def test_rendered_items_lie_where_the_plan_says() -> None:
    plan = lay_out(
        bank(),
        np.array([[2, 0], [1, 1]]),
        np.array([2, 1]),
        np.array([[10, 20, 40], [0, 1, 5]]),
        np.ones((2, 2)),
        0.0,
    )
    waveforms, lengths = render(bank(), plan, multiple=500)
    assert waveforms.shape == (2, 1_000)
    assert lengths.tolist() == [670, 305]
    assert rms(waveforms, lengths).tolist() == pytest.approx([LEVEL, LEVEL], rel=1e-5)
    first = waveforms[0] / waveforms[0, 200] * 4_000
    # Over the first and the last 80 samples an item fades: sample k has (k + 1) / 80 of its level.
    assert first[:10].abs().max() == 0.0
    assert first[10:14].tolist() == pytest.approx([50.0, 100.0, 150.0, 200.0], rel=1e-4)
    assert first[89:330].tolist() == pytest.approx([4_000.0] * 241, rel=1e-4)
    assert first[409].item() == pytest.approx(50.0, rel=1e-4)
    assert first[410:430].abs().max() == 0.0
    assert first[509:550].tolist() == pytest.approx([1_000.0] * 41, rel=1e-4)
    assert first[630:].abs().max() == 0.0
    assert waveforms[1, 300:].abs().max() == 0.0


def test_equalised_items_are_equally_loud() -> None:
    for equalise, ratio in ((0.0, 4.0), (0.5, 2.0), (1.0, 1.0)):
        plan = lay_out(
            bank(), np.array([[2, 0]]), np.array([2]), np.zeros((1, 3), np.int64), np.ones((1, 2)), equalise
        )
        waveforms, _ = render(bank(), plan)
        assert (waveforms[0, 200] / waveforms[0, 500]).item() == pytest.approx(ratio, rel=1e-4)


def test_speed_doubles_a_pitch_and_halves_a_word() -> None:
    tone = (8_000 * np.sin(2 * np.pi * 100 * np.arange(16_000) / 16_000)).astype(np.int16)
    columns = {"texts": ["yes"], "split": ["train"], "kind": ["word"], "source": ["x"]}
    one = ItemBank(of_items([tone], **columns))
    plan = lay_out(one, np.array([[0]]), np.array([1]), np.zeros((1, 2), np.int64), np.full((1, 1), 2.0), 0.0)
    assert plan.lengths.tolist() == [8_000]
    waveforms, _ = render(one, plan)
    # 100 cycles in half a second: 200 Hz, the hundredth line of a spectrum 2 Hz apart.
    assert torch.fft.rfft(waveforms[0]).abs().argmax().item() == 100


def test_drawn_rows_keep_to_their_style() -> None:
    style = Style(words=(2, 3), sentences=(1, 1), gap_seconds=(0.01, 0.02), edge_seconds=(0.0, 0.0))
    plan = draw_plan(bank(), np.random.default_rng(0), style, strings=50, sentences=2)
    counts = [len(text.split()) for text in plan.texts[:50]]
    assert set(counts) == {2, 3}
    assert plan.texts[50:] == ("turn it off", "turn it off")
    assert plan.lengths[50:].tolist() == [1_000, 1_000]
    samples = dict(zip(WORDS, (200, 300, 400), strict=True))
    for text, length in zip(plan.texts[:50], plan.lengths[:50].tolist(), strict=True):
        words = text.split()
        gaps = length - sum(samples[word] for word in words)
        # Gaps are between words alone: 160 to 320 samples each.
        assert 160 * (len(words) - 1) <= gaps <= 320 * (len(words) - 1)


def test_the_same_seed_draws_the_same_strings() -> None:
    plans = [draw_plan(bank(), np.random.default_rng(seed), Style(), strings=20) for seed in (1, 1, 2)]
    assert plans[0].texts == plans[1].texts != plans[2].texts
    assert torch.equal(render(bank(), plans[0])[0], render(bank(), plans[1])[0])


def test_items_are_read_out_in_order_and_as_they_are() -> None:
    plan = read_out(bank(), np.array([1, 3]))
    assert plan.texts == ("no", "turn it off")
    assert plan.lengths.tolist() == [300, 1_000]
