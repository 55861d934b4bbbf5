"""Options for a clinic against attacks on its detector, with clean accuracy and accuracy under attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from sottovoce.core.statistics import Interval
from sottovoce.studies.amiri2024 import job_plan as plans
from sottovoce.studies.amiri2024.detector_attacks import BITS, CLEAN, cell
from sottovoce.studies.amiri2024.job_plan import CLAIMED_DB, OPTION_LEVELS_DB
from sottovoce.studies.amiri2024.job_results import PathologySetup, SpeakerAccuracy, certified_share

HEARD = 0.5
"""From here on an attack counts as heard: more likely than not."""
TITLES = {
    plans.CNN: "CNN, nothing done",
    plans.EMBEDDING: "embeddings, nothing done",
    plans.ADVERSARIAL: "CNN-A: adversarial training at 60 dB",
    "gaussian": "CNN behind Gaussian noise, with votes",
    "mad": "CNN behind MAD noise, with votes",
    "gaussian-trained": "CNN trained on Gaussian noise, behind it, with votes",
    "mad-trained": "CNN trained on MAD noise, behind it, with votes",
    plans.LOW_PASS: "CNN behind a low-pass at 4 kHz",
}
EARS = ("learned", "auditory")


class StrongestAtSnr(NamedTuple):
    """The strongest attacker at one SNR, who chooses an attack for each speaker.

    cells: the attacks that were picked. heard: the highest P(heard) among these by model of hearing, of those
    models that listened to all of them.
    """

    db: int
    cells: tuple[str, ...]
    left: SpeakerAccuracy
    heard: dict[str, float]

    @property
    def audible(self) -> bool | None:
        """Whether any of the ears hears it; None where it was not measured."""
        return max(self.heard.values()) >= HEARD if self.heard else None


@final
@dataclass(frozen=True)
class Option:
    """certified: share of speakers by SNR, provably right whatever is added; None: has no certificate.
    radius: the L2 radius at which half of the speakers are certified, 0 where fewer are at all."""

    kind: str
    title: str
    clean: SpeakerAccuracy
    attacked: list[StrongestAtSnr]
    passes: int
    chance: float
    certified: dict[int, float] | None = None
    radius: float | None = None

    @property
    def worst_unheard(self) -> StrongestAtSnr | None:
        """The strongest of the attacks that are not heard; attacks without a P(heard) count as not heard."""
        quiet = [one for one in self.attacked if not one.audible]
        return min(quiet, key=lambda one: one.left.mean, default=None)

    def verdict(self) -> str:
        """One sentence, from the numbers alone."""
        share = f"{100 * self.clean.mean:.0f} %"
        if self.clean.mean <= self.chance:
            luck = f"{100 * self.chance:.0f} %"
            return f"Not usable here: {share} on clean speech is no better than chance ({luck})."
        if not self.attacked:
            return f"Not attacked yet (clean: {share})."
        worst = self.worst_unheard
        if worst is not None and worst.left.mean < self.chance:
            first = max(
                (one for one in self.attacked if not one.audible and one.left.mean < self.chance), key=_level
            )
            text = (
                f"Not robust: an attack at {first.db} dB{_ears(first)} leaves {_left(first)} (clean: {share})"
            )
        elif worst is None or all(one.left.mean >= self.chance for one in self.attacked):
            least = min(self.attacked, key=lambda one: one.left.mean)
            text = f"Robust: no attack tried leaves less than {_left(least)} (clean: {share})"
        else:
            broken = max((one for one in self.attacked if one.left.mean < self.chance), key=_level)
            text = (
                f"Robust against inaudible attacks: {_left(worst)} at {worst.db} dB (clean: {share}); at "
                f"{broken.db} dB it breaks ({_left(broken)}), which is audible"
            )
        if self.certified is not None:
            proven = self.certified[CLAIMED_DB]
            text += (
                f"; {100 * proven:.0f} % of speakers are certified at {CLAIMED_DB} dB, whatever the attack"
            )
        if self.clean.interval.low <= self.chance:
            text += f"; {self.clean.interval.n} speakers are too few to show that it beats chance"
        return text + "."


def _level(one: StrongestAtSnr) -> int:
    return one.db


def _left(one: StrongestAtSnr) -> str:
    return f"{100 * one.left.mean:.0f} %"


def _ears(one: StrongestAtSnr) -> str:
    if not one.heard:
        return " (audibility not measured)"
    return f", which is not heard (P {max(one.heard.values()):.2f}),"


def read_options(bench: PathologySetup) -> list[Option]:
    """All that were run."""
    found = []
    for kind, title in TITLES.items():
        clean = bench.accuracy(kind, CLEAN)
        if clean is None:
            continue
        attacked = [one for db in OPTION_LEVELS_DB if (one := strongest(bench, kind, db)) is not None]
        smoothed = kind in plans.SMOOTHED
        shares, radius = _certificates(bench, kind)
        found.append(
            Option(
                kind,
                title,
                clean,
                attacked,
                bench.setting.plan.votes if smoothed else 1,
                bench.chance,
                shares,
                radius,
            )
        )
    return found


def strongest(bench: PathologySetup, kind: str, db: int) -> StrongestAtSnr | None:
    """What is left where each speaker is under the attack that leaves it least, at that SNR or a higher one:
    a bound allows all that a tighter one does. None where nothing was tried at that SNR."""
    levels = sorted({*bench.setting.plan.levels_db, *OPTION_LEVELS_DB}, reverse=True)
    found = bench.worst(kind, [name for level in levels if level >= db for name in _waveforms(level)])
    if found is None or bench.worst(kind, _waveforms(db)) is None:
        return None
    heard: dict[str, float] = {}
    for ear in EARS:
        known = [one.value for name in found.cells if (one := _measured(bench, kind, name, ear)) is not None]
        if len(known) == len(found.cells):
            heard[ear] = max(known)
    return StrongestAtSnr(db, found.cells, found.left, heard)


def _waveforms(db: int) -> list[str]:
    """All cells of attacks that make one waveform: through the defense or made on the plain CNN, in either
    norm, in floats or as a file."""
    return [
        cell(how, db, norm, bits=bits)
        for how in ("utterances", "transfer")
        for norm in ("linf", "l2")
        for bits in (None, BITS)
    ]


def _measured(bench: PathologySetup, kind: str, name: str, ear: str) -> Interval | None:
    """P(heard) of an attack, in floats. What is transferred is heard as it was made, on the plain CNN."""
    source = plans.CNN if name.startswith("transfer") else kind
    kept = name.replace("transfer", "utterances").removesuffix(f" {BITS} bits")
    return bench.measured(source, kept, ear)


RADII = np.linspace(0.0, 4.0, 81)
"""In sigmas: as far as counting passes can certify."""


def _certificates(bench: PathologySetup, kind: str) -> tuple[dict[int, float] | None, float | None]:
    curves = certified_curves(bench, kind)
    if curves is None:
        return None, None
    shares, by_radius = curves
    halves = [radius for radius, share in by_radius.items() if share >= 0.5]
    return shares, max(halves, default=0.0)


def certified_curves(bench: PathologySetup, kind: str) -> tuple[dict[int, float], dict[float, float]] | None:
    """Shares of speakers that are certified, the mean over seeds: by SNR in dB, and by L2 radius."""
    each = [known for seed in bench.seeds(kind) if (known := bench.certified(kind, seed))]
    if not each:
        return None
    sigma = bench.setting.sigma
    levels = sorted({*bench.setting.plan.levels_db, *OPTION_LEVELS_DB})
    by_level = {db: float(np.mean([certified_share(known, sigma, db=db) for known in each])) for db in levels}
    by_radius = {
        float(radius): float(np.mean([certified_share(known, sigma, radius=radius) for known in each]))
        for radius in RADII * sigma
    }
    return by_level, by_radius
