"""Toy recognisers of three families: CTC, attention, transducer. They turn frames into letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Languages, Matches, Target, best_places, evaluating
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.targets.families.recogniser import Recogniser
from sottovoce.testing.toys import SAMPLE_RATE, ToyFilters, weights

LETTERS = "abcde "
# Token 0 is the blank of CTC and transducer, and the start and the end of the attention decoder's text.
SPECIAL = 0
VOCABULARY = Vocabulary(("", *LETTERS), blank=SPECIAL)
WIDTH = 12
FRAME = 50


class ToyRecogniser(Recogniser):
    """What attention and transducer share: a sample rate, frames of 50 ms, and an alphabet."""

    sample_rate = SAMPLE_RATE

    @property
    def shortest(self) -> int:
        return FRAME

    def check_labels(self, labels: Sequence[str]) -> None:
        for label in labels:
            VOCABULARY.encode(label)

    def tokens(self, labels: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
        """Padded tokens `(batch, letters)` from 1 on, and lengths `(batch,)`."""
        rows = [torch.tensor(VOCABULARY.encode(label)).long() for label in labels]
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device), lengths


@final
class CtcModule(torch.nn.Module):
    """Log probabilities of tokens, `(batch, frames, 1 + letters)`."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = ToyFilters(WIDTH, FRAME, seed=11, scale=8.0)
        self.readout = weights(12, WIDTH, 1 + len(LETTERS))

    def forward(self, waveforms: Tensor) -> Tensor:
        scores: Tensor = self.frames(waveforms).tanh() @ self.readout
        return scores.log_softmax(dim=-1)


@final
class ToyCtc(Ctc):
    """A toy CTC recogniser, for tests. It writes the letters a to e: one token a frame, repeats merged.

    beams: width of the beam search; 1 is greedy.

    >>> model = sv.testing.ToyCtc()
    >>> set("".join(model.decode(sv.testing.clips_for(model), draws=sv.Draws(0)))) <= set("abcde ")
    True
    """

    sample_rate = SAMPLE_RATE
    vocabulary = VOCABULARY
    frame_seconds = FRAME / SAMPLE_RATE

    def __init__(self, beams: int = 1) -> None:
        self.module: CtcModule = CtcModule().eval()
        self.beams = beams

    @property
    def shortest(self) -> int:
        return FRAME

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        with evaluating(self.module):
            return self.module(batch.waveforms), self.module.frames.count(batch.lengths)


@final
class ToyEndpoint(Target):
    """A toy recogniser that only answers, like a service behind an endpoint. It writes what `ToyCtc` does.

    >>> model = sv.testing.ToyEndpoint()
    >>> model.shows
    'decisions'
    >>> trial = sv.attack(model, sv.testing.clips_for(model), "kenansville", budget="snr(db=0)")
    >>> trial.achieved
    (True, True, True, True)
    """

    sample_rate = SAMPLE_RATE
    says = "words"

    def __init__(self) -> None:
        self.toy = ToyCtc()

    @property
    def shortest(self) -> int:
        return self.toy.shortest

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.toy.decode(batch, draws=draws)


