"""The hardened models that sottovoce ships, as data: each is one recipe and what it was hardened with.

Sizes of noise and attacks on speakers and sounds are those of Olivier (2023), section 7.5, which has
waveforms in [0, 1]: here full swing is [-1, 1], so they double.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copyfile
from typing import final

import numpy as np

from sottovoce.core.budget import Budget, LInf, Snr
from sottovoce.core.transform import Transform
from sottovoce.data.corpora import open_corpus
from sottovoce.defenses.filters import BiquadLowPass, IdealLowPass
from sottovoce.errors import InputError, UnknownName
from sottovoce.training.hardening import AdversarialShare, Hardening, make_adversary, make_noise, read_sigma
from sottovoce.training.keyword import keyword_pack
from sottovoce.training.loop import REPORT, WEIGHTS, fit
from sottovoce.training.recipe import TrainingRecipe, TrainingReport
from sottovoce.training.sources import (
    ClipsInMemory,
    ClipSource,
    Jitter,
    Source,
    hold_clips,
    hold_corpus,
    open_strings,
)
from sottovoce.training.trainable_models import SCRATCH, SHIPPED, build_learner

SWING = 2.0
GAUSSIAN, MAD = 0.1 * SWING, 0.15 * SWING
SPEAKER_EPS = 0.003 * SWING
KEYWORD_EPS = 0.002
RATE = 16_000
THEN = AdversarialShare((0.5, 0.8))


@final
@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a model is trained. weights: what it begins with."""

    model: str
    recipe: TrainingRecipe
    weights: str = SCRATCH
    hardening: Hardening = field(default_factory=Hardening)
    change: Transform | None = None


_SPEAKER = Variant(
    model="speaker",
    recipe=TrainingRecipe(
        epochs=200,
        batch_size=64,
        learning_rate=2e-3,
        warm_up_steps=100,
        average_decay=0.998,
        check_epochs=5,
        half=True,
    ),
    # Clips have a peak of 0.9: what is turned up would be cut.
    change=Jitter(gain_db=(-4.0, 0.0), shift_seconds=0.05),
)
_SOUND = replace(
    _SPEAKER,
    model="sound",
    recipe=replace(_SPEAKER.recipe, epochs=60, learning_rate=1e-3, check_epochs=2),
    change=Jitter(gain_db=(-4.0, 0.0), shift_seconds=0.5),
)
_KEYWORD = Variant(
    model="keyword",
    recipe=TrainingRecipe(
        epochs=20,
        batch_size=128,
        learning_rate=5e-4,
        warm_up_steps=100,
        average_decay=0.998,
        half=True,
    ),
    weights=SHIPPED,
    change=Jitter(gain_db=(-10.0, 6.0), shift_seconds=0.1),
)
_RECOGNISER = Variant(
    model="recogniser",
    recipe=TrainingRecipe(
        epochs=10,
        batch_size=96,
        learning_rate=3e-4,
        warm_up_steps=200,
        average_decay=0.999,
        attacked_clips=100,
        half=True,
    ),
    weights=SHIPPED,
    change=Jitter(gain_db=(-6.0, 0.0), shift_seconds=0.0),
)

VARIANTS: dict[str, Variant] = {
    "speaker-plain": _SPEAKER,
    "speaker-lowpass": replace(_SPEAKER, hardening=Hardening(front=(IdealLowPass(share=0.05),))),
    "speaker-biquad": replace(_SPEAKER, hardening=Hardening(front=(BiquadLowPass(hz=200.0),))),
    "speaker-gaussian": replace(_SPEAKER, hardening=Hardening(noise=make_noise("gaussian", GAUSSIAN))),
    "speaker-mad": replace(_SPEAKER, hardening=Hardening(noise=make_noise("mad", MAD))),
    "speaker-adversarial": replace(
        _SPEAKER, hardening=Hardening(adversary=make_adversary("pgd", LInf(SPEAKER_EPS), steps=5, share=THEN))
    ),
    "sound-plain": _SOUND,
    "sound-gaussian": replace(_SOUND, hardening=Hardening(noise=make_noise("gaussian", GAUSSIAN))),
    "sound-mad": replace(_SOUND, hardening=Hardening(noise=make_noise("mad", MAD))),
    "keyword-fgsm": replace(
        _KEYWORD, hardening=Hardening(adversary=make_adversary("fgsm", LInf(KEYWORD_EPS)))
    ),
    "keyword-pgd": replace(
        _KEYWORD, hardening=Hardening(adversary=make_adversary("pgd", LInf(KEYWORD_EPS), steps=7))
    ),
    "keyword-mixed": replace(
        _KEYWORD, hardening=Hardening(adversary=make_adversary("pgd", LInf(KEYWORD_EPS), steps=7, share=THEN))
    ),
    "recogniser-noisy": replace(_RECOGNISER, hardening=Hardening(noise=make_noise("gaussian", (0.0, 0.15)))),
    "recogniser-pgd": replace(
        _RECOGNISER, hardening=Hardening(adversary=make_adversary("pgd", Snr(30.0), steps=3, share=THEN))
    ),
}


