"""What the plan of an untrusted claim may contain.

Reading a claim builds the parts of its plan, and checking one opens its model and its clips. Neither may run
someone else's code, open a file that the claim names or reach an address that it names. So this is a list of
what is allowed, and everything else is refused, including parts that are added in the future:

- parts that come with sottovoce; with `trust` also those of plugins that are installed here;
- settings that are numbers, booleans or words of a closed list, by their types; a setting that takes a text
is refused unless `DECLARED` says what its texts are; - models and clips that come with sottovoce (`MODELS`,
`CORPORA`), unless whoever checks names their own.

Numbers, lists and texts are bounded, so that a claim of a few lines cannot fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from sottovoce import registry
from sottovoce.auditing.plan.cell_rules import CELL, RUN, CellRule, is_pattern
from sottovoce.auditing.plan.plan_file import Attacker, Plan, read_entries
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part, split_outside

if TYPE_CHECKING:
    from sottovoce.leaderboard.claims.claim import Claim

Mistake = tuple[str, str]
"""A field and the reason."""
Meaning = Literal["spoken", "word", "ear", "model", "defense"]
MODELS = ("detector", "keyword", "recogniser", "sound", "speaker")
"""Models whose weights come with sottovoce."""
CORPORA = {"embedded": False, "prompts": True, "proxy": False, "sounds": True, "strings": False}
"""Clips that come with sottovoce, and whether a word, such as a language, may follow the name."""
DECLARED: Mapping[tuple[str, str, str], Meaning] = {
    ("goal", "force", "text"): "spoken",
    ("goal", "force-nearest", "choices"): "spoken",
    ("goal", "language", "code"): "spoken",
    ("goal", "prefix", "word"): "spoken",
    ("budget", "audible", "ear"): "ear",
    ("target", "keyword", "variant"): "word",
    ("target", "recogniser", "variant"): "word",
    ("target", "sound", "variant"): "word",
    ("target", "speaker", "variant"): "word",
    ("target", "transfer", "source"): "model",
    ("target", "transfer", "judge"): "model",
    ("target", "transfer", "source_defense"): "defense",
    ("target", "transfer", "judge_defense"): "defense",
}
"""Settings that take a text which opens nothing. spoken: what a model is to say. word: looked up in a list
before anything is opened. ear, model, defense: by name, and judged like those of the plan."""
LARGEST = 1_000_000
"""The largest number of a claim's plan; the seed aside."""
TIGHTER = {("transform", "median", "window"): 1001, ("target", "recogniser", "beams"): 100}
"""Settings that fill the memory long before that."""
LONGEST = 2_000
"""Letters of a text."""
MOST_BRACKETS = 40
MOST_ITEMS = 100
"""In a list that is a setting, of rules, and of parts in a defense."""
MOST_CELLS = 10_000
DEEPEST = 4
_WORD = re.compile(r"[a-z0-9-]{1,40}")
_PATTERN = re.compile(r"[A-Za-z0-9 _.,()=+*?-]*")
_NUMBERS = (int, float, bool, NoneType)


def find_strange(claim: Claim, *, trust: bool = False) -> Iterator[Mistake]:
    """What must not be built of a claim. Model and clips are texts as long as nobody opens them: see
    `find_openings`. trust: take parts of plugins."""
    guard = ClaimGuard(trust)
    for field in ("plan", "defense", "goal"):
        yield from ((field, reason) for reason in _shape(getattr(claim, field)))
    yield from (("defense", reason) for reason in guard.defense(claim.defense))
    yield from (("goal", reason) for reason in guard.text("goal", claim.goal))
    try:
        plan = read_entries(claim.plan)
    except InputError:
        # Whoever builds the plan meets the same mistake, and no part of it is built before.
        return
    if _count_cells(plan) > MOST_CELLS:
        yield "plan", f"expected at most {MOST_CELLS} cells, got more"
    for name in Plan.model_fields:
        yield from ((f"plan.{name}", reason) for reason in guard.entry(name, getattr(plan, name)))


def find_openings(plan: Plan, *, given: Collection[str] = (), trust: bool = False) -> Iterator[Mistake]:
    """What of a plan must not be opened. given: entries that are the words of whoever checks."""
    guard = ClaimGuard(trust)
    if "model" not in given:
        yield from (("plan.model", reason) for reason in guard.model(plan.model))
    for name in ("data", "fit"):
        text = getattr(plan, name)
        if text is not None and name not in given:
            yield from ((f"plan.{name}", reason) for reason in guard.corpus(text))


