"""Names that users keep: run ids and cells of plans as version 0.1.0 of sottovoce made them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
import yaml
from pydantic import Field

from sottovoce.auditing.plan import plan_file as plan
from sottovoce.auditing.plan import plan_grid as grid
from sottovoce.auditing.plan.plan_file import FIRST_FORMAT, Plan, make_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.targets.open_target import guess

RULED = {
    "attacks": ["noise", "pgd(steps=7)"],
    "defenses": ["none", "gaussian(sigma=0.02)+majority(passes=8)"],
    "budgets": ["snr(db=20)", "linf(eps=0.01)"],
    "exclude": [{"attack": "noise", "budget": "linf*"}],
    "gpu_share": 0.5,
    "limit": 12,
    "seed": 3,
}


@pytest.fixture
def version_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, grid):
        monkeypatch.setattr(module, "__version__", "0.1.0")


@pytest.mark.parametrize(
    ("settings", "run_id", "cells", "names"),
    [
        # As that version printed them: the id, how many cells, and a hash of their ids.
        ({}, "72b4e30474", 20, "06c039d2c0"),
        ({"model": "recogniser"}, "91a8b3c103", 6, "52ffa17d73"),
        (RULED, "7a2dbbae39", 10, "df57ec5284"),
        ({"model": "recogniser", "preset": "paper"}, "0689490e91", 31, "63242671ee"),
    ],
)
def test_plans_keep_their_ids(
    version_of_then: None, settings: dict[str, Any], run_id: str, cells: int, names: str
) -> None:
    (found,) = make_grid(settings).plans().values()
    ids = [cell.id for cell in found.cells()]
    assert (found.run_id, len(ids)) == (run_id, cells)
    assert sha256("\n".join(ids).encode()).hexdigest()[:10] == names


def test_grids_keep_their_ids(version_of_then: None) -> None:
    found = make_grid({"model": "recogniser", "preset": "quick", "seeds": [0, 1]})
    ids = {name: one.run_id for name, one in found.plans().items()}
    assert ids == {"recogniser_seed-0": "405271267d", "recogniser_seed-1": "be74eaedb7"}
    assert found.resolved(guess).run_id == "00663cef89"


class Longer(Plan):
    """A plan of a later version: two entries more, in the middle and at the end, and one that is a list."""

    labels: str = "all"
    rooms: tuple[str, ...] = Field(default_factory=tuple)


def test_a_new_entry_is_left_out_where_it_is_at_its_default(version_of_then: None) -> None:
    old, new = make_plan(RULED, guess), Longer.model_validate(make_plan(RULED, guess).written())
    assert new.to_yaml() == old.to_yaml() and new.run_id == "7a2dbbae39"
    said = Longer.model_validate({**old.written(), "labels": "skip", "rooms": ["hall"]})
    content = yaml.safe_load(said.to_yaml())
    assert (content.pop("labels"), content.pop("rooms")) == ("skip", ["hall"])
    assert content == yaml.safe_load(old.to_yaml())
    assert said.run_id != new.run_id
    assert Longer.model_validate(yaml.safe_load(said.to_yaml())) == said


def test_what_every_file_has_stays_what_it_was() -> None:
    first = [
        "model", "data", "fit", "limit", "defenses", "average", "attackers", "black_box", "attacks", "goals",
        "budgets", "metrics", "seed", "bits", "batch", "audio", "probe",
    ]  # fmt: skip
    assert list(yaml.safe_load(Plan().to_yaml())) == first
    assert set(first) == FIRST_FORMAT
