"""Where study O3 is at work: networks trained, pruned and judged, each kept in the folder once it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any, final

import safetensors.torch

from sottovoce import __version__
from sottovoce.core.budget import LInf
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged
from sottovoce.defenses.defense_text import Defense
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part
from sottovoce.studies.olivier2023.pruned_networks.image_networks import SWING, FlipAndShift, image_learner
from sottovoce.studies.olivier2023.pruned_networks.pruning_material import (
    AMOUNTS,
    Amount,
    Images,
    Material,
    open_pictures,
    open_words,
    split_data,
)
from sottovoce.studies.olivier2023.pruned_networks.pruning_tables import SIZES, SMALLER
from sottovoce.studies.olivier2023.pruned_networks.strongest_attack import Attackers, JudgedNetwork, judge
from sottovoce.studies.olivier2023.runs.hardening_plans import KEYWORDS, variant_of
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale
from sottovoce.targets.open_target import find_device, open_target
from sottovoce.training.checkpoint import write_whole
from sottovoce.training.hardening import Hardening, make_adversary, make_noise
from sottovoce.training.learner import Learner
from sottovoce.training.loop import REPORT, WEIGHTS, fit
from sottovoce.training.pruning.prunable_chain import resize, weights_in
from sottovoce.training.pruning.prune_layers import PruningRecipe, prune
from sottovoce.training.recipe import TrainingRecipe
from sottovoce.training.sources import ClipSource, Jitter
from sottovoce.training.trainable_models import SHIPPED, build_learner

SETTING, TIMES = "study.json", "seconds.json"
HALVINGS = 4
"""Of a keyword model's feature maps, one after the other."""
KEYWORD_RADII = (0.0001, 0.0005, 0.002)
"""The smallest is three steps of 16 bits; hardened models were trained at the largest."""
LOSE = 0.05
"""Accuracy that compressing may cost: VGG16 loses 4.7 points in Table 3.1."""
KEEP = 0.25
"""The share of the maps of a compressed network that is left in a smaller one still."""
SIGMA = 0.25
"""Of smoothing. The thesis has N(0, 0.25 I), and does not say whether that is a variance."""
EPS, PASSES = 8 / 255, 16
REFERENCE = 3 * 32 * 32
"""Values of an image of CIFAR-10, which L2 radii are about."""
IMAGE_METHODS = ("none", "adversarial training", "randomized smoothing", "compressed", "compressed further")


@final
@dataclass(frozen=True)
class TrainedNetwork:
    """A network and what became of it under attack. removed: the share of its weights that is gone."""

    weights: int
    removed: float
    judged: JudgedNetwork


@final
@dataclass(frozen=True)
class PruningBench:
    """Networks by name, keyword models and, by architecture, networks of images."""

    folder: Path
    choice: Choice
    amount: Amount
    words: str
    pictures: str
    note: str
    keyword: Mapping[str, TrainedNetwork]
    images: Mapping[str, Mapping[str, TrainedNetwork]]
    unused: dict[str, str]
    counts: Mapping[str, int]
    seconds: float

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "scale": self.choice.scale,
            "data": {"words": self.words, "images": self.pictures},
            "seed": self.choice.seed,
            "clips": dict(self.counts),
        }

    def scope(self, study: Study[Any]) -> list[str]:
        counts = self.counts
        lines = [
            f"Words: {self.words}: {counts['words-train']:,} to prune with, {counts['words-valid']} to "
            f"decide by, {counts['words-test']} judged ({self.note}).",
            f"Images: {self.pictures}: {counts['images-train']:,} to train on, {counts['images-valid']} to "
            f"decide by, {counts['images-test']} judged. Seed {self.choice.seed}.",
            f"Scale {self.choice.scale}: {self.amount}. The paper: VGG16 and AlexNet on CIFAR-10, PGD of 100 "
            "steps; keyword models are our own addition.",
            "The paper's LRE-AMC is known here from its description alone: this is linear redundancy "
            "pruning, after the published description.",
        ]
        if counts["words-train"] < 200:
            lines.append(
                "Far too few words to train on: give --data speechcommands:DIR for figures that mean "
                "something."
            )
        return lines


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> PruningBench:
    """Train, prune and judge what is not yet in the folder."""
    choice.refuse("O3", "attack", "fit", "model")
    amount = AMOUNTS[find_scale(choice.scale).name].judging(choice.clips)
    words, pictures = split_data(choice.data)
    key: list[str | int] = [words, pictures, choice.seed, choice.clips or 0]
    folder = out or default_folder("O3", choice.scale, key)
    work = PruningWork(folder, choice, amount, find_device(device), tell)
    work.claim(key)
    tell(0.0, "reading clips and images")
    unused: dict[str, str] = {}

    def left_out(line: str) -> None:
        name, _, reason = line.removeprefix("left out ").partition(": ")
        unused[name] = reason

    plain = open_target("keyword", work.device)
    clips, note = open_words(words, plain, amount, choice.seed, left_out)
    images = open_pictures(pictures, amount, choice.seed)
    work.jobs = len(KEYWORDS) + 2 * HALVINGS + len(amount.networks) * 2 * len(IMAGE_METHODS)
    counts = {
        f"{kind}-{use}": len(part)
        for kind, material in (("words", clips), ("images", images.clips))
        for use, part in material._asdict().items()
    }
    return PruningBench(
        folder,
        choice,
        amount,
        words,
        pictures,
        note,
        keyword_models(work, clips),
        {name: image_models(work, images, name) for name in amount.networks},
        unused,
        counts,
        work.seconds,
    )


