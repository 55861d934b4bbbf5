from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from sottovoce.auditing.estimate import run_estimate as estimate_module
from sottovoce.auditing.estimate.attack_cost import Cost, Timed, draw_out, steps_of
from sottovoce.auditing.estimate.pass_counter import Counted
from sottovoce.auditing.estimate.peak_memory import current_bytes, peak_bytes, reset_peak
from sottovoce.auditing.estimate.run_estimate import (
    EstimateLine,
    Recorded,
    RunEstimate,
    estimate,
    seconds_each,
    suggest,
)
from sottovoce.auditing.estimate.trial_runs import MeasuredCosts, compare
from sottovoce.auditing.estimate.unfit_cells import Rules
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.main import app
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.record import EVERY, LOADING, Record
from sottovoce.core.target import CtcFrames, Scores
from sottovoce.registry.part_text import Part
from sottovoce.targets.open_target import open_target
from sottovoce.testing.toys import ToyClassifier

ABOUT = {"run": "abc123", "started": "", "device": "cpu", "machine": "Linux", "versions": {}}


def make(model: str, **settings: object) -> Plan:
    base = {
        "model": model, "data": "clips", "attacks": ["noise"], "budgets": ["snr(db=-3)"], "probe": 0,
        "metrics": ["success", "snr"], "audio": "none",
    }  # fmt: skip
    return make_plan(base | settings)


def foresee(plan: Plan, out: Path = Path("nowhere"), **how: object) -> RunEstimate:
    return estimate("run", plan, open_target(plan.model, "cpu"), out, device="cpu", **how)  # type: ignore[arg-type]


def test_every_clip_that_goes_through_a_target_is_counted() -> None:
    counted = Counted(ToyClassifier())
    batch = AudioBatch(torch.full((3, 400), 0.25), torch.tensor([400] * 3), 1000, ("a", "b", "c"))
    counted.decode(batch, draws=Draws(0))
    assert (counted.counts.forward, counted.counts.backward) == (3, 0)
    leaf = batch.waveforms.clone().requires_grad_()
    loss = counted.loss(batch.with_waveforms(leaf), ["north"] * 3, draws=Draws(0))
    assert (counted.counts.forward, counted.counts.backward) == (6, 0)
    torch.autograd.grad(loss.sum(), leaf)
    assert (counted.counts.forward, counted.counts.backward) == (6, 3)
    # It has the powers of what it counts, and no other.
    assert (counted.offers(Scores), counted.offers(CtcFrames)) == (True, False)


@pytest.mark.parametrize(
    ("attack", "defense", "forward", "backward"),
    [
        # The clean clip, the float and the rounded example are decoded, and that is all of noise.
        ("noise", "none", 3, 0),
        # One gradient.
        ("fgsm", "none", 4, 1),
        # A gradient a step, and a look at where the last one led.
        ("pgd(steps=7)", "none", 11, 7),
        ("pgd(steps=7, restarts=2)", "none", 19, 14),
        # Each gradient is averaged over two draws; the look goes over both of them as well.
        ("pgd(steps=7)", "gaussian(sigma=0.001)", 19, 14),
    ],
)
def test_passes_are_those_of_the_settings(
    attack: str, defense: str, forward: int, backward: int, mean_model: str, mean_clips: Path
) -> None:
    settings = {"attacks": [attack], "defenses": [defense], "average": 2 if defense != "none" else None}
    plan = make(mean_model, **settings, attackers=["adaptive"])
    (line,) = foresee(plan).lines
    cost = line.cost.cost
    assert (cost.forward, cost.backward) == (forward, backward)
    assert (line.trials, line.todo) == (6, 6)
    assert (line.total.forward, line.total.backward) == (6 * forward, 6 * backward)


def test_many_steps_are_drawn_out_from_few(mean_model: str, mean_clips: Path) -> None:
    plan = make(mean_model, attacks=["pgd(steps=100000)"])
    (line,) = foresee(plan, seconds=0.0).lines
    assert line.cost.how == "unknown"
    (line,) = foresee(plan, seconds=0.2).lines
    assert line.cost.how == "fewer steps"
    assert (line.cost.cost.forward, line.cost.cost.backward) == (100004, 100000)


def test_a_line_through_two_costs() -> None:
    # 3 + 2 a step forward, 1 a step back; of 0.5 s 0.1 s do not hang on the steps, so 0.1 s a step.
    one, four = Cost(5, 1, 0.3), Cost(11, 4, 0.5)
    found = draw_out(one, 4, four, 100, 0.1, gain=1.0)
    assert (found.forward, found.backward) == (203, 100)
    assert found.seconds == pytest.approx(0.1 + 100 * 0.1)
    assert draw_out(one, 4, four, 100, 0.1, gain=0.5).seconds == pytest.approx(0.1 + 5.0)
    # With one try alone all of it is taken to grow.
    assert draw_out(one, 1, one, 10, 0.0, gain=1.0).forward == 50


