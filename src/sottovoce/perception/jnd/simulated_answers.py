"""A listening test with simulated people: what an ear model hears along many paths, asked adaptively.

Each pair is a reference and a path away from it. Its clips are rendered at a grid of strengths, and an ear
gives the distance of each from the reference. Simulated people, each a little more or less sensitive than the
ear, with lapses, then answer sessions over three pairs as real people would. The answers folder is marked as
simulated in every line and by every listener's name.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce import __version__, registry
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.processes import in_order, workers
from sottovoce.data.load import Clip
from sottovoce.data.pack import FULL_SCALE
from sottovoce.errors import InputError, SottovoceError
from sottovoce.perception.degradations.added_noise import Noise
from sottovoce.perception.degradations.perturbation_space import MAKERS, Direction
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.jnd.answers import AnswerSummary, SameDifferentAnswer, write_answers
from sottovoce.perception.jnd.degradation_paths import AT, CONTROLS, find_path
from sottovoce.perception.jnd.references import Reference
from sottovoce.perception.jnd.session_plan import SessionPlan
from sottovoce.perception.jnd.simulated_listeners import PREFIX, CurveListener
from sottovoce.perception.jnd.simulated_session import SimulatedSession, sit

ABOUT = "about.json"
CONTROL_SHARES = {"equal": 0.03, "gain": 0.08, "shift": 0.04, "bursts": 0.06, "shaped": 0.05, "sign": 0.04}
"""Shares of pairs that are controls; the others are directions."""
MIXED_SHARE = 0.6
"""Of directions, the share that leads straight to one strength of it."""
OBVIOUS = Noise(kind="white", strength=100.0)
"""The sentinel of every reference: noise 2 dB below it."""
PLAN = SessionPlan(teaching=0, comparisons=14)
"""Twelve comparisons a reference and two sentinels."""
Tell = Callable[[float, str], None]
Samples = NDArray[np.int16]


@final
@dataclass(frozen=True, kw_only=True)
class Collection:
    """How a collection is simulated.

    people: sessions over each three pairs, each by somebody else. levels: strengths that are rendered,
    evenly from 0 to 100. lapse: share of answers that are a coin's. spread: how people differ, the standard
    deviation of the logarithm of what they make of a distance. explore: comparisons of each reference that
    are drawn from all strengths before the rule takes over, so that the far ends are asked about too.
    ear: what hears. without: degradations to leave out.
    """

    people: int = 4
    levels: int = 17
    lapse: float = 0.02
    spread: float = 0.2
    plan: SessionPlan = PLAN
    explore: int = 2
    ear: str = "auditory"
    without: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.people < 1 or self.levels < 2:
            raise InputError(
                f"expected 1 person and 2 levels or more, got {self.people} and {self.levels}; raise them."
            )

    @property
    def strengths(self) -> list[float]:
        return [100.0 * place / (self.levels - 1) for place in range(self.levels)]

    @property
    def draws(self) -> Draws:
        return Draws(self.seed).turn("collection")

    def path(self, name: str) -> str:
        """The path of a reference, as text."""
        source = self.draws.turn("control").generator(name)
        place, mixed, whole = source.random(3).tolist()
        for control, edge in zip(CONTROLS, np.cumsum([CONTROL_SHARES[one] for one in CONTROLS]), strict=True):
            if place < edge:
                return control
        direction = Direction.draw(self.draws, name, among=[one for one in MAKERS if one not in self.without])
        return f"{direction}{AT}{round(10 + 90 * whole)}" if mixed < MIXED_SHARE else str(direction)


def find_impossible() -> dict[str, str]:
    """Degradations that cannot be made here, such as MP3 where there is no encoder, and why."""
    found = {}
    for name, make in MAKERS.items():
        try:
            make(strength=50.0)
        except SottovoceError as error:
            found[name] = str(error)
    return found


class SimulatedPair(NamedTuple):
    """A reference `(time,)`, by name, and the path along which it is changed."""

    name: str
    samples: Samples
    path: str


def simulate(
    folder: str | Path,
    references: Sequence[Reference],
    collection: Collection | None = None,
    *,
    processes: int = 1,
    device: str = "cpu",
    tell: Tell = lambda share, what: None,
) -> AnswerSummary:
    """Write an answers folder of simulated people over these references, and say what is in it.

    processes: how many render clips and simulate sessions; the answers do not depend on it.
    device: where the ear runs. References that do not fill a session are not used.
    """
    collection = collection or Collection()
    tables = _tables(references, collection)
    ear: Ear = registry.build("ear", collection.ear)
    rate = references[0].clip.sample_rate
    store = _Store(references, collection)

    def hear(rendered: Iterable[tuple[int, list[Samples]]]) -> Iterator[tuple[Any, Callable[[], Any]]]:
        for number, clips in rendered:
            distances = listen(ear, tables[number], clips, rate, device)
            chances = [
                _chances(ear, distances, collection, _name(number, who)) for who in range(collection.people)
            ]
            yield (number, clips), partial(simulate_table, number, chances, collection)
            done = (number + 1) / len(tables)
            tell(done, f"{(number + 1) * len(tables[0]):,} of {len(tables) * len(tables[0]):,} pairs heard")

    with workers(processes) as submit:
        jobs = (
            (number, partial(render_table, table, rate, collection)) for number, table in enumerate(tables)
        )
        simulated = in_order(submit, hear(in_order(submit, jobs, 2 * processes)), 2 * processes)
        for (number, clips), sessions in simulated:
            for who, session in enumerate(sessions):
                store.add(_name(number, who), tables[number], clips, session)
    tell(1.0, "writing")
    return store.write(Path(folder).expanduser())


def render_table(table: Sequence[SimulatedPair], sample_rate: int, collection: Collection) -> list[Samples]:
    """All clips of each pair, `(levels + 1, time)`: those along its path, and the sentinel."""
    made = []
    for pair in table:
        batch = AudioBatch.of([pair.samples / np.float32(FULL_SCALE)], sample_rate, [pair.name])
        draws = collection.draws.turn("path")
        steps = find_path(pair.path).render(batch, collection.strengths, draws=draws)
        with torch.no_grad():
            rows = [step.batch.clip(0) for step in steps]
            rows.append(OBVIOUS(batch, draws=draws.turn("sentinel")).clip(0))
        whole = torch.stack(rows).double().numpy() * FULL_SCALE
        made.append(np.rint(whole).clip(-FULL_SCALE, FULL_SCALE - 1).astype(np.int16))
    return made


def listen(
    ear: Ear, table: Sequence[SimulatedPair], clips: Sequence[Samples], sample_rate: int, device: str
) -> NDArray[np.float64]:
    """How far each clip is from its reference, `(pairs, levels + 1)`, as stored: on the 16-bit grid."""
    levels = len(clips[0])
    changed = [row / np.float32(FULL_SCALE) for one in clips for row in one]
    clean = [pair.samples / np.float32(FULL_SCALE) for pair in table for _ in range(levels)]
    with torch.no_grad():
        pairs = [AudioBatch.of(rows, sample_rate).to(device) for rows in (clean, changed)]
        distances: NDArray[np.float64] = ear.distance(*pairs).double().cpu().numpy()
    return distances.reshape(len(table), levels)


def simulate_table(
    number: int, chances: Sequence[NDArray[np.float64]], collection: Collection
) -> list[SimulatedSession]:
    """One session of each person. chances: P("different"), `(pairs, levels + 1)`, one array a person."""
    return [
        sit(
            [_listener(collection.strengths, row[:-1], name, collection) for row in chance],
            [_listener([0.0, 100.0], row[[-1, -1]], name, collection) for row in chance],
            collection.plan,
            collection.draws.turn("session", name),
            levels=collection.strengths,
            explore=collection.explore,
        )
        for who, chance in enumerate(chances)
        for name in [_name(number, who)]
    ]


@final
class _Store:
    """What a collection found: answers, and the clips that they are about."""

    def __init__(self, references: Sequence[Reference], collection: Collection) -> None:
        self.references = {one.clip.id: one for one in references}
        self.collection = collection
        self.answers: list[SameDifferentAnswer] = []
        self.clips: dict[str, Reference] = {}
        self.paths: Counter[str] = Counter()
        self.sessions: Counter[bool] = Counter()

    def add(
        self, name: str, table: Sequence[SimulatedPair], clips: Sequence[Samples], session: SimulatedSession
    ) -> None:
        self.sessions[session.verdict.kept] += 1
        strengths = self.collection.strengths
        for slot, strength, different in session.heard:
            pair, rows = table[slot.reference], clips[slot.reference]
            if strength is None:
                changed, row, path = f"{pair.name}-obvious", len(rows) - 1, "white"
            elif pair.path == "equal":
                changed, row, path = pair.name, 0, pair.path
            else:
                changed, row, path = f"{pair.name}-{strength:g}", strengths.index(strength), pair.path
            self._keep(pair.name, pair.samples, pair.name)
            self._keep(changed, rows[row], pair.name)
            self.answers.append(
                SameDifferentAnswer(
                    listener=name,
                    simulated=True,
                    reference=pair.name,
                    changed=changed,
                    different=different,
                    strength=100.0 if strength is None else strength,
                    direction=path,
                    sentinel=strength is None,
                )
            )

    def _keep(self, name: str, samples: Samples, reference: str) -> None:
        if name not in self.clips:
            of = self.references[reference]
            waveform = torch.from_numpy(samples.astype(np.float32) / FULL_SCALE)
            clip = Clip(name, waveform, of.clip.sample_rate, of.clip.label, "", of.clip.facts)
            self.clips[name] = Reference(clip, of.split)

    def write(self, folder: Path) -> AnswerSummary:
        kept = list(self.clips.values())
        made = write_answers(folder, self.answers, [one.clip for one in kept], [one.split for one in kept])
        found = made.summary()
        about = {
            "what": "answers of simulated listeners, not of people",
            "version": __version__,
            "collection": asdict(self.collection),
            "control_shares": CONTROL_SHARES,
            "mixed_share": MIXED_SHARE,
            "sessions": {"kept": self.sessions[True], "discarded": self.sessions[False]},
            "summary": found._asdict(),
            "splits": Counter(self.clips[name].split for name in {one.reference for one in self.answers}),
        }
        (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        return found


def _tables(references: Sequence[Reference], collection: Collection) -> list[list[SimulatedPair]]:
    """Pairs by sessions: as many references as one has."""
    size = collection.plan.references
    rates = sorted({one.clip.sample_rate for one in references})
    if len(references) < size or len(rates) != 1:
        raise InputError(
            f"expected {size} references or more at one rate, got {len(references)} at {rates} Hz; a session "
            "needs so many."
        )
    pairs = []
    for one in references:
        samples = np.rint(one.clip.waveform.numpy() * FULL_SCALE).astype(np.int16)
        pairs.append(SimulatedPair(one.clip.id, samples, collection.path(one.clip.id)))
    return [pairs[first : first + size] for first in range(0, len(pairs) - size + 1, size)]


def _chances(
    ear: Ear, distances: NDArray[np.float64], collection: Collection, name: str
) -> NDArray[np.float64]:
    """P("different") of one person, `(pairs, levels + 1)`: one who makes more, or less, of a distance."""
    z = collection.draws.turn("person").generator(name).standard_normal()
    heard = torch.from_numpy(distances) * math.exp(collection.spread * z)
    chances: NDArray[np.float64] = ear.probability(heard).clamp(0.0, 1.0).numpy()
    return chances


def _name(number: int, who: int) -> str:
    """A person who sits one session: whoever discards a session discards that person."""
    return f"{PREFIX}{number:05d}-{who}"


def _listener(
    strengths: Sequence[float], chances: NDArray[np.float64], name: str, collection: Collection
) -> CurveListener:
    return CurveListener(
        strengths=tuple(strengths),
        probabilities=tuple(chances.tolist()),
        lapse=collection.lapse,
        seed=collection.seed,
        name=name,
    )
