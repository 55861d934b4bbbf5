"""What docs/listening.md says of the study file is what the code reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from sottovoce.cli.main import app
from sottovoce.listening.session.protocol import Question
from sottovoce.listening.study.blocks import (
    TESTS,
    AbxBlock,
    CloserBlock,
    MushraBlock,
    NamingBlock,
    PreferenceBlock,
    SameDifferentBlock,
)
from sottovoce.listening.study.study_file import (
    PRESETS,
    AttentionCheck,
    Completion,
    HeadphoneCheck,
    ListeningStudy,
    StudyClip,
    read_study,
)

PAGE = (Path(__file__).parents[2] / "docs" / "listening.md").read_text(encoding="utf-8")
BLOCKS = (NamingBlock, AbxBlock, SameDifferentBlock, MushraBlock, PreferenceBlock, CloserBlock)


def table(first: str) -> dict[str, str]:
    """Rows below the table head that begins so: the rest of each row by its first cell."""
    lines = PAGE.partition(f"\n{first}")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [line.strip("|").split("|", 1) for line in lines]
    return {name.strip().replace("`", ""): rest for name, rest in cells}


def test_every_entry_of_a_study_is_named() -> None:
    rows = table("| entry | default | meaning |")
    assert list(rows) == list(ListeningStudy.model_fields)
    for name, model in {
        "headphones": HeadphoneCheck, "attention": AttentionCheck, "questionnaire": Question,
        "completion": Completion, "clips": StudyClip,
    }.items():  # fmt: skip
        assert set(model.model_fields) <= set(re.findall(r"`(\w+)`", rows[name])), name
    for name in ("seed", "seats", "level", "loudness", "wrong_sentinels"):
        assert rows[name].split("|")[0].strip(" `") == str(ListeningStudy.model_fields[name].default)


def test_every_entry_of_a_block_is_named() -> None:
    common = set(table("Of every block:\n\n| entry | default | meaning |"))
    more = table("| test | an item is | more entries |")
    assert set(more) == set(TESTS)
    for block in BLOCKS:
        (test,) = block.model_fields["test"].annotation.__args__
        named = common | set(re.findall(r"`(\w+)`", more[test]))
        assert set(block.model_fields) <= named, test


def test_every_test_is_named() -> None:
    assert set(table("| test | a listener | statistics |")) == set(PRESETS)


@pytest.mark.parametrize("verb", ["new", "serve"])
def test_every_option_is_one(verb: str) -> None:
    command: Any = get_command(app)
    known = {name for one in command.commands["listen"].commands[verb].params for name in one.opts}
    head = {"new": "| `listen new` | picks |", "serve": "| option of `serve` | default | meaning |"}[verb]
    named = {name for row in table(head) for name in re.findall(r"--[\w-]+", row)}
    assert named and named <= known
    assert verb == "new" or named == {name for name in known if name.startswith("--")}


def test_the_example_is_a_study(maker: Any) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    content = yaml.safe_load(text)
    for clip in content["clips"].values():
        maker.clip(Path(clip["path"]).stem)
        clip["path"] = f"audio/{Path(clip['path']).name}"
    study = read_study(maker.write(content))
    assert [block.test for block in study.blocks] == ["abx"]