@dataclass
class PruningWork:
    """The folder, and jobs that are done in it once."""

    folder: Path
    choice: Choice
    amount: Amount
    device: str
    tell: Tell
    times: dict[str, float] = field(default_factory=dict)
    jobs: int = 1
    done: int = 0

    @property
    def seconds(self) -> float:
        return sum(self.times.values())

    def claim(self, key: list[str | int]) -> None:
        """Refuse a folder that holds the same study of something else."""
        path, setting = self.folder / SETTING, {"scale": self.choice.scale, "key": key}
        if path.exists():
            if _json(path) != setting:
                raise InputError(
                    f"{self.folder}: expected a folder of this study with these options, got one with others "
                    f"({path.name}); choose another --out."
                )
            self.times = _json(self.folder / TIMES) if (self.folder / TIMES).exists() else {}
        else:
            _write(path, setting)

    def job(self, name: str, work: Callable[[Callable[[str], None]], Any]) -> Any:
        """Do something, and note how long it took. work: is given what tells of its steps."""
        began, before = time.monotonic(), self.done / self.jobs

        def log(line: str) -> None:
            self.tell(before, f"{name}: {line}")

        log("begins")
        found = work(log)
        self.done += 1
        self.times[name] = self.times.get(name, 0.0) + time.monotonic() - began
        _write(self.folder / TIMES, self.times)
        return found

    def train(
        self,
        name: str,
        learner: Learner,
        clips: Material,
        recipe: TrainingRecipe,
        hardening: Hardening | None = None,
        change: Any = None,
    ) -> Learner:
        """A learner with the weights that it was trained to, now or before."""
        place = self.folder / name

        def work(log: Callable[[str], None]) -> None:
            fit(
                learner,
                ClipSource(clips.train, change),
                clips.valid,
                out=place,
                recipe=recipe,
                hardening=hardening,
                device=self.device,
                resume=True,
                log=log,
            )

        return self._once(name, learner, work)

    def prune(
        self, name: str, learner: Learner, clips: Material, recipe: PruningRecipe, change: Any = None
    ) -> Learner:
        """A learner that was pruned, now or before."""
        place = self.folder / name

        def work(log: Callable[[str], None]) -> None:
            source = ClipSource(clips.train, change)
            prune(
                learner,
                source,
                clips.valid,
                out=place,
                recipe=recipe,
                device=self.device,
                resume=True,
                log=log,
            )

        return self._once(name, learner, work)

    def judge(self, name: str, target: Target, clips: Material, attackers: Attackers) -> JudgedNetwork:
        kept = self.folder / "judged" / f"{name.replace('/', '-')}.json"

        def work(log: Callable[[str], None]) -> JudgedNetwork:
            return judge(target, clips.test, attackers, kept, log)

        found: JudgedNetwork = self.job(f"{name} under attack", work)
        return found

    def _once(self, name: str, learner: Learner, work: Callable[[Callable[[str], None]], None]) -> Learner:
        if not (self.folder / name / REPORT).exists():
            self.job(name, work)
        else:
            self.done += 1
            state = safetensors.torch.load_file(self.folder / name / WEIGHTS)
            resize(learner.module, state)
        learner.module.requires_grad_(False).eval().to(self.device)
        return learner


def keyword_models(work: PruningWork, clips: Material) -> dict[str, TrainedNetwork]:
    """The shipped keyword models, and the plain one with ever fewer feature maps."""
    attackers = Attackers(
        attacks=_attacks(work.amount, step=0.1),
        budgets={f"Linf {eps}": f"linf(eps={eps})" for eps in KEYWORD_RADII},
        batch=work.choice.batch or 50,
        seed=work.choice.seed,
    )
    found = {}
    full = 0
    for variant in KEYWORDS:
        target = open_target(variant_of("keyword", variant), work.device)
        full = _weights(target)
        found[variant] = TrainedNetwork(full, 0.0, work.judge(f"keyword/{variant}", target, clips, attackers))
    begun = SHIPPED
    for turn in range(1, HALVINGS + 1):
        name = f"keyword/halved-{turn}"
        tuning = TrainingRecipe(
            epochs=work.amount.tuning[0], learning_rate=1e-3, warm_up_steps=5, weight_decay=1e-4
        )
        recipe = PruningRecipe(lose=1.0, keep=0.5, share=0.5, tuning=tuning, seed=work.choice.seed)
        learner = build_learner("keyword", begun)
        work.prune(name, learner, clips, recipe, Jitter())
        begun = str(work.folder / name / WEIGHTS)
        target = open_target(str(Part("keyword", {"weights": begun})), work.device)
        judged = work.judge(name, target, clips, attackers)
        found[f"halved-{turn}"] = TrainedNetwork(_weights(target), 1.0 - _weights(target) / full, judged)
    return found


