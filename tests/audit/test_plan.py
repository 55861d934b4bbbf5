from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.audit.parts import Part, split_list
from sottovoce.audit.plan import Plan, make_plan, read_plan
from sottovoce.errors import InputError, UnknownName


def test_a_part_reads_as_name_and_settings() -> None:
    part = Part.parse("pgd(steps=100, step=0.05, random_start=true)")
    assert part == Part("pgd", {"steps": 100, "step": 0.05, "random_start": True})
    assert str(part) == "pgd(steps=100, step=0.05, random_start=true)"


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        st.integers() | st.booleans() | st.floats(-1e3, 1e3) | st.from_regex(r"[a-z]{1,9}", fullmatch=True),
        max_size=4,
    )
)
def test_what_a_part_writes_it_reads(settings: dict[str, object]) -> None:
    part = Part("name", settings)
    assert Part.parse(str(part)) == part


@pytest.mark.parametrize("text", ["", "pgd(", "pgd)", "pgd(steps)", "p g d"])
def test_a_part_that_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        Part.parse(text)


def test_lists_split_outside_parentheses() -> None:
    assert split_list("pgd(steps=5, step=.1), cw,,noise") == ["pgd(steps=5, step=.1)", "cw", "noise"]


def test_the_grid_has_every_combination_once() -> None:
    plan = make_plan({"attacks": ["noise", "pgd"], "budgets": ["snr(db=20)", "linf(eps=0.01)"]})
    assert [cell.id for cell in plan.cells()] == [
        "noise_evade_snr-db-20",
        "noise_evade_linf-eps-0.01",
        "pgd_evade_snr-db-20",
        "pgd_evade_linf-eps-0.01",
    ]


def test_a_defense_is_part_of_a_cell() -> None:
    plan = make_plan(
        {"attacks": ["pgd"], "budgets": ["snr(db=20)"], "defenses": ["none", "quantise(bits=8)+gaussian"]}
    )
    assert [cell.id for cell in plan.cells()] == [
        "pgd_evade_snr-db-20",
        "quantise-bits-8-gaussian_pgd_evade_snr-db-20",
    ]


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = make_plan({"attacks": ["pgd(steps=7)"], "goals": ["force(text=stop)"], "seed": 3})
    (tmp_path / "plan.yaml").write_text(plan.to_yaml())
    again = make_plan(read_plan(tmp_path / "plan.yaml"))
    assert again == plan
    assert again.run_id == plan.run_id


def test_the_run_id_hangs_on_every_entry() -> None:
    assert make_plan({"seed": 1}).run_id != make_plan({"seed": 2}).run_id


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modle": "keyword"}, "did you mean 'model'"),
        ({"attacks": ["pdg"]}, "did you mean 'pgd'"),
        ({"attacks": ["uap_hc"]}, "did you mean 'uap-hc'"),
        ({"attacks": ["pgd(stepz=3)"]}, "did you mean 'step'|did you mean 'steps'"),
        ({"attacks": ["pgd(steps=many)"]}, "steps"),
        ({"attacks": ["pgd(steps=0)"]}, "at least 1 step"),
        ({"attacks": []}, "at least one"),
        ({"attacks": ["pgd", "pgd"]}, "twice"),
        ({"budgets": ["snr(db=nan)"]}, "db"),
        ({"budgets": ["snr"]}, "expected a value for db"),
        ({"budgets": ["linf(eps=-1)"]}, "above 0"),
        ({"goals": ["force"]}, "expected a value for text"),
        ({"metrics": ["snrr"]}, "did you mean 'snr'"),
        ({"defenses": ["gausian"]}, "did you mean 'gaussian'"),
        ({"bits": 1}, "bits"),
        ({"limit": 0}, "limit"),
        ({"audio": "some"}, "audio"),
    ],
)
def test_a_bad_plan_is_one_clear_sentence(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(settings)


def test_unknown_names_are_their_own_error() -> None:
    with pytest.raises(UnknownName):
        make_plan({"attacks": ["nothing-like-it"]})


@pytest.mark.parametrize("content", ["- a list", "model: [unclosed", "just words"])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.yaml").write_text(content)
    with pytest.raises(InputError, match="expected a plan"):
        read_plan(tmp_path / "plan.yaml")


def test_the_default_plan_needs_nothing() -> None:
    plan = Plan()
    plan.check()
    assert (plan.model, plan.data, plan.bits) == ("keyword", "embedded", 16)


def test_a_long_text_still_makes_the_name_of_a_folder() -> None:
    texts = ["go " * 120 + end for end in ("left", "right")]
    plan = make_plan({"goals": [f'force(text="{text}")' for text in texts], "budgets": ["snr(db=30)"]})
    ids = [cell.id for cell in plan.cells()]
    assert max(len(one) for one in ids) == 200
    assert len(set(ids)) == len(ids) == 8
