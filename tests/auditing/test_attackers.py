"""Three attackers on defended models whose answers are known by hand, and the probes that follow them.

The model of `conftest` says "up" where the mean is above zero. A clip that is constant at a breaks at 0 dB.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sottovoce.auditing.checks.flags import SanityCheck
from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_cell import assemble
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.transform import Averaged, Defended
from sottovoce.core.vote import Voted
from sottovoce.testing.toys import ToyClassifier

STEPS_40 = "pgd_evade_snr-db-3_steps-40_passes-1"
STEPS_80 = "pgd_evade_snr-db-3_steps-80_passes-1"


def make(model: str, clips: Path, **settings: object) -> Plan:
    base = {
        "model": model,
        "data": str(clips),
        "attacks": ["pgd"],
        "budgets": ["snr(db=-3)"],
        "audio": "none",
    }
    return make_plan(base | settings)


def reached(folder: RunFolder) -> dict[str, int]:
    """How many clips each cell broke."""
    found: dict[str, int] = {}
    for record in folder.records():
        assert record.status == "ok", record.reason
        found[record.cell] = found.get(record.cell, 0) + bool(record.achieved)
    return found


def checks(plan: Plan, folder: RunFolder) -> dict[str, SanityCheck]:
    summary = summarise(plan, folder.records())
    return {check.kind: check for check in examine(plan, summary, folder.probes())}


def test_what_each_attacker_works_on() -> None:
    plan = make_plan(
        {
            "attacks": ["noise", "pgd"],
            "budgets": ["snr(db=20)"],
            "defenses": ["none", "quantise", "gaussian+majority(passes=8)"],
        }
    )
    bare = ToyClassifier()
    found = []
    for cell in plan.cells():
        work = assemble(plan, cell, bare)
        passes = work.through.passes if isinstance(work.through, Averaged) else None
        inside = work.through.target if isinstance(work.through, Averaged) else work.through
        found.append((cell.attack.name, cell.attacker, type(work.target), type(inside), passes))
    assert found == [
        ("noise", "plain", ToyClassifier, ToyClassifier, None),
        ("pgd", "plain", ToyClassifier, ToyClassifier, None),
        ("noise", "plain", Defended, Defended, None),
        ("pgd", "adaptive", Defended, Defended, None),
        ("pgd", "transfer", Defended, ToyClassifier, None),
        ("genetic", "black-box", Defended, Defended, None),
        ("noise", "plain", Voted, Voted, None),
        ("pgd", "adaptive", Voted, Voted, 16),
        ("pgd", "transfer", Voted, ToyClassifier, None),
        ("genetic", "black-box", Voted, Voted, 4),
    ]


@pytest.mark.usefixtures("odd_defenses")
def test_a_transferred_attack_climbs_the_bare_model(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    """Behind the mirror a rising clip is heard "down". On the bare model whoever wants it heard as something
    else raises its mean, and the defended one says "down" all the more."""
    plan = make(mean_model, mean_clips, defenses=["mirror"], attackers=["adaptive", "transfer"], probe=0)
    assert reached(run_audit(plan, tmp_path / "run")) == {
        "mirror_pgd_evade_snr-db--3": 6,
        "mirror_pgd_evade_snr-db--3_transfer": 0,
    }


@pytest.mark.usefixtures("odd_defenses")
def test_a_masked_gradient_is_found_out(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    """Rounding to 64ths leaves the model as weak as it was and its gradient zero everywhere."""
    plan = make(
        mean_model, mean_clips, defenses=["steps"], budgets=["snr(db=-20)"], black_box="genetic(steps=60)"
    )
    folder = run_audit(plan, tmp_path / "run")
    assert reached(folder) == {
        "steps_pgd_evade_snr-db--20": 0,
        "steps_pgd_evade_snr-db--20_transfer": 6,
        "steps_genetic-steps-60_evade_snr-db--20": 6,
    }
    found = checks(plan, folder)
    # One clip of the six carries the wrong label: five were heard right, and success counts those.
    (zero,) = found["gradients"].flags
    assert (zero.cell, zero.evidence["zero"], zero.evidence["clips"]) == ("steps_pgd_evade_snr-db--20", 5, 5)
    (weak,) = found["adaptive"].flags
    assert weak.evidence["stronger"] == "steps_pgd_evade_snr-db--20_transfer"
    # All five fare worse under the transferred attack: one half to the fifth.
    assert (weak.evidence["worse_under_stronger"], weak.evidence["p"]) == (5, 1 / 32)
    (blind,) = found["black-box"].flags
    # The transferred attack is as strong, and says nothing of the gradient through the defense.
    assert blind.evidence["stronger"] == "steps_genetic-steps-60_evade_snr-db--20"


def test_a_straight_through_gradient_raises_no_doubt(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = make(mean_model, mean_clips, defenses=["quantise(bits=7)"], black_box="genetic(steps=5)")
    folder = run_audit(plan, tmp_path / "run")
    found = checks(plan, folder)
    assert reached(folder)["quantise-bits-7_pgd_evade_snr-db--3"] == 6
    assert [kind for kind in ("gradients", "adaptive", "black-box", "attackers") if found[kind].flags] == []


def test_a_universal_perturbation_of_the_bare_model_is_fitted_once(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = make(
        mean_model, mean_clips, attacks=["uap"], budgets=["l2(eps=0.5)"], probe=0,
        defenses=["none", "quantise(bits=7)"], attackers=["adaptive", "transfer"],
    )  # fmt: skip
    folder = run_audit(plan, tmp_path / "run")
    assert sorted(path.name for path in (folder.path / "perturbations").iterdir()) == [
        "quantise-bits-7_uap_evade_l2-eps-0.5.safetensors",
        "uap_evade_l2-eps-0.5.safetensors",
    ]
    assert set(reached(folder)) == {
        "uap_evade_l2-eps-0.5",
        "quantise-bits-7_uap_evade_l2-eps-0.5",
        "quantise-bits-7_uap_evade_l2-eps-0.5_transfer",
    }


def test_a_probe_tries_harder_where_there_is_more_to_gain(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = make(mean_model, mean_clips, attacks=["noise", "fgsm", "pgd"], budgets=["snr(db=3)", "snr(db=-3)"])
    probes = {record.key: record for record in run_audit(plan, tmp_path / "run").probes()}
    # Of 0 % at 3 dB and 100 % at -3 dB it takes the one that can rise, and the attack that has steps; the
    # clip that was heard wrong before is left out.
    right = ["down/1", "down/2", "up/0", "up/1", "up/2"]
    assert sorted(probes) == sorted((name, clip) for name in (STEPS_40, STEPS_80) for clip in right)
    record = probes[STEPS_40, "up/0"]
    assert record.facts["probe"] == "pgd_evade_snr-db-3"
    assert (record.facts["steps"], record.facts["passes"], record.facts["random"]) == ("40", "1", "no")
    # The scores are 50 and -50 times the mean m, and the loss log(1 + exp(-100 m)).
    mean = 1000 / 32768
    assert record.parts["clean-objective"][0] == pytest.approx(math.log1p(math.exp(-100 * mean)), rel=1e-4)
    slope = 100 / (1 + math.exp(100 * mean))
    assert record.parts["gradient"][0] == pytest.approx(slope / math.sqrt(400), rel=1e-4)
    assert "bare-gradient" not in record.parts
    # At 3 dB the mean comes down to (1 - 10^(-3/20)) m and no further.
    near = mean * (1 - 10 ** (-3 / 20))
    assert record.parts["objective"][0] == pytest.approx(math.log1p(math.exp(-100 * near)), rel=1e-2)
    assert record.parts["success"] == [0.0, 1.0]
    assert "gradient" not in probes[STEPS_80, "up/0"].parts


def test_a_random_target_is_probed_with_more_passes(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = make(
        mean_model, mean_clips, defenses=["gaussian(sigma=0.01)"], budgets=["snr(db=3)"],
        attacks=["pgd(steps=4)"], attackers=["adaptive"], probe=2,
    )  # fmt: skip
    folder = run_audit(plan, tmp_path / "run")
    base = "gaussian-sigma-0.01_pgd-steps-4_evade_snr-db-3"
    assert {record.cell for record in folder.probes()} == {
        f"{base}_steps-4_passes-16",
        f"{base}_steps-8_passes-16",
        f"{base}_steps-4_passes-32",
    }
    assert len({record.clip for record in folder.probes()}) == 2
    assert all("bare-gradient" in each.parts for each in folder.probes() if "gradient" in each.parts)


def test_too_few_steps_are_found_out(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    """A step is a tenth of the radius, which is 1.41 a: five bring the mean to 0.29 a, ten below zero."""
    plan = make(mean_model, mean_clips, attacks=["pgd(steps=5)"])
    folder = run_audit(plan, tmp_path / "run")
    (flag,) = checks(plan, folder)["steps"].flags
    assert flag.cell == "pgd-steps-5_evade_snr-db--3"
    assert (flag.evidence["steps"], flag.evidence["values"]) == ([5, 10], [0.0, 1.0])
    assert (flag.evidence["rose"], flag.evidence["fell"], flag.evidence["p"]) == (5, 0, 1 / 32)
    assert flag.advice == "run again with --attacks 'pgd(steps=20)'"
    enough = make(mean_model, mean_clips, attacks=["pgd(steps=20)"], budgets=["snr(db=3)"])
    assert checks(enough, run_audit(enough, tmp_path / "other"))["steps"].passed


def test_probes_go_on_where_a_kill_stopped_them(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips, budgets=["snr(db=3)", "snr(db=-3)"])
    folder = run_audit(plan, tmp_path / "run")
    lines = folder.probes_path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 10
    folder.probes_path.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    again = run_audit(plan, tmp_path / "run")
    new = again.probes_path.read_bytes().splitlines(keepends=True)
    assert new[:3] == lines[:3]
    keys = [(json.loads(line)["cell"], json.loads(line)["clip"]) for line in new]
    assert len(set(keys)) == len(keys) == 10


def test_no_probe_where_none_is_wanted(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    assert not run_audit(make(mean_model, mean_clips, probe=0), tmp_path / "run").probes_path.exists()
