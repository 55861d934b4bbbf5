"""Our search for adversarial sparsity beside the published one, on one model in one run.

    python benchmarks/sparsity.py                         # prints the tables of benchmarks/sparsity.md
    python benchmarks/sparsity.py --model 'keyword(variant=pgd)' --clips 6

Both look for the nearest perturbation that fools, from the same directions, on clips that the model hears
right, and judge what a listener would get. Ours: one attack of 40 passes a clip that all directions share,
then 40 passes each. The published one bisects the angle ten times, each time with an attack of 20 steps from
the direction; as in its code, a run ends at its first success. Its steps have no published length for audio:
several are tried. The upper end of its bracket is taken, which is a success.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from sottovoce.auditing.sparsity.heard_clips import ByMargin, HeardClips
from sottovoce.auditing.sparsity.search import attack, find_nearest
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.sphere import Caps, GrowingSets, draw_sets
from sottovoce.core.target import Target
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import collate
from sottovoce.targets.open_target import open_target

DRAWS = Draws(0).turn("sparsity")
PASSES, HALVINGS, STEPS = 40, 10, 20
STRIDES = (0.1, 0.25, 0.5, 1.0)
"""Steps of the bisection, as shares of the set."""


def heard_right(target: Target, data: str, count: int) -> tuple[AudioBatch, list[str]]:
    """So many clips that the model hears right, and what it says."""
    corpus = open_corpus(target.clips if data == "embedded" else data).limit(2 * count)
    batch = collate([corpus.load(entry, target.sample_rate) for entry in corpus])
    with torch.no_grad():
        said = target.decode(batch, draws=DRAWS)
    right = [row for row, entry in enumerate(corpus) if said[row] == entry.label][:count]
    return batch.select(right), [said[row] for row in right]


def landscape(target: Target, clips: AudioBatch, said: list[str]) -> HeardClips:
    goal = Evade().heard_by(target).bind(said)
    return HeardClips(
        clean=clips, goal=ByMargin(goal, references=goal.references), through=target, heard=target,
        judge=lambda texts, rows: goal.select(rows).achieved(texts), draws=DRAWS, by_scores=True,
    )  # fmt: skip


def bisect(view: HeardClips, sets: GrowingSets, stride: float) -> tuple[Tensor, float]:
    """Algorithm 1: sizes `(rows,)`, inf where no attack at any size succeeded, and passes a row."""
    low, high = torch.zeros_like(sets.whole), sets.whole.clone()
    fooled, passes = torch.zeros(len(low), dtype=torch.bool), 0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        middle = middle if isinstance(sets, Caps) else middle.floor()
        works, spent = constrained(view, sets, middle, stride)
        passes += spent
        high, low = torch.where(works, middle, high), torch.where(works, low, middle)
        fooled |= works
    return torch.where(fooled, high, math.inf), passes / len(low)


def constrained(view: HeardClips, sets: GrowingSets, size: Tensor, stride: float) -> tuple[Tensor, int]:
    """PGD in sets of those sizes from the direction: which rows succeed, and the passes until they do."""
    point, works, passes = sets.centre, torch.zeros(len(size), dtype=torch.bool), 0
    for step in range(STEPS):
        passes += int((~works).sum())
        look = view.look(sets.settle(point), f"step {step}")
        works = works | look.fools
        if bool(works.all()):
            break
        point = sets.project(sets.step(point, look.gradient, size, torch.full_like(size, stride)), size)
    return works, passes


@dataclass(frozen=True)
class Found:
    """sizes: `(directions, clips)`, inf where nothing was found. passes: a clip."""

    sizes: Tensor
    passes: float

    @property
    def known(self) -> list[Tensor]:
        """The sizes of each clip that was fooled."""
        columns = [column[column.isfinite()] for column in self.sizes.T]
        return [column for column in columns if len(column)]

    def cells(self, other: Found, form: str) -> str:
        """other: the search beside it; the mean is over what both found."""
        both = self.sizes.isfinite() & other.sizes.isfinite()
        spread = mean(float(column.std()) for column in self.known if len(column) > 1)
        return (
            f"{float(self.sizes[both].mean()):{form}} | {float(other.sizes[both].mean()):{form}} | "
            f"{spread:{form}} | {len(self.known)} of {self.sizes.shape[1]} | {self.passes:,.0f}"
        )


def compare(
    name: str, target: Target, ball: Ball, clips: AudioBatch, said: list[str], directions: int
) -> None:
    rows, copies = next(clips.passes(directions, len(clips) * directions))
    texts = [said[row] for row in rows]
    sets = draw_sets(ball.norm, ball.radius(copies), copies, DRAWS)
    shared, each = landscape(target, clips, said), landscape(target, copies, texts)
    start = attack(shared, draw_sets(ball.norm, ball.radius(clips), clips, DRAWS), PASSES)
    sizes = find_nearest(each, sets, PASSES, start.repeat(torch.tensor(rows))).size
    ours = Found(sizes.view(directions, -1), shared.gradients + directions * each.gradients)
    form = ".4f" if isinstance(sets, Caps) else ".0f"
    print(f"| {name} | {ball} | ours | {ours.cells(ours, form)} | |", flush=True)
    for stride in STRIDES:
        sizes, spent = bisect(landscape(target, copies, texts), sets, stride)
        theirs = Found(sizes.view(directions, -1), spent * directions)
        both = ours.sizes.isfinite() & theirs.sizes.isfinite()
        nearer = float((ours.sizes[both] <= theirs.sizes[both]).double().mean())
        cells = theirs.cells(ours, form)
        print(
            f"| {name} | {ball} | bisection, steps of {stride:g} | {cells} | {100 * nearer:.0f} % |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", nargs="*", default=["keyword", "keyword(variant=pgd)"])
    parser.add_argument("--data", default="embedded")
    parser.add_argument("--clips", type=int, default=6)
    parser.add_argument("--directions", type=int, default=4)
    asked = parser.parse_args()
    columns = ("sparsity", "ours there", "spread", "clips fooled", "passes a clip", "ours nearer or as near")
    print(f"| model | radius | search | {' | '.join(columns)} |")
    print(f"|---|---|---|{'---:|' * len(columns)}")
    for name in asked.model:
        target = open_target(name, "cpu")
        clips, said = heard_right(target, asked.data, asked.clips)
        for ball in (Snr(30.0), LInf(0.002)):
            compare(name, target, ball, clips, said, asked.directions)


if __name__ == "__main__":
    main()
