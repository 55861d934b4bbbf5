"""What the study of certificates runs: plans of `sottovoce certify`, by name, and nothing that draws."""

from __future__ import annotations

from sottovoce.auditing.certificates.certify_run import CertifyPlan
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.runs.defense_plans import HARSH, noise

CLASS_SIGMAS = (0.01, 0.02, 0.05)
SPEECH_SIGMAS = (0.02, 0.063, HARSH)
NEAR = 0.25
"""The k of a recogniser: within the radius most noisy passes have a lower WER to the elected transcript."""
CertifyPlans = dict[str, CertifyPlan]


def o16(ask: Ask, passes: int | None = None) -> CertifyPlans:
    """Certificates (appendix E.3): a classifier by Cohen et al. (2019), a recogniser elected by ROVER.

    The classifier takes the data asked for, recognisers the strings. passes: that are counted a clip, at
    most; None: the scale's own number. A tolerance stops a clip early when more passes would add little.
    """
    found = {
        f"keyword-{sigma:g}": CertifyPlan(
            model="keyword",
            data=ask.data,
            limit=ask.clips or ask.take(20, None),
            defense=noise(sigma),
            passes=passes or ask.take(1_000, 100_000),
            tolerance=ask.take(None, sigma / 20),
            seed=ask.seed,
        )
        for sigma in ask.take(CLASS_SIGMAS[1:2], CLASS_SIGMAS)
    }
    for name, model in (("recogniser", "recogniser"), ("trained", "recogniser(variant=noisy)")):
        for sigma in ask.take(SPEECH_SIGMAS[1:2], SPEECH_SIGMAS):
            found[f"{name}-{sigma:g}"] = CertifyPlan(
                model=model,
                data="strings",
                limit=ask.clips or ask.take(4, None),
                defense=f"{noise(sigma)}+rover",
                wer=NEAR,
                passes=passes or ask.take(200, 10_000),
                select=ask.take(32, 100),
                tolerance=ask.take(None, sigma / 20),
                seed=ask.seed,
            )
    return found


def names_of_certificates() -> list[str]:
    return list(o16(Ask(scale="full", model="", data="embedded")))
