"""The perturbation space of Manocha et al. (2020), Table 1: degradations by name, and directions through it.

direction = Direction.draw(Draws(0), "pair-17")     # "pink+griffin-lim+drr", say
louder = direction.at(70)(clips, draws=Draws(0))    # the same clips, more changed than at 60
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, final

from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.degradations.added_noise import Noise
from sottovoce.perception.degradations.coding_rates import Mp3Coding, MuLawCoding
from sottovoce.perception.degradations.degradation import Degradation
from sottovoce.perception.degradations.equaliser import Equaliser
from sottovoce.perception.degradations.griffin_lim import GriffinLim
from sottovoce.perception.degradations.lost_samples import Dropouts, Pops
from sottovoce.perception.degradations.reverberation import ReverbRatio, ReverbTime

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "additive": ("white", "pink", "applause", "water-drops", "room"),
        "reverb": ("drr", "rt60"),
        "compression": ("mp3", "mulaw"),
        "equalisation": ("eq",),
        "miscellaneous": ("pops", "griffin-lim", "dropouts"),
    }
)
MAKERS: Mapping[str, Callable[..., Degradation]] = MappingProxyType(
    {
        "white": partial(Noise, kind="white"),
        "pink": partial(Noise, kind="pink"),
        "applause": partial(Noise, kind="applause"),
        "water-drops": partial(Noise, kind="water-drops"),
        "room": partial(Noise, kind="room"),
        "drr": ReverbRatio,
        "rt60": ReverbTime,
        "mp3": Mp3Coding,
        "mulaw": MuLawCoding,
        "eq": Equaliser,
        "pops": Pops,
        "griffin-lim": GriffinLim,
        "dropouts": Dropouts,
    }
)
"""Degradations of one strength, by the names that directions are written in."""
RECORDED = ("applause", "water-drops", "room", "drr")
"""Those that can come from a recording."""


class Rendered(NamedTuple):
    """Clips at one strength of a direction. clipped: the share of each clip's samples that was clamped."""

    strength: float
    batch: AudioBatch
    clipped: Tensor


@final
@dataclass(frozen=True)
class Chain(Transform):
    """Degradations one after the other, and at the end a clamp to [-1, 1]: the result can be stored."""

    members: tuple[tuple[str, Degradation], ...]

    @property
    def random(self) -> bool:  # type: ignore[override]
        return any(part.random for _, part in self.members)

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return self.unclamped(batch, draws).waveforms.clamp(-1.0, 1.0)

    def unclamped(self, batch: AudioBatch, draws: Draws) -> AudioBatch:
        for name, part in self.members:
            batch = part(batch, draws=draws.turn(name))
        return batch


@final
@dataclass(frozen=True)
class Direction:
    """At most one degradation of each category, in an order: a path away from a clip, along its strength.

    All members have the same strength. What is random depends only on the draws and the clip's id, so the
    same draws give the same noise at every strength. `str` writes it down, `parse` reads it back.

    >>> direction = sv.ears.Direction.parse("pink+drr")
    >>> clips = sv.testing.example_clips(16000)
    >>> slight, strong = (direction.at(strength)(clips, draws=sv.Draws(0)) for strength in (10, 50))
    >>> bool(((strong.waveforms - clips.waveforms).norm() > (slight.waveforms - clips.waveforms).norm()))
    True
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError(f"expected at least one degradation, got none; known: {', '.join(MAKERS)}.")
        for name in self.names:
            if name not in MAKERS:
                raise UnknownName("degradation", name, MAKERS)
        for category, known in CATEGORIES.items():
            taken = [name for name in self.names if name in known]
            if len(taken) > 1:
                raise InputError(
                    f"expected at most one degradation that is {category}, got {', '.join(taken)}; drop one."
                )

    @classmethod
    def draw(cls, draws: Draws, name: str, *, among: Collection[str] | None = None) -> Direction:
        """The direction of a named thing, such as a pair of clips.

        The number of categories is drawn evenly, then the categories, a member of each, and their order.
        among: the degradations to draw from; all where it is not given.
        """
        unknown = sorted(set(among or ()) - set(MAKERS))
        if unknown:
            raise UnknownName("degradation", unknown[0], MAKERS)
        pools = [[one for one in known if among is None or one in among] for known in CATEGORIES.values()]
        pools = [pool for pool in pools if pool]
        if not pools:
            raise InputError(
                "expected at least one degradation to draw from, got none; name some, or leave the setting "
                "out for all."
            )
        source = draws.turn("direction").generator(name)
        chosen = source.permutation(len(pools))[: source.integers(1, len(pools) + 1)]
        return cls(tuple(pools[place][source.integers(len(pools[place]))] for place in chosen.tolist()))

    @classmethod
    def parse(cls, text: str) -> Direction:
        """From "white+drr+mp3"."""
        return cls(tuple(part.strip() for part in text.split("+")) if text.strip() else ())

    def __str__(self) -> str:
        return "+".join(self.names)

    def at(self, strength: float, recordings: Mapping[str, str] | None = None) -> Chain:
        """All of it at a strength from 0 to 100.

        recordings: files or folders of noises and responses, by degradation; others are synthesised.
        """
        recordings = recordings or {}
        for name in recordings:
            if name not in RECORDED:
                raise UnknownName("degradation that can be recorded", name, RECORDED)
        files = {name: {"file": recordings[name]} for name in self.names if name in recordings}
        return Chain(
            tuple((name, MAKERS[name](strength=strength, **files.get(name, {}))) for name in self.names)
        )

    def render(
        self,
        batch: AudioBatch,
        strengths: Iterable[float],
        *,
        draws: Draws,
        recordings: Mapping[str, str] | None = None,
    ) -> Iterator[Rendered]:
        """The clips at some strengths, each with the share of samples that had to be clamped, `(batch,)`."""
        for strength in strengths:
            loud = self.at(strength, recordings).unclamped(batch, draws)
            over = (loud.waveforms.abs() > 1.0).sum(dim=1) / batch.lengths
            yield Rendered(strength, batch.with_waveforms(loud.waveforms.clamp(-1.0, 1.0)), over)
