"""One universal perturbation of one class at the paper's scale, and what a plain gradient reaches beside it.

python tools/fit_universal.py go --data speech_commands/ --device cuda

V2 of the studies does this for five sets of all twelve classes; this is the quick look at one.
"""

from __future__ import annotations

import argparse

import torch

from sottovoce.attacks.universal_deepfool import UapHc
from sottovoce.core.attack import decode
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Scores, Target
from sottovoce.core.universal_attack import Perturbation
from sottovoce.data.load import collate
from sottovoce.data.speech_commands import speech_commands
from sottovoce.targets.zoo.keyword_cnn import keyword


def load(data: str, split: str, word: str, count: int, device: str) -> AudioBatch:
    corpus = speech_commands(data, split=split)
    entries = [entry for entry in corpus if entry.label == word][:count]
    return collate([corpus.load(entry, 16_000) for entry in entries]).to(device)


def fooled(target: Target, clips: AudioBatch, perturbation: Perturbation) -> float:
    """Share of decisions that change, in floats as in the paper."""
    before = decode(target, clips, Draws(0))
    after = decode(target, clips.with_waveforms(clips.waveforms + perturbation.over(clips)), Draws(0))
    return sum(a != b for a, b in zip(after, before, strict=True)) / len(clips)


def ascend(target: Target, clips: AudioBatch, bound: float, steps: int) -> Perturbation:
    """Gradient ascent on the mean margin of all clips at once: how far a universal perturbation can go."""
    goal = Evade().bind(decode(target, clips, Draws(0)))
    scorer, ball = target.capability(Scores), L2(bound)
    row = clips.select([int(clips.lengths.argmax())])
    v = ball.sample(row, Draws(0))
    best, best_share = v, -1.0
    for _ in range(steps):
        v = v.detach().requires_grad_()
        heard = clips.with_waveforms(clips.waveforms + v[:, : clips.waveforms.shape[1]])
        margin = goal.margin(scorer.scores(heard, draws=Draws(0)), scorer.classes)
        share = float((margin > 0).float().mean())
        if share > best_share:
            best, best_share = v.detach(), share
        (slope,) = torch.autograd.grad(margin.clamp(max=1.0).mean(), v)
        v = ball.project(v + 0.15 * bound * ball.steepest(slope), row)
    return Perturbation(best[0], clips.sample_rate)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("word")
    parser.add_argument("--data", required=True, help="Speech Commands")
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--bound", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=60, help="of the plain gradient")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    target = keyword(options.device)
    train = load(options.data, "train", options.word, options.clips, options.device)
    valid = load(options.data, "valid", options.word, options.clips, options.device)
    climb = UapHc(epochs=options.epochs, batch_clips=256)
    found = {
        "plain gradient": ascend(target, train, options.bound, options.steps),
        "uap-hc": climb.fit(target, [train], Evade(), L2(options.bound), draws=Draws(0)),
    }
    for name, perturbation in found.items():
        shares = [f"{100 * fooled(target, clips, perturbation):.1f} %" for clips in (train, valid)]
        norm = float(perturbation.waveform.norm())
        print(f"{options.word}, {name}: train {shares[0]}, valid {shares[1]}, norm {norm:.3f}")


if __name__ == "__main__":
    main()
