"""A claim: how one target, behind one defense, does under attack. One JSON file that others can check."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.core.files.expected_values import expected
from sottovoce.core.metric import Estimate
from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims.claim_file import load, refuse
from sottovoce.leaderboard.claims.claim_mistakes import find_mistakes
from sottovoce.targets.open_target import guess

SCHEMA = 1
MOST_BYTES = 200_000
"""A claim is read by people in a pull request; a larger file is refused."""
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$")]
Line = Annotated[str, StringConstraints(max_length=2000)]
Broken = Annotated[str, StringConstraints(pattern=r"^[01-]*$")]
Count = Annotated[int, Field(ge=0)]


class Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Data):
    """A number with its 95 % interval.

    Over several seeds `value` is the mean, the interval spans those of all seeds, `n` is the smallest number
    of clips of one seed, and `seeds` holds the value of each.
    """

    value: FiniteFloat = Field(ge=0)
    low: FiniteFloat | None = Field(None, ge=0)
    high: FiniteFloat | None = Field(None, ge=0)
    n: int = Field(ge=1)
    method: Line = ""
    seeds: tuple[FiniteFloat, ...] = ()

    @model_validator(mode="after")
    def _around(self) -> Figure:
        if (self.low is None) != (self.high is None):
            raise ValueError("expected both ends of the interval or none")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(
                f"expected an interval around the value {self.value:g}, got [{self.low:g}, {self.high:g}]"
            )
        if self.seeds and not math.isclose(sum(self.seeds) / len(self.seeds), self.value, abs_tol=1e-6):
            raise ValueError(f"expected the mean of the seeds, got {self.value:g} for {list(self.seeds)}")
        return self


class Share(Figure):
    """A figure between 0 and 1. The interval of one seed is exact (Clopper-Pearson)."""

    value: FiniteFloat = Field(ge=0, le=1)
    low: FiniteFloat | None = Field(None, ge=0, le=1)
    high: FiniteFloat | None = Field(None, ge=0, le=1)

    @model_validator(mode="after")
    def _exact(self) -> Share:
        if self.low is None or self.high is None or self.seeds:
            return self
        _, low, high, _ = clopper_pearson(round(self.value * self.n), self.n)
        if max(abs(self.low - low), abs(self.high - high)) > 1e-3:
            raise ValueError(
                f"expected the exact interval of {self.value:g} on {self.n} clips, [{low:.4f}, {high:.4f}], "
                f"got [{self.low:g}, {self.high:g}]"
            )
        return self


class Rival(Data):
    """One attack at one budget, and its leading figure."""

    cell: Line
    attack: Line
    attacker: Literal["plain", "adaptive", "transfer", "black-box"]
    value: FiniteFloat = Field(ge=0)


class Worst(Data):
    """All attacks at one budget: every clip counts under the one that harmed it most.

    cells: the attacks, the strongest first.
    """

    budget: Line
    title: Line
    success: Share | None = None
    wer: Figure | None = None
    cells: tuple[Rival, ...] = Field(min_length=1)


class Clean(Data):
    """The target on clean clips."""

    accuracy: Share | None = None
    wer: Figure | None = None


class Unheard(Data):
    """Clips fooled, at any budget, with a P(heard) below `below`.

    curve: the share of clips fooled with a P(heard) of at most 0, 0.02, 0.04 and so on up to 1.
    """

    metric: Literal["p-heard", "p-heard-masking"]
    ear: Line
    below: FiniteFloat = Field(0.25, gt=0, le=1)
    share: Share
    curve: tuple[Annotated[FiniteFloat, Field(ge=0, le=1)], ...] = ()


class Level(Data):
    snr_db: FiniteFloat
    right: Share


class Certified(Data):
    """Clips that are certified at all and right; and at perturbations of an SNR."""

    defense: Line
    share: Share
    sigma: FiniteFloat = Field(gt=0)
    alpha: FiniteFloat = Field(gt=0, lt=1)
    passes: int = Field(ge=1)
    levels: tuple[Level, ...] = ()


class Doubt(Data):
    kind: Line
    title: Line
    text: Line = ""
    items: tuple[Line, ...] = ()


class Table(Data):
    """The outcomes of clips, one place each: all of them, or a sample that was drawn at random.

    of: how many there are. clean: 1 if the class was right, or the errors in a transcript. words: of
    every reference, for recognisers. success: by budget, a letter a clip: 1 broken, 0 not, - not judged.
    errors: by budget, of the worst transcript.
    """

    of: int = Field(ge=0)
    clips: tuple[str, ...]
    clean: tuple[Count | None, ...]
    words: tuple[Count | None, ...] | None = None
    success: dict[str, Broken] = {}
    errors: dict[str, tuple[Count | None, ...]] = {}

    @model_validator(mode="after")
    def _even(self) -> Table:
        columns: dict[str, Sequence[Any] | None] = {"clean": self.clean, "words": self.words}
        columns |= {f"success.{name}": found for name, found in self.success.items()}
        columns |= {f"errors.{name}": each for name, each in self.errors.items()}
        for name, column in columns.items():
            if column is not None and len(column) != len(self.clips):
                raise ValueError(f"expected {len(self.clips)} places in {name}, got {len(column)}")
        if len(set(self.clips)) != len(self.clips):
            raise ValueError("expected every clip once")
        if self.of < len(self.clips):
            raise ValueError(f"expected at most {self.of} clips, got {len(self.clips)}")
        return self

    @property
    def complete(self) -> bool:
        return len(self.clips) == self.of

    def broken(self, budget: str) -> dict[str, bool]:
        """Whether a clip was broken, of those that were judged."""
        letters = self.success.get(budget, "-" * len(self.clips))
        return {clip: it == "1" for clip, it in zip(self.clips, letters, strict=True) if it != "-"}

    def wrong(self, budget: str) -> dict[str, int]:
        """Errors in the worst transcript, of the clips that have one."""
        found = self.errors.get(budget, (None,) * len(self.clips))
        return {clip: it for clip, it in zip(self.clips, found, strict=True) if it is not None}

    def heard(self) -> dict[str, int]:
        """The clean outcome, of the clips that have one."""
        return {clip: it for clip, it in zip(self.clips, self.clean, strict=True) if it is not None}


class Claim(Data):
    """One row of the leaderboard.

    plan: the resolved plan of the first seed; its other cells, of other defenses and goals, may be in it.
    outcomes: of the first seed.
    manifest: the hash of the clips' manifest, where the run knows it.
    """

    schema_: Literal[1] = Field(1, alias="schema")
    id: Id
    target: Line
    description: Line = ""
    defense: Line = "none"
    goal: Line = "evade"
    data: Line
    manifest: Line = ""
    lead: Literal["success", "wer"]
    clips: int = Field(ge=0)
    failed: int = Field(0, ge=0)
    trials: int = Field(0, ge=0)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    clean: Clean = Clean()
    worst: tuple[Worst, ...] = Field(min_length=1)
    unheard: Unheard | None = None
    certified: Certified | None = None
    doubts: tuple[Doubt, ...] = ()
    outcomes: Table
    plan: dict[str, Any]
    versions: dict[str, str] = {}
    run: Line = ""
    started: Line = ""
    who: Line = ""
    url: Line = ""
    notes: Line = ""

    @model_validator(mode="after")
    def _led(self) -> Claim:
        for place, each in enumerate(self.worst):
            if self.figure(each) is None:
                raise ValueError(f"worst.{place}: expected its leading figure, {self.lead}, got none")
        if self.url and not self.url.startswith(("https://", "http://")):
            raise ValueError(f"url: expected an address that begins with https://, got {self.url!r}")
        return self

    def figure(self, worst: Worst) -> Figure | None:
        """The one that leads."""
        return worst.success if self.lead == "success" else worst.wer

    def parsed_plan(self) -> Plan:
        return make_plan(self.plan, guess)

    def to_json(self) -> str:
        content = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return write_json({"schema": SCHEMA, **content})

    def plan_yaml(self) -> str:
        return yaml.safe_dump(self.plan, sort_keys=False, allow_unicode=True)


def write_json(content: Any) -> str:
    """A line an entry, so that changes can be read; lists of numbers and of names on one line."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
    return (
        _FLAT.sub(lambda found: _BREAK.sub(" ", found[0]).replace("[ ", "[").replace(" ]", "]"), text) + "\n"
    )