def comes_along(model: str) -> bool:
    """Whether a model comes with sottovoce, and so is the same wherever its name is written."""
    return not any(True for _ in ClaimGuard().model(model))


def is_plain(hint: Any) -> bool:
    """Whether a type has numbers, truths, words of a closed list and tuples of these, and nothing else."""
    origin = get_origin(hint)
    if origin is Literal or hint in _NUMBERS:
        return True
    if origin in (Union, UnionType, tuple):
        return all(part is Ellipsis or is_plain(part) for part in get_args(hint))
    return False


@dataclass(frozen=True)
class ClaimGuard:
    """Why parts of a claim are refused: nothing where they are not. An unknown name is no reason: it is
    refused by whoever looks it up, and opens nothing."""

    trust: bool = False

    def entry(self, name: str, value: Any) -> Iterator[str]:
        """An entry of a plan that is built when the plan is read."""
        if name in ("model", "data", "fit", "seed"):
            return
        if name in _KINDS:
            for item in value if isinstance(value, tuple) else (value,):
                if item is not None:
                    yield from self.text(_KINDS[name], item)
        elif name in ("exclude", "include"):
            if len(value) > MOST_ITEMS:
                yield f"expected at most {MOST_ITEMS} rules, got {len(value)}"
            for rule in value[:MOST_ITEMS]:
                yield from self.rule(rule)
        elif is_plain(Plan.model_fields[name].annotation):
            if not _bounded(value, LARGEST):
                yield f"expected numbers up to {LARGEST}, got {_short(value)}"
        elif value != Plan.model_fields[name].default:
            yield f"expected no such entry in a claim, got {_short(value)}"

    def text(self, kind: str, value: str | Part) -> Iterator[str]:
        """A part by its text; one that is read already is taken as it is."""
        if kind == "defense":
            yield from self.defense(str(value))
            return
        try:
            part = Part.parse(value) if isinstance(value, str) else value
        except (InputError, RecursionError):
            yield f"expected a part such as pgd(steps=100), got {_short(value)}"
            return
        universal = kind == "attack" and part.name in registry.names("universal")
        yield from self.part("universal" if universal else kind, part)

    def defense(self, text: str) -> Iterator[str]:
        if text.strip() == NO_DEFENSE:
            return
        try:
            # As whoever builds it will split it.
            items = split_outside(text, "+")
        except InputError:
            yield f"expected parts such as gaussian(sigma=0.01), joined by +, got {_short(text)}"
            return
        if len(items) > MOST_ITEMS:
            yield f"expected at most {MOST_ITEMS} parts of a defense, got {len(items)}"
            return
        for item in items:
            name = item.partition("(")[0].strip()
            yield from self.text("vote" if name in registry.names("vote") else "transform", item)

    def rule(self, rule: CellRule) -> Iterator[str]:
        if any(getattr(rule, key) for key in RUN):
            yield f"expected rules about {', '.join(CELL)}, got one about {', '.join(RUN)}"
        for key in CELL:
            for text in getattr(rule, key):
                if is_pattern(text):
                    if not _PATTERN.fullmatch(text):
                        yield f"expected a pattern of letters, numbers and ()=,.+-, got {_short(text)}"
                elif key == "attacker":
                    if text not in get_args(Attacker):
                        yield f"expected one of {', '.join(get_args(Attacker))}, got {_short(text)}"
                else:
                    yield from self.text(key, text)

    def part(self, kind: str, part: Part) -> Iterator[str]:
        """A part by its name and its settings; a setting is judged by its type."""
        if part.name not in registry.names(kind):
            return
        if not registry.is_own(kind, part.name) and not self.trust:
            got = f"the {kind} {part.name!r} of a plugin"
            yield f"expected parts that come with sottovoce, got {got}, which needs --trust"
            return
        hints = registry.types(kind, part.name)
        for key, value in part.settings.items():
            if key not in hints:
                yield str(UnknownName(f"setting of {kind} {part.name!r}:", key, hints)).rstrip(".")
            elif value is not None:
                yield from self._setting(kind, part.name, key, hints[key], value)

    def _setting(self, kind: str, name: str, key: str, hint: Any, value: Any) -> Iterator[str]:
        most = TIGHTER.get((kind, name, key), LARGEST)
        meaning = DECLARED.get((kind, name, key))
        if meaning in ("model", "defense") and isinstance(value, str):
            yield from self.model(value, inner=True) if meaning == "model" else self.defense(value)
        elif meaning is None and is_plain(hint) and _harmless(value, _words(hint)):
            if not _bounded(value, most):
                yield f"expected numbers up to {most}, got {key}={_short(value)} of {kind} {name!r}"
        elif not self._known(meaning, value):
            yield (
                f"expected numbers and words that sottovoce knows, got {key}={_short(value)} of {kind} "
                f"{name!r}: a claim may not name files, addresses or code"
            )

    def _known(self, meaning: Meaning | None, value: Any) -> bool:
        if meaning == "spoken":
            items = value if isinstance(value, list) else [value]
            return len(items) <= MOST_ITEMS and all(isinstance(item, str) for item in items)
        if meaning == "ear":
            return value in registry.names("ear") and (self.trust or registry.is_own("ear", value))
        return meaning == "word" and isinstance(value, str) and _WORD.fullmatch(value) is not None

    def model(self, text: str, *, inner: bool = False) -> Iterator[str]:
        """A model that is to be opened. inner: inside another one."""
        called = text.endswith(")")
        try:
            part = Part.parse(text) if called else Part(text)
        except (InputError, RecursionError):
            part = Part("")
        plugin = part.name in registry.names("target") and not registry.is_own("target", part.name)
        pair = part.name == "transfer" and called and not inner
        if part.name in MODELS or plugin or pair:
            yield from self.part("target", part)
            return
        yield (
            f"expected a model that comes with sottovoce ({', '.join(MODELS)}), got {_short(text)}: opening "
            "a model that a claim names can run code, read files or use the network"
        )

    def corpus(self, text: str) -> Iterator[str]:
        """Clips that are to be opened."""
        name, colon, word = text.partition(":")
        if name in CORPORA and (not colon or (CORPORA[name] and _WORD.fullmatch(word))):
            return
        if self.trust and text in registry.names("corpus") and not registry.is_own("corpus", text):
            return
        yield (
            f"expected clips that come with sottovoce ({', '.join(CORPORA)}), got {_short(text)}: opening "
            "clips that a claim names can read files or use the network"
        )


