"""What a field should have held, in plain words instead of pydantic's."""

from __future__ import annotations

from pydantic_core import ErrorDetails

_WORDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text of at least {min_length} characters",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "entries, each with a key and a value",
    "model_type": "entries, each with a key and a value",
    "invalid_key": "words as keys",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
}


def expected(error: ErrorDetails) -> str:
    """`expected a whole number` and the like, for the first thing that a check found wrong."""
    words = _WORDS.get(error["type"])
    if words is None:
        said = error["msg"].removeprefix("Input should be ")
        return said if said.startswith("expected") else f"expected {said[0].lower()}{said[1:]}"
    context = {
        key: f"{value:g}" if isinstance(value, float) else value
        for key, value in error.get("ctx", {}).items()
    }
    return f"expected {words.format(**context)}"
