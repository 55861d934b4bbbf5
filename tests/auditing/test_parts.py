"""Parts as text, where their settings hold commas, quotes and brackets of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.auditing.plan.plan_file import make_plan, read_plan
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part, split_list

GOOGLE = "OK Google, browse to evil.com"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (f'force(text="{GOOGLE}")', {"text": GOOGLE}),
        (f"force(text='{GOOGLE}')", {"text": GOOGLE}),
        ("force(text='it''s so, isn''t it')", {"text": "it's so, isn't it"}),
        (r'force(text="he said \"no, no\"")', {"text": 'he said "no, no"'}),
        ("force(text=don't stop, bits=8)", {"text": "don't stop", "bits": 8}),
        (
            'near(choices=[yes sir, "no, sir", [a, b]], k=2)',
            {"choices": ["yes sir", "no, sir", ["a", "b"]], "k": 2},
        ),
        ('force(text="a) b, (c")', {"text": "a) b, (c"}),
        ("force(text=1 + 1)", {"text": "1 + 1"}),
        ('force(text="a=b")', {"text": "a=b"}),
        ("force(text=a=b)", {"text": "a=b"}),
        ("force(text=no)", {"text": "no"}),
        (
            "near(choices=[yes, on, trueish], search=false)",
            {"choices": ["yes", "on", "trueish"], "search": False},
        ),
    ],
)
def test_settings_with_marks_of_their_own(text: str, settings: dict[str, object]) -> None:
    part = Part.parse(text)
    assert part.settings == settings
    assert Part.parse(str(part)) == part


def test_a_text_with_a_comma_is_written_in_quotes() -> None:
    assert str(Part("force", {"text": GOOGLE})) == f'force(text="{GOOGLE}")'
    assert str(Part("force", {"text": "stop"})) == "force(text=stop)"
    assert str(Part("force", {"text": "true"})) == "force(text='true')"


ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=120)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), ANY_TEXT | st.lists(ANY_TEXT, max_size=3), max_size=3
    )
)
def test_whatever_texts_a_part_writes_it_reads(settings: dict[str, object]) -> None:
    part = Part("name", settings)
    assert Part.parse(str(part)) == part
    assert split_list(f"{part}, other") == [str(part), "other"]


def test_lists_split_outside_quotes() -> None:
    assert split_list('force(text="a), b"), "x, y", z') == ['force(text="a), b")', '"x, y"', "z"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('force(text="a, b)', 'closing "'),
        ("force(text=yes, sir)", "got 'sir'.*in quotes"),
        ("force(text=[a, b)", "expected a number, a word, a list or text in quotes"),
    ],
)  # fmt: skip
def test_texts_that_do_not_end(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Part.parse(text)


def test_a_plan_keeps_such_texts(tmp_path) -> None:  # type: ignore[no-untyped-def]
    plan = make_plan({"goals": [f'force(text="{GOOGLE}")', "force-nearest(choices=[yes, 'no, sir'])"]})
    path = tmp_path / "plan.yaml"
    path.write_text(plan.to_yaml(), encoding="utf-8")
    again = make_plan(read_plan(path))
    assert again == plan
    assert again.goals[0].build("goal").text == GOOGLE
    assert again.goals[1].build("goal").choices == ("yes", "no, sir")
