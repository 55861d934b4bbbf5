"""The page about plan files: every example is one, and makes the runs that the page says it makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.core.target import Says

PAGE = (Path(__file__).parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def kinds(model: str) -> Says:
    return "words" if model == "recogniser" else "class"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(("text", "runs"), list(zip(EXAMPLES, (1, 6, 3, 3), strict=True)))
def test_every_example_is_a_plan(text: str, runs: int) -> None:
    plans = make_grid(yaml.safe_load(text)).plans(kinds)
    assert len(plans) == runs
    for plan in plans.values():
        assert plan.cells()


def test_the_rules_do_what_the_page_says() -> None:
    plans = make_grid(yaml.safe_load(EXAMPLES[3])).plans(kinds)
    first = plans["keyword_seed-0"].cells()
    # 3 of noise, 1 of pgd and 3 of deepfool on the bare model; behind the defense 3 of noise, 6 of pgd, 6 of
    # deepfool and 3 of the black box; and one that is added.
    assert len(first) == 7 + 18 + 1
    assert first[-1].id == "cw_evade_snr-db-50"
    # Without what is transferred.
    assert len(plans["keyword_seed-1"].cells()) == 7 + 12 + 1
    assert "deepfool" not in {cell.attack.name for cell in plans["recogniser"].cells()}
