"""Every screen, wide and narrow: all that can be used has a name, Tab gets there, nothing runs off the side.

With SOTTOVOCE_SHOTS=FOLDER in the environment, pictures of all screens are left in that folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

WORDS = ["down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes"]
NAMELESS = re.compile(
    r"- (?:button|checkbox|combobox|heading|link|progressbar|radio|slider|spinbutton|textbox)(?! [\"/])"
)
SIZES = [(1200, 800), (360, 740)]
KINDS = {
    "consent", "notice", "volume", "headphones", "attention", "naming", "abx", "same-different", "mushra",
    "preference", "closer", "questionnaire", "feedback", "done",
}  # fmt: skip


@pytest.fixture
def everything(dress: Any, maker: Any) -> dict[str, Any]:
    """A study with a block of every test."""
    content = dress("naming")
    blocks = []
    for test in ("naming", "abx", "same-different", "mushra", "preference", "closer"):
        block = dress(test)["blocks"][0]
        if test == "same-different":
            block |= {"comparisons": 2, "teaching": 1}
        else:
            block |= {"per_listener": 1, "teaching": block["teaching"] if test == "abx" else []}
        if test == "naming":
            block["choices"] = WORDS
        blocks.append(block)
    content["blocks"] = blocks
    content["title"] = "How spoken commands sound"
    return content


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_every_screen(open_hall: Any, visit: Any, everything: Any, size: tuple[int, int]) -> None:
    folder = os.environ.get("SOTTOVOCE_SHOTS")
    hall = open_hall(everything)
    listener = visit(hall, size=size).come()
    seen: set[str] = set()
    while True:
        kind = listener.kind
        look(listener, size)
        if folder and kind not in seen:
            shoot(listener, Path(folder), f"{kind}-{size[0]}")
        seen.add(kind)
        if kind == "done":
            break
        if kind in ("feedback", "same-different"):
            listener.answer()
            continue
        listener.given.append({"kind": kind, **listener.prepare()})
        look(listener, size)
        if folder and kind not in ("consent", "notice"):
            shoot(listener, Path(folder), f"{kind}-answered-{size[0]}")
        listener.submit()
    assert seen == KINDS
    assert listener.faults == []
    assert len(hall.rows()) == len(listener.given)


def look(listener: Any, size: tuple[int, int]) -> None:
    page = listener.page
    tree = page.locator("body").aria_snapshot()
    assert NAMELESS.findall(tree) == [], tree
    across = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert across[0] <= across[1] == size[0], f"{listener.kind} is wider than the window"
    # One heading says where one is, and has the focus when the screen comes.
    assert page.get_by_role("heading", level=1).count() == 1
    for target in page.locator(f"{'.screen'} button:visible, .option:visible").all():
        box = target.bounding_box()
        assert box["height"] >= 24 and box["width"] >= 24, "WCAG 2.5.8: targets of 24 pixels or more"


def shoot(listener: Any, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    listener.page.screenshot(path=folder / f"{name}.png", full_page=True)


FOCUS = """() => {
  const it = document.activeElement;
  const label = it.closest('label');
  return (it.ariaLabel ?? label?.querySelector('span')?.textContent ??
    it.querySelector('span:not(.icon)')?.textContent ?? it.textContent).trim();
}"""


def tabs(page: Any, count: int) -> list[str]:
    """What Tab comes by from where the focus is."""
    found = []
    for _ in range(count):
        page.keyboard.press("Tab")
        found.append(page.evaluate(FOCUS))
    return found


@pytest.mark.slow
def test_tab_goes_down_the_screen(open_hall: Any, visit: Any, maker: Any) -> None:
    hall = open_hall({**maker.content("abx", per_listener=1), "volume": False})
    listener = visit(hall).come()
    page = listener.page
    assert page.evaluate("document.activeElement.tagName") == "H1"
    assert tabs(page, 2) == ["Continue", "Keyboard shortcuts"]
    listener.answer()
    assert listener.kind == "abx"
    assert page.evaluate("document.activeElement.tagName") == "H1"
    # A group of radio buttons is one stop; Continue is none until there is something to send.
    before = ["Clip A", "Clip B", "Clip X", "X is A", "Low"]
    assert tabs(page, 6) == [*before, "Keyboard shortcuts"]
    given = listener.prepare()
    page.locator("h1").focus()
    chosen = [f"X is {given['choice'].upper()}", given["confidence"].capitalize()]
    assert tabs(page, 7) == [*before[:3], *chosen, "Continue", "Keyboard shortcuts"]


@pytest.mark.slow
def test_nothing_moves_under_the_pointer(open_hall: Any, visit: Any, maker: Any) -> None:
    """That a clip was heard is marked in room that was kept for it."""
    hall = open_hall({**maker.content("abx", per_listener=1), "volume": False})
    for size in SIZES:
        listener = visit(hall, size=size).come()
        listener.until("abx")
        parts = listener.page.locator(".screen button, .screen .option")
        before = [part.bounding_box() for part in parts.all()]
        listener.hear("A", "a")
        listener.hear("B", "b")
        assert [part.bounding_box() for part in parts.all()] == before


def test_abx_without_shortcuts(open_hall: Any, visit: Any, maker: Any) -> None:
    """Tab, arrows, Space and Enter do for a whole session, with all letters and digits switched off."""
    hall = open_hall({**maker.content("abx", per_listener=1), "volume": False})
    listener = visit(hall).come()
    page = listener.page
    press = page.keyboard.press
    for key in ("Tab", "Tab", "Space", "Enter"):
        press(key)
    assert listener.kind == "abx"
    press("a")
    for label in "ABX":
        press("Tab")
        press("Space")
        page.locator(f"[data-play={label}][data-state=heard]").wait_for()
    for key in ("Tab", "ArrowDown", "Tab", "ArrowDown", "ArrowDown", "Tab", "Enter"):
        press(key)
    assert listener.kind == "done"
    row = hall.rows()[-1]
    assert row.given == {"kind": "abx", "choice": "b", "confidence": "high"}
    assert row.plays == {"A": 1, "B": 1, "X": 1}
