"""From answers to tables and figures: what every test of a study found, and whose answers they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

from sottovoce.errors import InputError
from sottovoce.listening.analysis.answer_rows import AnswerRow, Who, choose, counted, sessions
from sottovoce.listening.analysis.counted_answers import HitRate
from sottovoce.listening.analysis.ear_calibration import Known
from sottovoce.listening.analysis.jnd_searches import Sounds
from sottovoce.listening.analysis.result_tables import Found, ResultColumn, ResultFigure, ResultTable
from sottovoce.listening.analysis.sections_counts import show_abx, show_choices, show_naming
from sottovoce.listening.analysis.sections_scales import show_calibration, show_mushra, show_searches
from sottovoce.listening.study.seating import exposure
from sottovoce.listening.study.study_file import ListeningStudy


@final
@dataclass(frozen=True, kw_only=True)
class Results:
    """All that is known of a study's answers. rows: all of them, whether they count or not.

    exposure: how often each clip was heard; a file alone, as it may be long.
    """

    title: str
    who: Who
    rows: Sequence[AnswerRow]
    found: tuple[Found, ...] = ()
    exposure: ResultTable | None = None

    @property
    def tables(self) -> list[ResultTable]:
        return [one for one in self.found if isinstance(one, ResultTable)]

    @property
    def drawings(self) -> list[ResultFigure]:
        return [one for one in self.found if isinstance(one, ResultFigure)]

    @property
    def notes(self) -> list[str]:
        return [one for one in self.found if isinstance(one, str)]

    def add(self, found: Iterable[Found]) -> Results:
        return replace(self, found=(*self.found, *found))


def analyse(
    study: ListeningStudy,
    rows: Sequence[AnswerRow],
    *,
    who: Who | None = None,
    unfinished: bool = False,
    sounds: Sounds | None = None,
    ear: str | None = "learned",
    known: Known | None = None,
) -> Results:
    """Everything that the answers to a study say.

    who: of people, of simulated listeners or of both; see `rows.choose`. unfinished: whether sessions that
    were not finished count. sounds: the clips as they were heard, for the ear; None: it is not asked.
    ear: the name of one, whose predictions are held against the answers. known: predictions of this ear that
    need not be made again; gets those that are.
    """
    chosen, mark = choose(rows, who)
    if not chosen:
        raise InputError(f"there are no answers of {mark} listeners yet; collect some first.")
    kept = counted(chosen, unfinished=unfinished)
    results = Results(title=study.title, who=mark, rows=chosen, exposure=_exposure_table(study, chosen, kept))
    results = results.add([_session_table(chosen, unfinished), *_check_tables(chosen)])
    if not kept:
        return results.add(["No answers count yet: no session is finished and accepted."])
    published = study.preset == "v6"
    results = results.add(show_naming(kept, mark, published)).add(show_abx(kept, mark, published))
    results = results.add(show_searches(kept, mark)).add(show_calibration(kept, mark, sounds, ear, known))
    results = results.add(show_mushra(kept, mark))
    return results.add(show_choices(kept, mark, "preference")).add(show_choices(kept, mark, "closer"))


def _session_table(rows: Sequence[AnswerRow], unfinished: bool) -> ResultTable:
    found = [some[-1] for some in sessions(rows).values()]
    reasons = Counter(row.reason or "no reason given" for row in found if row.accepted is False)
    notes = Counter(row.notes for row in found if row.accepted and row.notes)
    dithered = sum(row.dither for row in found)
    lines: list[tuple[str, int]] = [
        ("started, with at least one answer", len(found)),
        ("accepted", sum(row.accepted is True for row in found)),
        *((f"accepted, but: {note}", count) for note, count in notes.most_common()),
        ("not finished", sum(row.accepted is None for row in found)),
        ("discarded", sum(reasons.values())),
        *((f"discarded: {reason}", count) for reason, count in reasons.most_common()),
        *([("heard with dither, different in each slot", dithered)] if dithered else []),
    ]
    return ResultTable(
        name="session-counts",
        title="Sessions",
        columns=(ResultColumn("sessions"), ResultColumn("count", "count")),
        rows=lines,
        note="Accepted and unfinished sessions are analysed below."
        if unfinished
        else "Only accepted sessions are analysed below.",
    )


def _exposure_table(
    study: ListeningStudy, rows: Sequence[AnswerRow], kept: Sequence[AnswerRow]
) -> ResultTable:
    """In how many trials each clip was heard: teaching is left out, sentinels are not."""
    planned = exposure(study)
    answered, counts = (
        Counter(key for row in some if row.block >= 0 and not row.teaching for key in set(row.roles.values()))
        for some in (rows, kept)
    )
    lines = []
    for key in [*study.clips, *sorted(answered.keys() - study.clips.keys())]:
        clip = study.clips.get(key)
        about = ("", "") if clip is None else (clip.condition, clip.level)
        lines.append((key, *about, planned.get(key) or None, answered[key], counts[key]))
    return ResultTable(
        name="exposure",
        title="How often each clip was heard",
        columns=(
            ResultColumn("clip"),
            ResultColumn("condition"),
            ResultColumn("level"),
            ResultColumn("trials planned", "count"),
            ResultColumn("trials answered", "count"),
            ResultColumn("trials that count", "count"),
        ),
        rows=lines,
    )


def _check_tables(rows: Sequence[AnswerRow]) -> list[ResultTable]:
    """How listeners did where the right answer is known; empty where nothing was checked."""
    groups = {
        "headphones": [row for row in rows if row.kind == "headphones"],
        "attention": [row for row in rows if row.kind == "attention"],
        "sentinels": [row for row in rows if row.sentinel and row.right is not None],
        "teaching": [row for row in rows if row.teaching and row.right is not None],
    }
    rates = [
        HitRate((name,), sum(bool(row.right) for row in some), len(some)) for name, some in groups.items()
    ]
    lines = [(rate.group[0], rate.hits, rate.n, rate.interval) for rate in rates if rate.n]
    if not lines:
        return []
    return [
        ResultTable(
            name="checks",
            title="Checks of listeners",
            columns=(
                ResultColumn("check"),
                ResultColumn("right", "count"),
                ResultColumn("answers", "count"),
                ResultColumn("right, %", "percent"),
            ),
            rows=lines,
            note="Of all sessions, accepted or not.",
        )
    ]
