from __future__ import annotations

import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import registry
from sottovoce.auditing.plan import cell as cells
from sottovoce.auditing.plan.plan_file import Plan, make_plan, read_entries, read_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.auditing.run.fitting_clips import fitted_cell
from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part, split_list
from sottovoce.testing.toys import ToyClassifier, toy_random


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


def test_a_defense_is_part_of_a_cell_and_meets_three_attackers() -> None:
    plan = make_plan(
        {
            "attacks": ["noise", "pgd"],
            "budgets": ["snr(db=20)", "snr(db=30)"],
            "defenses": ["none", "quantise(bits=8)+gaussian"],
            "black_box": "genetic(steps=7)",
        }
    )
    behind = "quantise-bits-8-gaussian"
    assert [(cell.id, cell.attacker) for cell in plan.cells()] == [
        ("noise_evade_snr-db-20", "plain"),
        ("noise_evade_snr-db-30", "plain"),
        ("pgd_evade_snr-db-20", "plain"),
        ("pgd_evade_snr-db-30", "plain"),
        # Noise looks at nothing: there is no other form of it.
        (f"{behind}_noise_evade_snr-db-20", "plain"),
        (f"{behind}_noise_evade_snr-db-30", "plain"),
        (f"{behind}_pgd_evade_snr-db-20", "adaptive"),
        (f"{behind}_pgd_evade_snr-db-30", "adaptive"),
        (f"{behind}_pgd_evade_snr-db-20_transfer", "transfer"),
        (f"{behind}_pgd_evade_snr-db-30_transfer", "transfer"),
        (f"{behind}_genetic-steps-7_evade_snr-db-20", "black-box"),
        (f"{behind}_genetic-steps-7_evade_snr-db-30", "black-box"),
    ]


def attackers(**settings: object) -> list[tuple[str, str]]:
    """Attack and attacker of every cell behind a defense."""
    base = {"attacks": ["pgd"], "budgets": ["snr(db=20)"], "defenses": ["quantise"]}
    return [(cell.attack.name, cell.attacker) for cell in make_plan(base | settings).cells()]


def test_a_black_box_joins_unless_one_is_listed() -> None:
    assert attackers() == [("pgd", "adaptive"), ("pgd", "transfer"), ("genetic", "black-box")]
    listed = [("pgd", "adaptive"), ("pgd", "transfer"), ("taori", "black-box")]
    assert attackers(attacks=["pgd", "taori(steps=3)"]) == listed
    assert attackers(attacks=["pgd", "taori(steps=3)"], black_box="taori(steps=3)") == listed
    both = [*listed, ("genetic", "black-box")]
    assert attackers(attacks=["pgd", "taori(steps=3)"], black_box="genetic(steps=3)") == both
    # It is the list that says what attacks a bare model.
    assert attackers(defenses=["none"]) == [("pgd", "plain")]
    assert attackers(defenses=["none"], attacks=["genetic"]) == [("genetic", "plain")]


def test_fewer_attackers_must_be_asked_for() -> None:
    assert attackers(attackers=["transfer"]) == [("pgd", "transfer")]
    assert attackers(attackers=["adaptive"]) == [("pgd", "adaptive")]
    # What is listed runs, whoever else is left out.
    assert attackers(attackers=["adaptive"], attacks=["pgd", "genetic"]) == [
        ("pgd", "adaptive"),
        ("genetic", "black-box"),
    ]


def test_a_universal_attack_is_adaptive_and_transferred() -> None:
    assert attackers(attacks=["uap"], attackers=["adaptive", "transfer"]) == [
        ("uap", "adaptive"),
        ("uap", "transfer"),
    ]


