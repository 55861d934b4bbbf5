"""Ranges of the fields of a file, as annotations: `seconds: Positive | None`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class Called:
    """Describes a field in words for messages, where its checks alone would say less."""

    words: str

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return self.name(handler(kind))

    def name(self, schema: CoreSchema) -> CoreSchema:
        """The schema with these words in its error."""
        return core_schema.custom_error_schema(
            schema, "called", custom_error_message=f"Input should be {self.words}"
        )


def part_to_json(part: float) -> float | str | None:
    """A part as JSON, which has no NaN or infinity: null, "inf" (the SNR of an untouched clip) or "-inf"."""
    if math.isnan(part):
        return None
    return ("inf" if part > 0 else "-inf") if math.isinf(part) else float(part)


def part_from_json(part: float | str | None) -> float:
    """A part from JSON; see `part_to_json`."""
    return math.nan if part is None else float(part)


class _Pair:
    """The parts of a metric. Numbers are not checked by a Python function, because a run has millions."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number, weight = (
            core_schema.float_schema(allow_inf_nan=False),
            core_schema.float_schema(ge=0, le=1e300),
        )
        words = core_schema.literal_schema([None, "inf", "-inf"])
        parts = [
            _either(number, words, 'a finite number, null, "inf" or "-inf"'),
            _either(weight, core_schema.none_schema(), "a number of 0 or more, or null"),
        ]
        return core_schema.no_info_after_validator_function(list, core_schema.tuple_positional_schema(parts))


def _either(number: CoreSchema, words: CoreSchema, called: str) -> CoreSchema:
    read = core_schema.no_info_after_validator_function(part_from_json, words)
    return Called(called).name(core_schema.union_schema([number, read], mode="left_to_right"))


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0, le=1e9)]
NotNegative = Annotated[Finite, Field(ge=0)]
Share = Annotated[Finite, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**63)]
Rate = Annotated[int, Field(ge=1, le=10_000_000)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{1,128}$"), Called("a digest in hexadecimal")]
Pair = Annotated[list[float], _Pair()]
"""A value, null where there is none, and its weight."""
# A step is anything but "..", so that no path leads out of the folder.
_STEP = r"(?:[^/\\:\x00.][^/\\:\x00]*|\.[^/\\:\x00.][^/\\:\x00]*|\.\.[^/\\:\x00]+|\.)"
Below = Annotated[
    str,
    Field(pattern=f"^{_STEP}(?:/{_STEP}?)*$"),
    Called("a path inside the folder, without '..', ':' and '\\'"),
]
