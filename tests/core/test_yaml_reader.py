"""The reader of YAML files: what is refused, with its line, and what valid files go on to mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sottovoce.core.files.yaml_reader import (
    Entries,
    StrictLoader,
    naming_lines,
    parse_entries,
    parse_yaml,
    read_yaml,
    refuse_truth,
)
from sottovoce.errors import InputError

PLAIN = "; write the number in full, or '{0}' in quotes if it is a text."


def read(path: Path, text: str, loader: type[StrictLoader] = StrictLoader) -> Entries:
    path.write_text(text, encoding="utf-8")
    return read_yaml(path, "a plan", "model: keyword", loader)


@pytest.mark.parametrize(
    ("number", "value"),
    # YAML 1.1: base 60 (1 * 60 + 30; 1 * 3600 + 2 * 60 + 3; 60 + 30.5), and base 8 after a zero (8; 493).
    [("1:30", "90"), ("1:02:03", "3723"), ("1:30.5", "90.5"), ("010", "8"), ("-0755", "-493"), ("00", "0")],
)
def test_numbers_that_are_not_what_they_look_like(tmp_path: Path, number: str, value: str) -> None:
    path = tmp_path / "plan.yaml"
    said = f"{path}, line 2: expected a plain number, got {number}, which YAML takes for {value}"
    for text in (f"model: keyword\nlimit: {number}", f"seeds:\n- {number}", f"a: {{b:\n  [{number}]}}"):
        with pytest.raises(InputError) as caught:
            read(path, text)
        assert str(caught.value) == said + PLAIN.format(number)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", ".NaN"])
def test_numbers_that_are_none(tmp_path: Path, number: str) -> None:
    with pytest.raises(InputError, match=rf"plan.yaml, line 1: expected a finite number, got {number}; "):
        read(tmp_path / "plan.yaml", f"gpu_share: {number}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30", 30), ("-3", -3), ("0", 0), ("0.5", 0.5), ("1.0e-05", 1e-05), ("1e-05", "1e-05"), ("0x1F", 31),
        ("1_000", 1000), ("'010'", "010"), ('"1:30"', "1:30"), ("08", "08"), ("1.2.3", "1.2.3"),
        ("a:b", "a:b"), ("true", True), ("False", False), ("yes", "yes"), ("No", "No"), ("on", "on"),
        ("OFF", "OFF"), ("null", None), ("~", None), ("", None), ("nan", "nan"), ("[1, two]", [1, "two"]),
    ],
)  # fmt: skip
def test_what_a_value_means(tmp_path: Path, text: str, value: Any) -> None:
    found = read(tmp_path / "plan.yaml", f"entry: {text}")["entry"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: expected every key once, got 'a' twice; drop one of them."),
        ("a:\n- {b: 1, b: 2}", "line 2: expected every key once, got 'b' twice; drop one of them."),
        ("a: 1\n2: x", "line 2: expected a word before the colon, got 2."),
        ("a: 1\nyes: 1\nyes: 2", "line 3: expected every key once, got 'yes' twice; drop one of them."),
    ],
)
def test_keys(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    with pytest.raises(InputError) as caught:
        read(path, text)
    assert str(caught.value) == f"{path}, {message}"


def test_merged_keys_may_be_said_again(tmp_path: Path) -> None:
    found = read(tmp_path / "plan.yaml", "one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}")
    assert found["two"] == {"a": 1, "b": 3}


def test_files_that_hold_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    with pytest.raises(InputError, match=r"plan.yaml: expected a plan file, got no such file"):
        read_yaml(path, "a plan", "model: keyword")
    for text in ("- a list", "just words", ""):
        with pytest.raises(InputError, match=r"a plan with entries such as 'model: key.*', got none"):
            read(path, text)
    for text in ("a: [", "a: !!python/name:os.system 1", "[" * 5000):
        with pytest.raises(InputError, match=r"plan.yaml.*: expected a plan in YAML, got something else"):
            read(path, text)
    path.write_bytes(b"a: \xff")
    with pytest.raises(InputError, match="expected a plan in YAML"):
        read_yaml(path, "a plan", "model: keyword")


def test_every_entry_knows_its_line() -> None:
    text = "model: keyword\nattacks:\n- noise\n- pgd\ntargets:\n  - model: a\n    batch: 2\n"
    found = parse_entries(text, Path("p.yaml"), "a plan", "a: b")
    assert found.lines == {
        ("model",): 1, ("attacks",): 2, ("attacks", 0): 3, ("attacks", 1): 4, ("targets",): 5,
        ("targets", 0): 6, ("targets", 0, "model"): 6, ("targets", 0, "batch"): 7,
    }  # fmt: skip
    assert found.line_of(("attacks", 1)) == 4
    assert found.line_of(("targets", 0, "goals", 3)) == 6
    assert found.line_of(("goals", 0)) is None
    assert found.line_of(()) is None


def test_what_stands_in_itself_is_gone_through_once() -> None:
    found = parse_entries("a: &a [1, *a]\nb: &b [[*a, *a], [*a, *a]]\n", Path("p"), "a plan", "a: b")
    assert found.lines[("a", 0)] == 1 and found.lines[("b", 0)] == 2


def test_errors_about_an_entry_get_its_line() -> None:
    found = parse_entries("a: 1\nb: 2\n", Path("p.yaml"), "a plan", "a: b")

    def fail(place: tuple[str | int, ...], entries: dict[str, Any]) -> str:
        with pytest.raises(InputError) as caught, naming_lines(entries):
            error = InputError("it is wrong.")
            error.place = place
            raise error
        return str(caught.value)

    assert fail(("b",), found) == "p.yaml, line 2: it is wrong."
    assert fail(("b", 3, "c"), found) == "p.yaml, line 2: it is wrong."
    assert fail((), found) == fail(("c",), found) == fail(("b",), {"b": 2}) == "it is wrong."


@pytest.mark.parametrize(
    ("annotation", "value", "wrong"),
    [
        (int, True, True), (float | None, False, True), (tuple[int, ...], [1, True], True), (int, 1, False),
        (bool, True, False), (bool | int, True, False), (str, True, False), (tuple[str, ...], [True], False),
    ],
)  # fmt: skip
def test_the_truth_is_no_number(annotation: Any, value: Any, wrong: bool) -> None:
    if not wrong:
        assert refuse_truth(annotation, value) is value
        return
    with pytest.raises(InputError, match=r"expected a number, got (true|false)"):
        refuse_truth(annotation, value)


def test_an_empty_text() -> None:
    assert parse_yaml("") is None
