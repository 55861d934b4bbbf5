"""The file of a claim, as plain data; and what is wrong with it, with the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sottovoce.core.files.strict_json import find_line, find_repeated
from sottovoce.errors import InputError


def load(path: Path, most: int) -> tuple[str, dict[str, Any]]:
    """The text of a claim and its content, before any field is looked at. most: bytes."""
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= most else "{}"
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read as a claim in JSON: {reason}; check the file.") from None
    if size > most:
        raise InputError(
            f"{path}: expected at most {most // 1000} kB, got {size // 1000} kB; list fewer clips in "
            "'outcomes'."
        )
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: expected a claim, an object in JSON, got {type(content).__name__}; check the file."
        )
    repeated = find_repeated(text.encode())
    if repeated:
        raise refuse(str(path), ".".join(map(str, repeated)), "expected it once, got it twice", text)
    return text, content


def refuse(name: str, field: str, reason: str, text: str = "") -> InputError:
    """One line about a field. text: the text of the file, to name its line."""
    way = [int(step) if step.isdecimal() else step for step in field.split(".")]
    line = f" (line {find_line(text, way)})" if text else ""
    return InputError(f"{name}, field {field!r}: {reason}{line}; correct the claim or leave it out.")
