from __future__ import annotations

import pytest
import yaml

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.plan.plan_grid import Grid, make_grid
from sottovoce.core.target import Says
from sottovoce.errors import InputError, UnknownName

TEXT = """
targets:
  - keyword
  - {model: recogniser, data: strings, batch: 4, gpu_share: 0.25}
seeds: [0, 1]
attacks: [noise, "pgd(steps=3)"]
budgets: ["snr(db=20)"]
"""


def kinds(model: str) -> Says:
    return "words" if model == "recogniser" else "class"


def read(text: str) -> Grid:
    return make_grid(yaml.safe_load(text))


def test_a_plan_for_every_target_and_seed() -> None:
    plans = read(TEXT).plans(kinds)
    assert [(name, plan.model, plan.data, plan.seed, plan.batch) for name, plan in plans.items()] == [
        ("keyword_seed-0", "keyword", "embedded", 0, 32),
        ("keyword_seed-1", "keyword", "embedded", 1, 32),
        ("recogniser_seed-0", "recogniser", "strings", 0, 4),
        ("recogniser_seed-1", "recogniser", "strings", 1, 4),
    ]
    assert [plan.gpu_share for plan in plans.values()] == [1.0, 1.0, 0.25, 0.25]
    assert plans["keyword_seed-1"] == make_plan(
        {"attacks": ["noise", "pgd(steps=3)"], "budgets": ["snr(db=20)"], "seed": 1}
    )


def test_several_corpora_are_told_apart() -> None:
    plans = read("{targets: [keyword, speaker], data: [embedded, sounds]}").plans(kinds)
    assert list(plans) == ["keyword_embedded", "keyword_sounds", "speaker_embedded", "speaker_sounds"]


def test_names_of_folders_are_short_and_different() -> None:
    text = "{targets: [{model: keyword, batch: 2}, keyword, 'huggingface:/models/a b', 'python:%s:f']}"
    names = list(read(text % ("x" * 80)).plans(kinds))
    assert names[:3] == ["keyword", "keyword_run-2", "huggingface-models-a-b"]
    assert len(names[3]) == 60 and names[3].startswith("python-xxx")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{model: keyword, seed: 3}",
        "{targets: [keyword], seeds: [3], data: [embedded], attacks: pgd}",
        "{targets: keyword, exclude: {attack: deepfool}}",
    ],
)
def test_one_target_and_one_seed_is_a_plain_plan(text: str) -> None:
    grid = read(text)
    assert grid.single
    assert list(grid.plans(kinds)) == ["keyword"]


def test_rules_of_a_grid_reach_the_plans_that_they_are_about() -> None:
    rules = """
exclude:
  - {model: recogniser, seed: 1}
  - {model: "key*", attack: noise}
include:
  - {model: keyword, seed: 1, attack: cw}
"""
    plans = read(TEXT + rules).plans(kinds)
    cells = {name: [cell.id for cell in plan.cells()] for name, plan in plans.items()}
    assert cells == {
        "keyword_seed-0": ["pgd-steps-3_evade_snr-db-20"],
        "keyword_seed-1": ["pgd-steps-3_evade_snr-db-20", "cw_evade_snr-db-20"],
        "recogniser": ["noise_evade_snr-db-20", "pgd-steps-3_evade_snr-db-20"],
    }
    # A plan has no rule that is not about it, and none that names a run.
    assert plans["recogniser"].exclude == ()
    assert [rule.plain() for rule in plans["keyword_seed-0"].exclude] == [{"attack": "noise"}]


def test_a_run_of_which_nothing_is_left_is_dropped() -> None:
    text = TEXT + 'exclude: [{model: recogniser, attack: "*"}]'
    assert list(read(text).plans(kinds)) == ["keyword_seed-0", "keyword_seed-1"]


def test_what_is_filled_in_hangs_on_the_kind_of_model() -> None:
    plans = read("{targets: [keyword, recogniser]}").plans(kinds)
    assert [str(part) for part in plans["keyword"].attacks] == ["noise", "fgsm", "pgd", "deepfool"]
    assert [str(part) for part in plans["recogniser"].attacks] == ["noise", "fgsm", "pgd(step=0.25)"]


def test_a_resolved_grid_needs_no_model_to_be_read() -> None:
    grid = read("preset: standard\n" + TEXT)
    whole = grid.resolved(kinds)
    again = read(whole.to_yaml())

    def ask(model: str) -> Says:
        raise AssertionError("nothing is left to be asked")

    assert again.plans(ask) == grid.plans(kinds)
    assert (again.to_yaml(), again.run_id) == (whole.to_yaml(), whole.run_id)
    assert read(grid.to_yaml()).plans(kinds) == grid.plans(kinds)


def test_the_id_of_a_grid_hangs_on_every_entry() -> None:
    assert read(TEXT).resolved(kinds).run_id != read(TEXT + "limit: 3").resolved(kinds).run_id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{tragets: [keyword]}", "did you mean 'targets'"),
        ("{atacks: [pgd]}", "did you mean 'attacks'"),
        ("{targets: [{modle: keyword}]}", "entry of a target: 'modle': did you mean 'model'"),
        (
            "{targets: [{model: keyword, batsh: 3}]}",
            "target 'keyword': 'batsh': did you mean 'batch'",
        ),
        ("{targets: [{model: keyword, attacks: ['pgd(stepz=3)']}]}", "'stepz': did you mean 'step'"),
        ("{targets: [{model: keyword, exclude: [{atack: pgd}]}]}", "did you mean 'attack'"),
        ("{targets: [{batch: 3}]}", "a target with a model"),
        ("{targets: [{model: keyword, 3: 4}]}", "'3': expected words as keys, got 3"),
        ("{1: x}", "unknown plan entry '1'"),
        ("{attacks: {pgd: 1}}", r"'attacks', item 1: expected name.* such as pgd\(steps=100\), got .*: 1}"),
        ("{targets: []}", "targets"),
        ("{targets: [3]}", "model"),
        ("{model: keyword, targets: [speaker]}", "'model' or 'targets'"),
        ("{seed: 1, seeds: [1]}", "'seed' or 'seeds'"),
        ("{seeds: [one]}", "'seeds', item 1"),
        ("{preset: quik}", "did you mean 'quick'"),
        ("{targets: [keyword, keyword]}", "twice"),
        ("{exclude: [{modle: keyword}]}", "did you mean 'model'"),
        ("{exclude: [{model: keywort}]}", "did you mean 'keyword'"),
        ("{exclude: [{model: keyword}]}", "'exclude' drops them all"),
        ("{exclude: [{attack: nois}], seeds: [1, 2]}", "did you mean 'noise'"),
        ("{include: [{model: keywort, attack: cw}]}", "did you mean 'keyword'"),
        ("{attacks: [pdg], seeds: [1, 2]}", "did you mean 'pgd'"),
    ],
)
def test_a_bad_grid_is_one_clear_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(text).plans(kinds)


def test_a_rule_may_match_in_one_run_alone() -> None:
    # deepfool is filled in for classifiers, and not for recognisers.
    grid = read("{targets: [keyword, recogniser], exclude: [{attack: deepfool}]}")
    assert [str(plan.exclude[0]) for plan in grid.plans(kinds).values() if plan.exclude] == [
        "{attack: deepfool}"
    ]
    with pytest.raises(UnknownName):
        read("{targets: [recogniser], exclude: [{attack: deepfool}]}").plans(kinds)
