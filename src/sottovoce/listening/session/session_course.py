"""One listener's session, from consent to the last word: which screen comes after the answers so far.

A course is a generator that yields a step, waits for the answer and continues. It keeps no state: the next
screen is found by running it again over the stored answers, so that a session continues after a closed tab, a
killed server or a year. Earlier steps are taken from the store; only the next one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, final

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.listening.session.protocol import Feedback, Given
from sottovoce.listening.session.screens import screen, teach
from sottovoce.listening.session.steps import LABELS, Cue, Step, step_of
from sottovoce.listening.study.blocks import Block, SameDifferentBlock
from sottovoce.listening.study.seating import Planned, changed_key, lay_out
from sottovoce.listening.study.sound_keys import ANTIPHASE, NOISE, PLAIN, QUIET
from sottovoce.listening.study.study_file import HeadphoneCheck, ListeningStudy
from sottovoce.perception.jnd.jnd_rule import Jnd
from sottovoce.perception.jnd.session_plan import PlannedTrial as Asked
from sottovoce.perception.jnd.session_plan import judge_session

__all__ = ["SessionCourse", "SessionVerdict", "Step", "screen"]

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Of codes: none that is easily taken for another."""
REASONS: Mapping[str, str] = {
    "refused": "consent refused",
    "headphones": "headphone check failed",
    "attention": "attention test failed",
}

Done = Sequence[tuple[Step, Given]]
Make = Callable[[], Step]
Walk = Generator[Make, tuple[Step, Any], Any]
"""Yields what makes the next step, is sent the step that was kept with its answer, returns how it ended."""


class SessionVerdict(NamedTuple):
    """Whether a session counts, and why not."""

    accepted: bool
    reason: str = ""


class SessionState(NamedTuple):
    """Where a session is: what makes the next step, or how it ended. notes: checks that were failed."""

    make: Make | None
    outcome: str = ""
    notes: tuple[str, ...] = ()


