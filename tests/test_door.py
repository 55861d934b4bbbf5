"""The public API: what `import sottovoce` offers, by the command line's own rules."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import registry
from sottovoce.api.audit_model import BITS
from sottovoce.api.open_parts import model_text
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.cli.audit import audit as audit_verb
from sottovoce.cli.certify import certify as certify_verb
from sottovoce.cli.main import app
from sottovoce.cli.sparsity import sparsity as sparsity_verb

SOURCE = Path(sv.__file__).parent
NAMES = [
    "AudioBatch", "Attack", "Budget", "Ball", "Searchable", "Goal", "Target", "Scores", "Transform", "Vote",
    "Metric", "Draws", "Trial", "Estimate", "Best", "open_model", "open_data", "attack", "audit", "read_run",
    "measure", "certify", "sparsity", "register", "Run", "Clips", "Certificates", "Sparsity", "climb",
    "within",
]  # fmt: skip
ROOMS = [
    "attacks", "budgets", "goals", "defenses", "metrics", "targets", "data", "ears", "testing", "errors",
]  # fmt: skip
SMALL = {"attacks": "noise,pgd(steps=2)", "snr": "30", "limit": 2, "metrics": "success,snr", "probe": 0}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and a registry that forgets."""
    monkeypatch.chdir(tmp_path)
    registry.names("attack")  # plugins first, so that the copy has them
    monkeypatch.setattr(registry, "_PARTS", {kind: dict(some) for kind, some in registry._PARTS.items()})
    return tmp_path


def python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Names


def test_every_name_of_the_specification_is_there() -> None:
    assert {*NAMES, *ROOMS} <= set(sv.__all__)
    assert set(sv.__all__) <= set(dir(sv))
    for name in (*NAMES, *ROOMS):
        assert getattr(sv, name).__doc__, name
    assert sv.attacks.Pgd(steps=20).steps == 20
    assert sv.budgets.Snr(30).db == 30
    assert sv.goals.Evade.__name__ == "Evade"
    assert sv.defenses.Gaussian(sigma=0.01).sigma == 0.01
    assert sv.metrics.Snr.name == "snr"
    assert sv.ears.Learned.name == "learned"
    assert issubclass(sv.errors.InputError, sv.errors.SottovoceError)
    with pytest.raises(AttributeError, match=r"module 'sottovoce' has no attribute 'adit'"):
        sv.adit  # noqa: B018


def test_importing_it_loads_neither_torch_nor_pydantic() -> None:
    script = (
        "import sys, sottovoce; dir(sottovoce); print([n for n in ('torch', 'pydantic') if n in sys.modules])"
    )
    assert python(script) == "[]\n"


def test_no_public_name_is_shadowed_by_a_submodule() -> None:
    modules = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
    ]
    taken = {module for module in modules if module.count(".") == 1}
    assert not {f"sottovoce.{name}" for name in set(sv.__all__) - set(ROOMS)} & taken
    for room in ("attacks", "defenses", "metrics", "targets", "data"):
        inside = {module.rpartition(".")[2] for module in modules if module.startswith(f"sottovoce.{room}.")}
        assert not set(getattr(sv, room).__all__) & inside


def test_functions_stay_functions_after_submodules_are_imported() -> None:
    for name in (
        "auditing.run",
        "auditing.certificates",
        "cli.audit",
        "cli.measure",
        "cli.main",
        "core.attack",
    ):
        import_module(f"sottovoce.{name}")
    for name in ("audit", "attack", "measure", "certify", "sparsity"):
        vars(sv).pop(name, None)  # as in a program that has not asked for it yet
        assert inspect.isfunction(getattr(sv, name)), name


@pytest.mark.parametrize("room", ["", *[room for room in ROOMS if room not in ("testing", "errors")]])
def test_type_checkers_see_what_is_there(room: str) -> None:
    """What stands under TYPE_CHECKING is what is imported when asked for; add a new part's class there."""
    module = getattr(sv, room) if room else sv
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen: dict[str, tuple[str | None, str]] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        seen |= {str(alias.asname): (node.module, alias.name) for alias in node.names}
    assert sorted(seen) == module.__all__
    for name, (where, attribute) in seen.items():
        found = getattr(sys.modules[str(where)], attribute) if where in sys.modules else None
        assert getattr(module, name) is (found or getattr(sys.modules[str(where)], attribute))


def test_the_module_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sottovoce", "--version"], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == f"sottovoce {sv.__version__}\n"


# Arguments


def options(verb: Any) -> dict[str, Any]:
    return {name: value.default for name, value in inspect.signature(verb).parameters.items()}


