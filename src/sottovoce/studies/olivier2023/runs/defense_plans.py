"""What the studies of defenses run: audit plans after chapter 7 and section 2.2.3 of Olivier's thesis (2023).

A defense is text before it is anything else, so that the tables find the records of a row by that text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.registry.part_text import Part
from sottovoce.studies.ask import Ask, Attacker, Plans, cw, linf, nearest, snr
from sottovoce.studies.olivier2023.defense_tables import SIGMAS, SNRS_DB, VOTES

NONE = "none"
MP3 = "mp3"
MATCHED = {0.045: 0.01, 0.063: 0.02}
"""Deviations that are as far below the strings as the thesis's are below its recordings, 12 and 9 dB: the RMS
of the strings is .18 (median), so that .01 and .02 are 25 and 19 dB there."""
HARSH = 0.15
"""At which the embedded recogniser makes about as many errors on its strings as DeepSpeech2 at .01."""
MINI_DB = (30, 20)
QUIET_DB = 60.0
"""White noise that changes nothing: what is read of its records is the clean clip behind the defense."""
CW_RADIUS, CW_SHRINKS = 0.3, 20
"""The attack that forces texts has no bound in section 7.3: a wide first radius, and many shrinks."""
CW_WEIGHT = 0.02
"""Of |delta|^2. In few steps .25, which serves bare models, forced nothing behind noise, and this did."""
UNAWARE: dict[str, Attacker] = {"one-pass": "adaptive", "transfer": "transfer"}
"""The plans of Table E.1, and what their attacks know of the defense."""
MANY = 100
COUNTS = (1, 2, 4, 8, 16, 32, 48)
"""Passes of ROVER in Fig. E.1."""


class DefenseRow(NamedTuple):
    """A row of Table 7.1. trained: on noise. after: what follows the noise, `many` votes where it says so."""

    title: str
    paper: str
    trained: bool
    after: str


NOISY_ROWS = (
    DefenseRow("one sentence", "DeepSpeech2", False, ""),
    DefenseRow("AUG", "DeepSpeech2 + AUG", True, ""),
    DefenseRow("ASNR", "DeepSpeech2 + ASNR", False, "+asnr"),
    DefenseRow("AUG + ASNR", "DeepSpeech2 + AUG + ASNR", True, "+asnr"),
    DefenseRow("majority", "DeepSpeech2 + Maj-100", False, "+majority(passes={many})"),
    DefenseRow("average", "DeepSpeech2 + Avg-100", False, "+average(passes={many})"),
    DefenseRow("ROVER-8", "DeepSpeech2 + ROVER-8", False, "+rover(passes=8)"),
    DefenseRow("ROVER-16", "DeepSpeech2 + ROVER-16", False, "+rover(passes=16)"),
    DefenseRow("ROVER-32", "DeepSpeech2 + ROVER-32", False, "+rover(passes=32)"),
    DefenseRow("ASNR + ROVER-16", "DeepSpeech2 + ASNR + ROVER-16", False, "+asnr+rover(passes=16)"),
    DefenseRow("AUG + ROVER-16", "DeepSpeech2 + AUG + ROVER-16", True, "+rover(passes=16)"),
)
"""Those of Table 7.1 that are no Transformer."""


def noise(sigma: float, kind: str = "gaussian") -> str:
    return f"{kind}(sigma={sigma:g})"


def behind(row: DefenseRow, sigma: float, many: int) -> str:
    """The defense of a row at a deviation."""
    return noise(sigma) + row.after.format(many=many)


def off_the_shelf(sigma: float, passes: int = VOTES, kind: str = "gaussian") -> str:
    """The thesis's defense for models that are not trained again."""
    return f"{noise(sigma, kind)}+asnr+rover(passes={passes})"


def walls(sigma: float) -> dict[str, str]:
    """The defenses of Table E.2: around a model that was not trained on noise, then around one that was."""
    return {
        "RS": noise(sigma),
        "RS + ASNR": f"{noise(sigma)}+asnr",
        "RS + ROVER": f"{noise(sigma)}+rover(passes={VOTES})",
        "RS + ASNR + ROVER": off_the_shelf(sigma),
        "AUG": NONE,
        "RS + AUG": noise(sigma),
        "RS + AUG + ROVER": f"{noise(sigma)}+rover(passes={VOTES})",
    }


def sigmas(on_strings: bool) -> tuple[float, ...]:
    """Deviations under attack: the thesis's on its kind of recordings, others that are as loud on strings."""
    return tuple(MATCHED) if on_strings else SIGMAS


def noisy_sigmas(on_strings: bool) -> tuple[float, ...]:
    """Deviations without an attack: the thesis's on all recordings."""
    return (*SIGMAS, *MATCHED, HARSH) if on_strings else SIGMAS


def hardened(model: str, variant: str) -> str | None:
    """The same model as trained in another way, where it ships with sottovoce."""
    if model.partition("(")[0] not in ("recogniser", "keyword"):
        return None
    part = Part.parse(model)
    if part.settings.get("weights") is not None:
        return None
    return str(Part(part.name, {**part.settings, "variant": variant}))


