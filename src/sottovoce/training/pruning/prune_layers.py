"""Linear redundancy pruning of a whole network, layer by layer, with training in between.

After the published description (Olivier 2023, section 3.6.2): from the penultimate layer to the first, each
is shrunk as far as the accuracy on validation clips stays above a limit. In a round, a share of a layer's
neurons goes and the network is trained a little; a round that ends below the limit is taken back, and half
as many are tried.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import torch

from sottovoce.core.draws import Draws
from sottovoce.core.statistics import Interval
from sottovoce.errors import InputError
from sottovoce.training.checkpoint import (
    check_data,
    check_settings,
    load_checkpoint,
    save_checkpoint,
    save_weights,
    write_whole,
)
from sottovoce.training.hardening import Hardening
from sottovoce.training.learner import Learner
from sottovoce.training.loop import CHECKPOINT, REPORT, WEIGHTS, fit
from sottovoce.training.pruning.linear_redundancy import Pass, prune_link
from sottovoce.training.pruning.prunable_chain import PrunableLayer, find_links, resize, weights_in, width_of
from sottovoce.training.recipe import Data, TrainingRecipe
from sottovoce.training.sources import ClipsInMemory, ClipSource, check_clips
from sottovoce.training.validation_figures import Validator, measure_of

METHOD = "linear redundancy pruning, after the published description (Olivier 2023, section 3.6)"
CARD, ROUNDS = "card.md", "rounds"
ROUNDING = 1e-9


@final
@dataclass(frozen=True, kw_only=True)
class PruningRecipe:
    """How far and how fast a network is pruned.

    lose: how much accuracy on validation clips may be lost: 0.02 is two points; 1 is no limit.
    keep: the share of a layer's neurons that stays in any case.
    share: how many of a layer's neurons go in a round, at most, as a share of those it has.
    clips: training clips that redundancy is measured on.
    tuning: how the network is trained after each round.
    """

    lose: float = 0.02
    keep: float = 0.0
    share: float = 0.25
    clips: int = 512
    tuning: TrainingRecipe = field(
        default_factory=lambda: TrainingRecipe(
            epochs=1, learning_rate=3e-4, warm_up_steps=5, weight_decay=1e-4
        )
    )
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("lose", self.lose), ("keep", self.keep)):
            if not 0 <= value <= 1:
                raise InputError(f"expected --{name} from 0 to 1, got {value:g}; 0.02 is two per cent.")
        if not 0 < self.share < 1:
            raise InputError(f"expected --share above 0 and below 1, got {self.share:g}; 0.25 is usual.")
        if self.clips < 1:
            raise InputError(f"expected --measure of 1 clip or more, got {self.clips}; 512 is usual.")


@final
@dataclass(frozen=True)
class PrunedLayer:
    """A layer's neurons (of a convolution: feature maps) before and now."""

    name: str
    before: int
    now: int


@dataclass(kw_only=True)
class PruningProgress:
    """How far a run has come. link: layers that are done. most: neurons that the next round may drop."""

    round: int = 0
    link: int = 0
    most: int | None = None
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


@final
@dataclass(frozen=True, kw_only=True)
class PruningReport:
    """What pruning came to, on validation clips."""

    method: str
    about: dict[str, str]
    pruned: dict[str, str]
    recipe: dict[str, Any]
    data: Data
    measure: str
    device: str
    seconds: float
    weights_before: int
    weights: int
    layers: list[PrunedLayer]
    before: Interval
    valid: Interval
    history: list[dict[str, Any]]

    @property
    def removed(self) -> float:
        """The share of all weights that is gone."""
        return 1.0 - self.weights / self.weights_before

    def to_json(self) -> str:
        content = {**asdict(self), "removed": self.removed}
        for name in ("before", "valid"):
            content[name] = getattr(self, name)._asdict()
        return json.dumps(content, indent=2) + "\n"

    def to_card(self) -> str:
        """The same for people."""
        layers = "\n".join(f"| {one.name} | {one.before} | {one.now} |" for one in self.layers)
        data = "; ".join(f"{use}: {each['clips']} clips of {each['name']}" for use, each in self.data.items())
        return (
            f"# {self.about['model']}, pruned\n\nBy {self.method}.\n\n"
            f"{self.weights:,} of {self.weights_before:,} weights are left: {100 * self.removed:.1f} % are "
            f"gone.\n\n| layer | neurons before | now |\n|---|---|---|\n{layers}\n\n"
            f"Clean {self.measure} on validation clips, with its 95 % interval: {_shown(self.before)} "
            f"before, {_shown(self.valid)} now. These clips also decided how far to prune, so that the "
            f"last figure flatters a little.\n\nClips: {data}.\n"
        )