def test_audit_takes_what_the_command_line_and_a_plan_take() -> None:
    found, verb = options(sv.audit), options(audit_verb)
    # A plan file is an argument of the verb; --dry-run and --json are about printing.
    assert set(verb) - set(found) == {"plan_file", "dry_run", "as_json"}
    assert set(Plan.model_fields) <= set(found)
    assert set(found) - set(verb) - set(Plan.model_fields) == {"plan", "progress"}
    shared = set(verb) & set(found)
    assert {name: found[name] for name in shared} == {name: verb[name] for name in shared}
    assert found["bits"] == BITS == Plan.model_fields["bits"].default
    assert all(found[name] is None for name in ("exclude", "include", "gpu_share", "plan"))


@pytest.mark.parametrize("name", ["open_model", "attack", "audit", "measure", "certify", "register"])
def test_help_explains_every_argument(name: str) -> None:
    told = inspect.getdoc(getattr(sv, name)) or ""
    arguments = inspect.signature(getattr(sv, name)).parameters
    assert [each for each in arguments if not re.search(rf"\b{each}\b", told)] == []


def test_certify_takes_what_the_command_line_takes() -> None:
    found, verb = options(sv.certify), options(certify_verb)
    assert set(verb) - set(found) == {"as_json"}
    assert set(found) - set(verb) == {"progress"}
    assert {name: found[name] for name in verb if name in found} == {
        name: value for name, value in verb.items() if name in found
    }


def test_sparsity_takes_what_the_command_line_takes() -> None:
    found, verb = options(sv.sparsity), options(sparsity_verb)
    assert set(verb) - set(found) == {"as_json"}
    assert set(found) - set(verb) == {"progress"}
    assert {name: found[name] for name in verb if name in found} == {
        name: value for name, value in verb.items() if name in found
    }


# Runs


