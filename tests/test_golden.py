"""What users keep or type stays as it is: see golden/README.md."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import yaml
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from typer.main import get_command

import sottovoce

# All that a move of modules has to change in this file.
from sottovoce import registry
from sottovoce.auditing.certificates.certify_folder import CertifiedClip
from sottovoce.auditing.certificates.certify_run import CertifyPlan
from sottovoce.auditing.plan.cell_rules import CellRule
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.plan.plan_grid import Grid, make_grid
from sottovoce.auditing.plan.plan_presets import PRESETS, fill
from sottovoce.auditing.run.about_run import About
from sottovoce.auditing.sparsity.sparsity_folder import SparseClip
from sottovoce.auditing.sparsity.sparsity_run import SparsityPlan
from sottovoce.cli.main import app, main
from sottovoce.core.record import SCHEMA, Record
from sottovoce.errors import MissingExtra
from sottovoce.leaderboard.claims.claim import SCHEMA as CLAIM_SCHEMA
from sottovoce.leaderboard.claims.claim import schema_text
from sottovoce.listening.study.study_file import PRESETS as LISTENING_PRESETS
from sottovoce.studies.amiri2024.job_plan import PLANS as PATHOLOGY_SCALES
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.runs.certificate_plans import o16
from sottovoce.studies.olivier2023.runs.recogniser_plans import PLANS as STUDY_PLANS
from sottovoce.studies.olivier2023.sparsity.sparsity_plans import o4
from sottovoce.studies.study import SCALES

GOLDEN = Path(__file__).parent / "golden"
WRITE = "SOTTOVOCE_WRITE_GOLDEN"
PINNED = "0.1.0.dev1"
"""The version that run ids are taken with."""
COMPLETION = ("--install-completion", "--show-completion")
"""Options of Typer's, which differ with what is installed."""
Lines = dict[str, Any]


# Comparing


def compare(name: str, found: Mapping[str, Any], *, unknown: frozenset[str] = frozenset()) -> None:
    """Fail where an entry is not as it was. unknown: entries whose part needs a package that is not here."""
    path = GOLDEN / f"{name}.json"
    plain: Lines = json.loads(json.dumps(found))
    if os.environ.get(WRITE):
        assert not unknown, f"install what these need before golden files are written anew: {sorted(unknown)}"
        path.write_text(write(plain), encoding="utf-8")
        return
    kept: Lines = json.loads(path.read_text(encoding="utf-8"))
    differences = [
        *(f"  gone:    {key}: {tell(kept[key])}" for key in kept if key not in plain and key not in unknown),
        *(f"  new:     {key}: {tell(plain[key])}" for key in plain if key not in kept),
        *(
            f"  changed: {key}\n      was: {tell(kept[key])}\n      is:  {tell(plain[key])}"
            for key in plain
            if key in kept and kept[key] != plain[key]
        ),
    ]
    if not differences and not unknown and list(kept) != list(plain):
        was, now = next(pair for pair in zip(kept, plain, strict=True) if pair[0] != pair[1])
        differences = [f"  another order: {now} stands where {was} was"]
    if differences:
        pytest.fail(
            f"{len(differences)} difference(s) from tests/golden/{path.name}, which holds what users keep:\n"
            + "\n".join(differences)
            + "\nRestore what it was. If the change is meant, it is a decision: write a page in "
            f"docs/decisions, then run {WRITE}=1 python -m pytest tests/test_golden.py and commit both.",
            pytrace=False,
        )


