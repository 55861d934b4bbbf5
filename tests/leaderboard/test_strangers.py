"""Claims that try to run code, to open files or to reach out: refused before anything happens."""

from __future__ import annotations

import json
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.testing import CliRunner

import sottovoce
from sottovoce import registry
from sottovoce.auditing.plan.cell_rules import same
from sottovoce.auditing.plan.plan_file import Plan, make_plan, read_entries
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.leaderboard import app
from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims.check_claim import check_claim
from sottovoce.leaderboard.claims.claim import parse_claim
from sottovoce.leaderboard.claims.make_claims import make_claims
from sottovoce.leaderboard.claims.strangers import ClaimGuard, find_openings, is_plain
from sottovoce.leaderboard.run_reading import read_run
from sottovoce.leaderboard.static_site import write_site
from sottovoce.registry.part_text import Part

CELL = "fgsm_evade_snr-db-20"
PLAN = {"model": "keyword", "attacks": ["fgsm"], "budgets": ["snr(db=20)"]}
WATCHED = ("open", "import", "os.listdir", "os.scandir", "socket.connect", "socket.getaddrinfo",
           "subprocess.Popen")  # fmt: skip
_seen: list[tuple[str, str]] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in WATCHED:
        _seen.append((event, str(arguments[0])))


sys.addaudithook(_watch)
HOMES = [
    Path(place).resolve()
    for place in (
        Path(sottovoce.__file__).parent,
        *site.getsitepackages(),
        sysconfig.get_path("stdlib"),
        sys.base_prefix,
    )
]


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The current folder has a stranger's code, weights and clips in it. Tells what was touched so far: any
    file, folder, module or address that belongs neither to Python nor to sottovoce."""
    (tmp_path / "evil.py").write_text("open('marker', 'w').write('it ran')\ndef make(): ...\n")
    for name in ("evil.safetensors", "evil.wav", "evil.csv", "evil.pt"):
        (tmp_path / name).write_text("path,label\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def touched() -> list[str]:
        assert _seen is not None
        found = [text for event, text in _seen if event not in ("open", "os.listdir", "os.scandir", "import")]
        found += [text for event, text in _seen if event == "import" and text.startswith("evil")]
        for event, text in _seen:
            if event in ("open", "os.listdir", "os.scandir") and not text.isdigit():
                path = Path(text).resolve()
                ours = any(path.is_relative_to(home) for home in HOMES) or path.name == "claim.json"
                found += [] if ours or str(path).startswith(("/proc", "/sys", "/dev")) else [text]
        assert not (tmp_path / "marker").exists()
        return found

    global _seen
    _seen = []
    yield touched
    _seen = None


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    (folder / "plan.yaml").write_text(make_plan(PLAN).to_yaml())
    about = {"run": "0123456789", "started": "2025-01-02T03:04:05+00:00", "device": "cpu", "versions": {}}
    (folder / "about.json").write_text(json.dumps(about))
    parts = {"success": [1.0, 1.0], "clean-accuracy": [1.0, 1.0]}
    records = [Record(cell=CELL, clip=clip, status="ok", parts=parts) for clip in "abcd"]
    (folder / "trials.jsonl").write_text("".join(record.to_line() + "\n" for record in records))
    (claim,) = make_claims(read_run(RunFolder(folder)))
    return claim.to_json()


@pytest.fixture
def content(written: str) -> dict[str, Any]:
    """A claim about the shipped keyword spotter: one attack, which breaks four clips."""
    found: dict[str, Any] = json.loads(written)
    return found


def refusal(path: Path, content: dict[str, Any], *words: str) -> str:
    path.write_text(json.dumps(content))
    done = CliRunner().invoke(app, ["check", str(path), "--device", "cpu", *words])
    assert isinstance(done.exception, InputError), (done.output, done.exception)
    return str(done.exception)


@pytest.mark.parametrize(
    "model",
    [
        "python:evil:make",
        "python(where=evil:make)",
        "python:evil:make ",
        "huggingface:evil/model",
        "huggingface:.",
        "whisper:evil.pt",
        "whisper(model=openai/whisper-tiny)",
        "speechbrain:.",
        "deepspeech2:evil.safetensors",
        "keyword(weights=evil.safetensors)",
        "keyword(weights='evil.safetensors')",
        'keyword( weights = "evil.safetensors" )',
        "keyword(variant=../../../evil)",
        "keyword:evil",
        "detector(encoder=huggingface:evil)",
        "detector:evil.safetensors",
        "transfer(source=python:evil:make, judge=keyword)",
        'transfer(source=keyword, judge="python:evil:make")',
        "transfer(source=keyword, judge=keyword, judge=python:evil:make)",
        "transfer(source=keyword, judge=keyword(weights=evil.safetensors))",
        "transfer(source=keyword, judge=transfer(source=keyword, judge=python:evil:make))",
        "transfer(source=keyword, judge=keyword, judge_defense=denoise(weights=evil.safetensors))",
        "transfer(source=keyword, judge=keyword, device=evil)",
        "transfer",
        "ｐython:evil:make",
        "k\N{CYRILLIC SMALL LETTER IE}yword",
        "../keyword",
        "s3://bucket/model",
        "",
    ],
)
def test_a_model_of_a_stranger_is_not_opened(
    content: dict[str, Any], tmp_path: Path, strange: Callable[[], list[str]], model: str
) -> None:
    content["plan"]["model"] = content["target"] = model
    said = refusal(tmp_path / "claim.json", content)
    assert "field 'plan.model': " in said and "; give --model" in said
    assert strange() == []


@pytest.mark.parametrize(
    "data",
    [
        "csv:/etc/passwd", "csv:evil.csv", "evil.csv", "/etc", ".", "folder:.", "s3://bucket/clips",
        "memory://clips", "file:///etc", "librispeech:.", "pack:evil.pt", "proxy:csv:evil.csv",
        "proxy(data=.)", "prompts:../en", "embedded:.", "strings:.", "speechcommands:.", "ｅmbedded",
    ],
)  # fmt: skip
@pytest.mark.parametrize("entry", ["data", "fit"])
def test_clips_of_a_stranger_are_not_opened(
    content: dict[str, Any], tmp_path: Path, strange: Callable[[], list[str]], entry: str, data: str
) -> None:
    content["plan"][entry] = data
    said = refusal(tmp_path / "claim.json", content)
    assert f"field 'plan.{entry}': " in said and f"; give --{entry}" in said
    # One's own model is no leave to open a stranger's clips.
    assert f"field 'plan.{entry}'" in refusal(tmp_path / "claim.json", content, "--model", "python:evil:make")
    assert strange() == []


FILES = "a claim may not name files, addresses or code"


def test_a_number_that_is_none_is_not_even_read(content: dict[str, Any], tmp_path: Path) -> None:
    content["plan"]["attacks"] = ["fgsm", "pgd(step=.inf)"]
    said = refusal(tmp_path / "claim.json", content, "--model", "keyword", "--data", "embedded")
    assert (
        "field 'plan': plan entry 'attacks', item 2" in said and "expected a finite number, got .inf" in said
    )


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("defenses", ["none", "denoise(weights=evil.safetensors)"], FILES),
        ("defenses", ["none", 'denoise( weights = "evil.safetensors" )'], FILES),
        ("defenses", ["none", "gaussian(sigma=0.01)+denoise(weights=evil.safetensors)+median"], FILES),
        # A quote does not hide a part: it is one text, which no part takes.
        ("defenses", ["none", "gaussian(sigma='0.01)+noise(kind=room, file=/etc')"], FILES),
        ("defenses", ["none", "gaussian(sigma='+noise(kind=room, file=/etc)+')"], FILES),
        ("defenses", ["none", "gaussian(sigma='0.01)+noise(kind=room, file=/etc)"], "expected parts such as"),
        ("defenses", ["none", "gaussian(sigma=1e+0)+noise(kind=room, file=/a+b)"], FILES),
        ("defenses", ["none", "noise(kind=room, file=/etc)"], FILES),
        ("defenses", ["none", "noise(kind=[room, /etc/passwd])"], FILES),
        ("defenses", ["none", "noise(kind={room: /etc/passwd})"], FILES),
        ("defenses", ["none", "reverb(file=https://evil.example/room.wav)"], FILES),
        ("defenses", ["none", "gaussian(sigma=0.01, path=/etc/passwd)"], "unknown setting of transform"),
        ("defenses", ["none", "gaussian(sigma=(evil))"], FILES),
        ("defenses", ["none", "median(window=999999)"], "expected numbers up to 1001"),
        ("attacks", ["fgsm", "pgd(file=evil.pt)"], "unknown setting of attack 'pgd'"),
        ("attacks", ["fgsm", "pgd(steps=evil:make)"], FILES),
        ("attacks", ["fgsm", "uap(epochs=/etc/passwd)"], FILES),
        ("attacks", ["fgsm", "pgd(steps=[[1]])"], FILES),
        ("attacks", ["fgsm", "pgd(steps=10000000)"], "expected numbers up to 1000000"),
        ("attacks", ["fgsm", "pgd(steps='1e300')"], "expected numbers up to 1000000"),
        ("attacks", ["fgsm", "pgd(step=1e999)"], "expected numbers up to 1000000"),
        ("black_box", "genetic(population=evil:make)", FILES),
        ("budgets", ["snr(db=20)", "audible(p=0.25, ear=/etc/passwd)"], FILES),
        ("budgets", ["snr(db=20)", 'audible(p=0.25, ear="dpam(weights=evil.pt)")'], FILES),
        ("budgets", ["snr(db=20)", "snr(db=20, shape=evil.csv)"], FILES),
        ("include", [{"defense": "denoise(weights=evil.safetensors)"}], FILES),
        ("include", [{"attack": "pgd(steps=evil:make)"}], FILES),
        ("include", [{"budget": "audible(p=0.25, ear=evil.pt)"}], FILES),
        ("exclude", [{"defense": "noise(kind=room, file=/etc)"}], FILES),
        ("exclude", [{"attack": "pgd(steps=[&a [1], *a])"}], "a pattern of letters"),
        ("exclude", [{"model": "python:evil:make"}], "rules about defense, attack"),
        ("exclude", [{"attacker": "evil"}], "expected one of plain"),
        ("average", 10**9, "expected numbers up to 1000000"),
    ],
)
def test_a_plan_that_names_files_or_code_is_not_even_read(
    content: dict[str, Any],
    tmp_path: Path,
    strange: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    entry: str,
    value: Any,
    reason: str,
) -> None:
    """Not a part of it is built."""
    monkeypatch.setattr(registry, "build", lambda kind, name, settings=None: pytest.fail(f"built {name}"))
    content["plan"][entry] = value
    own = ["--model", "keyword", "--data", "embedded"]
    said = refusal(tmp_path / "claim.json", content, *own)
    assert f"claim.json, field 'plan.{entry}': " in said and reason in said
    with pytest.raises(InputError, match=rf"field 'plan\.{entry}'"):
        write_site([tmp_path / "claim.json"], tmp_path / "site")
    assert strange() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("defense", "denoise(weights=evil.safetensors)"), ("goal", "force(text=yes, file=/etc/passwd)")],
)
def test_the_claim_s_own_texts_are_parsed_too(
    content: dict[str, Any], tmp_path: Path, strange: Callable[[], list[str]], field: str, value: str
) -> None:
    content[field] = value
    assert f"field '{field}': " in refusal(tmp_path / "claim.json", content)
    assert strange() == []


def test_an_entry_that_plans_do_not_have_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    content["plan"]["plugin"] = "python:evil:make"
    assert "unknown plan entry 'plugin'" in refusal(tmp_path / "claim.json", content)


BOMB = "pgd(steps=[&a [1, 1], " + ", ".join(
    f"&{chr(98 + place)} [*{chr(97 + place)}, *{chr(97 + place)}]" for place in range(24)
)


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("attacks", [BOMB + "])"], FILES),
        ("attacks", ["pgd(steps=" + "[" * 38 + "1" + "]" * 38 + ")"], FILES),
        ("attacks", ["pgd(steps=" + "[" * 900 + "1" + "]" * 900 + ")"], "and 40 brackets"),
        ("attacks", ["pgd(steps=" + "1" * 3000 + ")"], "at most 2000 letters"),
        ("budgets", [f"snr(db={db})" for db in range(3334)], "at most 10000 cells"),
        ("limit", [[[[[1]]]]], "at most 4 deep"),
        ("defenses", ["+".join(["median"] * 101)], "at most 100 parts of a defense"),
        ("exclude", [{"attack": "noise"}] * 101, "at most 100 rules"),
    ],
)
def test_a_few_lines_cannot_fill_the_memory(
    content: dict[str, Any], entry: str, value: Any, reason: str
) -> None:
    content["plan"] |= {"budgets": ["snr(db=20)", "snr(db=30)"], entry: value}
    with pytest.raises(InputError, match="field 'plan") as caught:
        parse_claim(content, "claim.json")
    assert reason in str(caught.value) and len(str(caught.value)) < 400


def test_a_pattern_with_many_stars_is_matched_at_once() -> None:
    assert not same("*a" * 30 + "b", "a" * 2000)
    assert same("*a" * 30, "a" * 2000) and same("p*d(*=?)", "pgd(steps=5)") and not same("a*a", "a")


SPOKEN = {
    ("goal", "force", "text"), ("goal", "force-nearest", "choices"), ("goal", "language", "code"),
    ("goal", "prefix", "word"),
}  # fmt: skip
"""What a model is to say: the only free texts that a claim may have."""


@pytest.mark.parametrize("kind", [kind for kind in registry.kinds() if kind != "study"])
@pytest.mark.parametrize("text", ["/etc/passwd", "python:evil:make", "s3://bucket/x", "evil/model"])
def test_no_setting_of_any_part_takes_a_path_or_an_address(
    kind: str, text: str, strange: Callable[[], list[str]]
) -> None:
    """All that are registered: a setting is refused as a stranger's, or its type has no such text."""
    for name in registry.names(kind):
        for key, hint in registry.types(kind, name).items():
            refused = list(ClaimGuard().part(kind, Part(name, {key: text})))
            assert refused or (kind, name, key) in SPOKEN, f"{kind} {name} takes {key}={text}"
            if is_plain(hint):
                with pytest.raises(ValidationError):
                    TypeAdapter(hint).validate_python(text)
    assert strange() == []