def test_an_audit_is_the_command_lines(desk: Path) -> None:
    words = [f"--{name}={value}" for name, value in SMALL.items()]
    done = CliRunner().invoke(app, ["audit", "--model", "keyword", *words, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    typed = sv.read_run(Path(told["report"]).parent)
    records = (typed.folder / "trials.jsonl").read_text()
    plan = (typed.folder / "plan.yaml").read_text()
    # The folder that the command line chose is found again: nothing is left to do, and no second one is made.
    again = sv.audit("keyword", **SMALL)
    assert again.folder == typed.folder
    assert os.listdir(desk / "runs") == [f"keyword-{told['run']}"]
    objects = sv.audit(
        sv.open_model("keyword", device="cpu"),
        "embedded",
        attacks=[sv.attacks.WhiteNoise(), sv.attacks.Pgd(steps=2)],
        budgets=sv.budgets.Snr(30.0),
        goals=[sv.goals.Evade()],
        limit=2,
        metrics=[sv.metrics.Success, sv.metrics.Snr()],
        probe=0,
        out="other",
    )
    assert objects.plan.run_id == told["run"]
    assert (desk / "other" / "plan.yaml").read_text() == plan
    assert (desk / "other" / "trials.jsonl").read_text() == records
    rows = typed.summary()
    assert list(rows[0]) == (
        [
            "target",
            "defense",
            "attacker",
            "attack",
            "goal",
            "budget",
            "metric",
            "value",
            "low",
            "high",
            "clips",
        ]
    )
    wanted = {
        (cell["attack"], name): value for cell in told["cells"] for name, value in cell["metrics"].items()
    }
    assert {(row["attack"], row["metric"]): row["value"] for row in rows} == {
        key: value["value"] for key, value in wanted.items()
    }
    assert {row["clips"] for row in rows} == {2}
    trials = typed.trials()
    assert [(row["attack"], row["budget"], row["status"]) for row in trials] == [
        ("noise", "snr(db=30)", "ok"), ("noise", "snr(db=30)", "ok"),
        ("pgd(steps=2)", "snr(db=30)", "ok"), ("pgd(steps=2)", "snr(db=30)", "ok"),
    ]  # fmt: skip
    lines = [json.loads(line) for line in records.splitlines()]
    assert [row["snr"] for row in trials] == [line["parts"]["snr"][0] for line in lines]
    assert typed.report.read_text().startswith("<!doctype html>")


def test_the_attack_of_one_cell_is_that_of_an_audit(desk: Path) -> None:
    run = sv.audit(
        "keyword", attacks="pgd(steps=3)", snr=25, limit=3, probe=0, metrics="snr", seed=4, audio="none"
    )
    model = sv.open_model("keyword", device="cpu")
    clips = sv.open_data("embedded", model=model, limit=3)
    by_text = sv.attack(model, clips, "pgd(steps=3)", budget="snr(db=25)", seed=4)
    by_object = sv.attack(
        model, clips.batch(), sv.attacks.Pgd(steps=3), sv.budgets.Snr(25), sv.goals.Evade(), seed=4,
        labels=clips.labels,
    )  # fmt: skip
    assert torch.equal(by_text.delta, by_object.delta)
    assert by_text.labels == by_object.labels == clips.labels
    rows = run.trials()
    assert tuple(row["clip"] for row in rows) == by_text.clean.ids
    assert tuple(row["adversarial_text"] for row in rows) == by_text.adversarial_texts
    assert tuple(row["achieved"] for row in rows) == by_text.achieved
    figures = sv.measure(by_text.clean, by_text.adversarial, metrics=["snr"])["pairs"]
    for row in rows:
        assert figures[row["clip"]]["snr"] == pytest.approx(row["snr"], abs=1e-9)


def test_a_defense_is_a_text_or_objects(desk: Path) -> None:
    clips = sv.open_data("embedded", model="keyword", limit=2)
    trials = [
        sv.attack("keyword", clips, "pgd(steps=3)", defense=defense, average=2)
        for defense in (
            "gaussian(sigma=0.02)+majority(passes=4)",
            [sv.defenses.Gaussian(sigma=0.02), sv.defenses.Majority(passes=4)],
        )
    ]
    assert torch.equal(trials[0].delta, trials[1].delta)
    assert float(trials[0].delta.abs().max()) > 0


def test_several_models_are_one_run_with_a_column(desk: Path) -> None:
    run = sv.audit(["keyword", "keyword(variant=pgd)"], attacks="none", limit=2)
    rows = [row for row in run.summary() if row["metric"] == "clean-accuracy"]
    assert [row["target"] for row in rows] == ["keyword", "keyword(variant=pgd)"]
    assert [row["run"] for row in rows] == [each.folder.name for each in run.runs]
    assert run.folder.parts[0] == "runs" and run.folder.name.startswith("grid-")


def test_several_models_and_seeds_may_be_one_text(desk: Path) -> None:
    text = sv.audit("keyword,keyword(variant=pgd)", attacks="none", limit=1, seeds="0,1")
    lists = sv.audit(["keyword", "keyword(variant=pgd)"], attacks=["none"], limit=1, seeds=[0, 1])
    assert text.folder == lists.folder
    assert len(text.runs) == 4


def test_measure_is_the_command_lines(desk: Path) -> None:
    clean = 0.25 * torch.sin(torch.arange(16000) / 7)
    for name, wave in (("clean", clean), ("changed", clean + 0.0025)):
        soundfile.write(f"{name}.wav", wave.numpy(), 16000, subtype="PCM_16")
    done = CliRunner().invoke(
        app, ["measure", "clean.wav", "changed.wav", "--metrics", "snr,p-heard", "--json"]
    )
    found = sv.measure("clean.wav", "changed.wav", metrics=["snr", "p-heard"])
    assert found == json.loads(done.stdout)
    # A sine of 0.25 against a constant of 0.0025: 10 log10(0.25 ** 2 / 2 / 0.0025 ** 2) dB.
    assert found["snr"] == pytest.approx(36.99, abs=0.05)


def test_certificates_are_the_command_lines(desk: Path) -> None:
    words = ["--sigma", "0.01", "--limit", "2", "--passes", "50", "--select", "10", "--json"]
    told = json.loads(CliRunner().invoke(app, ["certify", *words]).stdout)
    found = sv.certify(sigma=0.01, limit=2, passes=50, select=10)
    assert (str(found.folder), found.plan.run_id) == (told["folder"], told["run"])
    assert json.loads(json.dumps(found.curve.to_json())) == {
        key: value for key, value in told.items() if key not in ("run", "folder")
    }
    lines = (found.folder / "certificates.jsonl").read_text().splitlines()
    assert found.rows == [json.loads(line) for line in lines]


# Objects that no text opens


def net(bias: float = 0.0) -> torch.nn.Module:
    """Scores of two classes: the mean of each half of a clip."""
    layers = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, -1)),
        torch.nn.AdaptiveAvgPool1d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(2, 2),
    )
    with torch.no_grad():
        layers[3].weight.copy_(torch.eye(2))
        layers[3].bias.fill_(bias)
    return layers


def tones(folder: Path) -> Path:
    """A folder of two classes with one clip each."""
    for name, high in (("yes", slice(0, 400)), ("no", slice(400, 800))):
        (folder / "clips" / name).mkdir(parents=True)
        wave = np.zeros(800)
        wave[high] = 0.25
        soundfile.write(folder / "clips" / name / "a.wav", wave, 16000)
    return folder / "clips"


