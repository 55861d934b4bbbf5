"""Figures and parts as people read them."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields, is_dataclass

from sottovoce.auditing.plan.plan_file import Cell
from sottovoce.core.metric import Estimate
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.registry.part_text import Part, attack_kind
from sottovoce.report.trial_columns import NOISE

DASH = "–"
GAP = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class ShownNumber:
    """A number as shown: the value, its interval, and what to say of it on request."""

    value: str
    interval: str
    note: str
    share: float | None = None
    """The value of a rate, at most 1, for bars and shades."""

    def __str__(self) -> str:
        return f"{self.value} {self.interval}".strip()


def show(estimate: Estimate | None, unit: str) -> ShownNumber:
    if estimate is None:
        return ShownNumber(DASH, "", "not measured in this run")
    if not math.isfinite(estimate.value):
        return ShownNumber(DASH, "", "no value: no clip of this row has one")
    value, low, high = (number(each, unit) for each in (estimate.value, estimate.low, estimate.high))
    share = min(estimate.value, 1.0) if unit == "%" else None
    shown = f"{value.removesuffix('.0') if unit == '%' else value}{GAP}{unit}".strip()
    if not math.isfinite(estimate.low):
        return ShownNumber(shown, "", f"n = {estimate.n}: too few for an interval", share)
    return ShownNumber(shown, f"[{low}, {high}]", f"n = {estimate.n}, {estimate.method}", share)


def number(value: float, unit: str) -> str:
    """One decimal for shares and decibels, three digits for the rest; a real minus sign."""
    if not math.isfinite(value):
        return DASH
    text = f"{100 * value:.1f}" if unit == "%" else f"{value:.1f}" if unit == "dB" else f"{value:.3g}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def whole(count: int) -> str:
    """Thousands apart."""
    return f"{count:,}".replace(",", GAP)


def plural(count: int, noun: str) -> str:
    return f"{whole(count)} {noun}{'' if count == 1 else 's'}"


def attack_title(attack: Part) -> str:
    return "white noise" if str(attack) == NOISE else replay_title(attack) or str(attack)


def replay_title(attack: Part) -> str:
    """Examples that are tried again by the attack, and the defense, that found them; "" for other attacks.

    Their goal and their budget are those of the cell in which they are tried.
    """
    said = {"replay": "examples of", "replay-noise": "noise as loud as"}.get(attack.name)
    if said is None:
        return ""
    words = str(attack.settings.get("cell", "")).split("_")
    late = words[-1:] == ["transfer"]
    found = words[: -3 if late else -2] or words
    return f"{said} {' '.join(found)}{', transferred' if late else ''}"


FORMS = {"plain": "", "adaptive": "adaptive", "transfer": "transferred", "black-box": "black box"}


def form_title(cell: Cell) -> str:
    """An attack, and behind a defense what it knows: `pgd, adaptive`."""
    return ", ".join(word for word in (attack_title(cell.attack), FORMS[cell.attacker]) if word)


def defense_title(defense: str) -> str:
    return "no defense" if defense == NO_DEFENSE else defense


def goal_title(goal: Part) -> str:
    if goal.name == "force":
        return f"force “{goal.settings.get('text', '')}”"
    return str(goal)


def cell_title(cell: Cell) -> str:
    words = [form_title(cell), goal_title(cell.goal), cell.budget_title]
    if cell.defense != NO_DEFENSE:
        words.insert(0, cell.defense)
    return " · ".join(words)


@dataclass(frozen=True)
class Described:
    """A part with every setting, defaults included, and what it says of itself."""

    title: str
    settings: str
    about: str


def describe_part(part: Part, kind: str, title: str) -> Described:
    built = part.build(attack_kind(part.name) if kind == "attack" else kind)
    settings = ""
    if is_dataclass(built):
        shown = [item for item in fields(built) if item.init and item.repr and item.name != "references"]
        settings = ", ".join(f"{item.name}={getattr(built, item.name)!r}" for item in shown)
    doc = inspect.cleandoc(type(built).__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return Described(title, settings, doc)