@final
class AttentionModule(torch.nn.Module):
    """A recurrent decoder with attention: state, query, context, scores of the next token."""

    def __init__(self) -> None:
        super().__init__()
        count = 1 + len(LETTERS)
        self.frames = ToyFilters(WIDTH, FRAME, seed=21, scale=8.0)
        self.embedding = weights(90, count, WIDTH)
        self.carry = weights(23, WIDTH, WIDTH, scale=WIDTH**-0.5)
        self.query = weights(24, WIDTH, WIDTH, scale=WIDTH**-0.5)
        self.readout = weights(1090, WIDTH, count)

    def encode(self, waveforms: Tensor) -> Tensor:
        """`(batch, frames, WIDTH)`."""
        outputs: Tensor = self.frames(waveforms).tanh()
        return outputs

    def start(self, encoded: Tensor) -> Tensor:
        """The first state, `(batch, WIDTH)`."""
        return encoded.new_zeros(len(encoded), WIDTH)

    def step(self, last: Tensor, state: Tensor, encoded: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Scores `(batch, tokens)` after the tokens `last (batch,)`, and the new state."""
        state = (self.embedding[last] + state @ self.carry).tanh()
        match = torch.einsum("bfw,bw->bf", encoded, state @ self.query)
        focus = match.masked_fill(~inside, -torch.inf).softmax(dim=1)
        context = torch.einsum("bf,bfw->bw", focus, encoded)
        return (state + 3.0 * context).tanh() @ self.readout, state


@final
class ToyAttention(ToyRecogniser, Matches, Languages):
    """A toy attention recogniser, for tests. It writes the letters a to e one after another.

    It also detects one of the languages aa, bb and cc.

    >>> model = sv.testing.ToyAttention()
    >>> model.languages, model.says
    (('aa', 'bb', 'cc'), 'words')
    """

    longest_text = 8
    languages = ("aa", "bb", "cc")

    def __init__(self) -> None:
        self.module: AttentionModule = AttentionModule().eval()

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.loss_and_match(batch, labels, draws=draws)[0]

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        tokens, lengths = self.tokens(labels, batch.device)
        ended = torch.nn.functional.pad(tokens, (0, 1), value=SPECIAL)
        total = batch.waveforms.new_zeros(len(batch))
        match = torch.ones(len(batch), dtype=torch.bool, device=batch.device)
        with evaluating(self.module):
            encoded, inside = self._heard(batch)
            state, last = self.module.start(encoded), torch.full_like(lengths, SPECIAL)
            for place in range(ended.shape[1]):
                scores, state = self.module.step(last, state, encoded, inside)
                last = ended[:, place]
                weight = 1.0 + first_token if place == 0 else 1.0
                missed = weight * torch.nn.functional.cross_entropy(scores, last, reduction="none")
                total = total + missed.masked_fill(place > lengths, 0.0)
                match &= (scores.argmax(dim=1) == last) | (place > lengths)
        return total / (lengths + 1 + first_token), match

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with evaluating(self.module):
            encoded, inside = self._heard(batch)
        mean = encoded.masked_fill(~inside[..., None], 0.0).sum(dim=1) / inside.sum(dim=1, keepdim=True)
        return mean[:, : len(self.languages)]

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        with evaluating(self.module):
            encoded, inside = self._heard(batch)
            state, last = self.module.start(encoded), torch.full_like(batch.lengths, SPECIAL)
            written = []
            for _ in range(self.longest_text):
                scores, state = self.module.step(last, state, encoded, inside)
                last = best_places(scores, batch.ids)
                written.append(last)
        rows = torch.stack(written, dim=1).tolist()
        return [VOCABULARY.decode(row[: row.index(SPECIAL)] if SPECIAL in row else row) for row in rows]

    def _heard(self, batch: AudioBatch) -> tuple[Tensor, Tensor]:
        encoded = self.module.encode(batch.waveforms)
        return encoded, self.module.frames.inside(batch.lengths, encoded.shape[1])


@final
class TransducerModule(torch.nn.Module):
    """An encoder, a prediction network of the last letter, and the joiner of the two."""

    def __init__(self) -> None:
        super().__init__()
        count = 1 + len(LETTERS)
        self.frames = ToyFilters(WIDTH, FRAME, seed=31, scale=8.0)
        self.embedding = weights(30, count, WIDTH)
        self.readout = weights(1030, WIDTH, count)
        # Most frames of speech end no letter.
        self.bias = torch.nn.Parameter(torch.tensor([4.0] + [0.0] * len(LETTERS)))

    def encode(self, waveforms: Tensor) -> Tensor:
        """`(batch, frames, WIDTH)`."""
        outputs: Tensor = 2.0 * self.frames(waveforms).tanh()
        return outputs

    def join(self, encoded: Tensor, last: Tensor) -> Tensor:
        """Log probabilities of the next token; the shapes of `encoded` and of the letters broadcast."""
        return ((encoded + self.embedding[last]).tanh() @ self.readout + self.bias).log_softmax(dim=-1)


@final
class ToyTransducer(ToyRecogniser):
    """A toy RNN transducer (Graves 2012) with a memory of one letter, for tests.

    >>> model = sv.testing.ToyTransducer()
    >>> len(model.decode(sv.testing.clips_for(model), draws=sv.Draws(0)))
    4
    """

    letters_a_frame = 2

    def __init__(self) -> None:
        self.module: TransducerModule = TransducerModule().eval()

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        tokens, lengths = self.tokens(labels, batch.device)
        last = torch.nn.functional.pad(tokens, (1, 0), value=SPECIAL)
        with evaluating(self.module):
            encoded = self.module.encode(batch.waveforms)
            log_probs = self.module.join(encoded[:, :, None], last[:, None])
        stay = log_probs[..., SPECIAL]
        wanted = tokens[:, None, :, None].expand(-1, encoded.shape[1], -1, -1)
        write = log_probs[:, :, :-1].gather(-1, wanted)[..., 0]
        total = transducer_loss(stay, write, self.module.frames.count(batch.lengths), lengths)
        return total / lengths.clamp_min(1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        with evaluating(self.module):
            encoded = self.module.encode(batch.waveforms)
            counts = self.module.frames.count(batch.lengths).tolist()
            return [
                VOCABULARY.decode(self._read(frames[:count], name))
                for name, frames, count in zip(batch.ids, encoded, counts, strict=True)
            ]

    def _read(self, frames: Tensor, name: str) -> list[int]:
        written = [SPECIAL]
        for frame in frames:
            for _ in range(self.letters_a_frame):
                scores = self.module.join(frame, frame.new_tensor(written[-1]).long())
                token = int(best_places(scores[None], [name]))
                if token == SPECIAL:
                    break
                written.append(token)
        return written[1:]


def transducer_loss(stay: Tensor, write: Tensor, frames: Tensor, letters: Tensor) -> Tensor:
    """The negative log probability of all alignments, `(batch,)`: the forward variable of Graves, eq. 16.

    stay: `(batch, frames, letters + 1)`, log probability of a blank, which advances to the next frame.
    write: `(batch, frames, letters)`, log probability of the next letter, within the frame.
    frames, letters: `(batch,)`, how many of them each clip has.
    """
    # Within a frame, alpha[u] = logaddexp(arrived[u], alpha[u - 1] + write[u - 1]). After subtracting the sum
    # of all writes before u, this is a running log-sum-exp over u.
    written = torch.nn.functional.pad(write.cumsum(dim=2), (1, 0))
    alpha = written[:, 0]
    alphas = [alpha]
    for frame in range(1, stay.shape[1]):
        arrived = alpha + stay[:, frame - 1]
        alpha = written[:, frame] + (arrived - written[:, frame]).logcumsumexp(dim=1)
        alphas.append(alpha)
    rows = torch.arange(len(frames), device=frames.device)
    return -(torch.stack(alphas, dim=1) + stay)[rows, frames - 1, letters]
