"""The shipped keyword spotter as a target."""

from __future__ import annotations

from pathlib import Path

from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.zoo import keyword_cnn
from sottovoce.targets.zoo.shipped_weights import PLAIN


def keyword(device: str = "cpu", variant: str = PLAIN, weights: str | None = None) -> ModuleClassifier:
    """The embedded keyword model: 12 classes, one second at 16 kHz.

    variant: how it was trained: plain, or against attacks: fgsm, pgd or mixed.
    weights: path of another file that `sottovoce train` wrote.
    """
    module = keyword_cnn.load(device, Path(weights) if weights else None, variant)
    return ModuleClassifier(
        module, keyword_cnn.CLASSES, keyword_cnn.SAMPLE_RATE, clip_samples=keyword_cnn.CLIP_SAMPLES
    )