def find_variants(names: list[str]) -> list[str]:
    """Names of variants; the name of a model selects all of its variants."""
    found = []
    for name in names:
        own = [known for known in VARIANTS if known == name or VARIANTS[known].model == name]
        if not own:
            raise UnknownName("variant", name, VARIANTS)
        found += own
    return found


def open_material(variant: Variant, pack: Path) -> tuple[Source, ClipsInMemory]:
    """Training batches and validation clips: of a recogniser pack (a folder), a keyword pack, or any pack."""
    if variant.model == "recogniser":
        return open_strings(pack, variant.change)
    if variant.model == "keyword" and _is_keyword_pack(pack):
        whole = keyword_pack.load_pack(pack)
        train, valid = (_keyword_clips(whole, split) for split in ("train", "valid"))
    else:
        train, valid = (
            hold_corpus(open_corpus(f"pack:{pack}#{split}"), RATE) for split in ("train", "valid")
        )
    return ClipSource(train, variant.change), valid


def _is_keyword_pack(path: Path) -> bool:
    try:
        with np.load(path) as file:
            return "clips" in file.files
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected a pack (.npz), got {error}; check the path.") from error


def _keyword_clips(whole: keyword_pack.KeywordPack, split: str) -> ClipsInMemory:
    part = whole.part(whole.split == split)
    if not len(part.clips):
        raise InputError(f"expected {split} clips in the pack, got none; pack all three splits.")
    ids = [f"{split}-{place}" for place in range(len(part.clips))]
    return hold_clips(list(part.clips), part.labels.tolist(), ids, RATE)


def adjust(
    variant: Variant,
    *,
    sigma: str | None = None,
    budget: Budget | None = None,
    share: AdversarialShare | None = None,
) -> Variant:
    """The same with other noise, or with an adversary of another budget or share."""
    hardening = variant.hardening
    if sigma is not None:
        if hardening.noise is None:
            raise InputError(f"expected a variant with noise, got sigma {sigma} for one without; drop it.")
        hardening = replace(hardening, noise=replace(hardening.noise, sigma=read_sigma(sigma)))
    if budget is not None or share is not None:
        if hardening.adversary is None:
            raise InputError("expected a variant with an adversary, got a budget or a share; drop it.")
        adversary = hardening.adversary
        adversary = replace(adversary, budget=budget or adversary.budget, share=share or adversary.share)
        hardening = replace(hardening, adversary=adversary)
    return replace(variant, hardening=hardening)


def train_variant(
    name: str, variant: Variant, pack: Path, out: Path, *, device: str = "cpu", resume: bool = False
) -> TrainingReport:
    """Train one, and leave NAME.safetensors and NAME.json in a folder, what else it wrote in NAME/."""
    train, valid = open_material(variant, pack)
    report = fit(
        build_learner(variant.model, variant.weights, seed=variant.recipe.seed),
        train,
        valid,
        out=out / name,
        recipe=variant.recipe,
        hardening=variant.hardening,
        device=device,
        resume=resume,
        log=lambda line: print(f"{name}: {line}", flush=True),
    )
    copyfile(out / name / WEIGHTS, out / f"{name}.safetensors")
    copyfile(out / name / REPORT, out / f"{name}.json")
    return report
