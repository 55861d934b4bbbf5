"""Removes the paths of this machine from texts, because records and reports are shared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Not inside a word, a relative path or an address: "a/b", "../a", "~/a", "https://host/a".
_START = r"(?:(?<![\w.~+/\\-])|(?<=file://))"
_NAME = r"[^\s/\\'\"`,;:()\[\]{}<>|=*?]+"
_SLASH = r"[\\/]+"
_ABSOLUTE = re.compile(rf"{_START}(?:[A-Za-z]:{_SLASH}|/(?!/)){_NAME}(?:{_SLASH}{_NAME})+(?:{_SLASH})?")

# In quotes a path may have spaces.
_QUOTED = re.compile(r"(?P<quote>['\"])(?:[A-Za-z]:[\\/]|/(?!/))[^'\"\n]*[\\/][^'\"\n]*(?P=quote)")
_EMBEDDED = re.compile(r"data:[\w/.+-]+;base64,")
"""The start of a file that is embedded in a page as text."""


def hide_paths(text: str, roots: Iterable[str] = ()) -> str:
    """A text in which absolute paths are relative to one of the roots or, elsewhere, only their last name."""
    if ("/" not in text and "\\" not in text) or _EMBEDDED.match(text):
        return text
    for root in roots:
        # The root itself keeps its name, and a path below it the part from there on.
        below = rf"(?P<below>{_SLASH})(?={_NAME})|(?:{_SLASH})?(?!{_NAME})"
        name = _last(root)
        text = re.sub(
            rf"{_START}{re.escape(root)}(?:{below})",
            lambda found, name=name: "" if found["below"] else name,  # type: ignore[misc]
            text,
        )
    text = _QUOTED.sub(lambda found: f"{found['quote']}{_last(found[0][1:-1])}{found['quote']}", text)
    return _ABSOLUTE.sub(lambda found: _last(found[0]), text)


def find_roots(*places: str | Path | None) -> tuple[str, ...]:
    """Folders as roots, the longest first: as written, as absolute paths, and with links resolved."""
    found: dict[str, None] = {}
    for place in places:
        if place is None:
            continue
        path = Path(place).expanduser()
        for each in (path, path.absolute(), path.resolve()):
            # The top of a disk is no root: every path is below it.
            if each.is_absolute() and len(each.parts) > 1:
                found[str(each)] = None
    return tuple(sorted(found, key=len, reverse=True))


def hide_all(content: Any, roots: Iterable[str] = ()) -> Any:
    """As `hide_paths`, for every text in plain data; keys stay."""
    if isinstance(content, str):
        return hide_paths(content, roots)
    if isinstance(content, Mapping):
        return {key: hide_all(value, roots) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [hide_all(value, roots) for value in content]
    return content


def _last(path: str) -> str:
    return re.split(_SLASH, path.rstrip("\\/"))[-1]