_KINDS = {
    "black_box": "attack", "attacks": "attack", "goals": "goal", "budgets": "budget", "defenses": "defense",
    "metrics": "metric",
}  # fmt: skip
"""Entries of a plan and what they hold."""


def _shape(value: Any, depth: int = 0) -> Iterator[str]:
    """Whether texts and lists are small enough to be parsed."""
    if isinstance(value, str):
        if len(value) > LONGEST or sum(map(value.count, "([{")) > MOST_BRACKETS:
            yield (
                f"expected texts of at most {LONGEST} letters and {MOST_BRACKETS} brackets, got "
                f"{_short(value)}"
            )
    elif isinstance(value, list | dict):
        if depth >= DEEPEST or len(value) > MOST_CELLS:
            yield f"expected short lists, at most {DEEPEST} deep, got a {type(value).__name__}"
            return
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _shape(item, depth + 1)


def _count_cells(plan: Plan) -> int:
    """At the most: an attack has two forms, and a black box joins."""
    sizes = {
        "defense": len(plan.defenses),
        "attack": 2 * len(plan.attacks) + 1,
        "goal": len(plan.goals),
        "budget": len(plan.budgets),
    }
    total = 0
    for rule in (None, *plan.include):
        cells = 1
        for key, size in sizes.items():
            cells *= size if rule is None else max(size, 2 * len(getattr(rule, key)))
        total += cells
    return total


def _harmless(value: Any, words: Collection[str]) -> bool:
    """Numbers, truths, numbers as texts and words that are listed; and a flat list of these."""
    if isinstance(value, list):
        return len(value) <= MOST_ITEMS and not any(
            isinstance(item, list) or not _harmless(item, words) for item in value
        )
    if isinstance(value, str):
        return value in words or _as_number(value) is not None
    return isinstance(value, _NUMBERS)


def _bounded(value: Any, most: int) -> bool:
    items = value if isinstance(value, list | tuple) else [value]
    numbers = [_as_number(item) if isinstance(item, str) else item for item in items]
    return all(abs(item) <= most for item in numbers if isinstance(item, int | float))


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _words(hint: Any) -> set[str]:
    """The words of the closed lists in a type."""
    if get_origin(hint) is Literal:
        return {word for word in get_args(hint) if isinstance(word, str)}
    return {word for part in get_args(hint) for word in _words(part)}


def _short(value: Any) -> str:
    """As it is shown: what a stranger wrote is quoted, and not at length."""
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
