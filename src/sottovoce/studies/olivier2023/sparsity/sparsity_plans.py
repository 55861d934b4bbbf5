"""What the study of sparsity runs: plans of `sottovoce sparsity`, by name, and nothing that draws."""

from __future__ import annotations

from sottovoce.auditing.sparsity.sparsity_run import SparsityPlan
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.studies.ask import Ask

SNR_DB, LINF = 30, 0.002
"""The radii of the tables; the hardened models were trained within this L-infinity radius."""
VARIANTS = {
    "plain": "keyword",
    "fgsm": "keyword(variant=fgsm)",
    "pgd": "keyword(variant=pgd)",
    "mixed": "keyword(variant=mixed)",
}
BROKEN = {
    "mp3": ("mp3(kbps=32)", "JPEG"),
    "quantise": ("quantise(bits=8)", "FS"),
    "median": ("median(window=3)", "SPS"),
    "quantise+median": ("quantise(bits=8)+median(window=3)", "FS+SPS"),
    "low-pass": ("lowpass(share=0.5)", ""),
}
"""Audio counterparts of the defenses of Table 4.2: each with its name there."""
MORE_SNRS_DB = ((15, 20, 25, 35, 45), (10, 15, 20, 25, 35, 40, 45, 50))
"""Radii of the curve beyond 30 dB, of mini and of full."""
MORE_LINF = ((), (0.0005, 0.001, 0.004, 0.008))
SparsityPlans = dict[str, SparsityPlan]


def snr(db: float) -> str:
    return f"snr(db={db:g})"


def linf(eps: float) -> str:
    return f"linf(eps={eps:g})"


def o4(ask: Ask) -> SparsityPlans:
    """Sparsity (chapter 4): hardened models, broken defenses, the curve over radii, and the plain model on
    all clips, whose sparsity is to tell which of them a hardened model gets right."""
    clips = ask.clips or ask.take(20, None)

    def plan(model: str, budgets: list[str], **others: object) -> SparsityPlan:
        settings = {"limit": clips, "data": ask.data, "seed": ask.seed, **others}
        return SparsityPlan(model=VARIANTS[model], budgets=tuple(budgets), **settings)  # type: ignore[arg-type]

    both = [snr(SNR_DB), linf(LINF)]
    more = [*map(snr, ask.take(*MORE_SNRS_DB)), *map(linf, ask.take(*MORE_LINF))]
    return {
        **{name: plan(name, both) for name in VARIANTS},
        **{f"radius-{name}": plan(name, more) for name in ("plain", "pgd")},
        **{f"broken-{name}": plan("plain", both, defenses=(text,)) for name, (text, _) in BROKEN.items()},
        "all-clips": plan("plain", [snr(SNR_DB)], limit=ask.clips),
    }


def defense_of(name: str) -> str:
    """The defense of a plan by its name."""
    return BROKEN[name.removeprefix("broken-")][0] if name.startswith("broken-") else NO_DEFENSE


def names_of_sparsity() -> list[str]:
    return list(o4(Ask(scale="full", model="", data="embedded")))
