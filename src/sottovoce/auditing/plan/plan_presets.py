"""Presets: what a plan runs where it does not say, by how much it is to cost and by the kind of model."""

from __future__ import annotations

from typing import Any, Literal, get_args

from sottovoce.auditing.plan.plan_file import BLACK_BOX
from sottovoce.errors import UnknownName
from sottovoce.targets.open_target import Kind, guess

__all__ = ["PRESETS", "Preset", "fill", "guess"]

Preset = Literal["quick", "standard", "paper"]
PRESETS: tuple[Preset, ...] = get_args(Preset)


def fill(preset: Preset, kind: Kind) -> dict[str, Any]:
    """The entries of a preset for a kind of model.

    quick: minutes on a laptop, a first check. standard: the attacks that a claim of robustness must
    withstand, at five budgets. paper: as many steps as in the papers that `sottovoce study` reproduces:
    hours to days.
    """
    if preset not in PRESETS:
        raise UnknownName("preset", preset, PRESETS)
    return dict(_OF_KIND[kind][preset])


def _snr(*levels_db: int) -> list[str]:
    return [f"snr(db={level})" for level in levels_db]


_CLASSES: dict[Preset, dict[str, Any]] = {
    "quick": {
        "limit": 30,
        "attacks": ["noise", "fgsm", "pgd(steps=20, step=0.25)"],
        "budgets": _snr(20, 40),
        "black_box": "genetic(steps=30, population=10)",
        "probe": 5,
    },
    "standard": {
        "attacks": ["noise", "fgsm", "pgd(steps=50)", "apgd(steps=50)", "deepfool", str(BLACK_BOX)],
        "budgets": _snr(20, 30, 40, 50, 60),
    },
    "paper": {
        "attacks": [
            "noise", "fgsm", "pgd(steps=200)", "apgd", "apgd-dlr", "deepfool",
            "cw(steps=1000, binary_search=9)", "genetic(steps=500, population=20)", "kenansville",
        ],
        "budgets": _snr(10, 20, 30, 40, 50, 60),
        "probe": 32,
    },
}  # fmt: skip
_WORDS: dict[Preset, dict[str, Any]] = {
    "quick": {
        "limit": 8,
        "attacks": ["noise", "pgd(steps=10, step=0.25)"],
        "budgets": _snr(30),
        "black_box": "genetic(steps=10, population=10)",
        "batch": 8,
        "probe": 5,
    },
    "standard": {
        # A search by scores takes a thousand passes a clip: on sentences only a defense is worth that.
        "attacks": ["noise", "fgsm", "pgd(steps=50)", "apgd(steps=50)", "kenansville"],
        "black_box": str(BLACK_BOX),
        "budgets": _snr(20, 25, 30, 35, 40),
        "batch": 8,
    },
    # Steps as in the studies of Olivier's thesis (2023): PGD of section 5.3, CW of 5.2, genetic of appendix
    # D.1. The sentence, its budget and the range of SNRs around 35 and 40 dB are this project's choice.
    "paper": {
        "attacks": [
            "noise", "fgsm", "pgd(steps=200)", "apgd", "kenansville", "genetic(steps=2000, population=20)",
        ],
        "budgets": _snr(10, 20, 30, 35, 40),
        "include": [
            {
                "attack": "cw-asr(steps=5000, first_token=0)",
                "goal": 'force(text="open all the doors now")',
                "budget": "snr(db=20)",
            }
        ],
        "batch": 8,
        "probe": 16,
    },
}  # fmt: skip
# Attacks that need no gradient. Against a service every pass is a request that costs money.
_WORDS_BLIND: dict[Preset, dict[str, Any]] = {
    "quick": {
        "limit": 8,
        "attacks": ["noise", "kenansville", "genetic(steps=10, population=10)"],
        "budgets": _snr(30),
        "batch": 8,
    },
    "standard": {
        "attacks": ["noise", "kenansville", str(BLACK_BOX)],
        "budgets": _snr(20, 30, 40),
        "batch": 8,
    },
    "paper": {
        "attacks": ["noise", "kenansville", "genetic(steps=2000, population=20)"],
        "budgets": _snr(10, 20, 30, 35, 40),
        "batch": 8,
    },
}
_CLASSES_BLIND: dict[Preset, dict[str, Any]] = {
    "quick": {"limit": 30, "attacks": ["noise", "genetic(steps=30, population=10)"], "budgets": _snr(20, 40)},
    "standard": {"attacks": ["noise", "kenansville", str(BLACK_BOX)], "budgets": _snr(20, 30, 40, 50, 60)},
    "paper": {
        "attacks": ["noise", "kenansville", "genetic(steps=500, population=20)"],
        "budgets": _snr(10, 20, 30, 40, 50, 60),
    },
}
_OF_KIND: dict[Kind, dict[Preset, dict[str, Any]]] = {
    "class": _CLASSES,
    "words": _WORDS,
    "class, no gradient": _CLASSES_BLIND,
    "words, no gradient": _WORDS_BLIND,
}