def test_a_module_is_audited_and_resumed_when_it_is_handed_in_again(desk: Path) -> None:
    data = str(tones(desk))
    model = sv.open_model(net(), classes=["yes", "no"], sample_rate=16000)
    settings: dict[str, Any] = {
        "attacks": "noise",
        "snr": 20,
        "metrics": "success",
        "probe": 0,
        "audio": "none",
    }
    run = sv.audit(model, data, **settings)
    assert run.folder.parts[0] == "runs" and run.folder.name.startswith("object-")
    assert run.plan.model.startswith("object(Sequential, ")
    assert [row["value"] for row in run.summary() if row["metric"] == "clean-accuracy"] == [1.0]
    same = sv.open_model(net(), classes=["yes", "no"], sample_rate=16000)
    assert sv.audit(same, data, **settings).folder == run.folder
    assert sv.audit(same, resume=run.folder).folder == run.folder
    other = sv.open_model(net(bias=1.0), classes=["yes", "no"], sample_rate=16000)
    assert sv.audit(other, data, **settings).folder != run.folder
    with pytest.raises(sv.errors.InputError, match=r"^resume expected the model of its plan"):
        sv.audit(other, resume=run.folder)
    done = CliRunner().invoke(app, ["audit", "--resume", str(run.folder)])
    assert "a model object of a Python program" in str(done.exception)
    with pytest.raises(sv.errors.InputError, match="workers=1"):
        sv.audit(model, data, workers=2, **settings)


def test_what_a_model_of_ones_own_is_made_of_tells_it_apart() -> None:
    def text(module: torch.nn.Module, classes: str = "yes no", rate: int = 16000) -> str:
        return model_text(sv.open_model(module, classes=classes.split(), sample_rate=rate))

    assert text(net()) == text(net().train()) == text(net().eval())
    others = [text(net(bias=1.0)), text(net(), "no yes"), text(net(), rate=8000), text(net().double())]
    assert len({text(net()), *others}) == 5
    assert model_text(sv.open_model("keyword", device="cpu")) == "keyword"


def test_a_module_makes_no_claim(desk: Path) -> None:
    model = sv.open_model(net(), classes=["yes", "no"], sample_rate=16000)
    run = sv.audit(model, str(tones(desk)), attacks="fgsm", snr=0, probe=0, audio="none")
    done = CliRunner().invoke(app, ["leaderboard", str(run.folder)])
    assert "expected a model that others can open" in str(done.exception)


class Mine(sv.Attack):
    """Nothing."""

    def perturb(self, target: Any, clean: Any, goal: Any, budget: Any, draws: Any) -> torch.Tensor:
        return torch.zeros_like(clean.waveforms)


def test_an_attack_of_ones_own_runs_at_once_and_is_audited_once_it_is_registered(desk: Path) -> None:
    clips = sv.open_data("embedded", model="keyword", limit=2)
    assert sv.attack("keyword", clips, Mine()).achieved == (False, False)
    with pytest.raises(sv.errors.InputError, match=r'register\("attack", "my-name", Mine\)'):
        sv.audit("keyword", attacks=[Mine()])
    sv.register("attack", "mine", Mine)
    run = sv.audit("keyword", attacks=[Mine()], snr=30, limit=2, probe=0, metrics="success", audio="none")
    assert {row["attack"] for row in run.summary()} == {"mine"}


# Mistakes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sv.open_model(net()), "open_model expected classes with a torch.nn.Module, got none"),
        (lambda: sv.open_model("keyword", sample_rate=8000), "sample_rate with a torch.nn.Module alone"),
        (lambda: sv.audit(net()), "write audit(open_model(module"),
        (lambda: sv.audit("keyword", attacks="none", snr=30), "expected no goals and no budgets"),
        (lambda: sv.audit("keyword", attacks="pgdd"), "unknown attack 'pgdd': did you mean 'pgd'?"),
        (lambda: sv.attack("keyword", "embedded", "uap"), "fitted on many clips"),
        (lambda: sv.attack("keyword", sv.open_data(), 3), "got int"),
        (lambda: sv.measure(torch.zeros(9), torch.zeros(9)), "expected sample_rate= with waveforms"),
        (lambda: sv.measure("a.wav", torch.zeros(9)), "got str and Tensor"),
        (lambda: sv.read_run("nowhere"), "is not the folder of a run"),
        (lambda: sv.open_data().batch(), "give open_data model= or sample_rate="),
        (lambda: sv.certify(sigma=0.1, defense="gaussian(sigma=0.1)"), "got both"),
        (lambda: sv.register("target", "mine", lambda device: None), "function at the top of a module"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(call: Any, message: str, desk: Path) -> None:
    with pytest.raises(sv.errors.InputError) as found:
        call()
    assert message in str(found.value)
    assert "\n" not in str(found.value)
    assert not (desk / "runs").exists()


def test_pandas_is_asked_for_by_name(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sv.audit("keyword", attacks="none", limit=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sv.errors.MissingExtra, match="pip install pandas"):
        run.to_pandas()
    with pytest.raises(sv.errors.InputError, match="'summary' or 'trials', got 'cells'"):
        run.to_pandas("cells")  # type: ignore[arg-type]
