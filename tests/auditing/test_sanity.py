"""Every doubt, on records and probes made by hand, and its absence."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from scipy import stats

from sottovoce.auditing.checks.flags import PairedOutcomes, SanityCheck
from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.plan.plan_presets import PRESETS, Preset, fill
from sottovoce.auditing.results.summary import summarise
from sottovoce.core.record import LOADING, Record
from sottovoce.core.target import Says

ADAPTIVE = "quantise_pgd_evade_snr-db-20"
TRANSFER = f"{ADAPTIVE}_transfer"
BLACK = "quantise_genetic-steps-9_evade_snr-db-20"
NOISE = "quantise_noise_evade_snr-db-20"
NAN = float("nan")


def make(**settings: object) -> Plan:
    base = {
        "attacks": ["pgd"], "budgets": ["snr(db=20)"], "defenses": ["quantise"],
        "black_box": "genetic(steps=9)",
    }  # fmt: skip
    return make_plan(base | settings)


def row(cell: str, outcomes: str, **more: object) -> list[Record]:
    """A record a letter: x is a clip that broke, o one that held, . one that was heard wrong before."""
    return [
        Record(
            cell=cell,
            clip=str(place),
            status="ok",
            achieved=letter == "x",
            achieved_unrounded=letter == "x",
            parts={"success": [NAN if letter == "." else float(letter == "x"), 1.0]},
            **more,
        )
        for place, letter in enumerate(outcomes)
    ]


def worded(cell: str, errors: Sequence[int]) -> list[Record]:
    """A record a clip of ten words; every transcript changed."""
    return [
        Record(
            cell=cell,
            clip=str(place),
            status="ok",
            achieved=True,
            achieved_unrounded=True,
            parts={"success": [1.0, 1.0], "wer": [float(count), 10.0]},
        )
        for place, count in enumerate(errors)
    ]


def probe(
    outcomes: str, objective: Sequence[float], *, steps: int = 40, passes: int = 1, random: bool = False,
    gradient: Sequence[float] = (), bare: Sequence[float] = (), cell: str = ADAPTIVE,
) -> list[Record]:  # fmt: skip
    """Clips that began at an objective of zero."""
    found = []
    for place, record in enumerate(row(f"{cell}_steps-{steps}_passes-{passes}", outcomes)):
        record.facts.update(
            probe=cell, defense="quantise", random="yes" if random else "no", steps=str(steps),
            passes=str(passes),
        )  # fmt: skip
        record.parts.update({"objective": [objective[place], 1.0], "clean-objective": [0.0, 1.0]})
        if gradient:
            record.parts["gradient"] = [gradient[place], 1.0]
        if bare:
            record.parts["bare-gradient"] = [bare[place], 1.0]
        found.append(record)
    return found


def check(kind: str, plan: Plan, records: list[Record], probes: Sequence[Record] = ()) -> SanityCheck | None:
    checks = examine(plan, summarise(plan, records), probes)
    json.dumps([each.to_json() for each in checks], allow_nan=False)
    found = [each for each in checks if each.kind == kind]
    assert len(found) < 2
    return found[0] if found else None


def raised(kind: str, plan: Plan, records: list[Record], probes: Sequence[Record] = ()) -> bool:
    found = check(kind, plan, records, probes)
    return found is not None and not found.passed


@pytest.mark.parametrize(("more", "less"), [(5, 0), (4, 0), (9, 2), (9, 3), (0, 7)])
def test_pairs_are_tested_by_mcnemar(more: int, less: int) -> None:
    one = {str(clip): float(clip < more) for clip in range(20)}
    other = {str(clip): float(more <= clip < more + less) for clip in range(20)}
    found = PairedOutcomes.of(one, {**other, "elsewhere": 1.0})
    assert (found.clips, found.more, found.less) == (20, more, less)
    assert found.p == pytest.approx(stats.binomtest(more, more + less, alternative="greater").pvalue)


def test_an_adaptive_attack_that_is_weaker() -> None:
    # Eight clips: five break when transferred alone, none when adaptive alone; p = 1/32.
    records = row(ADAPTIVE, "xooooooo.") + row(TRANSFER, "xxxxxxoo.")
    found = check("adaptive", make(), records)
    assert found is not None and found.asked == 1
    (flag,) = found.flags
    assert flag.cell == ADAPTIVE
    assert flag.evidence == {
        "metric": "success", "stronger": TRANSFER, "stronger_value": 0.75, "weaker_value": 0.125,
        "clips": 8, "worse_under_stronger": 5, "worse_under_weaker": 0, "p": 1 / 32,
    }  # fmt: skip
    assert "--attacks 'pgd(steps=160)'" in flag.advice and "StraightThrough" in flag.advice


@pytest.mark.parametrize(
    ("adaptive", "transferred"),
    [
        ("xxxxxxoo", "xooooooo"),  # stronger, as it should be
        ("xxxxxxoo", "xxxxxxoo"),
        ("xooooooo", "xxxxxooo"),  # 4 to 0: p = 1/16
        ("xxxoooooo", "oooxxxxxx"),  # 6 to 3: p = 0.25
    ],
)
def test_chance_raises_no_doubt(adaptive: str, transferred: str) -> None:
    found = check("adaptive", make(), row(ADAPTIVE, adaptive) + row(TRANSFER, transferred))
    assert found is not None and found.passed and found.asked == 1


def test_errors_are_paired_clip_by_clip() -> None:
    plan = make()
    more, less = [9, 8, 7, 6, 5, 4], [1, 1, 1, 1, 1, 4]
    (flag,) = check("adaptive", plan, worded(ADAPTIVE, less) + worded(TRANSFER, more)).flags  # type: ignore[union-attr]
    assert (flag.evidence["metric"], flag.evidence["p"]) == ("wer", 1 / 32)
    assert flag.evidence["stronger_value"] == pytest.approx(39 / 60)
    # More clips fare worse, by a word each; one that fares better outweighs them.
    records = worded(ADAPTIVE, [1, 1, 1, 1, 1, 1, 10]) + worded(TRANSFER, [2, 2, 2, 2, 2, 2, 1])
    assert not raised("adaptive", plan, records)


def test_a_black_box_that_is_stronger() -> None:
    records = row(ADAPTIVE, "oooooxo") + row(TRANSFER, "xxxxxxx") + row(BLACK, "xxxxxxo")
    (flag,) = check("black-box", make(), records).flags  # type: ignore[union-attr]
    # Against the attack through the defense: what was found on the bare model tells nothing of its gradient.
    assert (flag.cell, flag.evidence["stronger"]) == (ADAPTIVE, BLACK)
    assert (flag.evidence["worse_under_stronger"], flag.evidence["worse_under_weaker"]) == (5, 0)
    assert not raised("black-box", make(), row(ADAPTIVE, "xxxxxxo") + row(BLACK, "xxxxxoo"))
    assert check("black-box", make(), row(ADAPTIVE, "xxxxxxo")) is None


def test_who_did_not_attack() -> None:
    assert check("attackers", make(defenses=["none"]), []) is None
    found = check("attackers", make(), [])
    assert found is not None and found.passed
    flags = check("attackers", make(attackers=["transfer"]), []).flags  # type: ignore[union-attr]
    assert [flag.evidence for flag in flags] == [
        {"defense": "quantise", "attacker": "adaptive", "budgets": ["SNR 20 dB"]},
        {"defense": "quantise", "attacker": "black-box", "budgets": ["SNR 20 dB"]},
    ]


def test_a_random_target_without_averaging() -> None:
    noisy = {"defenses": ["none", "quantise", "gaussian(sigma=0.1)+majority"]}
    (flag,) = check("averaging", make(**noisy, average=1), []).flags  # type: ignore[union-attr]
    assert flag.evidence == {"defense": "gaussian(sigma=0.1)+majority", "passes": 1}
    for average in (None, 8):
        found = check("averaging", make(**noisy, average=average), [])
        assert found is not None and found.passed and found.asked == 1
    assert check("averaging", make(average=1), []) is None
    # An attack that follows no gradient of the target has none to average.
    assert not raised("averaging", make(**noisy, average=1, attackers=["transfer"]), [])


def test_a_model_that_is_random_by_itself() -> None:
    probes = probe("oooooo", [1.0] * 6, random=True)
    assert raised("averaging", make(average=1), row(ADAPTIVE, "oooooo"), probes)
    assert not raised("averaging", make(), row(ADAPTIVE, "oooooo"), probes)


def test_steps_that_still_help() -> None:
    records = row(ADAPTIVE, "ooooooxx")
    base = probe("ooooooxx", [1.0] * 8)
    (flag,) = check("steps", make(), records, [*base, *probe("xoooooxx", [1.2] * 8, steps=80)]).flags  # type: ignore[union-attr]
    assert flag.cell == ADAPTIVE
    assert flag.evidence == {
        "metric": "success", "steps": [40, 80], "values": [0.25, 0.375],
        "objective": [1.0, pytest.approx(1.2)],
        "clips": 8, "rose": 8, "fell": 0, "p": 1 / 256,
    }  # fmt: skip
    assert flag.advice == "run again with --attacks 'pgd(steps=160)'"


@pytest.mark.parametrize(
    ("outcomes", "objective"),
    [
        ("ooooooxx", [1.2] * 8),  # no more clips fall
        ("xoooooxx", [1.01] * 8),  # a hundredth of what had been gained
        ("xoooooxx", [1.5, 1.5, 1.5, 1.5, 0.9, 0.9, 0.9, 0.9]),  # rises on half of them
    ],
)
def test_steps_that_help_no_more(outcomes: str, objective: list[float]) -> None:
    probes = [*probe("ooooooxx", [1.0] * 8), *probe(outcomes, objective, steps=80)]
    found = check("steps", make(), row(ADAPTIVE, "ooooooxx"), probes)
    assert found is not None and found.passed and found.asked == 1


def test_four_clips_cannot_tell() -> None:
    probes = [*probe("oooo", [1.0] * 4), *probe("xxxx", [9.0] * 4, steps=80)]
    assert check("steps", make(), row(ADAPTIVE, "oooo"), probes) is None


def test_a_target_that_met_no_attack_of_many_steps() -> None:
    plain = {"defenses": ["none"], "budgets": ["snr(db=20)", "snr(db=40)"]}
    loud, quiet = (f"_evade_snr-db-{db}" for db in (20, 40))
    weak = make(**plain, attacks=["noise", "fgsm"])
    # Where every clip broke, a stronger attack would add nothing.
    records = row(f"fgsm{loud}", "xxxxx") + row(f"fgsm{quiet}", "xoooo") + row(f"noise{quiet}", "ooooo")
    (flag,) = check("one-step", weak, records).flags  # type: ignore[union-attr]
    assert flag.evidence == {"defense": "none", "goal": "evade", "budgets": ["SNR 40 dB"]}
    assert flag.advice == "add an attack of many steps, such as --attacks pgd"
    for attack, cell in (("pgd(steps=2)", "pgd-steps-2"), ("genetic(steps=9)", "genetic-steps-9")):
        strong = make(**plain, attacks=[attack])
        assert check("one-step", strong, row(f"{cell}{loud}", "xoooo")) is None
    assert raised("one-step", make(**plain, attacks=["pgd(steps=1)"]), row(f"pgd-steps-1{loud}", "xoooo"))
    assert check("one-step", weak, row(f"noise{loud}", "ooooo")) is None


def test_many_steps_of_a_black_box_do_not_stand_in_for_those_of_gradients() -> None:
    one_step = "quantise_fgsm_evade_snr-db-20"
    records = row(one_step, "xoooo") + row(BLACK, "ooooo")
    assert raised("one-step", make(attacks=["fgsm"]), records)
    assert not raised("one-step", make(), row(ADAPTIVE, "xoooo") + row(BLACK, "ooooo"))


@pytest.mark.parametrize(
    ("probe_clips", "outcomes", "advice"),
    [
        (0, "xxooooooo", "run again with --probe 8"),
        (4, "xxooooooo", "run again with --probe 8"),
        (8, "xxoo", "run again with --limit 5 or more"),
        (8, "xxooooooo", "run the same command again: its probes are not finished"),
    ],
)
def test_attacks_that_were_not_probed(probe_clips: int, outcomes: str, advice: str) -> None:
    plan = make(defenses=["none"], probe=probe_clips)
    found = check("unprobed", plan, row("pgd_evade_snr-db-20", outcomes))
    assert found is not None and found.asked == 1
    (flag,) = found.flags
    assert flag.evidence == {"defense": "none", "goal": "evade", "clips": 0} and flag.advice == advice


def test_probes_of_five_clips_are_enough() -> None:
    plan = make(defenses=["none"])
    cell = "pgd_evade_snr-db-20"
    records = row(cell, "xxooooooo")
    for letters in ("ooooo", "oooo"):
        more = probe(letters, [1.0] * 5, cell=cell, steps=80)
        few = check("unprobed", plan, records, [*probe(letters, [1.0] * 5, cell=cell), *more])
        assert (few is None) == (len(letters) == 5)
        assert few is None or few.flags[0].evidence["clips"] == 4


def test_nothing_is_said_of_probes_where_they_do_not_matter() -> None:
    bare = make(defenses=["none"], probe=0)
    assert check("unprobed", bare, row("pgd_evade_snr-db-20", "xxxxx")) is None
    # A run that goes on probes at its end.
    assert check("unprobed", make(), row(ADAPTIVE, "xoooo")) is None
    one_step = make(defenses=["none"], attacks=["fgsm"], probe=0)
    assert check("unprobed", one_step, row("fgsm_evade_snr-db-20", "xoooo")) is None


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("says", ["class", "words"])
def test_presets_probe_clips_enough_to_tell(preset: Preset, says: Says) -> None:
    """Five clips that all rise are the fewest that a sign test tells from chance: 1 in 32."""
    assert make_plan(fill(preset, says)).probe >= 5


def test_noise_is_compared_clip_by_clip() -> None:
    """Five of six clips break under the attack and none under noise, 1 in 32 by chance: the intervals, from
    36 % and up to 46 %, overlap all the same."""
    plan = make(attacks=["noise", "pgd"])
    found = check("noise", plan, row(NOISE, "oooooo") + row(ADAPTIVE, "xxxxxo"))
    assert found is not None and found.passed and found.asked == 1
    (flag,) = check("noise", plan, row(NOISE, "ooooox") + row(ADAPTIVE, "xxxxox")).flags  # type: ignore[union-attr]
    assert flag.evidence == {
        "metric": "success", "value": 5 / 6, "noise": NOISE, "noise_value": 1 / 6,
        "clips": 6, "worse_under_attack": 4, "worse_under_noise": 0, "p": 1 / 16,
    }  # fmt: skip


def test_passes_that_still_help() -> None:
    records = row(ADAPTIVE, "ooooooxx")
    base = probe("ooooooxx", [1.0] * 8, passes=16, random=True)
    more = probe("xxooooxx", [1.3] * 8, passes=32, random=True)
    (flag,) = check("passes", make(), records, [*more, *base]).flags  # type: ignore[union-attr]
    assert (flag.evidence["passes"], flag.evidence["values"]) == ([16, 32], [0.25, 0.5])
    assert flag.advice == "run again with --average 64"
    assert check("steps", make(), records, [*more, *base]) is None
    still = probe("ooooooxx", [1.0] * 8, passes=32, random=True)
    assert not raised("passes", make(), records, [*base, *still])


def test_gradients_that_vanish() -> None:
    records = row(ADAPTIVE, "oooo")
    slopes = probe("oooo", [0.0] * 4, gradient=[0.0, 0.0, 1e-9, 0.5], bare=[1.0, 0.0, 1.0, 1.0])
    (flag,) = check("gradients", make(), records, slopes).flags  # type: ignore[union-attr]
    assert flag.evidence == {"zero": 2, "tiny": 1, "clips": 4, "defense": "quantise"}
    fair = probe("oooo", [0.0] * 4, gradient=[1e-9, 2.0, 3.0, 0.01], bare=[1e-9, 2.0, 3.0, 1.0])
    found = check("gradients", make(), records, fair)
    assert found is not None and found.passed
    assert check("gradients", make(), records) is None


def test_successes_that_rounding_kills() -> None:
    lost = row(ADAPTIVE, "oo", reason="")
    lost = [Record(**{**vars(record), "achieved_unrounded": True}) for record in lost]
    (flag,) = check("rounding", make(), lost + row(TRANSFER, "xx")).flags  # type: ignore[union-attr]
    assert (flag.cell, flag.evidence) == (ADAPTIVE, {"lost": 2, "clips": 2})
    assert not raised("rounding", make(), row(ADAPTIVE, "ox"))
    assert raised("floats", make(bits=None), row(ADAPTIVE, "ox"))


def test_noise_failures_and_sizes_are_asked_as_well() -> None:
    plan = make(attacks=["noise", "pgd"])
    strong = row(NOISE, "o" * 40) + row(ADAPTIVE, "x" * 40)
    found = {check.kind: check.passed for check in examine(plan, summarise(plan, strong))}
    assert found == {
        "attackers": True, "unfinished": False, "failures": True, "rounding": True, "noise": True,
    }  # fmt: skip
    weak = [*row(NOISE, "xo"), *row(ADAPTIVE, "xo"), Record(cell=LOADING, clip="torn", status="failed")]
    raised_kinds = [check.kind for check in examine(plan, summarise(plan, weak)) if not check.passed]
    assert raised_kinds == ["unfinished", "failures", "noise", "few-clips"]
    assert raised("no-noise", make(), row(ADAPTIVE, "xo"))