def test_a_defense_without_time_is_compared() -> None:
    costs = {
        ("none", "fgsm", "plain", "evade"): Timed(Cost(4, 1, 0.1), "measured"),
        ("none", "pgd", "plain", "evade"): Timed(Cost(44, 40, 1.0), "measured"),
        ("mp3", "fgsm", "adaptive", "evade"): Timed(Cost(8, 2, 0.3), "measured"),
        ("mp3", "fgsm", "transfer", "evade"): Timed(Cost(10, 1, 0.2), "measured"),
    }
    adaptive = compare(("mp3", "pgd", "adaptive", "evade"), costs)
    assert (adaptive.cost.forward, adaptive.cost.backward, adaptive.how) == (88, 80, "by comparison")
    assert adaptive.cost.seconds == pytest.approx(3.0)
    # The bare model is attacked as before; only the judging is dearer.
    transfer = compare(("mp3", "pgd", "transfer", "evade"), costs)
    assert (transfer.cost.forward, transfer.cost.backward) == (50, 40)
    assert compare(("mp3", "cw", "adaptive", "evade"), costs).how == "unknown"


def test_a_universal_attack_is_fitted_and_judged_on_other_clips(mean_model: str, mean_clips: Path) -> None:
    (line,) = foresee(make(mean_model, attacks=["uap(epochs=1)"])).lines
    # Two of the three clips of each class are fitted on, which leaves one of each.
    assert (line.trials, line.cost.cost.forward) == (2, 3)
    assert line.fit is not None and line.fit.cost.forward > 0


def test_what_cannot_run_is_said_with_the_rule_that_leaves_it_out(mean_model: str, mean_clips: Path) -> None:
    plan = make(
        mean_model,
        attacks=["noise", "cw-asr", "kenansville"],
        budgets=["snr(db=20)", "linf(eps=0.1)"],
    )
    found = foresee(plan)
    assert [(len(item.cells), item.exclude) for item in found.unfit] == [
        (2, {"attack": "cw-asr"}),
        (1, {"attack": "kenansville", "budget": "linf(eps=0.1)"}),
    ]
    assert found.cells == 3
    # The rules do what they say.
    rest = make_plan({**plan.model_dump(mode="json"), "exclude": [item.exclude for item in found.unfit]})
    assert len(rest.cells()) == 3


def test_the_shortest_rule_that_spares_the_good() -> None:
    bad = {"attack": "a", "goal": "g", "budget": "b", "defense": "d", "attacker": "plain"}
    assert suggest(bad, []) == {"attack": "a"}
    assert suggest(bad, [bad | {"budget": "c"}]) == {"budget": "b"}
    assert suggest(bad, [bad | {"budget": "c"}, bad | {"attack": "z", "budget": "b"}]) == {
        "attack": "a", "budget": "b",
    }  # fmt: skip


def test_what_is_recorded_is_not_done_again(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, attacks=["noise", "fgsm", "pgd(steps=2)"])
    folder = RunFolder(tmp_path / "run")
    folder.prepare(plan, ABOUT)
    noise, fgsm, _ = (cell.id for cell in plan.cells())
    with folder.writer() as writer:
        writer.write([Record(cell=noise, clip=f"up/{n}", status="ok") for n in range(3)])
        writer.write([Record(cell=noise, clip="down/0", status="failed", reason="x")])
        writer.write([Record(cell=fgsm, clip=EVERY, status="failed", reason="y")])
        writer.write([Record(cell=LOADING, clip="down/1", status="failed", reason="z")])
    found = foresee(plan, folder.path)
    assert [(line.recorded, line.todo) for line in found.lines] == [
        (Recorded(3, 2), 1),
        (Recorded(0, 6), 0),
        (Recorded(0, 1), 5),
    ]
    again = foresee(plan, folder.path, retry_failed=True)
    assert [line.todo for line in again.lines] == [3, 6, 6]
    other = foresee(make(mean_model, seed=1), folder.path)
    assert "holds another plan" in other.notes[0]


def test_nothing_is_tried_where_nothing_is_to_do(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model)
    folder = RunFolder(tmp_path / "run")
    folder.prepare(plan, ABOUT)
    with folder.writer() as writer:
        names = [f"{label}/{n}" for label in ("up", "down") for n in range(3)]
        writer.write([Record(cell=plan.cells()[0].id, clip=name, status="ok") for name in names])
    found = foresee(plan, folder.path)
    assert (found.todo, found.total, found.memory_bytes) == (0, Cost(0, 0, 0), 0)
    assert found.to_json()["done"] == 6


