"""Success against P(heard), counted by hand."""

from __future__ import annotations

import math

import pytest

from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.heard_curve import (
    HeardCurve,
    draw_curve,
    heard_to_json,
    inaudible,
    opinion_of,
    why_unheard,
)
from sottovoce.auditing.results.summary import Summary, gather, summarise
from sottovoce.core.record import Record

CELLS = ("pgd_evade_snr-db-20", "pgd_evade_snr-db-40", "noise_evade_snr-db-20", "noise_evade_snr-db-40")


def plan() -> Plan:
    return make_plan({"attacks": ["noise", "pgd"], "budgets": ["snr(db=20)", "snr(db=40)"], "probe": 0})


def record(
    cell: str, clip: str, fooled: float, heard: float, masking: float = math.nan, **more: object
) -> Record:
    parts = {
        "success": [fooled, 1.0 if fooled == fooled else math.nan],
        "p-heard": [heard, 1.0 if heard == heard else math.nan],
        "p-heard-masking": [masking, 1.0 if masking == masking else math.nan],
    }
    return Record(cell=cell, clip=clip, status="ok", parts=parts, **more)


def records() -> list[Record]:
    """At 20 dB pgd fools a, b and c, at 40 dB a alone; d was heard wrong before."""
    loud, soft, noise, _ = CELLS
    return [
        record(loud, "a", 1.0, 0.9), record(loud, "b", 1.0, 0.4), record(loud, "c", 1.0, math.nan),
        record(loud, "d", math.nan, 0.1), record(loud, "e", 0.0, 0.05),
        record(soft, "a", 1.0, 0.1), record(soft, "b", 0.0, 0.05), record(soft, "c", 0.0, 0.02),
        record(noise, "a", 1.0, 0.01), record(noise, "b", 0.0, 0.5),
    ]  # fmt: skip


def summary() -> Summary:
    return summarise(plan(), records())


def test_each_clip_counts_where_it_is_fooled_with_the_least_to_hear() -> None:
    """a at 0.1 (not 0.9), b at 0.4 (at 0.05 it is not fooled), c at no known value; four clips count."""
    found = gather(records())
    assert draw_curve([found[CELLS[0]], found[CELLS[1]]], "p-heard") == HeardCurve(4, (0.1, 0.4), 1)
    assert draw_curve([found[CELLS[0]]], "p-heard") == HeardCurve(4, (0.4, 0.9), 1)


def test_shares_have_exact_intervals() -> None:
    """2 of 4: Clopper-Pearson gives 6.76 % to 93.24 %."""
    curve = HeardCurve(4, (0.1, 0.4), 1)
    found = curve.up_to(0.4)
    assert (found.value, found.n) == (0.5, 4)
    assert (found.low, found.high) == pytest.approx((0.0676, 0.9324), abs=1e-4)
    assert [curve.up_to(p).value for p in (0.0, 0.1, 0.39, 1.0)] == [0.0, 0.25, 0.25, 0.5]
    assert (curve.fewer(0.1), curve.fewer(0.11), curve.below(0.4).value) == (0, 1, 0.25)


def test_inaudible_successes() -> None:
    """Of pgd's two successes at 20 dB with a P(heard), 0.9 and 0.4, one is below one half."""
    found = inaudible(gather(records())[CELLS[0]], "p-heard")
    assert (found.value, found.n) == (0.5, 2)
    assert math.isnan(inaudible(gather([record(CELLS[0], "a", 0.0, 0.2)])[CELLS[0]], "p-heard").value)


def test_as_data_with_noise_left_out() -> None:
    """Noise fools a with a P(heard) of 0.01, and counts for nothing."""
    found = heard_to_json(summary())
    assert found["metric"] == "p-heard"
    (curve,) = found["curves"]
    assert (curve["clips"], curve["fooled"], curve["fooled_below"]) == (4, 3, 1)
    assert curve["share"]["value"] == 0.25


def test_without_the_learned_ear_the_masking_model_counts_and_the_reason_is_kept() -> None:
    why = {"p-heard": "expected weights, got none"}
    some = [record(CELLS[0], clip, 1.0, math.nan, 0.3, unscored=why) for clip in "ab"]
    found = summarise(plan(), some)
    assert opinion_of(found) == "p-heard-masking"
    assert why_unheard(found) == "expected weights, got none"
    nothing = summarise(plan(), [record(CELLS[0], "a", 1.0, math.nan, unscored=why)])
    assert opinion_of(nothing) is None
    assert heard_to_json(nothing) == {"metric": None, "reason": "expected weights, got none", "curves": []}


@pytest.mark.parametrize(
    ("pairs", "flagged"),
    [
        ([(0.1, 0.9), (0.2, 0.2), (0.5, 0.6), (0.9, 0.9)], [(1, 0)]),
        ([(0.9, 0.1), (0.2, 0.2), (0.5, 0.6)], [(0, 1)]),
        ([(0.1, 0.9), (0.2, 0.2), (0.5, 0.6), (0.9, 0.9), (0.1, 0.1)], []),
        ([(0.3, 0.9), (0.1, 0.7), (0.25, 0.75)], []),
    ],
)
def test_ears_that_disagree_on_a_quarter_of_the_clips(
    pairs: list[tuple[float, float]], flagged: list[tuple[int, int]]
) -> None:
    some = [record(CELLS[0], str(place), 1.0, *pair) for place, pair in enumerate(pairs)]
    (check,) = (check for check in examine(plan(), summarise(plan(), some)) if check.kind == "ears")
    found = [(flag.evidence["learned_deaf"], flag.evidence["masking_deaf"]) for flag in check.flags]
    assert found == flagged
