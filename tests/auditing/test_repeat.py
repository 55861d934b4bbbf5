"""Models that are random and do not say so: found before a run, treated as random, and told of."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.engines.pool_worker import do_task
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.repeatability import Repeated, hear_twice
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.tasks import FinishedTask, LostTask, Task
from sottovoce.cli.main import app
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged, Defended, Unsteady
from sottovoce.core.vote import Voted
from sottovoce.data.load import Clip
from sottovoce.defenses.votes import Majority
from sottovoce.errors import InputError
from sottovoce.report.report_page import write_report
from sottovoce.targets.families.classifier import Classifier
from sottovoce.testing.sequence_toys import ToyAttention, ToyCtc
from sottovoce.testing.toys import ToyClassifier, ToyNoise, toy_random

# Says "up" where the mean of a clip is above zero. WAVER: the share of samples that each call leaves out, by
# dropout that evaluation mode does not switch off. ROWS: clips that went through the module.
MODEL = """
import torch
from sottovoce.targets.families.classifier import ModuleClassifier

WAVER, PAID, ROWS = {waver}, {paid}, []


class Mean(torch.nn.Module):
    def forward(self, waveforms):
        ROWS.append(len(waveforms))
        heard = torch.nn.functional.dropout(waveforms, p=WAVER, training=True)
        mean = heard.mean(dim=1, keepdim=True)
        return 50.0 * torch.cat([mean, -mean], dim=1)


class Paid(ModuleClassifier):
    paid = PAID


def make():
    return Paid(Mean(), ["up", "down"], 8000)