@final
class SessionCourse:
    """The course of one session. seed: of what is drawn on the way; the study's own where it is not given."""

    def __init__(self, study: ListeningStudy, seat: int, seed: int | None = None) -> None:
        self.study = study
        self.seat = seat
        self.layout = lay_out(study, seat)
        self._trials = [
            [planned for planned in self.layout if planned.block == number]
            for number in range(len(study.blocks))
        ]
        self._screens = self._count_screens()
        self._draws = Draws(study.seed if seed is None else seed).turn("session", seat)

    def next_step(self, done: Done) -> Step:
        """The screen that comes after these answers; the same answers give the same step."""
        return self.advance(done)[0]

    def advance(self, done: Done) -> tuple[Step, float]:
        """The screen that comes after these answers, and how far the session is then."""
        stand = self._stand(done)
        if stand.make is not None:
            step = replace(stand.make(), place=len(done), dither=self.study.dither)
            return step, self._share(done)
        facts = {"outcome": stand.outcome, **self._code(stand.outcome)}
        if stand.notes:
            facts["notes"] = "; ".join(stand.notes)
        return Step(len(done), "done", facts=facts), 1.0

    def cue(self, step: Step, label: str) -> Cue:
        """What a slot plays. Its noise depends on the seed, which no listener knows, the screen and the slot:
        a page that is loaded again gets the same."""
        if not step.dither:
            return Cue(step.roles[label])
        secret = self._draws.turn("dither", step.place).key(label, 32)
        return Cue(step.roles[label], secret.to_bytes(32, "little"))

    def progress(self, done: Done) -> float:
        """How far the session is, from 0 to 1, as far as that can be known."""
        return 1.0 if self._stand(done).make is None else self._share(done)

    def _share(self, done: Done) -> float:
        return min(0.99, len(done) / self._screens)

    def feedback(self, step: Step, given: Given) -> Feedback | None:
        """What is said after an answer: after teaching trials alone."""
        return teach(step, given) if step.teaching else None

    def verdict(self, done: Done) -> SessionVerdict:
        """Whether the answers count: all are there, and no check or sentinel speaks against them."""
        stand = self._stand(done)
        if stand.make is not None:
            return SessionVerdict(False, f"not finished: {len(done)} screens answered")
        if stand.outcome != "finished":
            return SessionVerdict(False, REASONS[stand.outcome])
        reasons = [*_missed(done, self.study.wrong_sentinels), *self._trends(done)]
        return SessionVerdict(not reasons, "; ".join(reasons))

    def _stand(self, done: Done) -> SessionState:
        notes: list[str] = []
        walk = self._walk(notes)
        try:
            make = next(walk)
            for kept in done:
                make = walk.send(kept)
        except StopIteration as end:
            return SessionState(None, str(end.value), tuple(notes))
        return SessionState(make)

    def _walk(self, notes: list[str]) -> Walk:
        """notes: collects the failed checks of a listener who may continue all the same."""
        study = self.study
        if study.consent is not None:
            _, given = yield _ask("consent")
            if not given.agreed:
                return "refused"
        if study.instructions:
            yield _ask("notice", facts={"about": "instructions"})
        if study.volume:
            yield _ask("volume", roles={LABELS["noise"]: NOISE})
        if study.headphones is not None:
            passed = yield from self._check_headphones(study.headphones)
            if not passed:
                if study.headphones.fail == "end":
                    return "headphones"
                notes.append(REASONS["headphones"])
        for number, test in enumerate(study.attention):
            roles, facts = {LABELS["clip"]: test.clip}, {"test": str(number)}
            asked, given = yield _ask("attention", roles=roles, truth={"choice": test.answer}, facts=facts)
            if given.choice != asked.truth["choice"]:
                if test.fail == "end":
                    return "attention"
                notes.append(f"{REASONS['attention']}: {test.clip}")
        for number, block in enumerate(study.blocks):
            yield from self._run_block(number, block)
        if study.questionnaire:
            yield _ask("questionnaire")
        return "finished"

    def _check_headphones(self, check: HeadphoneCheck) -> Walk:
        """Rows of trials until one is passed: five of six right tell headphones (Woods et al. 2017)."""
        for row in range(1 + check.retries):
            right = 0
            for number in range(check.trials):
                asked, given = yield partial(self._play_tones, row, number)
                right += given.choice == asked.truth["choice"]
            if right >= check.need:
                return True
        return False

    def _play_tones(self, row: int, number: int) -> Step:
        order = self._draws.turn("headphones", row).generator(str(number)).permutation(3).tolist()
        tones = [(PLAIN, QUIET, ANTIPHASE)[place] for place in order]
        roles = {str(place): tone for place, tone in enumerate(tones, start=1)}
        return Step(0, "headphones", None, roles, {"choice": tones.index(QUIET)}, {"row": str(row)})

    def _run_block(self, number: int, block: Block) -> Walk:
        yield _ask("notice", facts={"about": "block", "block": str(number)})
        trials = self._trials[number]
        searches: dict[str, Jnd] = {}
        counted = 0
        for place, planned in enumerate(trials):
            asked, given = yield self._ask_trial(planned, searches)
            if _searched(planned):
                track = planned.facts["track"]
                searches[track] = searches.get(track, Jnd()).add(asked.truth["strength"], given.different)
            counted += not planned.teaching
            rest = block.break_after is not None and counted and counted % block.break_after == 0
            if rest and not planned.teaching and place + 1 < len(trials):
                yield _ask("notice", facts={"about": "break", "block": str(number)})

    def _ask_trial(self, planned: Planned, searches: Mapping[str, Jnd]) -> Make:
        """Makes the step of a trial when it is called for, not when the trial is run over again."""
        if planned.test == "same-different":
            return lambda: self._compare(planned, searches)
        return lambda: step_of(planned, planned.roles, planned.truth)

    def _compare(self, planned: Planned, searches: Mapping[str, Jnd]) -> Step:
        """Reference and changed clip in their order; how much is changed, the answers so far decide."""
        roles, truth = dict(planned.roles), dict(planned.truth)
        if _searched(planned):
            track = planned.facts["track"]
            block = self.study.blocks[planned.block]
            if not isinstance(block, SameDifferentBlock):
                raise InputError(f"block {planned.block}: expected same-different, got {block.test}.")
            way = block.pools[planned.facts["set"]][int(track)]
            draws = self._draws.turn("search", planned.block, track)
            strength = searches.get(track, Jnd()).next(draws, block.levels(way))
            roles["changed"] = changed_key(way, strength)
            truth |= {"strength": strength, "different": True}
        first, second = roles["reference"], roles["changed"]
        if truth["reference"] == "second":
            first, second = second, first
        return step_of(planned, {"first": first, "second": second}, truth)

    def _trends(self, done: Done) -> Iterator[str]:
        """Blocks in which every comparison got the same answer, although strengths ran to both ends.

        The strongest step of a ladder of attacks may be inaudible: "same" to all of it is not held against
        anyone. A coarse ladder may never come to its weakest step: until it does, "different" to all is not
        either.
        """
        for number, block in enumerate(self.study.blocks):
            if not isinstance(block, SameDifferentBlock):
                continue
            rows: list[tuple[Step, Any]] = [
                (step, given)
                for step, given in done
                if step.block == number and not step.teaching and not step.sentinel
            ]
            tracks = [block.pools[step.facts["set"]][int(step.facts["track"])] for step, _ in rows]
            heard = [given.different for _, given in rows]
            at_end = any(
                step.truth["strength"] == block.levels(track)[0]
                for (step, _), track in zip(rows, tracks, strict=True)
            )
            if not (all(heard) and at_end):
                heard = [one for one, track in zip(heard, tracks, strict=True) if track.steps is None]
            yield from judge_session([Asked("comparison")] * len(heard), heard).reasons

    def _code(self, outcome: str) -> dict[str, str]:
        completion = self.study.completion
        if completion is None or outcome == "refused":
            return {}
        if outcome != "finished":
            return {} if completion.screened_code is None else {"code": completion.screened_code}
        if completion.code is not None:
            return {"code": completion.code}
        drawn = self._draws.turn("code").generator("").integers(len(LETTERS), size=10)
        return {"code": "".join(LETTERS[place] for place in drawn)}

    def _count_screens(self) -> int:
        """How many there are where every check is passed at once."""
        study = self.study
        around = [
            study.consent is not None,
            bool(study.instructions),
            study.volume,
            bool(study.questionnaire),
        ]
        checks = len(study.attention) + (study.headphones.trials if study.headphones else 0)
        return sum(around) + checks + len(study.blocks) + len(self.layout) + self._breaks() + 1

    def _breaks(self) -> int:
        total = 0
        for number, block in enumerate(self.study.blocks):
            counted = sum(not planned.teaching for planned in self._trials[number])
            total += 0 if block.break_after is None else (counted - 1) // block.break_after
        return total


def _ask(
    kind: str,
    *,
    roles: Mapping[str, str] | None = None,
    truth: Mapping[str, Any] | None = None,
    facts: Mapping[str, str] | None = None,
) -> Make:
    return lambda: Step(0, kind, None, roles or {}, truth or {}, facts or {})


def _searched(planned: Planned) -> bool:
    """Whether a trial's strength depends on the answers before it."""
    return planned.test == "same-different" and not (planned.teaching or planned.sentinel)


def _missed(done: Done, allowed: int) -> Iterator[str]:
    tests = [(step, given.model_dump()) for step, given in done if step.sentinel]
    wrong = sum(not _is_right(step.truth, given) for step, given in tests)
    if wrong > allowed:
        yield f"{wrong} of {len(tests)} sentinels wrong"


def _is_right(truth: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return all(
        given[name] == truth[name] for name in ("choice", "different") if name in truth and name in given
    )
