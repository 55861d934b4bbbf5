"""The attention family: loss, match and beam search of decoders whose answers are worked out by hand."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Matches
from sottovoce.errors import InputError
from sottovoce.targets.families.attention import Attention, forced_loss
from sottovoce.targets.families.beam_search import Writer, search

DRAWS = Draws(0)
A, B, END = 0, 1, 2
LETTERS = "ab"


def logs(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows).log()


class Scripted(Attention):
    """Writes a, b with fixed odds at each place, whatever it hears; the loudness of a clip adds to a's."""

    sample_rate = 16_000
    longest_text = 3

    def __init__(self, *rows: tuple[float, float, float]) -> None:
        self.module = torch.nn.Dropout().train()
        self.table = logs(*rows)

    def tokens_of(self, label: str) -> list[int]:
        return [*(LETTERS.index(letter) for letter in label), END]

    def forced_scores(self, batch: AudioBatch, tokens: Tensor, *, draws: Draws) -> Tensor:
        assert not self.module.training
        scores = self.table[: tokens.shape[1]].repeat(len(batch), 1, 1)
        louder = torch.nn.functional.one_hot(torch.tensor(A), 3) * batch.waveforms.mean(dim=1)[:, None]
        return scores + louder[:, None]

    def transcribe(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        assert not self.module.training and not torch.is_grad_enabled()
        return ["ab"] * len(batch)


ODDS = ((0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.125, 0.125, 0.75))


def silence(clips: int = 1) -> AudioBatch:
    return AudioBatch.of([torch.zeros(400 + clip) for clip in range(clips)], 16_000)


def test_loss_is_the_mean_of_the_tokens_and_of_the_end() -> None:
    # "ab": a at 1/2, b at 1/2, end at 3/4. "b": b at 1/4, end at 1/4. "": end at 1/4.
    expected = [(2 * math.log(2) + math.log(4 / 3)) / 3, math.log(4), math.log(4)]
    loss = Scripted(*ODDS).loss(silence(3), ["ab", "b", ""], draws=DRAWS)
    assert loss.dtype == torch.float32
    assert loss.tolist() == pytest.approx(expected)


def test_padding_of_labels_changes_nothing() -> None:
    target = Scripted(*ODDS)
    together = target.loss(silence(2), ["b", "ab"], draws=DRAWS)
    assert float(target.loss(silence(), ["b"], draws=DRAWS)[0]) == float(together[0])


def test_first_token_weighs_more() -> None:
    # Equation 5.2 with lambda 2 and L = 3: (3 ln 2 + ln 2 + ln 4/3) / 5.
    loss, _ = Scripted(*ODDS).loss_and_match(silence(), ["ab"], draws=DRAWS, first_token=2.0)
    assert loss.tolist() == pytest.approx([(4 * math.log(2) + math.log(4 / 3)) / 5])


def test_loss_is_single_precision_for_half_precision_scores() -> None:
    scores = torch.zeros(1, 1, 4, dtype=torch.bfloat16)
    loss = forced_loss(scores, torch.tensor([[1]]), torch.tensor([1]))
    assert loss.dtype == torch.float32
    assert float(loss[0]) == pytest.approx(math.log(4))


def test_match_needs_every_token_and_the_end() -> None:
    _, match = Scripted(*ODDS).loss_and_match(silence(4), ["ab", "a", "bb", ""], draws=DRAWS)
    assert match.tolist() == [True, False, False, False]


def test_match_sees_what_decoding_may_write() -> None:
    target = Scripted((0.5, 0.3, 0.2), (0.1, 0.2, 0.7))
    assert target.loss_and_match(silence(2), ["a", "b"], draws=DRAWS)[1].tolist() == [True, False]
    target.barred_first = (A,)
    assert target.loss_and_match(silence(2), ["a", "b"], draws=DRAWS)[1].tolist() == [False, True]
    target.barred_first, target.barred = (), (A,)
    assert target.loss_and_match(silence(2), ["a", "b"], draws=DRAWS)[1].tolist() == [False, True]


def test_gradient_reaches_the_waveform() -> None:
    leaf = torch.zeros(1, 400, requires_grad=True)
    target = Scripted(*ODDS)
    loss = target.loss(silence().with_waveforms(leaf), ["ab"], draws=DRAWS)
    (slope,) = torch.autograd.grad(loss.sum(), leaf)
    # d loss / d mean = mean over places of (odds of a) - (1 where the token is a); the mean has 400 samples.
    assert float(slope[0, 0]) == pytest.approx((0.5 - 1 + 0.25 + 0.125) / 3 / 400)
    assert target.module.training


def test_labels_are_checked() -> None:
    target = Scripted(*ODDS)
    assert isinstance(target.capability(Matches), Matches)
    target.check_labels(["", "ab"])
    with pytest.raises(InputError, match="at most 3 tokens"):
        target.check_labels(["aba"])
    with pytest.raises(InputError, match="at most 3 tokens"):
        target.loss(silence(), ["aba"], draws=DRAWS)
    target.barred = (B,)
    with pytest.raises(InputError, match="never writes"):
        target.check_labels(["ab"])
    assert target.loss(silence(), ["ab"], draws=DRAWS).isfinite().all()


def test_decode_runs_without_gradient_in_evaluation_mode() -> None:
    target = Scripted(*ODDS)
    assert target.decode(silence(2), draws=DRAWS) == ["ab", "ab"]
    assert target.module.training


class Chain(Writer):
    """Scores depend on the clip and on the last two tokens alone, by a table `(clips, 3, 3, 3)`."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.clips = torch.arange(len(table))
        self.past = torch.zeros(len(table), 0, dtype=torch.int64)

    def scores(self, tokens: Tensor) -> Tensor:
        self.past = torch.cat([self.past, tokens], dim=1)
        return self.table[self.clips, self.past[:, -2], self.past[:, -1]]

    def keep(self, rows: Tensor, *, same_clips: bool) -> None:
        if same_clips:
            assert torch.equal(self.clips[rows], self.clips)
        self.clips, self.past = self.clips[rows], self.past[rows]


def free(scores: Tensor, first: bool) -> Tensor:
    return scores


def run(table: Tensor, beams: int, longest: int = 4) -> list[list[int]]:
    start = torch.zeros(len(table), 2, dtype=torch.int64)
    return search(Chain(table), start, END, beams=beams, longest=longest, permit=free)


def exhaustive(table: Tensor, longest: int) -> list[int]:
    """The text with the best mean log probability a token, the end counted in the sum alone, of all texts."""
    table = table.log_softmax(dim=-1)
    best: tuple[float, list[int]] = (-math.inf, [])
    for length in range(longest + 1):
        for text in product((A, B), repeat=length):
            tokens = [0, 0, *text, *([END] if length < longest else [])]
            total = sum(
                float(table[x, y, z]) for x, y, z in zip(tokens, tokens[1:], tokens[2:], strict=False)
            )
            best = max(best, (total / max(1, length), list(text)))
    return best[1]


def test_greedy_takes_the_best_token_each_time() -> None:
    # After (0, 0) b, after (0, 1) a, after (1, 0) the end.
    table = torch.zeros(3, 3, 3)
    table[0, 0, B] = table[0, 1, A] = table[1, 0, END] = 5.0
    assert run(table[None], 1) == [[B, A]]


def test_beam_finds_what_greedy_misses() -> None:
    # Greedy: b at .6, then the end at .4, together .24. Two beams: a at .4, then the end for certain.
    table = torch.full((1, 3, 3, 3), 1 / 3)
    table[0, END, END] = torch.tensor([0.4, 0.6, 0.0])
    table[0, END, A] = torch.tensor([0.0, 0.0, 1.0])
    table[0, END, B] = torch.tensor([0.3, 0.3, 0.4])
    start = torch.full((1, 2), END)
    greedy, wide = (
        search(Chain(table.log()), start, END, beams=beams, longest=3, permit=free)[0] for beams in (1, 2)
    )
    assert greedy == [B]
    assert wide == [A]


@pytest.mark.parametrize("seed", range(20))
def test_wide_beam_is_exhaustive_search(seed: int) -> None:
    # Thirty-one texts of up to four letters: a beam of 32 ends none too early.
    table = 2.0 * torch.randn(3, 3, 3, 3, generator=torch.Generator().manual_seed(seed))
    assert run(table, 32) == [exhaustive(rows, 4) for rows in table]


@pytest.mark.parametrize("beams", [1, 2, 5])
def test_search_is_the_same_alone_and_in_a_batch(beams: int) -> None:
    table = 2.0 * torch.randn(12, 3, 3, 3, generator=torch.Generator().manual_seed(beams))
    together = run(table, beams, longest=9)
    assert together == [run(table[[clip]], beams, longest=9)[0] for clip in range(12)]
    assert len({len(text) for text in together}) > 2


def test_barred_tokens_are_not_written() -> None:
    table = torch.zeros(3, 3, 3)
    table[..., A] = 2.0
    table[..., END] = 1.0

    def permit(scores: Tensor, first: bool) -> Tensor:
        scores = scores.clone()
        scores[:, A] = -torch.inf
        if first:
            scores[:, END] = -torch.inf
        return scores

    start = torch.zeros(1, 2, dtype=torch.int64)
    assert search(Chain(table[None]), start, END, beams=1, longest=4, permit=permit) == [[B]]
