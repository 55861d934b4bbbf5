"""Who hears what in which order: a function of the study's seed and the number of the seat, and no more.

Within a pool of n items, of which each listener gets k, items are dealt out like cards: seat s gets places
s k to s k + k - 1 of the pool laid end to end again and again, in a drawn order. So no item is ever heard
more than once oftener than another. What has a side (which clip is A, which is X, what comes first) goes by
place plus round: over listeners every item has all sides in turn, and so has every listener over items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, assert_never, final

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.listening.study.blocks import (
    AbxBlock,
    Block,
    ClipPair,
    MushraBlock,
    NamingBlock,
    PairBlock,
    Rack,
    SameDifferentBlock,
    Track,
)
from sottovoce.listening.study.sound_keys import HIDDEN, anchor_condition, anchor_key, obvious_key, render_key
from sottovoce.listening.study.study_file import ListeningStudy

ABX_SIDES = (("a", "a"), ("b", "a"), ("b", "b"), ("a", "b"))
"""Which of A and B is the clean clip, and which of them X is."""


@final
@dataclass(frozen=True)
class Planned:
    """One trial of one listener.

    place: among the listener's trials, from 0 on. block: of the study.
    roles: clip keys by role: "clip"; "a", "b", "x"; "reference", "a", "b"; "reference", "c1", "c2"...; of
    same/different "reference" and, unless the answers so far decide, "changed".
    truth: what the server alone knows.
        naming: choice. abx: choice (which of "a", "b" X is), clean ("a" or "b").
        same-different: reference ("first" or "second"), and different, strength where they are known.
        mushra: hidden, anchors, conditions, all by slot ("A", "B"...). preference, closer: conditions by "a"
        and "b"; choice where it is known.
    facts: what analyses group by: clip, reference, condition, level, label, set, direction, track and what
    the study file says of the clip.
    """

    place: int
    block: int
    test: str
    roles: Mapping[str, str]
    truth: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    teaching: bool = False
    sentinel: bool = False


class Dealt(NamedTuple):
    """An item that a listener gets. rank: its place in the pool's drawn order; turn: earlier times it was
    dealt; number: its place in the study file."""

    item: Any
    number: int
    rank: int
    turn: int
    pool: str


def lay_out(study: ListeningStudy, seat: int) -> list[Planned]:
    """All trials of one listener, in order. Seats past `study.seats` continue in the same way."""
    if seat < 0:
        raise InputError(f"expected a seat of 0 or more, got {seat}.")
    trials = [
        (number, planned)
        for number, block in enumerate(study.blocks)
        for planned in _lay_out_block(study, block, Draws(study.seed).turn("layout", number), seat)
    ]
    return [replace(planned, place=place, block=number) for place, (number, planned) in enumerate(trials)]


def exposure(study: ListeningStudy) -> dict[str, int]:
    """In how many trials each clip is heard, over all seats; teaching is left out."""
    heard = Counter[str]()
    for seat in range(study.seats):
        for planned in lay_out(study, seat):
            if not planned.teaching:
                heard.update({key for key in planned.roles.values() if key in study.clips})
    return {key: heard[key] for key in study.clips}


def deal(block: Block, draws: Draws, seat: int) -> list[Dealt]:
    """The items of one listener, in the order of ranks."""
    names = list(block.pools)
    name, turn = names[seat % len(names)], seat // len(names)
    pool = block.pools[name]
    order = _order(draws, name, len(pool))
    if block.per_listener is None:
        return [Dealt(pool[index], index, rank, turn, name) for rank, index in enumerate(order)]
    first = seat * block.per_listener
    return [
        Dealt(
            pool[order[place % len(pool)]],
            order[place % len(pool)],
            place % len(pool),
            place // len(pool),
            name,
        )
        for place in range(first, first + block.per_listener)
    ]


@lru_cache(maxsize=4096)
def _order(draws: Draws, pool: str, size: int) -> tuple[int, ...]:
    """The order in which the items of a pool are dealt: for every listener alike."""
    return tuple(draws.turn("deal").generator(pool).permutation(size).tolist())


def latin_square(size: int) -> list[list[int]]:
    """Orders of `size` conditions, each at every place equally often, and each right after each other one
    equally often (Williams 1949): as many rows as conditions, or twice as many where these are odd."""
    zigzag = [0, *(place for low in range(1, size // 2 + 1) for place in (low, size - low))][:size]
    rows = [[(step + row) % size for step in zigzag] for row in range(size)]
    return rows if size % 2 == 0 else rows + [row[::-1] for row in rows] if size > 1 else rows


def _lay_out_block(study: ListeningStudy, block: Block, draws: Draws, seat: int) -> list[Planned]:
    dealt = deal(block, draws, seat)
    if isinstance(block, SameDifferentBlock):
        return _searches(study, block, dealt, draws, seat)
    teaching = [
        replace(_plan(study, block, Dealt(item, index, index, seat, ""), draws, seat), teaching=True)
        for index, item in enumerate(block.teaching)
    ]
    trials = _arrange(study, block, [_plan(study, block, one, draws, seat) for one in dealt], draws, seat)
    if isinstance(block, MushraBlock):
        return [*teaching, *trials]
    sentinels = [
        replace(_plan(study, block, Dealt(item, index, index, seat, ""), draws, seat), sentinel=True)
        for index, item in enumerate(block.sentinels)
    ]
    return [*teaching, *_hide(trials, sentinels, draws, seat)]


def _arrange(
    study: ListeningStudy, block: Block, trials: list[Planned], draws: Draws, seat: int
) -> list[Planned]:
    order = draws.turn("order").generator(str(seat)).permutation(len(trials)).tolist()
    shuffled = [trials[place] for place in order]
    if block.order == "shuffled":
        return shuffled
    # All conditions of the block, not only this listener's: a row must mean the same to everybody.
    conditions = sorted({_group(study, item) for item in block.all_items()})
    names = draws.turn("conditions").generator("").permutation(len(conditions)).tolist()
    square = latin_square(len(conditions))
    pools = len(block.pools)
    row = square[(seat // pools + seat % pools) % len(square)]
    ranks = {conditions[names[symbol]]: place for place, symbol in enumerate(row)}
    return sorted(shuffled, key=lambda trial: ranks[trial.facts["condition"]])


def _hide(trials: list[Planned], sentinels: list[Planned], draws: Draws, seat: int) -> list[Planned]:
    """Sentinels among trials, anywhere but first."""
    if not sentinels:
        return trials
    total = len(trials) + len(sentinels)
    source = draws.turn("sentinels").generator(str(seat))
    places = set((1 + source.permutation(total - 1))[: len(sentinels)].tolist())
    rest, hidden = iter(trials), iter([sentinels[one] for one in source.permutation(len(sentinels))])
    return [next(hidden) if place in places else next(rest) for place in range(total)]


def _plan(study: ListeningStudy, block: Block, dealt: Dealt, draws: Draws, seat: int) -> Planned:
    match block:
        case NamingBlock():
            return _plan_naming(study, dealt)
        case AbxBlock():
            return _plan_abx(study, dealt, _offset(draws, dealt.pool, 4))
        case PairBlock():
            return _plan_pair(study, block.test, dealt, _offset(draws, dealt.pool, 2))
        case MushraBlock():
            return _plan_rack(study, block, dealt, draws, seat)
        case SameDifferentBlock():
            raise TypeError("tracks are laid out together")
        case _:
            assert_never(block)


@lru_cache(maxsize=4096)
def _offset(draws: Draws, pool: str, sides: int) -> int:
    """Where the sides of a pool begin: for every listener alike."""
    return int(draws.turn("side").generator(pool).integers(sides))


def _plan_naming(study: ListeningStudy, dealt: Dealt) -> Planned:
    key: str = dealt.item
    return Planned(
        0, 0, "naming", {"clip": key}, {"choice": study.clips[key].label}, _facts(study, key, dealt.pool)
    )


def _plan_abx(study: ListeningStudy, dealt: Dealt, offset: int) -> Planned:
    key: str = dealt.item
    reference = study.clips[key].reference
    if reference is None:
        raise InputError(f"clip {key!r}: an ABX test needs its reference; add `reference: ID`.")
    clean, choice = ABX_SIDES[(dealt.rank + dealt.turn + offset) % 4]
    roles = {"a": key, "b": key, clean: reference}
    roles["x"] = roles[choice]
    truth = {"choice": choice, "clean": clean}
    return Planned(0, 0, "abx", roles, truth, _facts(study, key, dealt.pool))


def _plan_pair(study: ListeningStudy, test: str, dealt: Dealt, offset: int) -> Planned:
    pair: ClipPair = dealt.item
    swapped = bool((dealt.rank + dealt.turn + offset) % 2)
    roles = {"a": pair.b, "b": pair.a} if swapped else {"a": pair.a, "b": pair.b}
    truth: dict[str, Any] = {"conditions": {side: study.clips[key].condition for side, key in roles.items()}}
    if pair.better is not None:
        truth["choice"] = {"a": "b", "b": "a"}[pair.better] if swapped else pair.better
    facts = _facts(study, pair.a, dealt.pool) | {"condition": _group(study, pair)}
    facts["pair"] = f"{pair.a} / {pair.b}"
    if pair.reference is not None:
        roles["reference"] = facts["reference"] = pair.reference
    return Planned(0, 0, test, roles, truth, facts)


def _plan_rack(study: ListeningStudy, block: MushraBlock, dealt: Dealt, draws: Draws, seat: int) -> Planned:
    rack: Rack = dealt.item
    anchors = {anchor_key(hz, rack.reference): hz for hz in block.anchors_hz}
    keys = [*rack.clips, rack.reference, *anchors]
    source = draws.turn("slots", seat).generator(f"{dealt.pool} {rack.reference} {dealt.number}")
    keys = [keys[place] for place in source.permutation(len(keys))]
    slots = dict(zip(map(slot_name, range(len(keys))), keys, strict=True))
    truth = {
        "hidden": next(slot for slot, key in slots.items() if key == rack.reference),
        "anchors": {slot: anchors[key] for slot, key in slots.items() if key in anchors},
        "conditions": {slot: _condition(study, key, rack.reference, anchors) for slot, key in slots.items()},
    }
    roles = {"reference": rack.reference} | {f"c{place}": key for place, key in enumerate(keys, start=1)}
    return Planned(0, 0, "mushra", roles, truth, _facts(study, rack.reference, dealt.pool))


def slot_name(place: int) -> str:
    """What a listener calls the clip at a place of a MUSHRA screen: A, B, C..."""
    return chr(ord("A") + place)


def _condition(study: ListeningStudy, key: str, reference: str, anchors: Mapping[str, int]) -> str:
    if key == reference:
        return HIDDEN
    return anchor_condition(anchors[key]) if key in anchors else study.clips[key].condition


def _searches(
    study: ListeningStudy, block: SameDifferentBlock, dealt: Sequence[Dealt], draws: Draws, seat: int
) -> list[Planned]:
    """Teaching, then the comparisons of all tracks, one track after the other or in turns."""
    runs = [_run(study, block, one, draws, seat) for one in dealt]
    if not block.interleaved:
        trials = [planned for run in runs for planned in run]
    else:
        source = draws.turn("turns").generator(str(seat))
        trials = [
            runs[number][place]
            for place in range(block.comparisons)
            for number in source.permutation(len(runs)).tolist()
        ]
    return [*_teach(study, block, dealt), *trials]


def _run(
    study: ListeningStudy, block: SameDifferentBlock, dealt: Dealt, draws: Draws, seat: int
) -> list[Planned]:
    """The comparisons of one track: its sentinels anywhere but first, the reference first in every other."""
    source = draws.turn("run", seat).generator(str(dealt.number))
    each = block.sentinels // (block.per_listener or len(block.pools[dealt.pool]))
    places = set((1 + source.permutation(block.comparisons - 1))[:each].tolist())
    start = dealt.rank + dealt.turn
    sides = [("first", "second")[(start + place) % 2] for place in range(block.comparisons)]
    sides = [sides[place] for place in source.permutation(block.comparisons)]
    track: Track = dealt.item
    facts = _track_facts(study, dealt)
    trials = []
    for place, side in enumerate(sides):
        truth: dict[str, Any] = {"reference": side}
        roles = {"reference": track.reference}
        if place in places:
            roles["changed"] = obvious_key(track.reference)
            truth |= {"different": True}
        trials.append(Planned(0, 0, block.test, roles, truth, facts, sentinel=place in places))
    return trials


def _teach(study: ListeningStudy, block: SameDifferentBlock, dealt: Sequence[Dealt]) -> list[Planned]:
    """The strongest change and no change in turn."""
    trials = []
    for number in range(block.teaching):
        one = dealt[number // 2 % len(dealt)]
        track: Track = one.item
        different = number % 2 == 0
        changed = changed_key(track, block.levels(track)[-1]) if different else track.reference
        roles = {"reference": track.reference, "changed": changed}
        truth = {"reference": ("first", "second")[number // 2 % 2], "different": different}
        trials.append(Planned(0, 0, block.test, roles, truth, _track_facts(study, one), teaching=True))
    return trials


def changed_key(track: Track, strength: float) -> str:
    """The sound at one strength of a track."""
    if track.steps is not None:
        return track.steps[strength]
    return render_key(str(track.direction), strength, track.reference)


def _track_facts(study: ListeningStudy, dealt: Dealt) -> dict[str, str]:
    track: Track = dealt.item
    facts = _facts(study, track.reference, dealt.pool)
    return facts | {"track": str(dealt.number), "direction": _way(track)}


def _way(track: Track) -> str:
    """What a track is reported by: a ladder of clips is a scale of its own, known by its strongest step."""
    return str(track.direction) if track.steps is None else f"steps to {track.steps[max(track.steps)]}"


def _group(study: ListeningStudy, item: str | ClipPair | Rack | Track) -> str:
    """The condition that an item is ordered and reported by; of a pair both."""
    if isinstance(item, ClipPair):
        return " / ".join(sorted({study.clips[key].condition for key in (item.a, item.b)}))
    return study.clips[item if isinstance(item, str) else item.reference].condition


def _facts(study: ListeningStudy, key: str, pool: str) -> dict[str, str]:
    clip = study.clips[key]
    own = {
        "clip": key,
        "reference": clip.reference or "",
        "condition": clip.condition,
        "level": clip.level,
        "label": clip.label,
        "set": pool,
    }
    return {**clip.facts, **own}
