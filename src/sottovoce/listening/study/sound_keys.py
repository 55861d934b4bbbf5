"""Keys of sounds that a study makes by itself; a colon tells them from the ids of clips."""

from __future__ import annotations

PLAIN, QUIET, ANTIPHASE = "tone:plain", "tone:quiet", "tone:antiphase"
TONES = (PLAIN, QUIET, ANTIPHASE)
NOISE = "noise:volume"
OBVIOUS = "white"
"""The direction of sentinels: white noise at full strength."""
HIDDEN = "reference"
"""The condition of a hidden reference."""


def anchor_key(hz: int, reference: str) -> str:
    """A low-pass copy of a reference."""
    return f"anchor:{hz}:{reference}"


def anchor_condition(hz: int) -> str:
    """The condition of a low-pass copy."""
    return f"anchor {hz / 1000:g} kHz"


def render_key(direction: str, strength: float, reference: str) -> str:
    """A reference at one strength of a direction."""
    return f"render:{direction}:{strength:g}:{reference}"


def obvious_key(reference: str) -> str:
    """A reference with noise that nobody who listens can miss."""
    return render_key(OBVIOUS, 100.0, reference)


def source_of(key: str) -> str:
    """The clip that a sound is made from; "" of tones and noise."""
    kind = key.partition(":")[0]
    if ":" not in key:
        return key
    return key.rsplit(":", 1)[1] if kind in ("anchor", "render") else ""