# Inside a string of JSON there is no line break, so whatever follows one is layout.
_FLAT, _BREAK = re.compile(r"\[\n[^][{}]*\]"), re.compile(r"\n\s*")
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From a version of the schema to the next one."""


def read_claim(path: Path, *, trust: bool = False) -> Claim:
    """A claim from a file, checked; a bad one is refused with the file, the field and the reason.
    trust: take parts of plugins."""
    text, content = load(path, MOST_BYTES)
    return parse_claim(content, str(path), text, trust=trust)


def parse_claim(content: dict[str, Any], name: str, text: str = "", *, trust: bool = False) -> Claim:
    """text: the text of the file, to name lines."""
    content = _migrate(content, name)
    try:
        claim = Claim.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(place) for place in first["loc"]) or "claim"
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] not in ("value_error", "missing", "extra_forbidden"):
            reason = f"{expected(first)}, got {reprlib.repr(first['input'])}"
        raise refuse(name, field, reason, text) from None
    for field, reason in find_mistakes(claim, trust=trust):
        raise refuse(name, field, reason, text)
    return claim


def _migrate(content: dict[str, Any], name: str) -> dict[str, Any]:
    version = content.get("schema")
    while type(version) is int and version in MIGRATIONS and version != SCHEMA:
        content = MIGRATIONS[version](content)
        version = content.get("schema")
    if type(version) is not int or version != SCHEMA:
        newer = isinstance(version, int) and version > SCHEMA
        fix = "install a newer sottovoce" if newer else "write the claim again with `sottovoce leaderboard`"
        raise InputError(f"{name}, field 'schema': expected {SCHEMA}, got {version!r}; {fix}.")
    return content


Kind = TypeVar("Kind", bound=Figure)


def as_figure(found: Interval | Estimate | None, kind: type[Kind]) -> Kind | None:
    """An estimate or an interval as a claim has it; None without a value.

    A bootstrap interval that is skewed past its value, which few clips can do, is widened to it.
    """
    if found is None or not math.isfinite(found.value):
        return None
    method = "" if isinstance(found, Interval) else found.method
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return kind(value=found.value, low=None, high=None, n=found.n, method=method)
    low, high = max(0.0, min(found.low, found.value)), max(found.high, found.value)
    return kind(value=found.value, low=low, high=high, n=found.n, method=method)


def schema_text() -> str:
    """The JSON schema of a claim, as published in the documentation."""
    content = Claim.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A claim of sottovoce"}
    return write_json({**head, **{key: value for key, value in content.items() if key != "title"}})


if __name__ == "__main__":
    print(schema_text(), end="")
