"""What a field should have held, in plain words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from sottovoce.core.files.expected_values import expected


@pytest.mark.parametrize(
    "kind, value, words",
    [
        (int, "few", "expected a whole number"),
        (int, 1.5, "expected a whole number"),
        (float, "loud", "expected a number"),
        (bool, "maybe", "expected true or false"),
        (str, 3, "expected a text"),
        (tuple[str, ...], 3, "expected a list"),
        (dict[str, int], 3, "expected entries, each with a key and a value"),
        (Annotated[int, Field(ge=1)], 0, "expected a number of at least 1"),
        (Annotated[float, Field(gt=0)], 0, "expected a number above 0"),
        (Annotated[float, Field(le=1)], 2, "expected a number of at most 1"),
        (Annotated[float, Field(lt=1.5)], 2, "expected a number below 1.5"),
        (Annotated[float, Field(allow_inf_nan=False)], float("nan"), "expected a finite number"),
        (Literal["refuse", "skip"], "ignore", "expected 'refuse' or 'skip'"),
        (Annotated[str, Field(max_length=2)], "abc", "expected a text of at most 2 characters"),
    ],
)
def test_what_was_expected(kind: Any, value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    assert expected(refused.value.errors()[0]) == words