def test_passes_follow_from_the_target_unless_they_are_named() -> None:
    assert (make_plan({}).passes(toy_random()), make_plan({}).passes(ToyClassifier())) == (16, 1)
    assert make_plan({"average": 3}).passes(toy_random()) == 3
    assert make_plan({"average": 1}).passes(toy_random()) == 1
    # Named, they hold for a target that is random and does not say so.
    assert make_plan({"average": 3}).passes(ToyClassifier()) == 3


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
        ({3: 4}, "plan entry '3': expected words as keys, got 3."),
        ({"attacks": ["pdg"]}, "did you mean 'pgd'"),
        ({"attacks": ["uap_hc"]}, "did you mean 'uap-hc'"),
        ({"attacks": ["pgd(stepz=3)"]}, "did you mean 'step'|did you mean 'steps'"),
        ({"attacks": ["pgd(steps=many)"]}, "steps"),
        ({"attacks": ["pgd(steps=0)"]}, r"pgd\(steps=0\): expected a number of at least 1"),
        ({"attacks": []}, "at least one"),
        ({"attacks": ["pgd", "pgd"]}, "twice"),
        ({"budgets": ["snr(db=nan)"]}, "db"),
        ({"budgets": ["snr"]}, "snr needs the setting db"),
        ({"budgets": ["linf(eps=-1)"]}, "above 0"),
        ({"goals": ["force"]}, "force needs the setting text"),
        ({"metrics": ["snrr"]}, "did you mean 'snr'"),
        ({"defenses": ["gausian"]}, "did you mean 'gaussian'"),
        ({"bits": 1}, "bits"),
        ({"limit": 0}, "limit"),
        ({"audio": "some"}, "audio"),
        ({"average": 0}, "average"),
        ({"attackers": []}, "attackers"),
        ({"attackers": ["nobody"]}, "attackers"),
        ({"black_box": "pgd"}, "scores or decisions alone, got pgd"),
        ({"black_box": "genetik"}, "did you mean 'genetic'"),
        ({"probe": -1}, "probe"),
    ],
)
def test_a_bad_plan_is_one_clear_sentence(settings: dict[Any, object], message: str) -> None:
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model: keyword\n1: x", "line 2: expected a word before the colon, got 1."),
        ("targets:\n  - {model: keyword, 3: 4}", "line 2: expected a word before the colon, got 3."),
        ("? [a, b]\n: 1", "line 1: expected a word before the colon, got ['a', 'b']."),
        (
            "attacks: [pgd]\nmodel: keyword\nattacks: [fgsm]",
            "line 3: expected every key once, got 'attacks' twice; drop one of them.",
        ),
    ],
)
def test_keys_are_words_and_there_once(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_plan(path)
    assert str(caught.value) == f"{path}, {message}"


def test_entries_may_be_merged(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "targets:\n  - &one {model: keyword, batch: 8}\n  - {<<: *one, model: speaker}\n"
    )
    assert read_plan(tmp_path / "plan.yaml")["targets"] == [
        {"model": "keyword", "batch": 8},
        {"model": "speaker", "batch": 8},
    ]


def test_a_part_that_is_none_is_told_once() -> None:
    with pytest.raises(InputError) as caught:
        make_plan({"attacks": [{"pgd": 1}]})
    assert str(caught.value) == (
        "plan entry 'attacks', item 1: expected name(setting=value, ...), such as pgd(steps=100), "
        "got \"{'pgd': 1}\"."
    )


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


def test_texts_that_differ_in_what_a_file_cannot_be_called_make_two_cells() -> None:
    goals = ['force(text="откройте дверь")', 'force(text="закройте окно")', "force(text=stop)"]
    more = {"attacks": ["pgd"], "budgets": ["snr(db=30)"]}
    first, second, third = make_plan({**more, "goals": goals}).cells()
    assert re.fullmatch(r"pgd_force-text_snr-db-30-[0-9a-f]{8}", first.id)
    assert re.fullmatch(r"pgd_force-text_snr-db-30-[0-9a-f]{8}", second.id)
    assert first.id != second.id and third.id == "pgd_force-text-stop_snr-db-30"
    # Alone each has the name that it always had.
    (alone,) = make_plan({**more, "goals": goals[:1]}).cells()
    assert alone.id == "pgd_force-text_snr-db-30"
    signs = make_plan({**more, "goals": ['force(text="go, now")', 'force(text="go now")']}).cells()
    assert len({cell.id for cell in signs}) == 2
    added = make_plan({**more, "goals": goals[:1], "include": [{"goal": goals[1]}]}).cells()
    assert [cell.id for cell in added] == [first.id, second.id]


def test_a_universal_attack_on_texts_alike_is_fitted_once_for_each() -> None:
    plan = make_plan({
        "attacks": ["uap"], "budgets": ["snr(db=30)"], "goals": ["force(text=да)", "force(text=нет)"],
        "defenses": ["none", "quantise"], "attackers": ["transfer"],
    })  # fmt: skip
    bare = [cell.id for cell in plan.cells() if cell.defense == "none"]
    assert [fitted_cell(cell).id for cell in plan.cells()] == [*bare, *bare] and len(set(bare)) == 2


def test_spaces_in_a_defense_make_no_other_cell() -> None:
    with pytest.raises(InputError, match="twice"):
        make_plan({"defenses": ["quantise+gaussian", "quantise + gaussian"]})


RULED = {
    "attacks": ["noise", "pgd(steps=5)"],
    "budgets": ["snr(db=20)", "snr(db=30)"],
    "defenses": ["none", "quantise"],
    "attackers": ["adaptive", "transfer"],
}


def ids(**rules: object) -> list[str]:
    return [cell.id for cell in make_plan({**RULED, **rules}).cells()]


def test_exclude_drops_the_cells_that_match_every_key_of_a_rule() -> None:
    assert ids(exclude=[{"defense": "none"}, {"attack": "pgd*", "budget": "snr(db=20)"}]) == [
        "quantise_noise_evade_snr-db-20",
        "quantise_noise_evade_snr-db-30",
        "quantise_pgd-steps-5_evade_snr-db-30",
        "quantise_pgd-steps-5_evade_snr-db-30_transfer",
    ]
    # Either of two texts, and the same part written another way.
    assert ids(exclude=[{"defense": ["none", "quantise"], "budget": "snr( db = 20.0 )"}]) == [
        "noise_evade_snr-db-30",
        "pgd-steps-5_evade_snr-db-30",
        "quantise_noise_evade_snr-db-30",
        "quantise_pgd-steps-5_evade_snr-db-30",
        "quantise_pgd-steps-5_evade_snr-db-30_transfer",
    ]


def test_a_name_alone_is_not_the_part_with_settings() -> None:
    with pytest.raises(UnknownName, match="unknown attack in a rule of 'exclude': 'pgd': known: noise, pgd"):
        ids(exclude=[{"attack": "pgd"}])
    assert len(ids(exclude=[{"attack": "pgd(*"}])) == 4
    # Brackets are letters and no pattern: a list of words is written with them.
    listed = {"goals": ["evade", "force-nearest(choices=[yes, no])"], "defenses": ["none"]}
    left = ids(**listed, exclude=[{"goal": "force-nearest(choices=[yes, no])"}])
    assert [name.split("_")[1] for name in left] == ["evade"] * 4


def test_include_adds_cells_to_what_is_left() -> None:
    rules = {
        "exclude": [{"attack": "*"}],
        "include": [
            {"attack": "cw", "defense": "none", "budget": "snr(db=50)"},
            {"attack": "pgd(steps=5)", "defense": "quantise", "attacker": "transfer"},
            {"attack": "fgsm", "defense": "n*", "goal": "force(text=go)", "budget": "snr(db=20)"},
        ],
    }
    assert ids(**rules) == [
        "cw_evade_snr-db-50",
        "quantise_pgd-steps-5_evade_snr-db-20_transfer",
        "quantise_pgd-steps-5_evade_snr-db-30_transfer",
        "fgsm_force-text-go_snr-db-20",
    ]
    plan = make_plan({**RULED, **rules, "defenses": ["none", "quantise"]})
    assert plan.every_defense == ("none", "quantise")
    assert [str(goal) for goal in plan.every_goal] == ["evade", "force(text=go)"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exclude": [{"atack": "pgd"}]}, "key of a rule of 'exclude': 'atack': did you mean 'attack'"),
        ({"exclude": [{"attack": "nois"}]}, "did you mean 'noise'"),
        ({"exclude": [{"attack": "noise", "attacker": "transfer"}]}, "no cell matches all of its keys"),
        ({"exclude": [{"attack": "*"}]}, "'exclude' drops them all"),
        ({"exclude": [{"model": "keyword"}]}, "drop the other keys"),
        ({"exclude": ["noise"]}, "'exclude', item 1"),
        ({"include": [{"attack": "noise"}]}, "adds none"),
        ({"include": [{"attack": "pdg"}]}, "did you mean 'pgd'"),
        ({"include": [{"attack": "pgd(stepz=3)"}]}, "unknown setting of pgd 'stepz'"),
        ({"include": [{"budget": "l2*"}]}, "unknown budget in a rule of 'include'"),
        ({"include": [{"defense": "quantize"}]}, "did you mean 'quantise'"),
        ({"gpu_share": 2}, "gpu_share"),
    ],
)
def test_a_bad_rule_is_one_clear_sentence(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan({**RULED, **settings})


def test_a_plan_from_before_there_were_rules_reads_the_same(tmp_path: Path) -> None:
    old = [
        "model", "data", "fit", "limit", "defenses", "average", "attackers", "black_box", "attacks", "goals",
        "budgets", "metrics", "seed", "bits", "batch", "audio", "probe",
    ]  # fmt: skip
    (tmp_path / "plan.yaml").write_text(Plan().to_yaml())
    assert list(read_plan(tmp_path / "plan.yaml")) == old


def test_rules_survive_the_file(tmp_path: Path) -> None:
    plan = make_plan(
        {
            **RULED,
            "exclude": [{"attack": "noise", "budget": ["snr(db=20)", "snr(db=30)"]}],
            "include": [{"attack": "cw", "defense": "none"}],
            "gpu_share": 0.25,
        }
    )
    (tmp_path / "plan.yaml").write_text(plan.to_yaml())
    content = read_plan(tmp_path / "plan.yaml")
    assert content["exclude"] == [{"attack": "noise", "budget": ["snr(db=20)", "snr(db=30)"]}]
    assert (content["include"], content["gpu_share"]) == ([{"defense": "none", "attack": "cw"}], 0.25)
    assert make_plan(content) == plan


LINES = [
    # The entry on line 3 of a file, and what is said of it.
    ("limit: 1:30", "expected a plain number, got 1:30, which YAML takes for 90; "),
    ("limit: 010", "expected a plain number, got 010, which YAML takes for 8; "),
    ("limit: yes", "plan entry 'limit': expected a whole number, got 'yes'"),
    ("limit: true", "plan entry 'limit': expected a number, got true"),
    ("batch: false", "plan entry 'batch': expected a number, got false"),
    ("gpu_share: .nan", "expected a finite number, got .nan; "),
    ("gpu_share: nan", "plan entry 'gpu_share': expected a number of at most 1, got 'nan'"),
    ("seeds: [1, true]", "plan entry 'seeds': expected a number, got true"),
    ("seeds: [0o]", "plan entry 'seeds', item 1: expected a whole number"),
    ("attacks: pgd(steps=true)", r"pgd\(steps=true\): expected an integer\."),
    (
        "attacks: pgd(steps=010)",
        "setting 'steps': expected a plain number, got 010, which YAML takes for 8; ",
    ),
    ("attacks: pgd(steps=1:30)", "setting 'steps': expected a plain number, got 1:30, .* for 90; "),
    ("attacks: pgd(step=nan)", r"pgd\(step=nan\): expected a finite number\."),
    ("attacks: pgd(step=inf)", r"pgd\(step=inf\): expected a finite number\."),
    ("attacks: pgd(step=.inf)", "setting 'step': expected a finite number, got .inf; "),
    ("attacks: pdg", "unknown attack 'pdg': did you mean 'pgd'"),
    ("budgets: linf(eps=true)", r"linf\(eps=true\): expected a number\."),
    ("defenses: gaussian(sigma=nan)", r"gaussian\(sigma=nan\): expected a finite number\."),
    ("black_box: genetic(steps=true)", r"genetic\(steps=true\): expected an integer\."),
    ("metrics: snrr", "unknown metric 'snrr': did you mean 'snr'"),
    ("atacks: pgd", "unknown plan entry 'atacks': did you mean 'attacks'"),
    ("targets: [{model: keyword, attacks: pgd(steps=true)}]", r"pgd\(steps=true\): expected an integer"),
    ("targets: [{model: keyword, batch: true}]", "'batch': expected a number, got true"),
]


@pytest.mark.parametrize(("entry", "message"), LINES)
def test_a_mistake_in_a_file_names_the_line(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"data: embedded\nfit: null\n{entry}\naudio: none\n")
    with pytest.raises(InputError, match=message) as caught:
        make_grid(read_plan(path))
    assert str(caught.value).startswith(f"{path}, line 3: ")


def test_the_line_is_that_of_the_item(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("model: keyword\nattacks:\n- noise\n- pgd\n- fgsm(random_start=3)\n")
    for read in (make_plan, make_grid):
        with pytest.raises(InputError, match=r"plan.yaml, line 5: "):
            read(read_plan(path))
    path.write_text("targets:\n- keyword\n- model: speaker\n  budgets: [snr(db=true)]\nseeds: [1, 2]\n")
    with pytest.raises(InputError, match=r"plan.yaml, line 4: snr\(db=true\): expected a number"):
        make_grid(read_plan(path))


@pytest.mark.parametrize(
    "settings",
    [{"limit": True}, {"attacks": ["pgd(steps=true)"]}, {"attacks": ["pgd(step=nan)"]}, {"seed": False}],
)
def test_python_refuses_the_same(settings: dict[str, object]) -> None:
    with pytest.raises(
        InputError,
        match=r"expected a number, got (true|false)|expected an integer\.|expected a finite number\.",
    ):
        make_plan(settings)


def test_cells_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    behind, build = cells.behind, registry.build

    def watched(plan: Plan, defense: str) -> Any:
        counted["behind"] += 1
        return behind(plan, defense)

    def built(*words: Any) -> Any:
        counted["built"] += 1
        return build(*words)

    monkeypatch.setattr(cells, "behind", watched)
    monkeypatch.setattr(registry, "build", built)
    plan = make_plan({
        "attacks": [f"pgd(steps={steps})" for steps in range(1, 101)],
        "budgets": [f"snr(db={level})" for level in range(100)],
    })  # fmt: skip
    assert len(plan.cells()) == 10_000
    # A hundred attacks and budgets, each for the lists and once more as parts of cells; and the goal.
    assert counted == {"behind": 1, "built": 402}
    plan.check()
    assert plan.every_goal and plan.every_defense and plan.cells() == plan.cells()
    assert counted == {"behind": 1, "built": 402}
    # What was worked out is the plan's own: neither a copy with other entries nor another process has it.
    copy = plan.model_copy(update={"attacks": plan.attacks[:2]})
    assert (len(copy.cells()), len(plan.cells()), counted["behind"]) == (200, 10_000, 2)
    assert plan == read_entries(plan.written()) and plan != copy
    sent = pickle.dumps(plan)
    # Two hundred parts take 10 kB; ten thousand cells would take a hundred times as much.
    assert len(sent) < 20_000
    assert pickle.loads(sent) == plan and pickle.loads(sent).cells() == plan.cells()
    plan.cells().clear()
    assert len(plan.cells()) == 10_000


def test_a_check_that_failed_fails_again() -> None:
    plan = Plan.model_validate({"attacks": ["pgd(steps=0)"]})
    for _ in range(2):
        with pytest.raises(InputError, match=r"pgd\(steps=0\): expected"):
            plan.check()
