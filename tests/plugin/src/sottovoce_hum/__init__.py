"""Mains hum as an attack: what a bad power supply adds to every clip."""

from __future__ import annotations

from collections.abc import Callable


def register(add: Callable[[str, str, str], None]) -> None:
    """Called by sottovoce when it looks for parts; the attack itself is imported when it is asked for."""
    add("attack", "hum", "sottovoce_hum.hum:Hum")
