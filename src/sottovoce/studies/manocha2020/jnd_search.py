"""M2: JNDs by active learning (section 3.2), with simulated listeners whose JND is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from sottovoce import __version__
from sottovoce.core.draws import Draws
from sottovoce.perception.jnd.jnd_rule import (
    PUBLISHED_AGREEMENT,
    PUBLISHED_BALANCE,
    Balance,
    agreement,
    balance,
)
from sottovoce.perception.jnd.session_plan import PUBLISHED_SESSIONS, SessionPlan
from sottovoce.perception.jnd.simulated_listeners import InattentiveListener, Listener, PsychometricListener
from sottovoce.perception.jnd.simulated_session import SimulatedSession, sit
from sottovoce.studies.draw import curves
from sottovoce.studies.manocha2020 import jnd_rivals as rivals
from sottovoce.studies.shown_numbers import MISSING, percent
from sottovoce.studies.study import (
    Choice,
    Result,
    Study,
    StudyFigure,
    StudyTable,
    Tell,
    default_folder,
    find_scale,
)
from sottovoce.studies.trends import Trend, trend_sheet

LISTENERS = {"mini": 20, "full": 400}
SESSIONS = {"mini": 60, "full": 2000}
LAPSE = 0.1
SHOWN = (5, 10, 15, 20, 30)
OURS, RANDOM, QUEST = "our rule", "random strengths", "QUEST+"


@final
@dataclass(frozen=True)
class JndSetup:
    """How many simulated listeners are asked."""

    folder: Path
    scale: str
    seed: int
    tell: Tell
    unused: dict[str, str]

    @property
    def draws(self) -> Draws:
        return Draws(self.seed).turn("study", "M2")

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "scale": self.scale,
            "listeners": LISTENERS[self.scale],
            "sessions": SESSIONS[self.scale],
            "seed": self.seed,
        }

    def scope(self, study: Study[Any]) -> list[str]:
        return [
            "SIMULATED LISTENERS, not people: each has a known JND mu (15 to 85 on the scale of strengths), "
            f"a sigma (3 to 12) and lapses. {LISTENERS[self.scale]} listeners, {SESSIONS[self.scale]} "
            f"sessions of each kind, seed {self.seed}.",
            "The paper tested people on a crowdsourcing platform. It gives no q, no priors and no lapse "
            "rate; "
            "the values here are our choice.",
        ]


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> JndSetup:
    choice.refuse("M2", "attack", "fit", "model", "batch", "data", "clips")
    scale = "full" if find_scale(choice.scale).name == "full" else "mini"
    return JndSetup(out or default_folder("M2", scale, [choice.seed]), scale, choice.seed, tell, {})


def run(bench: JndSetup) -> Result:
    errors = _errors(bench)
    groups = {
        "simulated, 2 % lapses": _sessions(bench, 0.02),
        "simulated, 10 % lapses": _sessions(bench, LAPSE),
        "simulated, inattentive": _sessions(bench, None),
    }
    notes = [
        "Agreement: the share of comparisons, without sentinels, answered 'different' above the JND "
        "estimated "
        "from the same answers and 'same' at or below it. It is lower for comparisons closer to the JND, "
        "where "
        "even a listener without lapses is uncertain.",
    ]
    if QUEST not in errors:
        notes.append("QUEST+ was not run: the package questplus is not installed.")
    return Result(
        sheets=[_goal_sheet(_trends(errors, groups)), _error_sheet(errors), _session_sheet(groups)],
        drawings=[
            StudyFigure(
                name="error",
                title=f"Error of the JND by trials, RMSE over simulated listeners with {LAPSE:.0%} lapses",
                figure=curves(
                    [("trials", "linear", {name: (_places(row), row) for name, row in errors.items()})],
                    label="RMSE of mu",
                    top=None,
                ),
            ),
            StudyFigure(
                name="course",
                title="Trials of three simulated listeners: strength by trial, and their JNDs",
                figure=curves([("trials", "linear", _courses(bench))], label="strength", top=103),
            ),
        ],
        values={
            "simulated": True,
            "rmse": errors,
            "sessions": {name: _values(found) for name, found in groups.items()},
        },
        notes=notes,
    )


class SimulatedListenerSession(NamedTuple):
    """A session and the JNDs of whoever sat it; none of an inattentive one."""

    sitting: SimulatedSession
    mus: tuple[float, ...]


def _errors(bench: JndSetup) -> dict[str, list[float]]:
    """RMSE of mu after each trial, by the way in which strengths are chosen."""
    ways: dict[str, rivals.Way] = {OURS: rivals.adaptive, RANDOM: rivals.at_random}
    if rivals.has_quest_plus():
        ways[QUEST] = rivals.quest_plus
    listeners = [rivals.make_listener(n, lapse=LAPSE, seed=bench.seed) for n in range(LISTENERS[bench.scale])]
    squares: dict[str, list[list[float]]] = {name: [] for name in ways}
    for number, listener in enumerate(listeners):
        bench.tell(number / len(listeners), f"simulated listener {number + 1} of {len(listeners)}")
        for name, way in ways.items():
            found = way(listener, bench.draws.turn("search", number), rivals.TRIALS)
            squares[name].append([(mu - listener.mu) ** 2 for mu in found])
    return {name: np.sqrt(np.mean(rows, axis=0)).tolist() for name, rows in squares.items()}


def _sessions(bench: JndSetup, lapse: float | None) -> list[SimulatedListenerSession]:
    """Sessions of the paper's shape. lapse: of attentive listeners; None: those who throw coins."""
    plan, found = SessionPlan(), []
    for number in range(SESSIONS[bench.scale]):
        draws = bench.draws.turn("session", number)
        if lapse is None:
            coin: Sequence[Listener] = [InattentiveListener(seed=draws.key("coin", 4))] * plan.references
            found.append(SimulatedListenerSession(sit(coin, coin, plan, draws), ()))
            continue
        each = [
            rivals.make_listener(plan.references * number + k, lapse=lapse, seed=bench.seed)
            for k in range(plan.references)
        ]
        # Nobody who listens misses a sentinel: its JND is far below it.
        obvious = [
            PsychometricListener(mu=0.0, sigma=1.0, lapse=lapse, seed=one.seed, name=one.name) for one in each
        ]
        found.append(SimulatedListenerSession(sit(each, obvious, plan, draws), tuple(one.mu for one in each)))
    return found


