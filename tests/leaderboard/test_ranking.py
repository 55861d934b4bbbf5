"""Rows: what is put together, and what is ranked with what. A weaker attack must not make a better place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sottovoce.auditing.plan.plan_file import Attacker, make_plan
from sottovoce.core.record import Record
from sottovoce.defenses.defense_text import Defense
from sottovoce.leaderboard.attacks_behind import canonical, count_passes
from sottovoce.leaderboard.claims.claim import Claim, parse_claim
from sottovoce.leaderboard.claims.make_claims import merge_seeds
from sottovoce.leaderboard.merged_rows import BoardRow, ClaimEntry, clips_of, merge_rows
from sottovoce.leaderboard.named_folders import NamedFolders
from sottovoce.leaderboard.ranking import Heat, rank_rows
from sottovoce.leaderboard.static_site import gather_board, write_site
from sottovoce.registry.part_text import Part

GAP = "\N{NO-BREAK SPACE}"
AT = "_evade_snr-db-20"
SNR = {"budgets": ["snr(db=20)"]}
WEAK, STRONG = "11100000000", "00111110000"
"""Eleven clips: 20 steps break 3 (27.3 %), 60 steps break 5 (45.5 %), and together they break 7 (63.6 %)."""
Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, write_run: Callable[..., Path], make_records: Callable[..., list[Record]]) -> Run:
    """Writes a run: a name, the letters of the clips by attack as in ids of cells, entries of the plan."""

    def write(name: str, letters: Mapping[str, str], attacks: Sequence[str], **entries: Any) -> Path:
        cells = {cell if "_" in cell else f"{cell}{AT}": found for cell, found in letters.items()}
        return write_run(tmp_path / name, make_records(cells), {**SNR, "attacks": list(attacks), **entries})

    return write


def weak(run: Run, name: str = "weak", letters: str = WEAK, **entries: Any) -> Path:
    return run(name, {"pgd-steps-20": letters}, ["pgd(steps=20)"], **entries)


def strong(run: Run, name: str = "strong", letters: str = STRONG, **entries: Any) -> Path:
    return run(name, {"pgd-steps-60": letters}, ["pgd(steps=60)"], **entries)


def rows_of(*paths: Path) -> list[BoardRow]:
    board = gather_board(NamedFolders.of(paths))
    return merge_rows(
        ClaimEntry(
            claim,
            clips=board.clips[claim.id],
            trusted=frozenset(("doubts",)) if claim.id in board.submitted else frozenset(),
        )
        for claim in board.claims
    )


def claim_at(path: Path, out: Path) -> Path:
    """The only claim of a run, as it is submitted."""
    write_site([path], out)
    (found,) = (out / "claims").glob("*.json")
    return found


def figure(row: BoardRow) -> float:
    (worst,) = row.claim.worst
    found = row.claim.figure(worst)
    assert found is not None
    return found.value


def targets(heat: Heat) -> list[tuple[int, str]]:
    return [(place, row.claim.target) for place, row in zip(heat.places, heat.rows, strict=True)]


def test_two_runs_of_one_target_are_one_row_clip_by_clip(run: Run, tmp_path: Path) -> None:
    (row,) = rows_of(weak(run), strong(run))
    assert figure(row) == pytest.approx(7 / 11)
    found = row.claim.worst[0].success
    # Clopper-Pearson of 7 of 11, from a table.
    assert found is not None and (found.low, found.high) == pytest.approx((0.3079, 0.8907), abs=1e-4)
    (tries,) = row.behind.values()
    assert [(each.attack, each.passes, round(each.value, 3)) for each in tries] == [
        ("pgd(steps=60)", 60, 0.455),
        ("pgd(steps=20)", 20, 0.273),
    ]
    text = write_site([weak(run), strong(run)], tmp_path / "site").read_text()
    assert text.count("<tr data-words=") == 1
    assert f"63.6{GAP}%<small>[30.8, 89.1]</small><small>2 attacks, 80 passes</small>" in text
    assert "combined from 2 runs" in text and "27.3" not in text.split('class="attacks"')[0]
    assert "pgd(steps=60)<small>60 passes</small>" in text and "pgd(steps=20)<small>20 passes</small>" in text
    assert len(list((tmp_path / "site" / "claims").glob("*.json"))) == 2


def test_a_weaker_attack_is_no_better_place(run: Run, tmp_path: Path) -> None:
    """Three models: the first met 20 and 60 steps, the second 60, the third, which looks best, 20 alone."""
    entries = [{"model": f"python:nobody:{name}"} for name in ("one", "two", "three")]
    paths = [
        weak(run, "a", **entries[0]),
        strong(run, "b", **entries[0]),
        strong(run, "c", **entries[1]),
        weak(run, "d", letters="10000000000", **entries[2]),
    ]
    (heat,), (apart,) = rank_rows(rows_of(*paths))
    assert targets(heat) == [(1, "python:nobody:two"), (2, "python:nobody:one")]
    assert [round(figure(row), 3) for row in heat.rows] == [0.455, 0.636]
    assert apart.row.claim.target == "python:nobody:three"
    assert apart.reason == "met fewer attacks than others on these clips: not pgd(steps=60)"
    text = write_site(paths, tmp_path / "site").read_text()
    ranked, rest = text.split("<h3>Not ranked</h3>")
    assert "rank 1 of 2" in ranked and "python:nobody:three" not in ranked
    assert "python:nobody:three" in rest and apart.reason in rest and "rank " not in rest.split("</table>")[0]


def test_equals_share_a_place(run: Run) -> None:
    paths = [strong(run, str(place), model=f"python:nobody:m{place}") for place in range(3)]
    paths.append(strong(run, "worse", "11111110000", model="python:nobody:worse"))
    (heat,), apart = rank_rows(rows_of(*paths))
    assert heat.places == (1, 1, 1, 4) and apart == []


@pytest.mark.parametrize(
    ("entries", "letters", "reason"),
    [
        ({}, "1100", "no other row uses the same clips"),
        ({"budgets": ["snr(db=40)"]}, STRONG, "no other row on these clips has the same budgets"),
        (
            {"bits": None},
            STRONG,
            "no other row on these clips has the same goal, grid and version of sottovoce",
        ),
        (
            {"average": 4},
            STRONG,
            "met different attacks than others on these clips: not pgd(steps=60), averaged over 4",
        ),
        (
            {"attacks": ["pgd(steps=60)", "fgsm"]},
            STRONG,
            "met more attacks than any other row on these clips",
        ),
    ],
)
def test_unlike_rows_are_not_ranked(run: Run, entries: dict[str, Any], letters: str, reason: str) -> None:
    entries = dict(entries)
    at = "_evade_snr-db-40" if "budgets" in entries else AT
    attacks = entries.pop("attacks", ["pgd(steps=60)"])
    found = {f"{attack.replace('(', '-').replace('=', '-').strip(')')}{at}": letters for attack in attacks}
    other = run("other", found, attacks, model="python:nobody:other", **entries)
    heats, apart = rank_rows(rows_of(strong(run), other))
    assert heats == [] and reason in [each.reason for each in apart]


def test_versions_are_not_mixed(run: Run) -> None:
    """What a figure means may change from version to version."""
    old, new = weak(run), strong(run)
    about = json.loads((new / "about.json").read_text())
    (new / "about.json").write_text(json.dumps({**about, "versions": {"sottovoce": "0.2.0"}}))
    rows = rows_of(old, new)
    assert [round(figure(row), 3) for row in rows] == [0.273, 0.455]
    assert rank_rows(rows)[0] == []


def test_the_same_settings_are_the_same_attack() -> None:
    assert canonical("attack", "pgd") == canonical("attack", "pgd(step=0.1, steps=40)")
    assert canonical("budget", "snr(db=20)") == canonical("budget", "snr(shape=l2, db=20.0)")
    assert canonical("attack", "pgd") != canonical("attack", "pgd(momentum=0.5)")


BEHIND = "gaussian-sigma-0.01_"
FORMS = {
    f"{BEHIND}pgd-steps-60{AT}": "11000000000",
    f"{BEHIND}pgd-steps-60{AT}_transfer": "10000000000",
    f"{BEHIND}genetic-steps-100-population-10{AT}": "00100000000",
}


def test_a_defense_is_ranked_beside_the_bare_model(run: Run) -> None:
    """It met the attack in both forms, and the black box that joins: 3 of 11."""
    cells = {f"pgd-steps-60{AT}": STRONG, **FORMS}
    path = run("both", cells, ["pgd(steps=60)"], defenses=["none", "gaussian(sigma=0.01)"])
    (heat,), apart = rank_rows(rows_of(path))
    assert [(row.claim.defense, round(figure(row), 3)) for row in heat.rows] == [
        ("gaussian(sigma=0.01)", 0.273),
        ("none", 0.455),
    ]
    assert apart == []
    (tries,) = heat.rows[0].behind.values()
    # Through noise a gradient is the mean of 16 passes, scores that of 4; the bare model needs one.
    assert {(each.attack, each.attacker): each.passes for each in tries} == {
        ("pgd(steps=60)", "adaptive"): 960,
        ("pgd(steps=60)", "transfer"): 60,
        ("genetic(steps=100, population=10)", "black-box"): 4000,
    }


@pytest.mark.parametrize(
    ("left_out", "entries", "reason"),
    [
        ("pgd-steps-60", {}, "met fewer attacks than others on these clips: not pgd(steps=60)"),
        (
            "genetic-steps-100-population-10",
            {},
            "its defense met no black-box attack: not genetic(steps=100, population=10)",
        ),
        (
            "genetic-steps-100-population-10",
            {"attackers": ["adaptive", "transfer"]},
            "its defense met no black-box attack: not genetic(steps=100, population=10)",
        ),
    ],
)
def test_a_defense_that_met_less_stands_apart(
    run: Run, left_out: str, entries: dict[str, Any], reason: str
) -> None:
    cells = {f"pgd-steps-60{AT}": STRONG, **FORMS}
    del cells[f"{BEHIND}{left_out}{AT}"]
    path = run("both", cells, ["pgd(steps=60)"], defenses=["none", "gaussian(sigma=0.01)"], **entries)
    heats, apart = rank_rows(rows_of(path))
    assert heats == []
    assert {each.row.claim.defense: each.reason for each in apart}["gaussian(sigma=0.01)"] == reason


def test_bare_models_stand_beside_the_defense_that_met_the_strongest_black_box(run: Run) -> None:
    bare = strong(run, "bare", model="python:nobody:bare", black_box="genetic(steps=7, population=5)")
    paths = [bare]
    for steps in (100, 3):
        cells = {name.replace("steps-100", f"steps-{steps}"): letters for name, letters in FORMS.items()}
        entries = {"defenses": ["gaussian(sigma=0.01)"], "model": f"python:nobody:m{steps}"}
        box = f"genetic(steps={steps}, population=10)"
        paths.append(run(f"defended-{steps}", cells, ["pgd(steps=60)"], black_box=box, **entries))
    (heat,), (apart,) = rank_rows(rows_of(*paths))
    assert targets(heat) == [(1, "python:nobody:m100"), (2, "python:nobody:bare")]
    assert apart.row.claim.target == "python:nobody:m3"
    assert "met fewer attacks" in apart.reason
    assert apart.reason.endswith("not genetic(steps=100, population=10), behind defenses")


def test_a_claim_and_a_run_are_put_together(run: Run, tmp_path: Path) -> None:
    shipped = {"model": "keyword(variant=pgd)"}
    claim = claim_at(weak(run, **shipped), tmp_path / "theirs")
    content = json.loads(claim.read_text())
    claim.write_text(json.dumps({**content, "who": "Them"}))
    (row,) = rows_of(strong(run, **shipped), claim)
    assert figure(row) == pytest.approx(7 / 11)
    # Their doubts are among those that are shown.
    assert row.trusted == {"doubts"}
    text = write_site([strong(run, **shipped), claim], tmp_path / "site").read_text()
    assert "combined from 1 run and 1 claim" in text and "by Them" in text


def test_names_that_everybody_may_have_for_something_else_are_not_put_together(
    run: Run, tmp_path: Path
) -> None:
    """Their python:nobody:makes is not the one that is here."""
    claim = claim_at(weak(run), tmp_path / "theirs")
    content = json.loads(claim.read_text())
    assert len(rows_of(strong(run), claim)) == 1
    claim.write_text(json.dumps({**content, "who": "Them"}))
    assert len(rows_of(strong(run), claim)) == 2


def test_a_claim_with_a_sample_of_its_clips_is_not_put_together(run: Run) -> None:
    """Nobody can say which of its clips another run broke too."""
    (row,) = rows_of(strong(run))
    part = row.claim.outcomes.model_copy(update={"of": 12})
    sampled = row.claim.model_copy(update={"id": "sampled", "outcomes": part, "clips": 12})
    assert clips_of(sampled) == {} and clips_of(row.claim) != {}
    other = sampled.model_copy(update={"id": "other"})
    rows = merge_rows([ClaimEntry(sampled), ClaimEntry(other)])
    assert [each.sample for each in rows] == [True, True]
    heats, apart = rank_rows(rows)
    assert heats == [] and "its clips are a sample" in apart[0].reason


def test_runs_of_more_clips_than_a_claim_lists_are_put_together(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> None:
    """1200 clips: one attack breaks every third, the other every second; together they break two of three."""
    paths = []
    for steps, every in ((20, 3), (60, 2)):
        cell = f"pgd-steps-{steps}{AT}"
        records = [make_record(cell, str(clip), broken=clip % every == 0) for clip in range(1200)]
        paths.append(write_run(tmp_path / str(steps), records, {**SNR, "attacks": [f"pgd(steps={steps})"]}))
    (row,) = rows_of(*paths)
    found = row.claim.worst[0].success
    assert found is not None and (found.value, found.n) == (pytest.approx(2 / 3), 1200)
    assert len(row.claim.outcomes.clips) == 1000


def test_seeds_that_all_runs_have_count_one_by_one(run: Run) -> None:
    """Seed 0: 2 and 1 of 4 are 3 together; seed 1: 1 and 1 are the same one. The mean is 2 of 4."""
    paths = [
        weak(run, "w0", "1100", seed=0), weak(run, "w1", "1000", seed=1), weak(run, "w2", "1111", seed=2),
        strong(run, "s0", "0010", seed=0), strong(run, "s1", "1000", seed=1),
    ]  # fmt: skip
    (row,) = rows_of(*paths)
    found = row.claim.worst[0].success
    assert found is not None and (found.value, found.seeds) == (0.5, (0.75, 0.25))


def test_runs_without_a_seed_in_common_are_one(run: Run) -> None:
    (row,) = rows_of(weak(run, "w0", "1100", seed=0), strong(run, "s1", "0110", seed=1))
    assert figure(row) == 0.75 and row.claim.worst[0].success.seeds == ()  # type: ignore[union-attr]


def test_errors_of_transcripts_are_the_worst_clip_by_clip(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    """Of 4 and 6 words: 2 and 1 errors under one attack, 1 and 3 under the other: 5 of 10."""

    def words(name: str, steps: int, errors: tuple[float, float]) -> Path:
        records = [
            Record(
                cell=f"pgd-steps-{steps}{AT}",
                clip=clip,
                status="ok",
                parts={"wer": [wrong, count], "clean-wer": [0.0, count], "success": [1.0, 1.0]},
            )
            for clip, wrong, count in (("a", errors[0], 4.0), ("b", errors[1], 6.0))
        ]
        return write_run(tmp_path / name, records, {**SNR, "attacks": [f"pgd(steps={steps})"]})

    paths = words("one", 20, (2.0, 1.0)), words("two", 60, (1.0, 3.0))
    (row,) = rows_of(*paths)
    assert row.claim.lead == "wer" and figure(row) == pytest.approx(0.5)
    # The same from what a claim lists.
    (again,) = rows_of(paths[0], claim_at(paths[1], tmp_path / "theirs"))
    assert figure(again) == pytest.approx(0.5)


def test_budgets_that_one_run_alone_has_stay(run: Run) -> None:
    loud = run("loud", {"pgd-steps-20_evade_snr-db-10": WEAK}, ["pgd(steps=20)"], budgets=["snr(db=10)"])
    (row,) = rows_of(strong(run), loud)
    values = {worst.budget: worst.success.value for worst in row.claim.worst if worst.success}
    assert values == {"snr(db=20)": pytest.approx(5 / 11), "snr(db=10)": pytest.approx(3 / 11)}


def test_a_weaker_run_raises_no_doubt_about_the_attacks_of_a_stronger_one(run: Run) -> None:
    one_step = run("one", {"fgsm": "10000000000"}, ["fgsm"])
    (alone,) = rows_of(one_step)
    assert "one-step" in [doubt.kind for doubt in alone.claim.doubts]
    (row,) = rows_of(one_step, strong(run))
    kinds = [doubt.kind for doubt in row.claim.doubts]
    assert "one-step" not in kinds and "few-clips" in kinds


def test_a_budget_is_called_what_it_is(run: Run, tmp_path: Path) -> None:
    claim = claim_at(strong(run), tmp_path / "theirs")
    content = json.loads(claim.read_text())
    content["worst"][0]["title"] = "SNR 60 dB"
    claim.write_text(json.dumps(content))
    text = write_site([claim], tmp_path / "site").read_text()
    assert "worst case, SNR 20 dB" in text and "SNR 60 dB" not in text


@pytest.mark.parametrize(
    ("attack", "defense", "attacker", "passes"),
    [
        ("fgsm", "none", "plain", 1),
        ("pgd(steps=20, restarts=3)", "none", "plain", 60),
        ("cw(steps=1000, binary_search=9)", "none", "plain", 9000),
        ("genetic(steps=100, population=10)", "none", "plain", 1000),
        ("imperceptible(steps=30, masking_steps=20)", "none", "plain", 50),
        ("uap(epochs=5, deepfool_steps=10)", "none", "plain", 50),
        ("pgd(steps=20)", "gaussian(sigma=0.1)", "adaptive", 320),
        ("pgd(steps=20)", "gaussian(sigma=0.1)+majority(passes=8)", "adaptive", 320),
        ("pgd(steps=20)", "gaussian(sigma=0.1)", "transfer", 20),
        ("pgd(steps=20)", "mp3", "adaptive", 20),
        ("genetic(steps=100, population=10)", "gaussian(sigma=0.1)", "black-box", 4000),
        ("kenansville(steps=8)", "gaussian(sigma=0.1)+majority(passes=8)", "black-box", 64),
    ],
)
def test_passes_by_the_settings(attack: str, defense: str, attacker: Attacker, passes: int) -> None:
    plan = make_plan({"attacks": ["fgsm"]})
    assert count_passes(plan, Defense.parse(defense), Part.parse(attack), attacker) == passes


def test_averaging_as_the_plan_has_it() -> None:
    plan = make_plan({"attacks": ["fgsm"], "average": 64})
    attack = Part.parse("pgd(steps=2)")
    assert count_passes(plan, Defense.parse("gaussian(sigma=0.1)"), attack, "adaptive") == 128


def test_a_merged_claim_still_reads(run: Run, tmp_path: Path) -> None:
    """What is written is the claim of each plan, not the row: it can be run again."""
    write_site([weak(run), strong(run)], tmp_path / "site")
    found: list[Claim] = [
        parse_claim(json.loads(path.read_text()), path.name)
        for path in sorted((tmp_path / "site" / "claims").glob("*.json"))
    ]
    assert sorted(claim.plan["attacks"][0] for claim in found) == ["pgd(steps=20)", "pgd(steps=60)"]
    assert merge_seeds(found[:1])[0] == found[0]
