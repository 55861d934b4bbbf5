"""Numbers that sentences quote by name: `{accuracy[yes]:.1f}` in a text is that value of a study's results.

The first word is a name of the results' `values`, each bracket one step further in: a key, or a place in a
list. After the colon stands how the number is shown: as in Python, or `percent` or `db` with the interval. An
interval shown in another way is its value. A name that is not there is an error; a value that is not known is
a dash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any

from sottovoce.core.statistics import Interval
from sottovoce.errors import UnknownName
from sottovoce.studies.shown_numbers import MISSING, db_interval, percent_interval
from sottovoce.studies.study import Reading

STEP = re.compile(r"\[([^\]]*)\]")
INTERVAL = set(Interval._fields)


class _Quotes(Formatter):
    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        found: Any = kwargs
        first, _, rest = field_name.partition("[")
        for step in [first, *STEP.findall(f"[{rest}")] if rest else [first]:
            found = _step(found, step, field_name)
        return found, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, dict) and {*value} == INTERVAL:
            return _shown_interval(value, format_spec)
        return MISSING if value is None else format(value, format_spec)


def _step(found: Any, step: str, quoted: str) -> Any:
    if isinstance(found, list) and step.isdigit() and int(step) < len(found):
        return found[int(step)]
    if isinstance(found, Mapping) and step in found:
        return found[step]
    known = [*found] if isinstance(found, Mapping) else []
    raise UnknownName(f"value (in '{{{quoted}}}')", step, map(str, known))


def _shown_interval(value: Mapping[str, Any], spec: str) -> str:
    if value["value"] is None:
        return MISSING
    edges = {name: float("nan") if value[name] is None else value[name] for name in ("low", "high")}
    found = Interval(value["value"], edges["low"], edges["high"], value["n"])
    ways = {"percent": percent_interval, "db": db_interval}
    return ways[spec](found) if spec in ways else format(found.value, spec)


def quote(text: str, values: Mapping[str, Any]) -> str:
    """The text with its numbers in place. values: as `results.json` has them."""
    return _Quotes().vformat(text, (), values)


def read_out(
    readings: Iterable[Reading], values: Mapping[str, Any], figure: str | None = None
) -> Iterator[str]:
    """The sentences that belong to a figure, or to the page itself, and that the values bear out."""
    for one in readings:
        if one.figure == figure and (one.when is None or one.when(values)):
            yield quote(one.text, values)