def _kept(found: Sequence[SimulatedListenerSession]) -> list[SimulatedListenerSession]:
    return [one for one in found if one.sitting.verdict.kept]


def _balance(found: Sequence[SimulatedListenerSession]) -> Balance:
    return balance(trial for one in found for search in one.sitting.searches for trial in search.answers)


def _agreement(found: Sequence[SimulatedListenerSession]) -> float:
    shares = [
        agreement(search.answers, search.estimate().mu) for one in found for search in one.sitting.searches
    ]
    return float(np.mean(shares)) if shares else math.nan


def _values(found: Sequence[SimulatedListenerSession]) -> dict[str, Any]:
    kept = _kept(found)
    return {
        "sessions": len(found),
        "kept": len(kept),
        "balance": _balance(kept)._asdict(),
        "agreement": _agreement(kept),
    }


def _goal_sheet(goals: Sequence[Trend]) -> StudyTable:
    plain = trend_sheet(goals)
    return StudyTable(title="Requirements on the rule", columns=("goal", *plain.columns[1:]), rows=plain.rows)


def _error_sheet(errors: Mapping[str, list[float]]) -> StudyTable:
    return StudyTable(
        title="Error of the JND of simulated listeners, RMSE of mu",
        columns=("strengths chosen by", *(f"{trials} trials" for trials in SHOWN)),
        rows=[(name, *(f"{row[trials - 1]:.2f}" for trials in SHOWN)) for name, row in errors.items()],
        note="On the scale of strengths, 0 to 100. QUEST+ is given the true lapse rate. Answers to random "
        "strengths are evaluated like our own.",
    )


def _session_sheet(groups: Mapping[str, Sequence[SimulatedListenerSession]]) -> StudyTable:
    run, kept = PUBLISHED_SESSIONS
    same, different = PUBLISHED_BALANCE
    rows = [
        ("people (paper)", f"{kept:,} of {run:,}", f"{same:,} : {different:,}", percent(PUBLISHED_AGREEMENT))
    ]
    for name, found in groups.items():
        left = _kept(found)
        count = _balance(left)
        rows.append(
            (
                name,
                f"{len(left):,} of {len(found):,}",
                f"{count.same:,} : {count.different:,}" if left else MISSING,
                percent(_agreement(left)),
            )
        )
    return StudyTable(
        title="Sessions: 3 references x 10 comparisons, 6 of them sentinels",
        columns=("listeners", "sessions kept", "same : different", "agreement with the JND, %"),
        rows=rows,
        note="Balance and agreement are computed on the sessions that were kept.",
    )


def _trends(
    errors: Mapping[str, list[float]], groups: Mapping[str, Sequence[SimulatedListenerSession]]
) -> list[Trend]:
    ours, chance = errors[OURS][-1], errors[RANDOM][-1]
    quest = errors[QUEST][-1] if QUEST in errors else None
    attentive = next(iter(groups.values()))
    share = _balance(_kept(attentive)).share
    coins = len(_kept(groups["simulated, inattentive"]))
    close = None if quest is None else ours < 1.25 * quest
    return [
        Trend(
            "as close to the JND as QUEST+ (within 1.25 times)",
            close,
            "not run" if quest is None else f"{ours / quest:.2f} times its RMSE",
        ),
        Trend(
            "two thirds of the error of random strengths, or less",
            ours < 2 / 3 * chance,
            f"{ours / chance:.2f}",
        ),
        Trend("as many same as different answers", abs(share - 0.5) < 0.05, f"{percent(share)} % same"),
        Trend(
            "sentinels discard listeners who do not listen",
            coins < 0.1 * len(attentive),
            f"{coins} of {len(attentive)} coins kept; 1 in 64 expected",
        ),
    ]


def _courses(bench: JndSetup) -> dict[str, tuple[list[float], list[float]]]:
    lines = {}
    for number in range(3):
        listener = rivals.make_listener(number, lapse=LAPSE, seed=bench.seed)
        search = rivals.search_adaptively(listener, bench.draws.turn("search", number))
        strengths = [trial.strength for trial in search.answers]
        lines[f"JND {listener.mu:.0f}, found {search.estimate().mu:.0f}"] = (_places(strengths), strengths)
    return lines


def _places(row: Sequence[float]) -> list[float]:
    return [float(place) for place in range(1, len(row) + 1)]


STUDY = Study(
    id="M2",
    title="JNDs by active learning, with simulated listeners",
    paper="Manocha et al. (2020), section 3.2",
    reports="25,782 same to 26,130 different answers; 88.3 % agree with the final JND; 1,812 of 2,000 "
    "sessions kept",
    open=open_bench,
    run=run,
    fits=False,
)