"""
Make = Callable[..., str]


@pytest.fixture
def make_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    torch.manual_seed(0)

    def write(waver: float, paid: bool = False) -> str:
        (tmp_path / "wavering.py").write_text(MODEL.format(waver=waver, paid=paid))
        monkeypatch.delitem(sys.modules, "wavering", raising=False)
        return "python:wavering:make"

    return write


def rows() -> int:
    """Clips that went through the model since the last time."""
    seen = sys.modules["wavering"].ROWS
    total = sum(seen)
    seen.clear()
    return total


def plan_of(model: str, clips: Path, **settings: object) -> Plan:
    base = {
        "model": model, "data": str(clips), "attacks": ["noise"], "budgets": ["snr(db=-3)"], "probe": 0,
        "metrics": ["success", "snr"], "audio": "none",
    }  # fmt: skip
    return make_plan(base | settings)


def kinds(folder: RunFolder) -> dict[str, bool]:
    """The questions that a run was asked, and whether it passed."""
    plan = folder.plan()
    checks = examine(plan, summarise(plan, folder.records()), folder.probes(), folder.repeated())
    return {check.kind: check.passed for check in checks}


def test_a_steady_model_costs_four_clips_twice_and_nothing_else(
    make_model: Make, mean_clips: Path, tmp_path: Path
) -> None:
    plan = plan_of(make_model(0.0), mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    # Four clips decoded and scored twice; then of six clips the clean, the float and the rounded one.
    assert rows() == 4 * 2 * 2 + 6 * 3
    assert json.loads((folder.path / "about.json").read_text())["repeated"] == {
        "clips": 4, "texts": 0, "scores": 0, "said": False,
    }  # fmt: skip
    assert kinds(folder)["repeats"] and kinds(folder)["rounding"]
    assert all(record.achieved_unrounded is not None for record in folder.records())
    assert "The model is deterministic" in write_report(folder).read_text()
    # Asked once a run: going on, or giving the command again, asks nothing.
    run_audit(plan, tmp_path / "run")
    assert rows() == 0


def test_a_model_that_wavers_is_treated_as_random(make_model: Make, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_of(make_model(0.3), mean_clips, attacks=["noise", "pgd(steps=2)"], probe=2)
    folder = run_audit(plan, tmp_path / "run")
    first = rows()
    found = json.loads((folder.path / "about.json").read_text())["repeated"]
    assert found == {"clips": 4, "texts": 0, "scores": 4, "said": False}
    # Noise: eight passes over the clean, the float and the rounded clip, and eight more that are counted.
    # pgd: two gradients and a look at the end, each over 16 passes, and the same.
    assert first >= 16 + 6 * (4 * 8) + 6 * (3 * 16 + 4 * 8)
    for record in folder.records():
        count, _, of = record.facts["agreed"].partition(" of ")
        assert 0 <= int(count) <= 8 and of == "8"
        assert record.achieved_unrounded is None
    # Without a third of its samples a constant clip still lies far on its side of zero.
    assert {record.clean_text for record in folder.records() if record.clip == "down/1"} == {"down"}
    raised = kinds(folder)
    assert raised["repeats"] is False and "rounding" not in raised
    # The probes know it too: those with more passes are for random targets alone.
    assert {record.facts["random"] for record in folder.probes()} == {"yes"}
    (loud,) = [cell for cell in summarise(plan, folder.records()).cells if cell.cell.attack.name == "pgd"]
    assert loud.lost_by_rounding is None
    page = write_report(folder).read_text()
    assert "The model answers the same clip in different ways" in page
    assert "judged by the majority of 8 passes" in page and "successes lost by rounding" not in page
    assert "The same seed gives the same decisions." not in page


def test_gradients_of_a_model_that_wavers_are_averaged(
    make_model: Make, mean_clips: Path, tmp_path: Path
) -> None:
    model = make_model(0.3)
    run_audit(plan_of(model, mean_clips), tmp_path / "noise")
    without = rows()
    run_audit(plan_of(model, mean_clips, attacks=["fgsm"]), tmp_path / "fgsm")
    # One gradient over 16 passes, of six clips.
    assert rows() - without == 6 * 16


def test_going_on_treats_the_model_as_the_run_began(
    make_model: Make, mean_clips: Path, tmp_path: Path
) -> None:
    plan = plan_of(make_model(0.3), mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    folder.records_path.write_bytes(b"".join(lines[:4]))
    rows()
    sys.modules["wavering"].WAVER = 0.0
    run_audit(plan, tmp_path / "run")
    # The two clips that were missing, 32 passes each, and no clip twice: what is on record counts.
    assert rows() == 2 * 4 * 8
    assert ["agreed" in record.facts for record in folder.records()] == [True] * 6


@final
class Elsewhere(Engine):
    """Another process, as far as can be told from here: tasks are pickled, and it opens its own model."""

    def __init__(self) -> None:
        self.there = Executor("cpu")

    def offer(self, model: str, target: Target) -> None:
        return None

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        for task in tasks:
            yield do_task(self.there, pickle.loads(pickle.dumps(task)))

    def close(self) -> None:
        self.there.clear()


def test_workers_are_told(make_model: Make, mean_clips: Path, tmp_path: Path) -> None:
    wavering = plan_of(make_model(0.3), mean_clips, attacks=["uap"], budgets=["l2(eps=0.5)"])
    engine = Elsewhere()
    folder = run_audit(wavering, tmp_path / "run", engine=engine)
    assert folder.repeated() is not None and not folder.repeated().steady  # type: ignore[union-attr]
    assert all("agreed" in record.facts for record in folder.records())
    # The next run of the same worker is about another model.
    steady = plan_of("python:mean_model:make", mean_clips)
    (tmp_path / "mean_model.py").write_text(MODEL.format(waver=0.0, paid=False))
    folder = run_audit(steady, tmp_path / "steady", engine=engine)
    assert not any("agreed" in record.facts for record in folder.records())


def test_a_vote_over_a_model_that_wavers_is_a_defense(
    make_model: Make, mean_clips: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"defenses": ["majority(passes=3)"], "attackers": ["adaptive"]}
    folder = run_audit(plan_of(make_model(0.3), mean_clips, **settings), tmp_path / "run")
    assert [record.status for record in folder.records()] == ["ok"] * 6
    with pytest.raises(InputError, match="needs a random model"):
        run_audit(plan_of(make_model(0.0), mean_clips, **settings), tmp_path / "steady")


def test_a_target_that_costs_money_is_not_asked_twice(
    make_model: Make, mean_clips: Path, tmp_path: Path
) -> None:
    folder = run_audit(plan_of(make_model(0.3, paid=True), mean_clips), tmp_path / "run")
    assert rows() == 6 * 3
    assert folder.repeated() == Repeated(asked=False)
    raised = kinds(folder)
    assert raised["unasked"] is False and "repeats" not in raised


def test_what_a_wrapper_is_made_of_is_passed_on() -> None:
    class Dear(Classifier):
        classes, sample_rate, paid, repeats = ("a", "b"), 1000, True, False

        def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
            raise AssertionError("asked")

    noisy = Defended(Dear(), (ToyNoise(),))
    for target in (noisy, Averaged(noisy, 2), Voted(noisy, Majority(passes=3)), Unsteady(Dear())):
        assert (target.paid, target.repeats) == (True, False)
    plain = Defended(ToyClassifier(), (ToyNoise(),))
    assert (plain.paid, plain.repeats) == (False, True)
    assert (Unsteady(ToyClassifier()).random, Unsteady(ToyClassifier()).repeats) == (True, False)
    # A model that says so itself is taken at its word.
    assert hear_twice(Dear(), clips(), batch=4, device="cpu", seed=0) == Repeated(said=True)


def clips(count: int = 4) -> list[Clip]:
    source = torch.Generator().manual_seed(5)
    return [
        Clip(str(place), 0.1 * torch.randn(500, generator=source), 1000, "north") for place in range(count)
    ]


@dataclass
class Jitter(Classifier):
    """Scores of which each call has another share more, in a number type of its own."""

    share: float
    kind: torch.dtype = torch.float32
    offset: float = 0.0
    calls: int = 0

    classes = ("north", "east", "south")
    sample_rate = 1000

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        self.calls += 1
        level = torch.tensor([[8.0, -2.0, 3.0]]).repeat(len(batch), 1)
        return (level * (1.0 + self.share * (self.calls % 2)) + self.offset).to(self.kind)


@pytest.mark.parametrize(
    ("share", "kind", "offset", "differ"),
    [
        # What kernels of a GPU do that add up in any order.
        (1e-6, torch.float32, 0.0, 0),
        (1e-6, torch.float32, 1000.0, 0),
        # 8 x 1e-3 of a span of 10: eight times the least that counts.
        (1e-3, torch.float32, 0.0, 4),
        (1e-3, torch.float64, 0.0, 4),
        # One rounding of half precision is 1e-3 by itself.
        (1e-3, torch.float16, 0.0, 0),
        (0.5, torch.float16, 0.0, 4),
    ],
)
def test_rounding_is_no_difference(share: float, kind: torch.dtype, offset: float, differ: int) -> None:
    found = hear_twice(Jitter(share, kind, offset), clips(), batch=4, device="cpu", seed=0)
    assert found == Repeated(clips=4, texts=0, scores=differ)
    assert found.steady == (differ == 0)


class Muddled(ToyAttention):
    """A recogniser whose loss is drawn, and whose texts are not."""

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return super().loss(batch, labels, draws=draws) * (1.0 + 0.1 * torch.rand(len(batch)))


def test_recognisers_are_known_by_their_loss() -> None:
    torch.manual_seed(0)
    for steady in (ToyCtc(), ToyAttention()):
        assert hear_twice(steady, clips(), batch=4, device="cpu", seed=0) == Repeated(clips=4)
    found = hear_twice(Muddled(), clips(), batch=4, device="cpu", seed=0)
    assert (found.clips, found.texts, found.scores) == (4, 0, 4)


def test_draws_lead_a_model_that_is_random_on_purpose() -> None:
    assert hear_twice(toy_random(), clips(), batch=4, device="cpu", seed=0) == Repeated(clips=4)


@dataclass
class Brittle(Classifier):
    """Falls over the clip 2, and over batches with it."""

    error: BaseException

    classes, sample_rate = ToyClassifier.classes, ToyClassifier.sample_rate

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        if "2" in batch.ids:
            raise self.error
        return ToyClassifier().scores(batch, draws=draws)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_a_clip_that_breaks_the_model_is_left_to_its_records(error: BaseException) -> None:
    assert hear_twice(Brittle(error), clips(), batch=4, device="cpu", seed=0) == Repeated(clips=3)


def test_the_command_says_so(make_model: Make, mean_clips: Path) -> None:
    words = [
        "audit", "--model", make_model(0.3), "--data", "clips", "--attacks", "noise,fgsm", "--snr=-3",
        "--metrics", "success,snr", "--audio", "none", "--probe", "0",
    ]  # fmt: skip

    def run(*more: str) -> str:
        done = CliRunner().invoke(app, [*words, *more], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    ahead = json.loads(run("--dry-run", "--json"))["runs"][0]
    # 32 passes a clip for noise, 48 for fgsm, of six clips, and four clips decoded and scored twice.
    assert (ahead["forward"], ahead["backward"]) == (6 * 32 + 6 * 48 + 16, 6 * 16)
    assert any("answers the same clip in different ways" in note for note in ahead["notes"])
    shown = run("--out", "run")
    assert "doubt: The model answers the same clip in different ways" in shown
    assert "of 4 clips decoded twice before the run" in shown and "lost by rounding" not in shown
    (check,) = [
        each for each in json.loads(run("--out", "run", "--json"))["checks"] if each["kind"] == "repeats"
    ]
    assert not check["passed"] and check["flags"][0]["evidence"]["judged_over"] == 8


def test_a_model_that_wavers_is_not_certified(make_model: Make, mean_clips: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": str(mean_clips), "passes": 50, "select": 10}
    with pytest.raises(InputError, match="answers the same clip in different ways"):
        run_certify(CertifyPlan(model=make_model(0.3), **settings), tmp_path / "wavers", device="cpu")
    assert not (tmp_path / "wavers").exists()
    run_certify(CertifyPlan(model=make_model(0.0), **settings), tmp_path / "steady", device="cpu")
