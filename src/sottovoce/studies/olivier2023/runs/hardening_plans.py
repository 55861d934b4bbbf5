"""What the studies of trained defenses run: high-frequency smoothing (O15), adversarial training (O18).

A model that was trained behind a defense is judged behind the same one. How it was trained is its variant.
"""

from __future__ import annotations

from typing import NamedTuple

from sottovoce.registry.part_text import Part
from sottovoce.studies.ask import Ask, Plans, linf, snr
from sottovoce.studies.olivier2023.defense_tables import SIGMAS, VOTES
from sottovoce.studies.olivier2023.runs.defense_plans import MATCHED, NONE, noise, off_the_shelf

SWING = 2.0
"""Section 7.5 has waveforms that are normalised to [0, 1]; full swing is [-1, 1] here: its sizes double."""
ACCURACY = ("accuracy", "clean-accuracy", "fooling-ratio", "l2")
SPEAKER_LINF, SPEAKER_L2, SOUND_LINF = 0.003 * SWING, 1.0 * SWING, 0.02 * SWING
SPEAKER_STEPS = 20
L2_RUN = "-l2"
"""What the name of a speaker model's plan ends in where the budget is L2, whose steps have another length."""
GAUSSIAN, MAD = 0.1 * SWING, 0.15 * SWING
ASR_SNR_DB = 30
LOUDER = 1.5
"""How much more MAD noise Table 7.6 tries: .015 for .01."""
STRINGS = "strings"
SOUNDS = "sounds"


class Trained(NamedTuple):
    """A model of section 7.5: how it was trained, and behind what it is judged. paper: its row there."""

    paper: str
    variant: str
    defense: str


def _voted(noisy: str) -> str:
    return f"{noisy}+majority(passes={VOTES})"


SPEAKERS = (
    Trained("None", "plain", NONE),
    Trained("Ideal lowpass (5%)", "lowpass", "lowpass(share=0.05)"),
    Trained("Biquad lowpass (f = 200)", "biquad", "biquad(hz=200)"),
    Trained("Gaussian smoothing (.1)", "gaussian", _voted(noise(GAUSSIAN))),
    Trained("Adversarial training", "adversarial", NONE),
    Trained("MAD smoothing (.15)", "mad", _voted(noise(MAD, "mad"))),
)
SMOOTHED = tuple(one for one in SPEAKERS if one.variant in ("plain", "gaussian", "mad"))
"""Those that Table 7.5 holds against each other on sounds, too."""
TRANSFERS = {("Undefended", "Ideal lowpass (2%)"): ("plain", "lowpass"),
             ("Ideal lowpass (2%)", "Undefended"): ("lowpass", "plain"),
             ("Ideal lowpass (2%)", "Biquad lowpass"): ("lowpass", "biquad")}  # fmt: skip
"""Rows of Table 7.4 to the models that examples are made on and judged by."""
KEYWORDS = ("plain", "fgsm", "pgd", "mixed")
RECOGNISERS = ("plain", "pgd")
RADII = (0.0005, 0.001, 0.002, 0.004, 0.008)
"""Those of the keyword models; they were trained at .002."""
LEVELS_DB = (50, 40, 30, 20)
"""Those of the recognisers; they were trained at 30 dB."""


def o15(ask: Ask) -> Plans:
    """High-frequency smoothing (section 7.5): speakers where the data has them, sounds, and strings."""
    return {**(_speakers(ask) if ask.has_speakers else {}), **_sounds(ask), **_strings(ask)}


