"""Simulated listeners: what someone who hears through a model of the ear would answer to each screen.

They replace people in dry runs. The ear says how different two clips are; everything else is invented so that
a study's analysis has something to find: how distances turn into ratings, how often a command is misheard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, assert_never, final

import numpy as np
import soundfile
import torch
from scipy.special import ndtr

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.load import Clip, load_clip
from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.analysis.jnd_searches import Sounds
from sottovoce.listening.session import protocol
from sottovoce.listening.session.protocol import Question, Screen, Slot
from sottovoce.listening.study.sound_keys import QUIET
from sottovoce.listening.study.study_file import ListeningStudy
from sottovoce.perception.audible_budget import largest_distance, open_ear

NAMED = 0.94
"""Share of commands that people name correctly (Vadillo and Santana 2020, section 5.2.1)."""
CAREFUL = 0.98
"""Checks that someone who listens passes."""
NATURAL, UNNATURAL, RATING_SPREAD = 4.4, 3.0, 0.8
"""Mean naturalness of a clean clip, what is lost where a change is surely heard, and the spread."""
FADING_JND, SLIDER_SPREAD = 12.0, 4.0
"""JNDs after which a MUSHRA rating has fallen to 37, and the spread of ratings."""


@final
class Hearing:
    """What an ear makes of the clips of a study: asked once about each pair.

    study: to know which clip another was made from, and what is said in it.
    """

    def __init__(self, study: ListeningStudy, sounds: Sounds, ear: str = "auditory") -> None:
        self.study = study
        self._sounds, self._ear = sounds, open_ear(ear)
        self._unit = largest_distance(ear, 0.5, torch.device("cpu"), torch.float32)
        self._known: dict[tuple[str, str], float] = {}

    def apart(self, first: str, second: str) -> float:
        """In just noticeable differences: 1 is heard half of the time."""
        if first == second:
            return 0.0
        key = (first, second)
        if key not in self._known:
            clips = self._pair(first, second)
            size = min(len(clip.waveform) for clip in clips)
            batches = [AudioBatch.of([c.waveform[:size].numpy()], c.sample_rate, ["0"]) for c in clips]
            with torch.no_grad():
                self._known[key] = float(self._ear.distance(*batches)) / self._unit
        return self._known[key]

    def _pair(self, first: str, second: str) -> list[Clip]:
        """Two clips as they are played; from their files where one of them is not played in the study."""
        try:
            return [self._sounds(key) for key in (first, second)]
        except UnknownName:
            paths = [Path(self.study.clips[key].path) for key in (first, second)]
            rate = int(soundfile.info(paths[0]).samplerate)
            return [load_clip(path, rate, id=path.stem, label="") for path in paths]

    def probability(self, jnds: float) -> float:
        """P(heard) at a distance in JNDs."""
        return float(self._ear.probability(torch.tensor([jnds * self._unit])))

    def changed(self, key: str) -> float | None:
        """How far a clip lies from the one it was made from; None where that is not known."""
        clip = self.study.clips.get(key)
        if clip is None:
            return None
        if clip.reference is None:
            return 0.0 if clip.condition.lower() == "clean" else None
        return self.apart(clip.reference, key)


@final
@dataclass(frozen=True, kw_only=True)
class Person:
    """One made-up listener.

    bias, noise: natural logarithms of a factor on every distance: a constant one, and the spread of a random
    one per screen. lapse: share of screens answered at random; 1 is someone who does not listen. d_prime: of
    ABX, in place of what the ear says; None: the ear.
    """

    hearing: Hearing
    number: int
    seed: int = 0
    bias: float = 0.0
    noise: float = 0.2
    lapse: float = 0.02
    d_prime: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.lapse <= 1.0 or not self.noise >= 0.0:
            raise InputError(
                f"expected a lapse from 0 to 1 and a noise from 0 on, got {self.lapse} and {self.noise}."
            )

    @cached_property
    def _draws(self) -> Draws:
        return Draws(self.seed).turn("person", self.number)

    def answer(self, screen: Screen, clips: Mapping[str, str], place: int) -> dict[str, Any]:
        """The answer to a screen, as the protocol has it. clips: keys by the labels of the slots."""
        source = self._draws.generator(f"screen {place}")
        lapsed = bool(source.random() < self.lapse)
        given = _Answering(self, source, clips, lapsed).to(screen)
        return {"kind": screen.kind, **given}

    def seconds(self, place: int) -> float:
        """How long an answer takes."""
        return float(round(math.exp(self._draws.generator(f"seconds {place}").normal(2.0, 0.4)), 2))


class _Answering:
    """One answer of one person."""

    def __init__(
        self, person: Person, source: np.random.Generator, clips: Mapping[str, str], lapsed: bool
    ) -> None:
        self.person, self.hearing = person, person.hearing
        self.source, self.clips, self.lapsed = source, clips, lapsed
        self.factor = math.exp(person.bias + person.noise * source.standard_normal())

    def to(self, screen: Screen) -> dict[str, Any]:
        match screen:
            case protocol.Consent():
                return {"agreed": True}
            case protocol.Notice() | protocol.Volume():
                return {}
            case protocol.Headphones():
                return {"choice": self._quietest(screen.clips)}
            case protocol.AttentionScreen():
                return {"choice": self._word(self._key(screen.clip), screen.choices)}
            case protocol.Naming():
                return self._name(self._key(screen.clip), screen.choices)
            case protocol.Abx():
                return self._match(self._key(screen.a), self._key(screen.b), self._key(screen.x))
            case protocol.SameDifferent():
                apart = self._apart(self._key(screen.first), self._key(screen.second))
                return {"different": self._happens(self.hearing.probability(apart))}
            case protocol.Mushra():
                return {"ratings": self._rate(self._key(screen.reference), screen.clips)}
            case protocol.Preference() | protocol.Closer():
                reference = None if screen.reference is None else self._key(screen.reference)
                return {"choice": self._better(reference, self._key(screen.a), self._key(screen.b))}
            case protocol.Questionnaire():
                return {"answers": {one.name: self._fill(one) for one in screen.questions}}
            case protocol.Done():
                raise InputError("expected a screen to answer, got the end of the session; stop there.")
            case _:
                assert_never(screen)

    def _key(self, slot: Slot) -> str:
        return self.clips[slot.label]

    def _apart(self, first: str, second: str) -> float:
        return self.factor * self.hearing.apart(first, second)

    def _happens(self, chance: float) -> bool:
        """A draw; by a coin where attention lapsed."""
        return bool(self.source.random() < (0.5 if self.lapsed else chance))

    def _pick(self, right: Any, every: Sequence[Any], chance: float) -> Any:
        """The right one with a chance, else another; any where attention lapsed."""
        others = [one for one in every if one != right]
        if not self.lapsed and (not others or self.source.random() < chance):
            return right
        return (every if self.lapsed else others)[
            int(self.source.integers(len(every if self.lapsed else others)))
        ]

    def _quietest(self, slots: Sequence[Slot]) -> int:
        right = [self._key(slot) for slot in slots].index(QUIET)
        return int(self._pick(right, range(len(slots)), CAREFUL))

    def _word(self, key: str, choices: Sequence[str]) -> str:
        right = next((test.answer for test in self.hearing.study.attention if test.clip == key), choices[0])
        return str(self._pick(right, choices, CAREFUL))

    def _name(self, key: str, choices: Sequence[str]) -> dict[str, Any]:
        word = self._pick(self.hearing.study.clips[key].label, choices, NAMED)
        heard = self.hearing.probability(self.factor * (self.hearing.changed(key) or 0.0))
        mean = NATURAL - UNNATURAL * heard
        rating = round(float(self.source.normal(mean, RATING_SPREAD)))
        if self.lapsed:
            rating = int(self.source.integers(1, 6))
        return {"choice": word, "naturalness": min(5, max(1, rating))}

    def _match(self, a: str, b: str, x: str) -> dict[str, Any]:
        heard = self.hearing.probability(self._apart(a, b))
        chance = 0.5 + heard / 2
        if self.person.d_prime is not None:
            chance = abx_chance(self.factor * self.person.d_prime)
            heard = 2 * chance - 1
        right, wrong = ("a", "b") if x == a else ("b", "a")
        sure = heard + float(self.source.normal(0.0, 0.15))
        return {
            "choice": right if self._happens(chance) else wrong,
            "confidence": "high" if sure > 0.8 else "medium" if sure > 0.4 else "low",
        }

    def _rate(self, reference: str, slots: Sequence[Slot]) -> dict[str, int]:
        ratings = {}
        for slot in slots:
            apart = self._apart(reference, self._key(slot))
            mean = 100.0 * math.exp(-apart / FADING_JND)
            # Nobody wavers about a clip that sounds like the reference.
            spread = SLIDER_SPREAD * min(1.0, apart)
            value = self.source.uniform(0, 100) if self.lapsed else self.source.normal(mean, spread)
            ratings[slot.label] = int(min(100, max(0, round(float(value)))))
        return ratings

    def _better(self, reference: str | None, a: str, b: str) -> str:
        """The one that lies closer to the reference, or to the clip that it was made from."""
        gaps = [
            self.hearing.changed(key) if reference is None else self.hearing.apart(reference, key)
            for key in (a, b)
        ]
        first, second = gaps
        chance = 0.5
        if first is not None and second is not None:
            # What tells two large differences apart is their ratio rather than their difference.
            chance = float(ndtr(self.factor * (second - first) / (1.0 + 0.3 * (first + second))))
        return "a" if self._happens(chance) else "b"

    def _fill(self, question: Question) -> str | float:
        if question.kind == "choice":
            return question.choices[int(self.source.integers(len(question.choices)))]
        return float(self.source.integers(18, 70)) if question.kind == "number" else "simulated"


def abx_chance(d_prime: float) -> float:
    """How often X is found by someone who compares it with both clips, each heard on its own (Macmillan and
    Creelman 2005, chapter 9)."""
    near, far = d_prime / math.sqrt(2.0), d_prime / 2.0
    return float(ndtr(near) * ndtr(far) + ndtr(-near) * ndtr(-far))
