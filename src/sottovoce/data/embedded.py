"""The clips that come with the package: synthetic voices and made noise, so that an audit runs at once."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from sottovoce.data.corpora import read_table
from sottovoce.data.load import Corpus


def embedded() -> Corpus:
    """The shipped clips, up to one second each at 16 kHz, for the embedded keyword model."""
    path = Path(str(files("sottovoce.data") / "clips" / "clips.csv"))
    return read_table(path, "embedded", "synthetic voices and made noise")
