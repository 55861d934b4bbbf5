"""Blocks of a new study, from the clips that there are: one function a test, and the published experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.study.blocks import TESTS
from sottovoce.listening.study.clip_sources import Candidate, ChoicePair, take_turns
from sottovoce.listening.study.study_checks import COMPARED, LEVELS, NAMED
from sottovoce.perception.degradations.perturbation_space import Direction

CLEAN, ADVERSARIAL = "clean", "adversarial"
CLEAN_CLIPS: Mapping[str, tuple[int, int, int]] = {"low": (6, 6, 5), "medium": (6, 6, 7), "high": (6, 6, 7)}
"""Clean clips among the 12 of each experiment; the others are adversarial (Table 3)."""
MOST_CHOICES = 40
MOST_RATED = 12
LIMITS: Mapping[str, int] = {
    "naming": 12,
    "abx": 12,
    "same-different": 12,
    "mushra": 6,
    "preference": 24,
    "closer": 24,
}
TRACKS = 3
"""References a listener gets in same/different (Manocha et al. 2020)."""


@final
@dataclass
class Draft:
    """A draft of a study: clips by key, the files they come from, blocks, and notes for the researcher."""

    clips: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _keys: dict[Path, str] = field(default_factory=dict)

    def add(self, path: Path, name: str, **entries: Any) -> str:
        """The key of a file; the same file has one key however often it is named."""
        if path in self._keys:
            return self._keys[path]
        plain = re.sub(r"[^\w.+-]+", "-", name).strip("-.")[:150] or "clip"
        key = plain
        for number in range(2, len(self.files) + 3):
            if key.lower() not in (taken.lower() for taken in self.files):
                break
            key = f"{plain}-{number}"
        self._keys[path] = key
        self.files[key] = path
        self.clips[key] = {name: value for name, value in entries.items() if value}
        return key

    def add_clean(self, one: Candidate) -> str:
        return self.add(one.clean, one.clip, condition=CLEAN, level=one.level, label=one.label)

    def add_changed(self, one: Candidate, condition: str = "") -> str:
        """What was made of a clip, with the clip itself as its reference. condition: in place of its own."""
        if one.changed is None:
            raise InputError(
                f"clip {one.clip!r}: expected a changed version to compare it with, got none; take clips "
                "from an "
                "audit, or a folder with clean/ and one folder per condition."
            )
        keep = ("cell", "success", "intensity", "language", "speaker")
        facts = {name: one.facts[name] for name in keep if name in one.facts}
        facts |= {name: f"{one.values[name]:.2f}" for name in ("snr", "p-heard") if name in one.values}
        return self.add(
            one.changed, f"{one.clip}_{one.condition}", reference=self.add_clean(one),
            condition=condition or one.condition, level=one.level, label=one.label, facts=facts,
        )  # fmt: skip


def draft(test: str, found: Sequence[Candidate] | Sequence[ChoicePair], *, limit: int | None, seed: int,
          directions: Sequence[str] = ()) -> Draft:  # fmt: skip
    """The blocks of a test and the clips they play. limit: largest number of items."""
    if test != "v6" and test not in TESTS:
        raise UnknownName("test", test, ["v6", *TESTS])
    if limit is not None and limit < 1:
        raise InputError(f"expected --limit of 1 or more, got {limit}.")
    draws = Draws(seed).turn("new", test)
    made = Draft()
    pairs = [one for one in found if isinstance(one, ChoicePair)]
    clips = [one for one in found if isinstance(one, Candidate)]
    if pairs and test not in ("preference", "closer"):
        raise InputError(f"pairs to compare need --test preference or --test closer, got {test}.")
    if test == "v6":
        _draft_v6(made, clips, draws)
        return made
    most = limit or LIMITS[test]
    if pairs:
        made.blocks.append({"test": test, "items": _choose_pairs(made, pairs, test, most, draws)})
    elif test == "same-different":
        made.blocks.append(_draft_searches(made, clips, most, directions, draws))
    else:
        made.blocks.append({"test": test, **DRAFTS[test](made, clips, most, draws)})
    return made


def _draft_naming(made: Draft, found: Sequence[Candidate], most: int, draws: Draws) -> dict[str, Any]:
    labels = sorted({one.label for one in found})
    if not 2 <= len(labels) <= MOST_CHOICES or "" in labels:
        raise InputError(
            f"--test naming needs 2 to {MOST_CHOICES} labels to choose from, got {len(labels)}; take clips "
            "with "
            "such labels, or another test."
        )
    changed = take_turns([one for one in found if one.changed is not None], most // 2, draws)
    heard = {one.clip for one in changed}
    # Clips that are not heard changed come first.
    clean = sorted(_distinct(found, draws), key=lambda one: one.clip in heard)[: most - len(changed)]
    items = [*map(made.add_clean, clean), *map(made.add_changed, changed)]
    return {"items": list(dict.fromkeys(items)), "choices": labels}


def _draft_abx(made: Draft, found: Sequence[Candidate], most: int, draws: Draws) -> dict[str, Any]:
    return {"items": [made.add_changed(one) for one in take_turns(found, most, draws)]}


def _draft_mushra(made: Draft, found: Sequence[Candidate], most: int, draws: Draws) -> dict[str, Any]:
    items = []
    for group in _by_clip(found, most, draws):
        chosen = take_turns(group, MOST_RATED, draws)
        chosen = sorted(chosen, key=lambda one: one.condition)
        clips = [made.add_changed(one) for one in chosen]
        items.append({"reference": made.add_clean(group[0]), "clips": clips})
    return {"items": items}


def _draft_preference(made: Draft, found: Sequence[Candidate], most: int, draws: Draws) -> dict[str, Any]:
    chosen = take_turns(found, most, draws)
    items = [{"a": made.add_clean(one), "b": made.add_changed(one)} for one in chosen]
    return {"items": items, "per_listener": min(len(items), 24)}


def _draft_closer(made: Draft, found: Sequence[Candidate], most: int, draws: Draws) -> dict[str, Any]:
    items = []
    for group in _by_clip(found, most, draws):
        two = take_turns(group, 2, draws)
        if len(two) < 2:
            raise InputError(
                f"clip {group[0].clip!r}: --test closer needs two changed versions of it, got one; take an "
                "audit "
                "with two attacks or budgets, or pairs."
            )
        a, b = (made.add_changed(one) for one in two)
        items.append({"reference": made.add_clean(group[0]), "a": a, "b": b})
    return {"items": items, "per_listener": min(len(items), 24)}


DRAFTS: Mapping[str, Callable[[Draft, Sequence[Candidate], int, Draws], dict[str, Any]]] = {
    "naming": _draft_naming,
    "abx": _draft_abx,
    "mushra": _draft_mushra,
    "preference": _draft_preference,
    "closer": _draft_closer,
}


def _draft_searches(
    made: Draft, found: Sequence[Candidate], most: int, directions: Sequence[str], draws: Draws
) -> dict[str, Any]:
    ways = [str(Direction.parse(text)) for text in directions]
    items = []
    for number, group in enumerate(_by_clip(found, most, draws)):
        one = group[0]
        way = ways[number % len(ways)] if ways else str(Direction.draw(draws, one.clip))
        items.append({"reference": made.add_clean(one), "direction": way})
    tracks = min(TRACKS, len(items))
    return {
        "test": "same-different",
        "items": items,
        "per_listener": tracks,
        "comparisons": 10,
        "sentinels": 2 * tracks,
        "teaching": 2,
        "strengths": 26,
    }


def _choose_pairs(
    made: Draft, pairs: Sequence[ChoicePair], test: str, most: int, draws: Draws
) -> list[dict[str, str]]:
    order = draws.generator("pairs").permutation(len(pairs)).tolist()
    groups: dict[tuple[str, ...], int] = {}
    ranked = []
    for one in (pairs[place] for place in order):
        # Tranches and rivals take turns.
        group = (one.level, *sorted(one.conditions))
        groups[group] = groups.get(group, 0) + 1
        ranked.append((groups[group], one))
    items = []
    for _, one in sorted(ranked, key=lambda pair: pair[0])[:most]:
        shared: dict[str, Any] = {"level": one.level, "facts": dict(one.facts)}
        item = {}
        if test == "closer":
            item["reference"] = made.add(
                one.reference, f"{one.name}_reference", condition="reference", **shared
            )
        for side, path, condition in zip("ab", (one.a, one.b), one.conditions, strict=True):
            item[side] = made.add(path, f"{one.name}_{side}", condition=condition, **shared)
        items.append(item)
    return items


def _draft_v6(made: Draft, found: Sequence[Candidate], draws: Draws) -> None:
    """Vadillo and Santana (2020), section 5.1 and Table 3."""
    named: dict[str, list[str]] = {}
    compared: dict[str, list[str]] = {}
    labels = sorted({one.label for one in found})
    for level in LEVELS:
        own = _distinct([one for one in found if one.level == level], draws.turn(level))
        if len(own) <= NAMED // 2:
            raise InputError(
                f"preset v6 needs at least {NAMED // 2 + 1} successful clips of level {level} "
                f"({3 * (NAMED + COMPARED)} if all are to be different), got {len(own)}; attack more clips."
            )
        if len(own) < NAMED:
            made.notes.append(
                f"level {level}: {len(own)} clips for {NAMED} places, so a listener hears some of them both "
                "clean and adversarial"
            )
        elif len(own) < 3 * (NAMED + COMPARED):
            made.notes.append(f"level {level}: {len(own)} clips, so some are in several experiments")
        for number, clean in enumerate(CLEAN_CLIPS[level]):
            name = f"{level}-{number + 1}"
            twelve = [own[(NAMED * number + place) % len(own)] for place in range(NAMED)]
            # The first half of the words is clean here, and the second half in the next experiment.
            halves = twelve[NAMED // 2 :] + twelve[: NAMED // 2] if number % 2 else twelve
            named[name] = [made.add_clean(one) for one in halves[:clean]]
            named[name] += [made.add_changed(one, ADVERSARIAL) for one in halves[clean:]]
            many = len(own) >= 3 * (NAMED + COMPARED)
            first = 3 * NAMED + COMPARED * number if many else NAMED * (number + 1)
            six = [own[(first + place) % len(own)] for place in range(COMPARED)]
            compared[name] = [made.add_changed(one, ADVERSARIAL) for one in six]
    made.blocks += [
        {"test": "naming", "choices": labels, "sets": named},
        {"test": "abx", "sets": compared},
    ]


def _by_clip(found: Sequence[Candidate], most: int, draws: Draws) -> list[list[Candidate]]:
    """Candidates of the chosen clips, all of a clip together."""
    chosen = _distinct(found, draws)[:most]
    return [[one for one in found if one.clip == first.clip] for first in chosen]


def _distinct(found: Sequence[Candidate], draws: Draws) -> list[Candidate]:
    """One candidate of every clip, levels and labels in turn."""
    return take_turns(found, len({one.clip for one in found}), draws)
