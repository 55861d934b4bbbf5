"""Training loop: AdamW, linear warm-up, cosine decay, validation, checkpoints, early stopping.

All random numbers but those of dropout depend on the seed, the epoch and the step, and dropout's state is in
the checkpoint: a run that was killed and continued ends where it would have ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sottovoce.core.draws import Draws
from sottovoce.core.statistics import Interval
from sottovoce.errors import GradientError, InputError, MissingExtra
from sottovoce.training.checkpoint import (
    check_data,
    check_settings,
    load_checkpoint,
    random_state,
    save_checkpoint,
    save_weights,
    set_random_state,
    write_whole,
)
from sottovoce.training.gpu_workers import Workers, gather_workers
from sottovoce.training.hardening import Hardening, pick
from sottovoce.training.learner import Learner
from sottovoce.training.recipe import Data, TrainingProgress, TrainingRecipe, TrainingReport, learning_rate
from sottovoce.training.sources import ClipsInMemory, ClipSource, Labelled, Source, check_clips
from sottovoce.training.validation_figures import Figures, Validator, gain, measure_of, watched

CHECKPOINT, WEIGHTS, REPORT = "checkpoint.pt", "model.safetensors", "report.json"


def fit(
    learner: Learner,
    train: Source,
    valid: ClipsInMemory,
    *,
    out: Path,
    recipe: TrainingRecipe | None = None,
    hardening: Hardening | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    tensorboard: bool = False,
    log: Callable[[str], None] = print,
) -> TrainingReport:
    """Train, and write `checkpoint.pt`, `model.safetensors` and `report.json` into a folder.

    The learner is left with the weights that were written. resume: continue from the folder's checkpoint.
    """
    recipe, hardening = recipe or TrainingRecipe(), hardening or Hardening()
    target = learner.target()
    if isinstance(train, ClipSource):
        check_clips(train.clips, target, "training")
    check_clips(valid, target, "validation")
    data = {"training": train.describe(), "validation": valid.describe()}
    hardening.check(target)
    if not resume and (out / CHECKPOINT).exists():
        raise InputError(
            f"{out} has a {CHECKPOINT} of an earlier training; add --resume to continue it, or choose "
            "another "
            "folder with --out."
        )
    open_board = _board_writer() if tensorboard else None
    workers = gather_workers(device, log)
    if not workers.first:
        open_board = None
    place = workers.device
    # Dropout draws from torch's own state, which is put back afterwards.
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(recipe.seed + workers.rank)
        judge = Validator(
            clips=valid.to(place),
            hardening=hardening,
            size=recipe.batch_size,
            attacked=recipe.attacked_clips,
            seed=recipe.seed,
        )
        tell = log if workers.first else _silent
        run = TrainingRun(learner, train.to(place), judge, recipe, hardening, data, workers, out, tell)
        run.begin(resume)
        board = open_board(out / "tensorboard", purge_step=run.progress.step + 1) if open_board else None
        while not run.over:
            scalars = run.epoch()
            if board:
                for name, value in scalars.items():
                    board.add_scalar(name, value, run.progress.step)
        if board:
            board.close()
        report = run.finish()
    workers.part()
    return report


@final
class TrainingRun:
    """A training run in progress."""

    def __init__(
        self,
        learner: Learner,
        train: Source,
        judge: Validator,
        recipe: TrainingRecipe,
        hardening: Hardening,
        data: Data,
        workers: Workers,
        out: Path,
        log: Callable[[str], None],
    ) -> None:
        self.learner, self.train, self.judge = learner, train, judge
        self.recipe, self.hardening, self.data, self.workers = recipe, hardening, data, workers
        self.out, self.log = out, log
        self.progress = TrainingProgress()
        learner.module.requires_grad_(True)
        self.wrapped = workers.wrap(learner.module)
        self.average = None
        if recipe.average_decay:
            self.average = AveragedModel(learner.module, multi_avg_fn=self._average, use_buffers=True)
        self.optimiser = torch.optim.AdamW(
            learner.module.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self.steps_an_epoch = train.steps(recipe.batch_size)
        self.says = learner.target().says
        self.before: Figures = {}
        self.best: dict[str, Tensor] = {}
        self.over = False
        self._began = time.monotonic()

    @property
    def kept(self) -> nn.Module:
        """What is judged and written: the average where there is one."""
        return self.average.module if self.average else self.learner.module

    def spent(self) -> float:
        """The share of training that is done, by steps or by time, whichever is larger."""
        shares = []
        if self.recipe.epochs:
            shares.append(self.progress.step / (self.recipe.epochs * self.steps_an_epoch))
        if self.recipe.minutes:
            clock = self.progress.seconds + time.monotonic() - self._began
            shares.append(self.workers.agree(clock) / (60.0 * self.recipe.minutes))
        return max(shares)

    def begin(self, resume: bool) -> None:
        path = self.out / CHECKPOINT
        if resume and path.exists():
            self._restore(load_checkpoint(path, self.learner.describe()), path)
            self.log(f"continuing after epoch {self.progress.epoch} ({path})")
        else:
            if resume:
                self.log(f"no checkpoint in {self.out} yet: starting at epoch 1")
            self.before = self._judged()
            self.log(f"before: {self._shown(self.before)}")
        self._began = time.monotonic()
        self.over = self.progress.stopped or self.spent() >= 1.0

    def epoch(self) -> dict[str, float]:
        """One epoch, and a judgement where one is due; what there is to plot."""
        progress, adversary = self.progress, self.hardening.adversary
        shares: list[float] = []
        draws = Draws(self.recipe.seed).turn("epoch", progress.epoch)
        total, clips, rate = torch.zeros((), device=self.workers.device), 0, 0.0
        for place, drawn in enumerate(self.train.batches(self.recipe.batch_size, draws.turn("source"))):
            spent = self.spent()
            if spent >= 1.0:
                break
            progress.step += 1
            rate = learning_rate(self.recipe, progress.step, spent)
            shares.append(adversary.share.at(spent) if adversary else 0.0)
            total += self._step(drawn, shares[-1], rate, draws.turn("step", place))
            clips += len(drawn)
        progress.epoch += 1
        share = fmean(shares or [0.0])
        scalars = {"learning_rate": rate, "share": share, "loss": self._mean(total, clips)}
        of = f"/{self.recipe.epochs}" if self.recipe.epochs else ""
        note = f"epoch {progress.epoch}{of}: loss {scalars['loss']:.4f}"
        if adversary:
            note += f", {100 * share:.0f} % attacked"
        self.over = self.spent() >= 1.0
        if progress.epoch % self.recipe.check_epochs == 0 or self.over:
            figures = self._judged()
            self._compare(figures)
            note += f", valid {self._shown(figures)}"
            scalars |= {f"valid/{name}": figure.value for name, figure in figures.items()}
            progress.history.append({"epoch": float(progress.epoch), **scalars})
            self._save()
        self.log(note)
        if progress.stopped:
            self.over = True
            self.log(f"stopped early: no improvement in {progress.stale} validations")
        return scalars

    def finish(self) -> TrainingReport:
        """Put the best weights into the learner, write them and the report."""
        module = self.learner.module
        module.load_state_dict(self.best)
        if self.recipe.half:
            # What is judged is the file: its weights have been rounded to 16 bits.
            module.load_state_dict({name: _rounded(value) for name, value in self.best.items()})
        module.requires_grad_(False).eval()
        figures = self.workers.agree(self.judge(self.learner.target()) if self.workers.first else {})
        progress, place = self.progress, self.workers.device
        report = TrainingReport(
            about=self.learner.describe(),
            hardening=self.hardening.describe(),
            recipe=asdict(self.recipe),
            data=self.data,
            measure=measure_of(self.says),
            watched=watched(figures),
            device=torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
            epochs=progress.epoch,
            steps=progress.step,
            seconds=round(progress.seconds, 1),
            best_epoch=progress.best_epoch,
            stopped_early=progress.stopped,
            before=self.before,
            valid=figures,
            history=progress.history,
        )
        if self.workers.first:
            save_weights(self.out / WEIGHTS, self.learner, module.state_dict(), half=self.recipe.half)
            write_whole(self.out / REPORT, lambda path: path.write_text(report.to_json(), encoding="utf-8"))
        self.log(f"kept epoch {progress.best_epoch}: valid {self._shown(figures)}")
        self.log(f"weights: {self.out / WEIGHTS}, report: {self.out / REPORT}")
        return report

    def _step(self, drawn: Labelled, share: float, rate: float, draws: Draws) -> Tensor:
        """One step on a batch, of which this process takes every n-th of n processes' clips; the sum of its
        losses."""
        attacked = set(pick(len(drawn), share, draws))
        rows = list(range(self.workers.rank, len(drawn), self.workers.count))
        # Processes wait for each other: one without a clip goes through the motions with the first.
        mine = rows or [0]
        part = drawn.select(mine)
        able = self.learner.can_attack(part.batch, part.labels)
        hit = [place for place, row in enumerate(mine) if row in attacked and able[place]]
        self.learner.module.train()
        heard = self.hardening.harden(self.learner.target(), part.batch, part.labels, hit, draws)
        losses = self.learner.loss(heard, part.labels, through=self.wrapped)
        total = losses.sum() if rows else 0.0 * losses.sum()
        self.optimiser.zero_grad()
        # Gradients of processes are averaged; what counts is the mean over all clips of the batch.
        self.workers.backward(total * self.workers.count / len(drawn))
        norm = nn.utils.clip_grad_norm_(self.learner.module.parameters(), self.recipe.gradient_norm)
        if not bool(torch.isfinite(norm)):
            raise GradientError(
                f"step {self.progress.step}: expected a finite gradient, got NaN or infinity; lower the "
                "learning rate, or look for a broken clip."
            )
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.step()
        if self.average:
            self.average.update_parameters(self.learner.module)
        return total.detach()

    def _average(self, kept: Any, now: Any, count: Any) -> None:
        """A moving average that decays faster at first, so that the initial weights do not count for long."""
        step = self.progress.step
        decay = min(self.recipe.average_decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(kept, now, count)

    def _mean(self, total: Tensor, clips: int) -> float:
        return sum(self.workers.collect(float(total))) / max(clips, 1)

    def _judged(self) -> Figures:
        figures = self.judge(self.learner.target(self.kept)) if self.workers.first else {}
        return self.workers.agree(figures)

    def _compare(self, figures: Figures) -> None:
        progress, value = self.progress, gain(figures[watched(figures)], self.says)
        progress.stale = 0 if value > progress.best_gain else progress.stale + 1
        # A later epoch wins a tie: its steps were smaller, and its average is longer.
        if value >= progress.best_gain:
            progress.best_gain, progress.best_epoch = value, progress.epoch
            self.best = {name: part.detach().cpu().clone() for name, part in self.kept.state_dict().items()}
        progress.stopped = 0 < self.recipe.patience <= progress.stale

    def _shown(self, figures: Figures) -> str:
        numbers = ", ".join(f"{name} {100 * figure.value:.1f} %" for name, figure in figures.items())
        return f"{measure_of(self.says)} {numbers}"

    def _save(self) -> None:
        progress = self.progress
        progress.seconds += time.monotonic() - self._began
        self._began = time.monotonic()
        random = self.workers.collect(random_state(self.workers.device))
        if not self.workers.first:
            return
        save_checkpoint(
            self.out / CHECKPOINT,
            {
                "about": self.learner.describe(),
                "recipe": asdict(self.recipe),
                "hardening": self.hardening.describe(),
                "data": self.data,
                "progress": asdict(progress),
                "before": {name: list(figure) for name, figure in self.before.items()},
                "module": self.learner.module.state_dict(),
                "average": self.average.state_dict() if self.average else None,
                "optimiser": self.optimiser.state_dict(),
                "best": self.best,
                "random": random,
            },
        )

    def _restore(self, state: dict[str, Any], path: Path) -> None:
        check_settings(path, asdict(self.recipe), state["recipe"])
        check_settings(path, self.hardening.describe(), state["hardening"])
        check_data(path, self.data, state.get("data", {}))
        known = {item.name for item in fields(TrainingProgress)}
        self.progress = TrainingProgress(
            **{key: value for key, value in state["progress"].items() if key in known}
        )
        self.before = {name: Interval(*numbers) for name, numbers in state["before"].items()}
        self.learner.module.load_state_dict(state["module"])
        if self.average:
            self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.best = state["best"]
        if len(state["random"]) == self.workers.count:
            set_random_state(self.workers.device, state["random"][self.workers.rank])
        else:
            self.log(f"begun with {len(state['random'])} processes: dropout will draw other numbers")


def _rounded(value: Tensor) -> Tensor:
    return value.half().to(value.dtype) if value.is_floating_point() else value


def _silent(line: str) -> None:
    return None


def _board_writer() -> Any:
    """What writes scalars for TensorBoard, or what to install."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra(
            f"--tensorboard needs the package tensorboard ({error}); type: pip install 'sottovoce[train]', "
            "or "
            "leave the option out."
        ) from error
    return SummaryWriter