def image_models(work: PruningWork, images: Images, network: str) -> dict[str, TrainedNetwork]:
    """A network by how it was trained, and pruned: the rows of Table 3.1."""
    amount, seed = work.amount, work.choice.seed
    # Pictures of objects may be mirrored; digits and strokes may not.
    change = FlipAndShift(images.shape, 4) if work.choice.scale == "full" and images.shape[0] == 3 else None
    plain = TrainingRecipe(epochs=amount.epochs, learning_rate=2e-3, seed=seed, attacked_clips=200)
    longer = TrainingRecipe(
        epochs=amount.adversarial_epochs, learning_rate=2e-3, seed=seed, attacked_clips=200
    )
    adversary = make_adversary("pgd", LInf(SWING * EPS), steps=amount.adversary_steps)
    trainings = {
        "none": (plain, Hardening()),
        "adversarial training": (longer, Hardening(adversary=adversary)),
        "randomized smoothing": (plain, Hardening(noise=make_noise("gaussian", SIGMA * SWING))),
    }
    attackers = Attackers(
        attacks=_attacks(amount, step=0.25),
        budgets=image_budgets(images),
        bits=None,
        batch=100,
        seed=seed,
    )
    found = {}
    full = 0

    def fresh() -> Learner:
        return image_learner(network, images.shape, images.classes, seed=seed)

    for method, (recipe, hardening) in trainings.items():
        name = f"{network}/{method.replace(' ', '-')}"
        learner = work.train(name, fresh(), images.clips, recipe, hardening, change)
        full = weights_in(learner.module)
        target = learner.target()
        if hardening.noise:
            smooth = Defense.parse(f"gaussian(sigma={SIGMA * SWING})+majority(passes={PASSES})")
            target = Averaged(smooth.around(target), passes=amount.passes)
        found[method] = TrainedNetwork(full, 0.0, work.judge(name, target, images.clips, attackers))
    tuning = TrainingRecipe(epochs=amount.tuning[1], learning_rate=5e-4, warm_up_steps=5, weight_decay=1e-4)
    learner, begun = fresh(), work.folder / f"{network}/none" / WEIGHTS
    resize(learner.module, safetensors.torch.load_file(begun))
    for method, pruning in {
        "compressed": PruningRecipe(lose=LOSE, share=0.25, tuning=tuning, seed=seed),
        "compressed further": PruningRecipe(lose=1.0, keep=KEEP, share=0.5, tuning=tuning, seed=seed),
    }.items():
        name = f"{network}/{method.replace(' ', '-')}"
        learner = work.prune(name, learner, images.clips, pruning, change)
        left = weights_in(learner.module)
        judged = work.judge(name, learner.target(), images.clips, attackers)
        found[method] = TrainedNetwork(left, 1.0 - left / full, judged)
    return found


def image_budgets(images: Images) -> dict[str, str]:
    """The sizes of Table 3.1, and smaller ones, on samples from -1 to 1. L2 radii are as long for the number
    of values as they are on CIFAR-10."""
    values = len(images.clips.test.samples) / len(images.clips.test)
    found = {}
    for size in (*SMALLER, *SIZES):
        norm, number = size.split(" ")
        if norm == "Linf":
            found[size] = f"linf(eps={SWING * int(number.partition('/')[0]) / 255:.6f})"
        else:
            found[size] = f"l2(eps={SWING * float(number) * sqrt(values / REFERENCE):.6f})"
    return found


def _attacks(amount: Amount, step: float) -> tuple[str, ...]:
    return (
        f"pgd(steps={amount.steps}, step={step})",
        f"apgd(steps={amount.steps})",
        f"apgd-dlr(steps={amount.steps})",
        f"genetic(steps={amount.search[0]}, population={amount.search[1]})",
    )


def _weights(target: Target) -> int:
    return weights_in(target.module)  # type: ignore[attr-defined]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected JSON of this study, got {error}; choose another --out.") from None


def _write(path: Path, content: Any) -> None:
    write_whole(path, lambda place: place.write_text(json.dumps(content, indent=1), encoding="utf-8"))
