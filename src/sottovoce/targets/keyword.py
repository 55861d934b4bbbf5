"""The shipped keyword spotter as a target."""

from __future__ import annotations

from sottovoce.targets.classifier import ModuleClassifier
from sottovoce.targets.zoo import keyword_cnn


def keyword(device: str = "cpu") -> ModuleClassifier:
    """The embedded keyword model: 12 classes, one second at 16 kHz."""
    module = keyword_cnn.load(device)
    return ModuleClassifier(
        module, keyword_cnn.CLASSES, keyword_cnn.SAMPLE_RATE, clip_samples=keyword_cnn.CLIP_SAMPLES
    )