def test_models_and_clips_that_do_not_come_with_sottovoce_are_refused_by_name() -> None:
    """All that are registered, by their bare names."""
    shipped = {"keyword", "recogniser", "sound", "speaker", "detector"}
    assert {name for name in registry.names("target") if not list(ClaimGuard().model(name))} == shipped
    shipped = {"embedded", "prompts", "proxy", "sounds", "strings"}
    assert {name for name in registry.names("corpus") if not list(ClaimGuard().corpus(name))} == shipped


class Newcomer:
    """A part that is added tomorrow."""

    def __init__(self, depth: int = 3, template: str = "") -> None:
        self.depth, self.template = depth, template


def test_a_new_part_is_refused_until_its_texts_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._PARTS["transform"], "newcomer", f"{__name__}:Newcomer")
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[Newcomer.__module__])
    monkeypatch.setitem(registry._OWN, "transform", registry._OWN["transform"] | {"newcomer"})
    assert list(ClaimGuard().defense("newcomer(depth=5)")) == []
    (reason,) = ClaimGuard().defense("newcomer(template=anything)")
    assert FILES in reason


def test_every_entry_of_a_plan_is_a_number_a_listed_word_or_parsed() -> None:
    """A text that is added to plans tomorrow is refused in claims until it is looked at."""
    parsed = {
        "model", "data", "fit", "defenses", "black_box", "attacks", "goals", "budgets", "metrics", "exclude",
        "include",
    }  # fmt: skip
    for name, item in Plan.model_fields.items():
        assert is_plain(item.annotation) or name in parsed, f"say what claims may have as {name!r}"