def test_sanity_probes_take_up_to_three_times_the_dearest(mean_model: str, mean_clips: Path) -> None:
    plan = make(mean_model, attacks=["pgd(steps=7)"], probe=4)
    # 4 clips, once as they were and once with twice the steps; 11 passes each as they were.
    assert foresee(plan).probes.forward == 4 * 3 * 11


def test_totals_as_json() -> None:
    line = EstimateLine(
        "none", "pgd", "plain", "evade", 2, 20, Recorded(4, 1), 15, Timed(Cost(10, 4, 0.5), "measured")
    )
    found = RunEstimate("run", "keyword", "embedded", 0, 10, (line,)).to_json(workers=2)
    assert (found["forward"], found["backward"], found["seconds"]) == (150, 60, 3.8)
    assert (found["trials"], found["done"], found["failed"], found["todo"]) == (20, 4, 1, 15)


def test_steps_are_found_among_settings_and_defaults() -> None:
    assert steps_of(Part.parse("pgd")) == {"steps": 40}
    assert steps_of(Part.parse("imperceptible(steps=5)")) == {"steps": 5, "masking_steps": 1000}
    assert steps_of(Part.parse("uap")) == {"epochs": 5}
    assert steps_of(Part.parse("noise")) == {}


def test_a_peak_is_that_of_what_was_held() -> None:
    reset_peak("cpu")
    before = current_bytes("cpu")
    if peak_bytes("cpu") > before + 16 * 2**20:
        pytest.skip("this system cannot forget an older peak")
    held = torch.ones(2**26)
    del held
    # 256 MiB of floats, and little besides.
    assert 240 * 2**20 < peak_bytes("cpu") - before < 400 * 2**20
    assert current_bytes("cpu") < before + 100 * 2**20


def test_the_shortest_rule_is_found_in_one_look_at_the_good_cells() -> None:
    looks = 0

    class Facts(dict[str, str]):
        def __getitem__(self, key: str) -> str:
            nonlocal looks
            looks += 1
            return super().__getitem__(key)

    def cell(attack: int, budget: int) -> Facts:
        return Facts(attack=str(attack), goal="evade", budget=str(budget), defense="none", attacker="plain")

    # Sixty attacks at sixty budgets; those with one number in common do not fit.
    pairs = [(attack, budget) for attack in range(60) for budget in range(60)]
    rules = Rules(cell(*pair) for pair in pairs if pair[0] != pair[1])
    found = [rules.suggest(cell(place, place)) for place in range(60)]
    assert found == [{"attack": str(place), "budget": str(place)} for place in range(60)]
    # Of 3,540 good cells: five keys alone, and the ten pairs up to the second, which is attack and budget.
    assert looks <= 3540 * (5 + 2 * 10) + 60 * 100


def test_seeds_of_one_plan_are_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    real = estimate_module.try_out

    def watched(plan: Plan, *words: object) -> MeasuredCosts:
        tried.append(plan.seed)
        return real(plan, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(estimate_module, "try_out", watched)
    target, known = open_target("keyword", "cpu"), dict[str, MeasuredCosts]()
    settings = {"attacks": ["noise", "fgsm"], "budgets": ["snr(db=30)"], "limit": 4, "metrics": ["success"]}
    plans = [make_plan({**settings, "seed": seed}) for seed in (0, 1, 2)]
    plans.append(make_plan({**settings, "limit": 3}))
    found = [
        estimate("run", plan, target, tmp_path / str(place), device="cpu", seconds=0.1, tried=known)
        for place, plan in enumerate(plans)
    ]
    assert tried == [0, 0]
    assert found[0].lines == found[1].lines == found[2].lines
    assert [one.trials for one in found] == [8, 8, 8, 6]


def test_many_plans_share_the_time() -> None:
    plans = [make_plan({"limit": limit, "seed": seed}) for limit in (1, 2, 3) for seed in (0, 1)]
    assert [seconds_each(plans[:count]) for count in (1, 2, 3, 6)] == [20.0, 20.0, 15.0, 10.0]
    assert seconds_each([make_plan({"limit": limit}) for limit in range(1, 31)]) == 2.0


@pytest.mark.slow
def test_a_dry_run_of_ninety_thousand_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_module, "PROBE_SECONDS", 2.0)
    attacks = [f"pgd(steps={steps})" for steps in range(1, 151)]
    attacks += [f"cw-asr(steps={steps})" for steps in range(1, 151)]  # which cannot work on classes
    budgets = [f"snr(db={level / 10})" for level in range(100, 400)]
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"attacks": attacks, "budgets": budgets, "limit": 2}))
    words = ["audit", str(tmp_path / "plan.yaml"), "--dry-run", "--json", "--device", "cpu"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["cells"], run["trials"]) == (45_000, 90_000)
    assert [len(item["cells"]) for item in run["will_not_run"]] == [300] * 150
    assert run["will_not_run"][0]["exclude"] == {"attack": "cw-asr(steps=1)"}