def prune(
    learner: Learner,
    train: ClipSource,
    valid: ClipsInMemory,
    *,
    out: Path,
    recipe: PruningRecipe | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    log: Callable[[str], None] = print,
) -> PruningReport:
    """Prune, and write `model.safetensors`, `report.json`, `card.md` and `checkpoint.pt` into a folder.

    The learner is left with the smaller module. resume: go on from the folder's checkpoint.
    """
    if not resume and (out / CHECKPOINT).exists():
        raise InputError(
            f"{out}: expected a folder without a run, got one with {CHECKPOINT}; give --resume to go on, or "
            "choose another folder."
        )
    target = learner.target()
    if target.says != "class":
        raise InputError(
            "pruning expected a classifier, got a recogniser; choose a model that tells classes."
        )
    check_clips(train.clips, target, "training")
    check_clips(valid, target, "validation")
    learner.module.to(device)
    run = PruningRun(learner, train.to(device), valid.to(device), out, recipe or PruningRecipe(), device, log)
    run.begin(resume)
    while not run.over:
        run.round()
    return run.finish()


@final
class PruningRun:
    """A run under way."""

    def __init__(
        self,
        learner: Learner,
        train: ClipSource,
        valid: ClipsInMemory,
        out: Path,
        recipe: PruningRecipe,
        device: torch.device | str,
        log: Callable[[str], None],
    ) -> None:
        self.learner, self.train, self.valid = learner, train, valid
        self.out, self.recipe, self.device, self.log = out, recipe, device, log
        self.progress = PruningProgress()
        self.about = learner.describe()
        self.data = {"training": train.describe(), "validation": valid.describe()}
        some = train.clips.some(recipe.clips, Draws(recipe.seed).turn("redundancy"))
        self.passes = _passes(learner, train.clips, some, recipe.tuning.batch_size)
        self.links = find_links(learner.module, self.passes[0])[::-1]
        self.full = {link.layer: width_of(learner.module, link.layer) for link in self.links}
        self.weights = weights_in(learner.module)
        self.before = self.valid_now = Interval(0.0, 0.0, 1.0, 0)
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        return self.progress.link >= len(self.links)

    def begin(self, resume: bool) -> None:
        path = self.out / CHECKPOINT
        if resume and path.exists():
            self._restore(path)
            self.log(f"going on after round {self.progress.round} ({path})")
            return
        if resume:
            self.log(f"no checkpoint in {self.out} yet: starting at round 1")
        shutil.rmtree(self.out / ROUNDS, ignore_errors=True)
        judge = Validator(
            clips=self.valid, hardening=Hardening(), size=self.recipe.tuning.batch_size, seed=self.recipe.seed
        )
        self.before = self.valid_now = judge(self.learner.target())["clean"]
        chain = " -> ".join(f"{link.layer} ({self.full[link.layer]})" for link in reversed(self.links))
        self.log(f"before: {self.weights:,} weights, {chain}, valid {_shown(self.before)}")

    def round(self) -> None:
        """Drop some neurons of the layer whose turn it is, and train; or go on to the next layer."""
        progress, link = self.progress, self.links[self.progress.link]
        width = width_of(self.learner.module, link.layer)
        count = self._count(width, link)
        if count < 1:
            progress.link, progress.most = progress.link + 1, None
            return
        progress.round += 1
        kept_module = self.learner.module
        self.learner.module = prune_link(kept_module, link, self.passes, count)
        cut, tuned = self._tune(self.out / ROUNDS / f"{progress.round:04d}")
        good = tuned.value >= self.before.value - self.recipe.lose - ROUNDING
        left = weights_in(self.learner.module)
        self.log(
            f"round {progress.round}: {link.layer} {width} -> {width - count}, {left:,} weights left "
            f"({100 * (1 - left / self.weights):.1f} % gone), valid {100 * cut.value:.1f} %, trained "
            f"{100 * tuned.value:.1f} %: {'kept' if good else 'taken back'}"
        )
        progress.history.append(
            {
                "round": progress.round, "layer": link.layer, "from": width, "to": width - count,
                "weights": left, "cut": cut.value, "trained": tuned.value, "kept": good,
            }
        )  # fmt: skip
        if good:
            self.valid_now = tuned
        else:
            self.learner.module, progress.most = kept_module, count // 2
        self._save()

    def finish(self) -> PruningReport:
        """Write the weights, the report and the card."""
        module = self.learner.module.requires_grad_(False).eval()
        report = PruningReport(
            method=METHOD,
            about=self.about,
            pruned=self.learner.describe(),
            recipe=asdict(self.recipe),
            data=self.data,
            measure=measure_of(self.learner.target().says),
            device=str(self.device),
            seconds=round(self._clock(), 1),
            weights_before=self.weights,
            weights=weights_in(module),
            layers=[
                PrunedLayer(link.layer, self.full[link.layer], width_of(module, link.layer))
                for link in reversed(self.links)
            ],
            before=self.before,
            valid=self.valid_now,
            history=self.progress.history,
        )
        save_weights(self.out / WEIGHTS, self.learner, module.state_dict(), half=False)
        write_whole(self.out / REPORT, lambda path: path.write_text(report.to_json(), encoding="utf-8"))
        write_whole(self.out / CARD, lambda path: path.write_text(report.to_card(), encoding="utf-8"))
        shutil.rmtree(self.out / ROUNDS, ignore_errors=True)
        self.log(
            f"{100 * report.removed:.1f} % of the weights are gone, {report.weights:,} are left; valid "
            f"{_shown(self.before)} before, {_shown(self.valid_now)} now"
        )
        self.log(f"weights: {self.out / WEIGHTS}, report: {self.out / REPORT}")
        return report

    def _count(self, width: int, link: PrunableLayer) -> int:
        """How many neurons a layer of some width loses next."""
        spare = width - max(1, round(self.recipe.keep * self.full[link.layer]))
        wanted = max(1, int(self.recipe.share * width))
        return min(spare, wanted if self.progress.most is None else min(wanted, self.progress.most))

    def _tune(self, folder: Path) -> tuple[Interval, Interval]:
        """Train what was pruned; accuracy before and after. What a killed run has trained is not lost."""
        tuning = replace(self.recipe.tuning, seed=self.recipe.seed + self.progress.round)
        report = fit(
            self.learner,
            self.train,
            self.valid,
            out=folder,
            recipe=tuning,
            device=self.device,
            resume=True,
            log=lambda line: None,
        )
        shutil.rmtree(folder, ignore_errors=True)
        return report.before["clean"], report.valid["clean"]

    def _clock(self) -> float:
        return self.progress.seconds + time.monotonic() - self._began

    def _save(self) -> None:
        self.progress.seconds, self._began = self._clock(), time.monotonic()
        save_checkpoint(
            self.out / CHECKPOINT,
            {
                "about": self.about,
                "recipe": asdict(self.recipe),
                "data": self.data,
                "progress": asdict(self.progress),
                "before": list(self.before),
                "valid": list(self.valid_now),
                "module": self.learner.module.state_dict(),
            },
        )

    def _restore(self, path: Path) -> None:
        state = load_checkpoint(path, self.about)
        check_settings(path, asdict(self.recipe), state["recipe"])
        check_data(path, self.data, state["data"])
        self.progress = PruningProgress(**state["progress"])
        self.before, self.valid_now = (Interval(*state[name]) for name in ("before", "valid"))
        module = deepcopy(self.learner.module)
        resize(module, state["module"])
        self.learner.module = module.to(self.device)


def _passes(learner: Learner, clips: ClipsInMemory, places: Sequence[int], size: int) -> list[Pass]:
    """The learner's losses on some clips, those of one length together."""
    ordered = sorted(places, key=lambda place: int(clips.lengths[place]))
    groups: list[list[int]] = []
    for place in ordered:
        last = groups[-1] if groups else []
        if last and len(last) < size and clips.lengths[last[0]] == clips.lengths[place]:
            last.append(place)
        else:
            groups.append([place])

    def hear(group: list[int]) -> torch.Tensor:
        drawn = clips.batch(group)
        return learner.loss(drawn.batch, drawn.labels)

    return [lambda group=group: hear(group) for group in groups]  # type: ignore[misc]


def _shown(figure: Interval) -> str:
    return f"{100 * figure.value:.1f} % [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"