def write(content: Lines) -> str:
    """JSON with a line an entry."""
    lines = (f"{json.dumps(key, ensure_ascii=False)}: {tell(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def tell(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def type_text(hint: Any) -> str:
    """A type in words that do not depend on where it is defined, nor on how a union is written."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_text(inner[0])
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_text, inner))
    if origin is Literal:
        return " | ".join(map(repr, inner))
    if hint is Ellipsis:
        return "..."
    if hint is type(None):
        return "None"
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{', '.join(map(type_text, inner))}]" if inner else name


def plain(value: Any) -> Any:
    """A default as JSON can hold it."""
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# Commands


def test_commands() -> None:
    compare("commands", dict(sorted(command_lines(get_command(app), "sottovoce"))))


def command_lines(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """A line a command, and a line a parameter."""
    function = inspect.unwrap(command.callback) if command.callback else None
    hints = get_type_hints(function, include_extras=True) if function else {}
    places = 0
    yield words, "verbs" if hasattr(command, "list_commands") else "verb"
    for parameter in command.params:
        if set(parameter.opts) & set(COMPLETION):
            continue
        about = parameter_facts(parameter, function, hints)
        if parameter.param_type_name == "argument":
            places += 1
            yield f"{words} [{places}] {parameter.name}", about
        else:
            yield f"{words} {' '.join(sorted(parameter.opts))}", about
    for name, below in getattr(command, "commands", {}).items():
        yield from command_lines(below, f"{words} {name}")


def parameter_facts(parameter: Any, function: Any, hints: dict[str, Any]) -> Lines:
    hint = hints[parameter.name]
    default = inspect.signature(function).parameters[parameter.name].default
    given = [info for info in (*getattr(hint, "__metadata__", ()), default) if hasattr(info, "param_decls")]
    facts: Lines = {"type": type_text(hint), "default": plain(parameter.default)}
    for info in given:
        for name in ("min", "max", "exists"):
            if getattr(info, name, None) not in (None, False):
                facts[name] = getattr(info, name)
    flags = {"flag": getattr(parameter, "is_flag", False), "multiple": parameter.multiple}
    flags |= {"required": parameter.required, "several": parameter.nargs != 1}
    facts |= {name: True for name, holds in flags.items() if holds}
    facts |= {"off": sorted(parameter.secondary_opts)} if parameter.secondary_opts else {}
    return facts | ({"variable": parameter.envvar} if parameter.envvar else {})


# Parts and other names


def test_parts() -> None:
    """Every name of every kind, with its settings. A setting that no text can stand for is not a user's."""
    found: Lines = {}
    unknown = set()
    for kind in sorted(registry.kinds()):
        for name in registry.names(kind):
            if not registry.is_own(kind, name):
                continue
            try:
                found[f"{kind} {name}"] = {} if kind == "study" else settings_of(kind, name)
            except (MissingExtra, ImportError):
                unknown.add(f"{kind} {name}")
    compare("parts", found, unknown=frozenset(unknown))


def settings_of(kind: str, name: str) -> Lines:
    hints, defaults = registry.types(kind, name), registry.defaults(kind, name)
    return {
        key: type_text(hint) if defaults[key] is MISSING else [type_text(hint), plain(defaults[key])]
        for key, hint in hints.items()
        if "sottovoce." not in str(hint)
    }


def test_names() -> None:
    """Studies with their scales, presets, and what they fill in."""
    found: Lines = {
        f"study {name}": sorted(PATHOLOGY_SCALES if name == "A" else SCALES)
        for name in registry.names("study")
        if registry.is_own("study", name)
    }
    for preset in PRESETS:
        found |= {f"preset {preset}, {says}": fill(preset, says) for says in ("class", "words")}
    found["presets of listening studies"] = list(LISTENING_PRESETS)
    found["record schema"], found["claim schema"] = SCHEMA, CLAIM_SCHEMA
    compare("names", found)


def test_studies_are_found_by_what_users_type() -> None:
    assert {registry.find("study", name).id for name in registry.names("study")} == set(
        registry.names("study")
    )


# Plans, cells and run ids


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """One version, wherever a module keeps it."""
    monkeypatch.setattr(sottovoce, "__version__", PINNED)
    for name, module in list(sys.modules.items()):
        if name.startswith("sottovoce.") and "__version__" in vars(module):
            monkeypatch.setattr(module, "__version__", PINNED)


def kinds(model: str) -> Literal["class", "words"]:
    """What a model of `plans.yaml` says; none is opened."""
    return "words" if model.startswith("recogniser") else "class"


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Grid, dict[str, Plan]]]:
    """The plans of `plans.yaml`, checked."""
    written: dict[str, Lines] = yaml.safe_load((GOLDEN / "plans.yaml").read_text(encoding="utf-8"))
    grids = {case: make_grid(entries) for case, entries in written.items()}
    return {case: (grid, checked(grid)) for case, grid in grids.items()}


