"""What the studies of speech recognition run: audit plans, by study and scale, and nothing that draws.

After Olivier's thesis (2023), chapters 2, 5 and 7 and appendices D.1 and E. A study's tables are made from
the records of these plans, wherever they were run: `run_audit(plan, folder / name)` for each of
`plans_of(study, ask)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sottovoce.errors import UnknownName
from sottovoce.registry.part_text import Part
from sottovoce.studies.ask import Ask, Plans, cw, linf, nearest, snr
from sottovoce.studies.identify import WHISPER, whisper_size
from sottovoce.studies.olivier2023.attack_tables import BEAMS, TARGET, UNIVERSAL_SECONDS
from sottovoce.studies.olivier2023.runs.defense_plans import o13, o14
from sottovoce.studies.olivier2023.runs.hardening_plans import o15, o18

MASKING = ("masking-share", "masking-excess")
"""Cells of the spectrum above what the clip masks, and how far above it they are on average."""
NOISE_DB = (20, 30, 40)
"""Sizes of white noise to hold against attacks that find their own size."""
SMALL, SMALL_WEIGHT = ("tiny", "tiny.en", "base", "base.en"), 0.25
"""Sizes of Whisper whose texts are forced with less regularisation, and with how much."""
LANGUAGES = ("en", "tl", "sr")
"""Languages that the thesis makes Whisper hear: English, Tagalog, Serbian."""


def o5(ask: Ask) -> Plans:
    """White-box attacks (section 5.2): gradients by SNR and by L-infinity, and texts that are forced.

    The thesis shows its sizes in a figure alone, without numbers in the text: these cover its range.
    """
    # A few steps must be longer to reach the edge of the budget.
    steps, step = ask.take((20, 0.25), (100, 0.1))
    levels = ask.take((20, 30, 40), (10, 20, 30, 40, 50))
    radii = ask.take((0.005, 0.0015), (0.015, 0.005, 0.0015, 0.0005, 0.00015))
    return {
        "untargeted": ask.plan(
            attacks=["noise", "fgsm", f"pgd(steps={steps}, step={step})", f"apgd(steps={steps})"],
            budgets=[*snr(levels), *linf(radii)],
            clips=ask.take(10, None),
        ),
        "targeted": ask.plan(
            attacks=[cw(steps=ask.take(300, 5000), c=0.25)],
            goals=[nearest()],
            budgets=linf([0.1]),
            clips=ask.take(4, 100),
            slow=True,
        ),
    }


def o6(ask: Ask) -> Plans:
    """The imperceptible attack (section 2.4): its first stage alone, then both."""
    steps = ask.take(300, 5000)
    hidden = {
        "steps": steps, "c": 0.25, "eps": 0.1, "shrink": 0.7, "times": 8, "first_token": 0.0,
        "masking_steps": ask.take(200, 4000),
    }  # fmt: skip
    return {
        "imperceptible": ask.plan(
            attacks=[cw(steps=steps, c=0.25), str(Part("imperceptible", hidden))],
            goals=[nearest()],
            budgets=linf([0.1]),
            clips=ask.take(4, 100),
            slow=True,
            metrics=MASKING,
        ),
        "noise": ask.plan(
            attacks=["noise"], budgets=snr(NOISE_DB), clips=ask.take(4, 100), slow=True, metrics=MASKING
        ),
    }


def o7(ask: Ask) -> Plans:
    """Whisper under attack (section 5.3, Table 5.2)."""
    ask = with_beams(ask)
    return {
        "untargeted": ask.plan(
            attacks=["noise", f"pgd(steps={ask.take(10, 200)}, step={ask.take(0.2, 0.1)})"],
            budgets=[*snr((35, 40)), *linf((0.005, 0.0015))],
            clips=ask.take(4, None),
        ),
        "noise": ask.plan(attacks=["noise"], budgets=snr([0]), clips=ask.take(4, None)),
        "targeted": ask.plan(
            attacks=[cw(steps=ask.take(100, 2000), c=regularisation(ask.model, ask.small), first_token=1.0)],
            goals=[Part("force", {"text": TARGET})],
            budgets=linf([0.1]),
            clips=ask.take(2, 20),
            slow=True,
        ),
    }


def o8(ask: Ask) -> Plans:
    """Language confusion (section 5.4, Fig. 5.3), clip by clip and with one perturbation for all clips.

    One step a clip and 2,000 passes in steps of 0.001 of the radius are the thesis's; the mini scale takes
    fewer passes in longer steps.
    """
    ask = with_beams(ask)
    fitted = ask.take(
        f"universal-gradient(epochs=6, seconds={UNIVERSAL_SECONDS})",
        f"universal-gradient(epochs=2000, step=0.001, momentum=0.0, batch_clips=1, judge_every=20, "
        f"seconds={UNIVERSAL_SECONDS})",
    )
    return {
        "confusion": ask.plan(
            attacks=[f"pgd(steps={ask.take(10, 30)}, step={ask.take(0.2, 0.1)})"],
            goals=[f"language(code={code})" for code in LANGUAGES],
            budgets=snr([45]),
            clips=ask.take(5, None),
        ),
        "noise": ask.plan(attacks=["noise"], budgets=snr([40, 45]), clips=ask.take(10, None)),
        "universal": ask.plan(
            attacks=[fitted],
            goals=["language(code=sr)"],
            budgets=snr([40]),
            clips=ask.take(10, None),
            fit=True,
        ),
    }


def o12(ask: Ask) -> Plans:
    """Attacks without a gradient (appendix D.1), and the universal one, which needs none when it is used."""
    levels = ask.take((10, 20, 30), (5, 10, 15, 20, 25, 30, 40))
    removals = ("kenansville", "kenansville-ssa", "yeehaw")
    clips = ask.take(20, None)
    return {
        "genetic": ask.plan(
            attacks=["noise", f"genetic(steps={ask.take(50, 2000)})"],
            budgets=linf(ask.take((0.025,), (0.005, 0.01))),
            clips=ask.take(4, None),
        ),
        "removal": ask.plan(
            attacks=["noise", *(f"{name}(search=false)" for name in removals)],
            budgets=snr(levels),
            clips=clips,
        ),
        "least": ask.plan(
            attacks=[f"{name}(search=true)" for name in removals], budgets=snr([0]), clips=clips
        ),
        "universal": ask.plan(
            attacks=[f"universal-gradient(epochs={ask.take(10, 100)})"],
            budgets=snr(ask.take((20,), (20, 30))),
            clips=ask.take(20, None),
            fit=True,
        ),
    }


PLANS: dict[str, Callable[[Ask], Plans]] = {
    "O5": o5, "O6": o6, "O7": o7, "O8": o8, "O12": o12, "O13": o13, "O14": o14, "O15": o15, "O18": o18,
}  # fmt: skip


def plans_of(study: str, ask: Ask) -> Plans:
    """The plans of a study, by the name of each one's folder."""
    if study not in PLANS:
        raise UnknownName("study of recognisers", study, PLANS)
    return PLANS[study](ask)


def names_of(study: str) -> list[str]:
    """The names of all plans that a study may have, whatever it is asked."""
    return list(plans_of(study, Ask(scale="full", model="recogniser", data="audiomnist:")))


def with_beams(ask: Ask) -> Ask:
    """A Whisper by its short name decodes with the thesis's beams; a model in full words stays as it is."""
    name, _, model = ask.model.partition(":")
    if name != WHISPER or not model:
        return ask
    return replace(ask, model=str(Part(WHISPER, {"model": model, "beams": BEAMS})))


def regularisation(model: str, small: bool | None = None) -> float:
    """The weight c of the attack that forces texts: less for small Whispers (section 5.3.1).

    small: whether it is one; None: the model is asked.
    """
    known = whisper_size(model) in SMALL if small is None else small
    return SMALL_WEIGHT if known else 1.0