def test_a_part_of_a_plugin_needs_trust(
    content: dict[str, Any], tmp_path: Path, strange: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._PARTS["attack"], "hum", "evil_hum:Hum")
    (tmp_path / "evil_hum.py").write_text("from sottovoce.attacks.pgd import Pgd\nclass Hum(Pgd): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    content["plan"]["attacks"] = ["fgsm", "hum(steps=3)"]
    before = strange()
    said = refusal(tmp_path / "claim.json", content)
    assert "the attack 'hum' of a plugin, which needs --trust" in said
    assert strange() == before and "evil_hum" not in sys.modules
    parse_claim(content, "claim.json", trust=True)
    # Its numbers are taken then, and its texts are not.
    monkeypatch.setitem(registry._PARTS["attack"], "whistle", f"{Newcomer.__module__}:Newcomer")
    monkeypatch.setattr(registry, "find", lambda kind, name: Newcomer)
    assert list(ClaimGuard(trust=True).part("attack", Part("whistle", {"depth": 2}))) == []
    assert list(ClaimGuard(trust=True).part("attack", Part("whistle", {"template": "evil"})))


@pytest.mark.parametrize(
    "entries",
    [
        {"model": "keyword", "data": "embedded"},
        {"model": "keyword(variant=pgd)", "data": "sounds:valid"},
        {"model": "recogniser(beams=5, variant=noisy)", "data": "prompts:en", "fit": "strings"},
        {"model": "detector", "data": "proxy"},
        {"model": "transfer(source=keyword, judge=keyword(variant=fgsm), judge_defense=mp3+median)"},
    ],
)
def test_what_comes_with_sottovoce_may_be_opened(entries: dict[str, Any]) -> None:
    assert list(find_openings(read_entries(entries))) == []


def test_the_words_of_whoever_checks_are_taken_as_they_are() -> None:
    plan = read_entries({"model": "python:evil:make", "data": "s3://bucket/x", "fit": "/etc"})
    assert [field for field, _ in find_openings(plan)] == ["plan.model", "plan.data", "plan.fit"]
    assert [field for field, _ in find_openings(plan, given=("model", "fit"))] == ["plan.data"]
    assert list(find_openings(plan, given=("model", "data", "fit"))) == []


def test_plain_plans_are_read_as_before(content: dict[str, Any]) -> None:
    content["plan"] |= {
        "attacks": ["fgsm", "pgd(steps=5, random_start=true)", "uap", "cw(bits=null)"],
        "black_box": "genetic(steps=30, population=10)",
        "budgets": ["snr(db=20, shape=linf)", "audible(p=0.25, ear=masking)", "snr(db=20)"],
        "goals": ["evade", 'force(text="/etc/passwd, please")'],
        "defenses": [
            "none",
            "noise(kind=pink, snr_db=30)+eq(amount=0.5, bands=[1, -1, 0])+majority(passes=4)",
            "gaussian(sigma=0.01)+denoise(loss=l1)+rover(passes=4, timings=auto)",
        ],
        "exclude": [{"attack": "uap*", "budget": "audible(p=0.25, ear=masking)"}],
    }
    with pytest.raises(InputError, match="a figure at every budget of the plan"):
        parse_claim(content, "claim.json")


def test_a_site_opens_no_model_and_no_clips(
    tmp_path: Path,
    strange: Callable[[], list[str]],
    write_run: Callable[..., Path],
    make_records: Callable[..., list[Record]],
) -> None:
    """Runs and claims of models that run code are rows of figures and nothing else."""
    entries = {**PLAN, "model": "python:evil:make", "data": "csv:/etc/passwd", "fit": "s3://bucket/x"}
    run = write_run(tmp_path / "run", make_records({CELL: "1100"}), entries)
    write_site([run], tmp_path / "site")
    (claim,) = (tmp_path / "site" / "claims").glob("*.json")
    index = write_site([claim], tmp_path / "again")
    assert "python:evil:make" in index.read_text()
    assert [text for text in strange() if not text.startswith(str(tmp_path / "run"))
            and "/site" not in text and "/again" not in text] == []  # fmt: skip
    assert "evil" not in sys.modules


def test_a_report_that_is_a_link_is_not_published(
    tmp_path: Path, write_run: Callable[..., Path], make_records: Callable[..., list[Record]]
) -> None:
    run = write_run(tmp_path / "run", make_records({CELL: "1100"}), PLAN)
    (tmp_path / "secret").write_text("hunter2")
    (run / "report.html").symlink_to(tmp_path / "secret")
    write_site([run], tmp_path / "site")
    assert not [
        path for path in (tmp_path / "site").rglob("*") if path.is_file() and "hunter2" in path.read_text()
    ]


def test_a_claim_that_would_run_for_days_says_so_first(content: dict[str, Any], tmp_path: Path) -> None:
    """Four clips of 600,000 steps and four looks each: 2,400,016 passes, which is more than two million."""
    text = json.dumps(content).replace("fgsm_evade", "pgd-steps-600000_evade")
    content = json.loads(text.replace('"fgsm"', '"pgd(steps=600000)"'))
    said = refusal(tmp_path / "claim.json", content)
    assert "about 2,400,016 passes of the model, more than --most-passes 2,000,000" in said
    assert "give --most-passes 2400016" in said


def test_a_claim_about_a_shipped_model_is_checked_as_it_stands(tmp_path: Path) -> None:
    entries = {**PLAN, "limit": 3, "metrics": ["success", "clean-accuracy"], "probe": 0, "audio": "none"}
    (claim,) = make_claims(read_run(run_audit(make_plan(entries), tmp_path / "run", device="cpu")))
    found = parse_claim(json.loads(claim.to_json()), "claim.json")
    verdict = check_claim(found, device="cpu")
    assert verdict.holds and verdict.notes == []
    # Three clips of one step, and four looks at each.
    assert verdict.passes == 15