def _speakers(ask: Ask) -> Plans:
    """Tables 7.3 and 7.4, and the examples behind Figs. 7.3 and 7.4."""
    attack, clips = ask.pgd(SPEAKER_STEPS, SPEAKER_STEPS), ask.take(40, None)
    cube, ball = linf([SPEAKER_LINF]), [f"l2(eps={SPEAKER_L2})"]
    found = {
        f"speaker-{one.variant}{norm}": ask.plan(
            model=variant_of("speaker", one.variant),
            defenses=[one.defense],
            attacks=_climbers(ask, ball=norm == L2_RUN),
            budgets=budgets,
            clips=clips,
            metrics=ACCURACY,
        )
        for norm, budgets in (("", cube), (L2_RUN, ball))
        for one in SPEAKERS
    }
    defenses = {one.variant: one.defense for one in SPEAKERS}
    for source, judge in TRANSFERS.values():
        found[f"{source}-to-{judge}"] = ask.plan(
            model=str(
                Part(
                    "transfer",
                    {
                        "source": variant_of("speaker", source),
                        "source_defense": defenses[source],
                        "judge": variant_of("speaker", judge),
                        "judge_defense": defenses[judge],
                    },
                )
            ),
            attacks=[attack],
            budgets=cube,
            clips=clips,
            metrics=ACCURACY,
        )
    for one in SMOOTHED:
        found[f"spectra-{one.variant}"] = ask.plan(
            model=variant_of("speaker", one.variant),
            defenses=[one.defense],
            attacks=[attack],
            budgets=cube,
            clips=ask.take(20, 80),
            slow=True,
            metrics=ACCURACY,
            audio="all",
        )
    return found


def _climbers(ask: Ask, *, ball: bool = False) -> list[str]:
    """The thesis's PGD, and AutoPGD, which tells whether that was the end of it."""
    return [ask.pgd(SPEAKER_STEPS, SPEAKER_STEPS, ball=ball), f"apgd(steps={ask.at_most(20, 100)})"]


def _sounds(ask: Ask) -> Plans:
    """Table 7.5."""
    return {
        f"sound-{one.variant}": ask.plan(
            model=variant_of("sound", one.variant),
            data=SOUNDS,
            defenses=[one.defense],
            attacks=_climbers(ask),
            budgets=linf([SOUND_LINF]),
            clips=ask.take(12, None),
            metrics=ACCURACY,
        )
        for one in SMOOTHED
    }


def _strings(ask: Ask) -> Plans:
    """Table 7.6: deviations that are as loud on the strings as the thesis's; at full scale its own too."""
    return {
        "recogniser": ask.plan(
            model="recogniser",
            data=STRINGS,
            defenses=[NONE, *(wall for sigma in asr_sigmas(ask) for wall in asr_walls(sigma).values())],
            attacks=[ask.pgd(10, 50, ball=True)],
            budgets=snr([ASR_SNR_DB]),
            clips=ask.take(3, None),
        )
    }


def asr_sigmas(ask: Ask) -> tuple[float, ...]:
    quiet, loud = SIGMAS[0], next(iter(MATCHED))
    return ask.take((loud,), (quiet, loud))


def asr_walls(sigma: float) -> dict[str, str]:
    """Rows of Table 7.6 at a deviation that corresponds to its .01."""
    return {
        "Gaussian smoothing (.01)": off_the_shelf(sigma),
        "MAD smoothing (.01)": off_the_shelf(sigma, kind="mad"),
        "MAD smoothing (.015)": off_the_shelf(LOUDER * sigma, kind="mad"),
    }


def o18(ask: Ask) -> Plans:
    """Adversarial training (section 2.2.3): models trained in several ways under the same attacks."""
    few, many = ask.at_most(10, 20), ask.at_most(20, 100)
    # With few steps asked for, both PGDs are one.
    attacks = list(dict.fromkeys(["fgsm", ask.pgd(few, few), ask.pgd(many, many), f"apgd(steps={many})"]))
    found = {
        f"keyword-{variant}": ask.plan(
            model=variant_of("keyword", variant),
            attacks=attacks,
            budgets=linf(ask.take(RADII[1:4], RADII)),
            clips=ask.take(50, None),
            metrics=ACCURACY,
        )
        for variant in KEYWORDS
    }
    for variant in RECOGNISERS:
        found[f"recogniser-{variant}"] = ask.plan(
            model=variant_of("recogniser", variant),
            data=STRINGS,
            attacks=attacks,
            budgets=snr(ask.take(LEVELS_DB[1:3], LEVELS_DB)),
            clips=ask.take(4, None),
        )
    return found


def variant_of(model: str, variant: str) -> str:
    """A model of the zoo by how it was trained; the plain one goes by its bare name."""
    return model if variant == "plain" else f"{model}(variant={variant})"
