"""Training of the learned ear on answers "same" or "different" (Manocha et al. 2020, section 2.2).

Answers follow P = lapse / 2 + (1 - lapse) P(different): listeners press the wrong key now and then, and the
ear should not learn to. Two plain facts are added to the answers: along one direction from one reference,
more is never nearer; and a clip that comes a millisecond later sounds the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from sottovoce.core.draws import Draws
from sottovoce.errors import GradientError, InputError
from sottovoce.perception.ears.learned_network import EarShape, LearnedNetwork, save_network
from sottovoce.perception.jnd.answers import Answers
from sottovoce.training.checkpoint import load_checkpoint, save_checkpoint, write_whole
from sottovoce.training.ear.answer_pairs import AnswerPairs, Sampler, Store, make_pairs, shifted, split_rows
from sottovoce.training.ear.ear_figures import EarFigures, judge

Variant = Literal["pre", "lin", "fin", "scratch"]
Log = Callable[[str], None]
LARGEST_LAPSE = 0.3
FIRST_LOOK = 256
"""Pairs by which the head is set before the first step."""


@final
@dataclass(frozen=True, kw_only=True)
class EarRecipe:
    """What shapes a run besides answers and device.

    steps, seconds: whichever is over first; at least one is given. check: steps from one look at the
    validation answers to the next. patience: looks without improvement, after which it stops; 0: never.
    warmup: the share of a run from scratch in which statistics are those of each batch.
    ordering, stillness: weights of the two plain facts.
    """

    steps: int | None = 4000
    seconds: float | None = None
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    check: int = 200
    patience: int = 8
    warmup: float = 0.2
    ordering: float = 0.3
    stillness: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise InputError("give steps or seconds, after which training stops.")
        if self.batch < 2 or self.check < 1:
            raise InputError(
                f"expected --batch of 2 or more and --check of 1 or more, got {self.batch} and {self.check}."
            )


@final
@dataclass(frozen=True, kw_only=True)
class EarReport:
    """The result of a run. `figures` by split: the best step was chosen on "valid", not on "test"."""

    variant: str
    listeners: str
    answers: int
    figures: dict[str, EarFigures]
    jnd: float
    slope: float
    lapse: float
    steps: int
    best_step: int
    seconds: float
    device: str
    recipe: dict[str, Any]
    counts: dict[str, int]
    history: list[dict[str, float]] = field(default_factory=list)

    @property
    def held_out(self) -> EarFigures:
        """On answers that neither trained nor chose it; where there is no test split, those that chose it."""
        return self.figures.get("test", self.figures["valid"])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "figures": {name: one.to_json() for name, one in self.figures.items()}}


@final
@dataclass(frozen=True)
class AnswerSplits:
    """Pairs of training, validation and test answers, on one device."""

    parts: dict[str, AnswerPairs]
    listeners: str

    @property
    def device(self) -> torch.device:
        return self.parts["train"].clean.device


def prepare(answers: Answers, device: torch.device | str = "cpu", log: Log = print) -> AnswerSplits:
    """Answers that a metric can learn from, split by speaker; raises where nothing can be learned."""
    kept = answers.for_training()
    if len(kept) < len(answers):
        log(f"left out {len(answers) - len(kept):,} answers of listeners with a wrong sentinel")
    rows = split_rows(kept)
    if not rows["train"] or not rows["valid"]:
        raise InputError(
            "all answers are about one reference; at least two are needed, so that one can be held out: "
            "collect answers on more clips."
        )
    if not (kept.pack.speakers != "").any():
        log("clips do not say who speaks: training, validation and test are split by reference")
    for name in ("valid", "test"):
        # Sentinels are easy, and would make any figure look better than it is.
        rows[name] = [row for row in rows[name] if not kept.answers[row].sentinel]
    store = Store.of(kept.pack, torch.device(device))
    parts = {name: make_pairs(kept, found, store) for name, found in rows.items() if found}
    parts = {name: pairs for name, pairs in parts.items() if len(pairs)}
    if not {"train", "valid"} <= parts.keys():
        raise InputError(
            "expected pairs that differ in training and validation, got none in one of them; collect more."
        )
    simulated = [one.simulated for one in kept.answers]
    who = "simulated" if all(simulated) else "people and simulated" if any(simulated) else "people"
    return AnswerSplits(parts, who)


def trainable(network: LearnedNetwork, variant: Variant) -> list[nn.Parameter]:
    """What a variant learns besides the head, which all learn: nothing, layer weights, or everything."""
    weights = list(network.weights.parameters())
    if variant == "pre":
        return []
    return weights if variant == "lin" else [*network.blocks.parameters(), *weights]


@final
class EarTraining:
    """A training run in progress. The network is changed in place; `best` keeps its best state."""

    def __init__(
        self,
        network: LearnedNetwork,
        material: AnswerSplits,
        variant: Variant,
        recipe: EarRecipe,
        checkpoint: Path,
        log: Log,
    ) -> None:
        self.network = network.to(material.device).requires_grad_(False).eval()
        self.material, self.variant, self.recipe = material, variant, recipe
        self.checkpoint, self.log = checkpoint, log
        self.lapse = nn.Parameter(torch.tensor(-1.5, device=material.device))
        self.sampler = Sampler(material.parts["train"])
        learned = trainable(network, variant)
        weights = {id(weight) for weight in network.weights.parameters()}
        head = [network.log_jnd, network.raw_slope, self.lapse]
        groups = [
            {"params": [one for one in learned if id(one) not in weights], "factor": 1.0},
            {"params": [one for one in learned if id(one) in weights], "factor": 10.0, "weight_decay": 0.0},
            {"params": head, "factor": 10.0, "weight_decay": 0.0},
        ]
        for one in (*learned, *head):
            one.requires_grad_(True)
        self.optimiser = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
        )
        self.step, self.stale, self.best_step, self.best_loss = 0, 0, 0, math.inf
        self.spent_seconds, self.history = 0.0, list[dict[str, float]]()
        self.best = self._state()

    def go(self, resume: bool = False) -> EarReport:
        began = time.monotonic()
        if resume and self.checkpoint.exists():
            self._restore()
            self.log(f"{self.variant}: going on at step {self.step}")
        elif self.variant != "pre":
            self._calibrate(FIRST_LOOK)
        before = self.spent_seconds
        while self.variant != "pre" and not self._over():
            rate = self._rate()
            for group in self.optimiser.param_groups:
                group["lr"] = rate * group["factor"]
            self._take_step()
            self.spent_seconds = before + time.monotonic() - began
            if self.step % self.recipe.check == 0 or self._over():
                self._look()
        return self._finish()

    def _spent(self) -> float:
        shares = [0.0]
        if self.recipe.steps:
            shares.append(self.step / self.recipe.steps)
        if self.recipe.seconds:
            shares.append(self.spent_seconds / self.recipe.seconds)
        return max(shares)

    def _over(self) -> bool:
        return self._spent() >= 1.0 or 0 < self.recipe.patience <= self.stale

    def _rate(self) -> float:
        """Share of the full learning rate: linear warm-up over the first twentieth, then cosine decay."""
        spent = self._spent()
        return (
            self.recipe.learning_rate
            * min(1.0, (spent + 0.005) / 0.05)
            * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(spent, 1.0))))
        )

    def _take_step(self) -> None:
        draws = Draws(self.recipe.seed).turn(self.variant, self.step)
        source = draws.generator("batch")
        pairs = self.material.parts["train"]
        rows = self.sampler.draw(self.recipe.batch, source)
        # Statistics of a network that begins at nothing move too fast to be fixed from the start.
        self.network.train(self.variant == "scratch" and self._spent() < self.recipe.warmup)
        clean, changed = pairs.varied(rows, source)
        distance = self.network(clean.waveforms, changed.waveforms, clean.lengths)
        loss = self._likelihood(distance, pairs.different[rows], pairs.asked[rows])
        loss = loss + self.recipe.ordering * disorder(distance, pairs.strengths[rows])
        if self.recipe.stillness:
            now, later = shifted(clean, max(1, self.recipe.batch // 8), draws)
            still = self.network(now.waveforms, later.waveforms, now.lengths)
            loss = (
                loss
                + self.recipe.stillness * -(1 - self.network.probability(still)).clamp_min(1e-6).log().mean()
            )
        self.optimiser.zero_grad()
        loss.backward()
        parameters = [one for group in self.optimiser.param_groups for one in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        if not bool(torch.isfinite(norm)):
            raise GradientError(
                f"step {self.step}: expected a finite gradient, got NaN or infinity; lower the learning rate."
            )
        self.optimiser.step()
        self.network.project()
        self.network.eval()
        self.step += 1

    def _likelihood(self, distance: Tensor, different: Tensor, asked: Tensor) -> Tensor:
        """Cross entropy of the answers, each as much as any other."""
        p = answered(self.network.probability(distance), self._lapse()).clamp(1e-6, 1 - 1e-6)
        return -(different * p.log() + (asked - different) * (-p).log1p()).sum() / asked.sum()

    def _lapse(self) -> Tensor:
        return LARGEST_LAPSE * torch.sigmoid(self.lapse)

    def _look(self) -> None:
        figures = self.figures("valid")
        self.history.append({"step": float(self.step), "loss": figures.loss, "auc": figures.auc})
        better = figures.loss < self.best_loss
        self.stale = 0 if better else self.stale + 1
        if better:
            self.best_loss, self.best_step, self.best = figures.loss, self.step, self._state()
        self.log(f"{self.variant} step {self.step} ({self.spent_seconds:.0f} s): valid {figures}")
        self._save()

    def distances(self, part: str, rows: Tensor | None = None) -> Tensor:
        """Of pairs of a split as they are, `(pairs,)`: of all, or of some rows."""
        pairs = self.material.parts[part]
        rows = torch.arange(len(pairs), device=pairs.clean.device) if rows is None else rows
        order = torch.argsort(pairs.store.lengths[pairs.clean[rows]])
        found = torch.zeros(len(rows), device=rows.device)
        self.network.eval()
        with torch.no_grad():
            # In order of length, so that little is padded.
            for some in order.split(2 * self.recipe.batch):
                clean, changed = pairs.sounds(rows[some])
                found[some] = self.network(clean.waveforms, changed.waveforms, clean.lengths)
        return found

    def figures(self, part: str) -> EarFigures:
        pairs = self.material.parts[part]
        with torch.no_grad():
            p = answered(self.network.probability(self.distances(part)), self._lapse())
        return judge(p.cpu().numpy(), pairs.different.cpu().numpy(), pairs.asked.cpu().numpy())

    def _finish(self) -> EarReport:
        self.network.load_state_dict(self.best["network"])
        with torch.no_grad():
            self.lapse.copy_(self.best["lapse"])
        if self.variant == "pre":
            self._calibrate()
        self.network.requires_grad_(False).eval()
        figures = {name: self.figures(name) for name in self.material.parts if name != "train"}
        for name, one in figures.items():
            self.log(f"{self.variant}: {name} {one}")
        place = self.material.device
        return EarReport(
            variant=self.variant,
            listeners=self.material.listeners,
            answers=sum(int(pairs.asked.sum()) for pairs in self.material.parts.values()),
            figures=figures,
            jnd=float(self.network.log_jnd.exp()),
            slope=float(self.network.slope.detach()),
            lapse=float(self._lapse().detach()),
            steps=self.step,
            best_step=self.best_step,
            seconds=round(self.spent_seconds, 1),
            device=torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
            recipe=asdict(self.recipe),
            counts={name: len(pairs) for name, pairs in self.material.parts.items()},
            history=self.history,
        )

    def _calibrate(self, most: int | None = None) -> None:
        """Fit the head alone to the distances of training pairs as they are, of some or of all."""
        pairs = self.material.parts["train"]
        count = min(len(pairs), most or len(pairs))
        rows = torch.linspace(0, len(pairs) - 1, count, device=pairs.clean.device).round().long()
        known = self.distances("train", rows)
        # Without training the JND may be anywhere: begin at the middle of what is there.
        scale = (-known[known > 0].median().log()).requires_grad_(True)
        head = [scale, self.network.raw_slope, self.lapse]
        optimiser = torch.optim.LBFGS(head, lr=0.5, max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            found = self._likelihood(known * scale.exp(), pairs.different[rows], pairs.asked[rows])
            found.backward()
            return found

        optimiser.step(loss)
        if not all(bool(torch.isfinite(one)) for one in head):
            raise GradientError("expected a head that fits the answers, got NaN; collect more answers.")
        with torch.no_grad():
            self.network.log_jnd.sub_(scale)

    def _state(self) -> dict[str, Any]:
        network = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        return {"network": network, "lapse": self.lapse.detach().clone()}

    def _save(self) -> None:
        save_checkpoint(
            self.checkpoint,
            {
                "about": self._about(),
                "now": self._state(),
                "best": self.best,
                "optimiser": self.optimiser.state_dict(),
                "step": self.step,
                "stale": self.stale,
                "best_step": self.best_step,
                "best_loss": self.best_loss,
                "seconds": self.spent_seconds,
                "history": self.history,
            },
        )

    def _restore(self) -> None:
        state = load_checkpoint(self.checkpoint, self._about())
        self.network.load_state_dict(state["now"]["network"])
        with torch.no_grad():
            self.lapse.copy_(state["now"]["lapse"])
        self.optimiser.load_state_dict(state["optimiser"])
        place = self.material.device
        self.best = {
            "network": {name: value.to(place) for name, value in state["best"]["network"].items()},
            "lapse": state["best"]["lapse"].to(place),
        }
        self.step, self.stale, self.best_step = state["step"], state["stale"], state["best_step"]
        self.best_loss, self.spent_seconds = state["best_loss"], state["seconds"]
        self.history = state["history"]

    def _about(self) -> dict[str, str]:
        return {"architecture": f"learned ear ({self.variant})", "shape": repr(self.network.shape)}


def train_to(
    path: Path,
    network: LearnedNetwork,
    material: AnswerSplits,
    *,
    variant: Variant,
    recipe: EarRecipe | None = None,
    resume: bool = False,
    log: Log = print,
) -> EarReport:
    """Train one variant, and write its weights to a file.

    The network is left with those weights. "pre" and "lin" keep the features that it comes with, "fin"
    begins with them, "scratch" is to be given a new network. A checkpoint lies beside until it is done.
    """
    run = EarTraining(
        network, material, variant, recipe or EarRecipe(), path.with_suffix(".checkpoint.pt"), log
    )
    report = run.go(resume)
    write_network(path, network, report)
    run.checkpoint.unlink(missing_ok=True)
    return report


def write_network(path: Path, network: LearnedNetwork, report: EarReport) -> None:
    """Weights with what is known of them: who answered, and the figures."""
    facts = {
        "variant": report.variant,
        "listeners": report.listeners,
        "answers": str(report.answers),
        "held_out": str(report.held_out),
        "lapse": f"{report.lapse:.4f}",
    }
    write_whole(path, lambda place: save_network(place, network, facts))


def answered(p: Tensor, lapse: Tensor | float) -> Tensor:
    """P of the answer "different" of a listener who lapses now and then."""
    return 0.5 * lapse + (1 - lapse) * p


def disorder(distance: Tensor, strengths: Tensor) -> Tensor:
    """How much smaller the distance of the stronger of two changes is, along one direction; rows 2k and 2k +
    1 are compared."""
    apart = distance.view(-1, 2)
    more = strengths.view(-1, 2)
    sign = torch.sign(more[:, 1] - more[:, 0]).nan_to_num(0.0)
    # In logarithms, so that it weighs as much near threshold as far above.
    rise = sign * (apart.clamp_min(1e-3).log()[:, 1] - apart.clamp_min(1e-3).log()[:, 0])
    return (-rise).relu().mean()


def new_network(seed: int, shape: EarShape | None = None) -> LearnedNetwork:
    """A network with random kernels that depend only on the seed."""
    return LearnedNetwork(shape, seed=seed)
