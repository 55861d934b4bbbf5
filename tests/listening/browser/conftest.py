"""A real browser at a real server: Chromium through Playwright, and listeners who use its mouse or keys."""

from __future__ import annotations

import io
import random
import re
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
)
READY = ".screen:not([aria-busy=true]):not(.loading)"
PATIENCE_MS = 30_000
CONSENT = (
    "You will hear short clips and be asked about them.\n\nYou can stop at any time by closing this page."
)
DEVICES = ["Earbuds", "Headphones"]
QUESTIONS = [
    {"name": "age", "text": "How old are you?", "kind": "number"},
    {"name": "device", "text": "What do you listen with?", "kind": "choice", "choices": DEVICES},
    {"name": "remarks", "text": "Is there anything you want to tell us?", "required": False},
]  # fmt: skip
FILLED = {"age": 34.5, "device": "Headphones", "remarks": "clear & <b>loud</b>"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; skips where it or Playwright is absent.

    Of one module and no more: while Playwright is there, its thread cannot run another event loop.
    """
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the path (Debian: chromium)")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


class Hall:
    """The server of one study, in a thread of its own, at one port for as long as it lives."""

    def __init__(self, path: Path) -> None:
        from sottovoce.listening.server.database import default_url, open_engine
        from sottovoce.listening.study.stimuli import prepare
        from sottovoce.listening.study.study_file import read_study

        self.study = read_study(path)
        self.shelf = prepare(self.study, path.parent / "cache")
        self.engine = open_engine(default_url(path))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.port}/"

    def start(self) -> Hall:
        import uvicorn

        from sottovoce.listening.server.app import make_app
        from sottovoce.listening.server.connections import ConnectionLimits
        from sottovoce.listening.server.limits import Limits

        app = make_app(self.study, self.shelf, self.engine, admin_token="an-admin-token-of-tests")
        config = ConnectionLimits(Limits()).configure(app, port=self.port, timeout_graceful_shutdown=2)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)

    def rows(self) -> list[Any]:
        from sottovoce.listening.server.database import read_answers

        return read_answers(self.engine)


@pytest.fixture
def open_hall(maker: Any) -> Iterator[Callable[[dict[str, Any]], Hall]]:
    """Starts the server of a study."""
    halls: list[Hall] = []

    def open_hall(content: dict[str, Any]) -> Hall:
        halls.append(Hall(maker.write(content)))
        return halls[-1].start()

    yield open_hall
    for hall in halls:
        hall.stop()
        hall.engine.dispose()


class Visitor:
    """A listener at a page, who answers what is shown and remembers it.

    keys: uses the keyboard and never the mouse. Answers are drawn; checks and comparisons of same/different
    are answered by ear, from the very files that the page plays. word: the answer to an attention test.
    """

    def __init__(
        self, page: Any, address: str, *, keys: bool = False, word: str = "yes", seed: int = 0
    ) -> None:
        self.page, self.address, self.keys, self.word = page, address, keys, word
        self.chance = random.Random(seed)
        self.given: list[dict[str, Any]] = []
        self.plays: list[dict[str, int]] = []
        self.feedback: list[str] = []
        self.faults: list[str] = []
        self._played = Counter[str]()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def come(self, search: str = "") -> Visitor:
        self.page.goto(self.address + search)
        self.wait()
        return self

    def wait(self) -> Any:
        """The screen, once it can be used."""
        screen = self.page.locator(READY)
        screen.wait_for()
        return screen

    @property
    def kind(self) -> str:
        screen = self.wait()
        return screen.get_attribute("data-kind") or (
            "feedback" if "feedback" in self.classes() else "trouble"
        )

    @property
    def id(self) -> str:
        return str(self.wait().get_attribute("data-screen"))

    @property
    def token(self) -> str:
        found = re.search(r"#s=([\w-]+)$", self.page.url)
        assert found is not None, self.page.url
        return found[1]

    def classes(self) -> str:
        return str(self.page.locator(READY).get_attribute("class"))

    def finish(self) -> None:
        while self.kind != "done":
            self.answer()

    def until(self, kind: str) -> None:
        while self.kind != kind:
            self.answer()

    def answer(self) -> None:
        """Answers one screen, whichever it is."""
        kind = self.kind
        self._played.clear()
        if kind == "feedback":
            self.feedback.append(self.page.locator(".feedback .prose").inner_text())
            self.submit()
            return
        given = self.prepare()
        # An answer is remembered before it is sent: what the server says later must not change it.
        self.given.append({"kind": kind, **given})
        self.plays.append(dict(self._played))
        self.submit()

    def prepare(self) -> dict[str, Any]:
        """Does all that a screen asks for, but for the last press."""
        kind = self.kind
        if kind in ("consent", "notice"):
            return {"agreed": True} if kind == "consent" else {}
        act: Callable[[], dict[str, Any]] = getattr(self, f"_{kind.replace('-', '_')}")
        return act()

    def submit(self) -> None:
        kind = self.kind
        if kind == "same-different":
            told = "different" if self.given[-1]["different"] else "same"
            self.press(told[0], f"[data-choice={told}]")
        else:
            self.press("y" if kind == "consent" else "Enter", "[data-submit]")

    def press(self, key: str, selector: str) -> None:
        """A key, or a click on what it stands for, once that can be pressed."""
        target = self.page.locator(READY).locator(selector)
        if not self.keys:
            target.click()
            return
        if target.evaluate("it => it.matches('button')"):
            self.page.locator(READY).locator(f"{selector}:enabled").wait_for()
        self.page.keyboard.press(key)

    def hear(self, label: str, key: str) -> None:
        """Plays what is behind a button to its end."""
        self.press(key, f'[data-play="{label}"]')
        self.page.locator(f'[data-play="{label}"][data-state=heard]').wait_for()
        self._played.update(label.split(" "))

    def pick(self, value: str, key: str) -> None:
        self.press(key, f'.option:has(input[value="{value}"])')

    def shown(self) -> dict[str, Any]:
        """The screen as the server gave it to the page."""
        reply = self.page.request.get(f"{self.address}api/sessions/{self.token}/screen")
        assert reply.ok, reply.text()
        told: dict[str, Any] = reply.json()["screen"]
        return told

    def fetch(self, slot: dict[str, str]) -> Any:
        """The samples in a slot: (time, channels), integers of 16 bits, and the rate."""
        reply = self.page.request.get(f"{self.address}api/audio/{slot['audio']}?token={self.token}")
        assert reply.ok, reply.text()
        return soundfile.read(io.BytesIO(reply.body()), dtype="int16", always_2d=True)

    def _volume(self) -> dict[str, Any]:
        self.press(" ", "[data-play=Noise]")
        self._played["Noise"] += 1
        return {}

    def _headphones(self) -> dict[str, Any]:
        tones = [self.fetch(slot)[0].astype(float) for slot in self.shown()["clips"]]
        quietest = int(np.argmin([np.sqrt((tone**2).mean()) for tone in tones]))
        self.hear("1 2 3", " ")
        self.pick(str(quietest), str(quietest + 1))
        return {"choice": quietest}

    def _attention(self) -> dict[str, Any]:
        self.hear("Clip", " ")
        self.pick(self.word, "abcdefghij"[self.shown()["choices"].index(self.word)])
        return {"choice": self.word}

    def _naming(self) -> dict[str, Any]:
        choices = self.shown()["choices"]
        place, grade = self.chance.randrange(len(choices)), self.chance.randint(1, 5)
        self.hear("Clip", " ")
        self.pick(choices[place], "abcdefghij"[place])
        self.pick(str(grade), str(grade))
        return {"choice": choices[place], "naturalness": grade}

    def _abx(self) -> dict[str, Any]:
        for label in "ABX":
            self.hear(label, label.lower())
        side, sure = self.chance.choice("ab"), self.chance.choice(["low", "medium", "high"])
        self.pick(side, {"a": "1", "b": "2"}[side])
        self.pick(sure, sure[0])
        return {"choice": side, "confidence": sure}

    def _same_different(self) -> dict[str, Any]:
        shown = self.shown()
        first, second = (self.fetch(shown[which])[0] for which in ("first", "second"))
        self.page.locator('[data-play="First Second"][data-state=heard]').wait_for()
        self._played.update(["First", "Second"])
        # Somebody who hears what is half as loud as the clip, and guesses below: who always said the same
        # would be discarded.
        apart, loud = (np.sqrt(np.mean(sound.astype(float) ** 2)) for sound in (first - 1.0 * second, first))
        return {"different": bool(apart > loud / 2 or (apart > 0 and self.chance.random() < 0.5))}

    def _mushra(self) -> dict[str, Any]:
        labels = [slot["label"] for slot in self.shown()["clips"]]
        ratings = {}
        self.press("r", "[data-play=Reference]")
        for label in labels:
            self.press(label.lower(), f"[data-play={label}]")
            self.page.locator(f"[data-play={label}][data-state=playing]").wait_for()
            ratings[label] = self._slide(label)
        self._played.update(["Reference", *labels])
        return {"ratings": ratings}

    def _slide(self, label: str) -> int:
        slider = self.page.locator(f"[data-rate={label}]")
        rating = self.chance.choice([self.chance.randint(0, 12), self.chance.randint(88, 100)])
        if self.keys:
            # The clip's key has put the focus on its slider.
            low = rating < 50
            self.page.keyboard.press("Home" if low else "End")
            for _ in range(rating if low else 100 - rating):
                self.page.keyboard.press("ArrowRight" if low else "ArrowLeft")
        else:
            box = slider.bounding_box()
            thumb = 16.0
            across = thumb / 2 + (box["width"] - thumb) * rating / 100
            slider.click(position={"x": across, "y": box["height"] / 2})
            seen = int(slider.input_value())
            assert abs(seen - rating) <= 1, "the slider goes where it is clicked"
            rating = seen
        assert slider.locator("xpath=following-sibling::output").inner_text() == str(rating)
        return rating

    def _preference(self) -> dict[str, Any]:
        labels = [slot for slot in ("Reference", "A", "B") if slot.lower() in _slots(self.shown())]
        for label in labels:
            self.hear(label, label[0].lower())
        side = self.chance.choice("ab")
        self.pick(side, {"a": "1", "b": "2"}[side])
        return {"choice": side}

    _closer = _preference

    def _questionnaire(self) -> dict[str, Any]:
        if self.keys:
            for key in ("Tab", "34,5", "Tab", "ArrowDown", "Tab", FILLED["remarks"]):
                (self.page.keyboard.press if key in ("Tab", "ArrowDown") else self.page.keyboard.type)(key)
            # Enter belongs to the field; the button is one Tab further.
            self.page.keyboard.press("Tab")
        else:
            self.page.get_by_label("How old are you?").fill("34.5")
            self.page.get_by_label("Headphones").check()
            self.page.get_by_label("Is there anything").fill(FILLED["remarks"])
        return {"answers": FILLED}


def _slots(shown: dict[str, Any]) -> set[str]:
    return {name for name, value in shown.items() if isinstance(value, dict) and "audio" in value}


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visitor]]:
    """A listener in a fresh browser profile, or in `context`."""
    contexts: list[Any] = []

    def visit(
        hall: Hall, *, context: Any = None, size: tuple[int, int] = (1200, 800), **settings: Any
    ) -> Visitor:
        if context is None:
            bypass = settings.pop("bypass_csp", False)
            shape = {"width": size[0], "height": size[1]}
            context = browser.new_context(viewport=shape, bypass_csp=bypass, reduced_motion="reduce")
            contexts.append(context)
        return Visitor(context.new_page(), hall.address, **settings)

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture
def dress(maker: Any) -> Callable[..., dict[str, Any]]:
    """A study of one block with everything around it: checks, teaching, a break, questions, a code."""
    teaching = {
        "naming": ["w5"],
        "abx": ["w5-adv"],
        "same-different": 2,
        "mushra": [{"reference": "w5", "clips": ["w5-adv"]}],
        "preference": [{"a": "w5", "b": "w5-adv", "better": "a"}],
        "closer": [{"reference": "w5", "a": "w5", "b": "w5-adv", "better": "a"}],
    }

    def dress(test: str, **entries: Any) -> dict[str, Any]:
        block: dict[str, Any] = {"teaching": teaching[test], "per_listener": 2, "break_after": 1}
        if test == "same-different":
            block |= {
                "per_listener": 1,
                "sentinels": 1,
                "comparisons": 4,
                "break_after": 2,
                "gap_seconds": 0.1,
            }
        return {
            **maker.content(test, **block),
            "consent": CONSENT,
            "instructions": "Sit where it is quiet.",
            "volume": True,
            "headphones": {"trials": 1, "need": 1, "retries": 0},
            "attention": [{"clip": "w0", "choices": ["no", "yes", "stop"], "answer": "yes"}],
            "questionnaire": QUESTIONS,
            "completion": {"link": "https://example.org/back?cc={code}&id={PROLIFIC_PID}"},
            **entries,
        }

    return dress
