from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sottovoce.audit.ahead.cost import Cost, Timed, draw_out, steps_of
from sottovoce.audit.ahead.counted import Counted
from sottovoce.audit.ahead.estimate import Estimate, Line, Recorded, estimate, suggest
from sottovoce.audit.ahead.memory import current_bytes, peak_bytes, reset_peak
from sottovoce.audit.ahead.tryout import compare
from sottovoce.audit.opening import open_target
from sottovoce.audit.parts import Part
from sottovoce.audit.plan import Plan, make_plan
from sottovoce.audit.store import RunFolder
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.record import EVERY, LOADING, Record
from sottovoce.core.target import Frames, Scores
from sottovoce.testing.toys import ToyClassifier

ABOUT = {"run": "abc123", "started": "", "device": "cpu", "machine": "Linux", "versions": {}}


def make(model: str, **settings: object) -> Plan:
    base = {
        "model": model, "data": "clips", "attacks": ["noise"], "budgets": ["snr(db=-3)"], "probe": 0,
        "metrics": ["success", "snr"], "audio": "none",
    }  # fmt: skip
    return make_plan(base | settings)


def foresee(plan: Plan, out: Path = Path("nowhere"), **how: object) -> Estimate:
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
    assert (counted.offers(Scores), counted.offers(Frames)) == (True, False)


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
    line = Line(
        "none", "pgd", "plain", "evade", 2, 20, Recorded(4, 1), 15, Timed(Cost(10, 4, 0.5), "measured")
    )
    found = Estimate("run", "keyword", "embedded", 0, 10, (line,)).to_json(workers=2)
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