def checked(grid: Grid) -> dict[str, Plan]:
    found = grid.plans(kinds)
    for plan in found.values():
        plan.check()
    return found


def test_cell_ids(cases: dict[str, tuple[Grid, dict[str, Plan]]]) -> None:
    found = {
        f"{case}: {name}: {cell.id}": [
            cell.defense, cell.attacker, *map(str, (cell.attack, cell.goal, cell.budget))
        ]
        for case, (_, plans) in cases.items()
        for name, plan in plans.items()
        for cell in plan.cells()
    }  # fmt: skip
    compare("cells", found)


def test_run_ids_and_plan_files(cases: dict[str, tuple[Grid, dict[str, Plan]]], pinned: None) -> None:
    found: Lines = {}
    for case, (grid, plans) in cases.items():
        found[f"{case}: as typed"] = [grid.run_id, *grid.to_yaml().splitlines()]
        found[f"{case}: resolved"] = grid.resolved(kinds).run_id
        for name, plan in plans.items():
            found[f"{case}: {name}"] = [plan.run_id, *plan.to_yaml().splitlines()]
            (again,) = make_grid(yaml.safe_load(plan.to_yaml())).plans(kinds).values()
            assert (again.run_id, again.to_yaml()) == (plan.run_id, plan.to_yaml()), "read as it was written"
    compare("plans", found)


def test_plans_of_certificates(pinned: None) -> None:
    settings: dict[str, Lines] = {
        "default": {},
        "recogniser": {"model": "recogniser", "data": "strings", "wer": 0.25, "limit": 4},
        "a vote": {"defense": "gaussian(sigma=0.02)+majority", "passes": 64, "select": 16, "alpha": 0.01},
        "a radius": {"radius": 0.01, "seed": 3},
        "a tolerance": {"tolerance": 0.1},
        "new entries": {"labels": "skip", "longest": 60.0},
    }
    plans = {case: CertifyPlan(**given) for case, given in settings.items()}
    compare(
        "certify_plans", {case: [plan.run_id, *plan.to_yaml().splitlines()] for case, plan in plans.items()}
    )


def test_plans_of_sparsity(pinned: None) -> None:
    settings: dict[str, Lines] = {
        "default": {},
        "recogniser": {"model": "recogniser", "data": "strings", "wer": 0.5, "limit": 4},
        "all entries": {
            "defenses": ("none", "gaussian(sigma=0.01)"), "budgets": ("linf(eps=0.002)",), "directions": 8,
            "passes": 20, "average": 4, "goal": "force(text=stop)", "seed": 3,
        },
    }  # fmt: skip
    plans = {case: SparsityPlan(**given) for case, given in settings.items()}
    compare(
        "sparsity_plans", {case: [plan.run_id, *plan.to_yaml().splitlines()] for case, plan in plans.items()}
    )


def test_plans_of_studies(pinned: None) -> None:
    """Run ids by the name of each plan's folder, so that a study goes on where it was."""
    makers: dict[str, Callable[[Ask], Mapping[str, Plan | CertifyPlan | SparsityPlan]]] = {
        **STUDY_PLANS, "O16": o16, "O4": o4,
    }  # fmt: skip
    found = {
        f"{study}, {scale}": {name: plan.run_id for name, plan in plans(strings(scale)).items()}
        for study, plans in makers.items()
        for scale in ("mini", "full")
    }
    compare("study_plans", found)


def strings(scale: Literal["mini", "full"]) -> Ask:
    return Ask(scale=scale, model="recogniser", data="strings")


# Files