def o13(ask: Ask) -> Plans:
    """Smoothing of recognisers (sections 7.2 and 7.3, appendix E).

    The folder of the records of a table depends on the model and what is in front of it: `-trained` is the
    model trained on noise, `-mp3` needs a library that writes MP3, and `-parts` are the ablations of Table
    E.2.
    """
    trained = hardened(ask.model, "noisy")
    return {
        **_without_attack(ask, trained),
        **_around(ask, trained, "pgd", lambda *defended: _pgd(ask, *defended)),
        **_unaware(ask, trained),
        **_around(ask, trained, "cw", lambda *defended: _forced(ask, *defended)),
    }


def _without_attack(ask: Ask, trained: str | None) -> Plans:
    """Table 7.1, and Fig. E.1."""
    levels = ask.take(noisy_sigmas(ask.on_strings)[-1:], noisy_sigmas(ask.on_strings))
    many = ask.take(VOTES, MANY)
    rows = [row for row in NOISY_ROWS if ask.scale == "full" or row.title != "ROVER-32"]
    rows = [row for row in rows if row.title != "average" or ask.has_frames]
    found: Plans = {}
    for name, model in (("natural", ask.model), ("natural-trained", trained)):
        if model is not None:
            wanted = [row for row in rows if row.trained == (model == trained)]
            found[name] = ask.plan(
                model=model,
                attacks=["noise"],
                budgets=snr([QUIET_DB]),
                defenses=[NONE, *(behind(row, sigma, many) for sigma in levels for row in wanted)],
                clips=ask.take(12, None),
                bits=None,
            )
    found["votes"] = ask.plan(
        attacks=["noise"],
        budgets=snr([QUIET_DB]),
        defenses=[f"{noise(levels[-1])}+rover(passes={count})" for count in ask.take(COUNTS[:5:2], COUNTS)],
        clips=ask.take(12, None),
        bits=None,
    )
    return found


def _pgd(ask: Ask, model: str, *defenses: str) -> Plan:
    """Fig. 7.1 and Table E.2. The thesis does not say how many steps it takes."""
    return ask.plan(
        model=model,
        attacks=[ask.pgd(10, 50, ball=True)],
        budgets=snr(ask.take(MINI_DB, SNRS_DB)),
        defenses=defenses,
        clips=ask.take(3, 100),
    )


def _forced(ask: Ask, model: str, *defenses: str) -> Plan:
    """Table 7.2 and the last columns of Table E.2. Steps are not given there; section 5.2 has 5,000."""
    return ask.plan(
        model=model,
        attacks=[cw(steps=ask.at_most(20, 1000), c=CW_WEIGHT, eps=CW_RADIUS, times=CW_SHRINKS)],
        goals=[nearest()],
        budgets=linf([CW_RADIUS]),
        defenses=defenses,
        clips=ask.take(2, 100),
        slow=True,
    )


def _around(ask: Ask, trained: str | None, name: str, plan: Callable[..., Plan]) -> Plans:
    """The plans of one attack: on the bare model and the proposed defenses, and, at full scale, on parts."""
    every = [walls(sigma) for sigma in ask.take(sigmas(ask.on_strings)[-1:], sigmas(ask.on_strings))]
    found = {
        name: plan(ask.model, NONE, *(wall["RS + ASNR + ROVER"] for wall in every)),
        f"{name}-mp3": plan(ask.model, MP3),
    }
    if trained is not None:
        found[f"{name}-trained"] = plan(trained, NONE, *(wall["RS + AUG + ROVER"] for wall in every))
    if ask.scale == "full":
        parts = ("RS", "RS + ASNR", "RS + ROVER")
        found[f"{name}-parts"] = plan(ask.model, *(wall[part] for wall in every for part in parts))
        if trained is not None:
            found[f"{name}-parts-trained"] = plan(trained, *(wall["RS + AUG"] for wall in every))
    return found


def _unaware(ask: Ask, trained: str | None) -> Plans:
    """Table E.1: gradients of one pass, as the thesis's vanilla attack takes them, and of the bare model."""
    sigma = sigmas(ask.on_strings)[-1]
    defended = {"": (ask.model, walls(sigma)["RS + ASNR + ROVER"])}
    if trained is not None:
        defended["-trained"] = trained, walls(sigma)["RS + AUG + ROVER"]
    found = {}
    for suffix, (model, defense) in defended.items():
        for name, attacker in UNAWARE.items():
            found[f"{name}{suffix}"] = ask.plan(
                model=model,
                attacks=[ask.pgd(10, 50, ball=True)],
                budgets=snr(ask.take(MINI_DB, SNRS_DB)),
                defenses=[defense],
                attacker=attacker,
                average=1,
                clips=ask.take(3, 100),
            )
    return found


def o14(ask: Ask) -> Plans:
    """Smoothing of any recogniser (section 7.4, Fig. 7.2): sigma .02, ASNR, ROVER of 8 passes."""
    defenses = {"bare": NONE, "smoothed": off_the_shelf(sigmas(ask.on_strings)[-1], 8)}
    return {
        name: ask.plan(
            attacks=[ask.pgd(10, 50, ball=True)],
            budgets=snr(ask.take(MINI_DB, SNRS_DB)),
            defenses=[defense],
            clips=ask.take(3, 100),
        )
        for name, defense in defenses.items()
    }