def test_fields_of_files() -> None:
    """Names, types, ranges and defaults of what is written, and the order within a line."""
    found: Lines = {}
    kinds_of_file: dict[str, Any] = {
        "trials.jsonl": Record, "certificates.jsonl": CertifiedClip, "sparsity.jsonl": SparseClip,
        "about.json": About, "plan.yaml": Plan,
        "plan.yaml, rule": CellRule,
    }  # fmt: skip
    for name, kind in kinds_of_file.items():
        found |= field_lines(name, TypeAdapter(kind).json_schema(schema_generator=Fields))
    found |= field_lines("claim", json.loads(schema_text()))
    found |= {f"trials.jsonl, line {number}": line for number, line in enumerate(record_lines(), start=1)}
    found["sparsity.jsonl, line"] = SparseClip(cell="a", clip="b", status="ok", sparsity=0.5).to_line()
    found["certificates.jsonl, line"] = CertifiedClip(clip="a", status="ok", radius=0.5).to_line()
    compare("fields", found)


class Fields(GenerateJsonSchema):
    """What pydantic cannot tell of is read from a text: a part with its settings."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {"type": "string"}


def record_lines() -> list[str]:
    parts = {"snr": [float("inf"), 1.0], "wer": [2.0, 5.0], "pesq": [float("nan"), 0.0]}
    full = Record(
        cell="noise_evade_snr-db-30",
        clip="yes-3",
        status="ok",
        achieved=True,
        parts=parts,
        audio={"clean": "a.flac"},
    )
    return [full.to_line(), Record(cell="", clip="ü", status="failed", reason="no").to_line()]


def test_the_published_schema_of_a_claim_has_the_same_fields() -> None:
    published = json.loads((GOLDEN.parents[1] / "docs" / "claim.schema.json").read_text(encoding="utf-8"))
    assert field_lines("claim", published) == field_lines("claim", json.loads(schema_text()))


def field_lines(name: str, schema: Lines) -> Lines:
    """A line a field of a JSON schema; what it says in prose, and the names of classes, are left out."""
    inlined = inline(schema, schema.get("$defs", {}))
    required = inlined.get("required", ())
    fields_of = inlined["properties"].items()
    return {
        f"{name}: {field}": about | ({"required": True} if field in required else {})
        for field, about in fields_of
    }


def inline(node: Any, known: Lines) -> Any:
    if isinstance(node, list):
        return [inline(item, known) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return inline(known[node["$ref"].rpartition("/")[2]] | rest, known)
    # A field may be called title or description; prose is a text.
    prose = {key for key in ("description", "title") if isinstance(node.get(key), str)}
    return {
        key: inline(value, known) for key, value in node.items() if key not in prose | {"$defs", "$schema"}
    }


# Runs and exit codes


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a command as a shell would see it."""
    monkeypatch.setattr(sys, "argv", ["sottovoce", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int | None)
    return code or 0


MEAN = ("--model", "python:mean_model:make", "--data", "clips")
RUN = ("audit", *MEAN, "--snr=-3", "--metrics", "success,snr")


def test_files_of_a_run(
    mean_model: str,
    mean_clips: Path,
    pinned: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Names of files, with the folder that is chosen where none is given; entries of those in JSON."""
    attacks = ("--attacks", "noise,pgd(steps=2),universal-gradient(epochs=1)", "--limit", "4")
    defended = ("--defenses", "none,quantise(bits=8)", "--black-box", "genetic(steps=2, population=4)")
    found: Lines = {}
    assert typed(monkeypatch, *RUN, *attacks, *defended, "--probe", "1", "--audio", "all", "--json") == 0
    found["audit --json"] = entries_of(json.loads(capsys.readouterr().out))
    few = ("--limit", "2", "--passes", "16", "--select", "4", "--alpha", "0.1")
    assert typed(monkeypatch, "certify", *MEAN, *few, "--json") == 0
    found["certify --json"] = entries_of(json.loads(capsys.readouterr().out))
    assert typed(monkeypatch, "sparsity", *MEAN, "--limit", "2", "--l2", "2", "--passes", "10", "--json") == 0
    found["sparsity --json"] = entries_of(json.loads(capsys.readouterr().out))
    for path in sorted((tmp_path / "runs").rglob("*")):
        if path.is_file():
            found[path.relative_to(tmp_path).as_posix()] = entries_of(first_json(path))
    compare("run_folder", found)


@pytest.mark.slow
def test_files_of_a_grid(
    mean_model: str, mean_clips: Path, pinned: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ("--attacks", "noise,fgsm", "--probe", "0", "--audio", "none", "--seeds", "0,1")
    assert typed(monkeypatch, *RUN, *quick) == 0
    files = sorted(path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    compare(
        "grid_folder", {path.relative_to(tmp_path).as_posix(): entries_of(first_json(path)) for path in files}
    )


def first_json(path: Path) -> Any:
    """What a file in JSON holds, or its first line; the columns of one in CSV."""
    if path.suffix == ".csv":
        return dict.fromkeys(path.read_text(encoding="utf-8").splitlines()[0].split(","))
    if path.suffix not in (".json", ".jsonl"):
        return None
    text = path.read_text(encoding="utf-8")
    return json.loads(text.splitlines()[0] if path.suffix == ".jsonl" else text)


def entries_of(content: Any) -> list[str]:
    """The ways to all entries, in order, each once; those of a list are one."""
    return list(dict.fromkeys(ways(content, "")))


def ways(content: Any, before: str) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield f"{before}{key}"
            yield from ways(value, f"{before}{key}.")
    elif isinstance(content, list):
        for value in content:
            yield from ways(value, f"{before.removesuffix('.')}[].")


def test_exit_codes(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ("--attacks", "noise", "--probe", "0", "--audio", "none")
    found: Lines = {
        "--version": typed(monkeypatch, "--version"),
        "--help": typed(monkeypatch, "audit", "--help"),
        "no such verb": typed(monkeypatch, "adit"),
        "no such option": typed(monkeypatch, "audit", "--atacks", "pgd"),
        "not a number": typed(monkeypatch, "audit", "--limit", "many"),
        "no such part": typed(monkeypatch, "audit", "--attacks", "pdg"),
        "no such folder": typed(monkeypatch, "view", "absent", "--no-browser"),
        "done": typed(monkeypatch, *RUN, *quick, "--limit", "2", "--out", "done"),
    }
    (mean_clips / "up" / "broken.wav").write_bytes(b"no sound")
    found["a clip failed"] = typed(monkeypatch, *RUN, *quick, "--out", "failed")
    (tmp_path / "done" / "trials.jsonl").write_text("{}\n")
    found["a damaged file"] = typed(monkeypatch, "audit", "--resume", "done")
    compare("exit_codes", found)


def test_exit_code_of_a_run_that_is_stopped(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by the key, and asked to stop by whoever runs the machine."""
    module = tmp_path / "mean_model.py"
    model = module.read_text()
    for number in (signal.SIGINT, signal.SIGTERM):
        # A signal that nobody waits for would end the tests.
        stop = f"import os, signal; signal.getsignal({number:d}) and os.kill(os.getpid(), {number:d})"
        module.write_text(model.replace("        mean =", f"        {stop}\n        mean =", 1))
        sys.modules.pop("mean_model", None)
        assert typed(monkeypatch, *RUN, "--attacks", "noise", "--out", f"stopped-{number:d}") == 130


def test_a_difference_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "GOLDEN", tmp_path)
    monkeypatch.delenv(WRITE, raising=False)
    (tmp_path / "some.json").write_text('{"kept": 1, "gone": [2], "other": 3}')
    with pytest.raises(pytest.fail.Exception) as told:
        compare("some", {"kept": 1, "other": "ü", "more": 4})
    assert str(told.value).splitlines() == [
        "3 difference(s) from tests/golden/some.json, which holds what users keep:",
        "  gone:    gone: [2]",
        "  new:     more: 4",
        "  changed: other",
        "      was: 3",
        '      is:  "ü"',
        "Restore what it was. If the change is meant, it is a decision: write a page in docs/decisions, then "
        "run SOTTOVOCE_WRITE_GOLDEN=1 python -m pytest tests/test_golden.py and commit both.",
    ]
    with pytest.raises(pytest.fail.Exception, match="another order: other stands where gone was"):
        compare("some", {"kept": 1, "other": 3, "gone": [2]})
    compare("some", {"kept": 1, "other": 3}, unknown=frozenset({"gone"}))
