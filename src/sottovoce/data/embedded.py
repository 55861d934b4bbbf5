"""The clips that come with the package, so that an audit runs at once."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from sottovoce.data.corpora import read_table
from sottovoce.data.load import Corpus
from sottovoce.errors import UnknownName


def embedded() -> Corpus:
    """The shipped words, up to one second each at 16 kHz, for the embedded keyword model."""
    return read_table(_shipped("clips"), "embedded", "synthetic voices and made noise")


def prompts(language: str = "") -> Corpus:
    """The shipped sentences, 2 to 6 seconds each at 16 kHz, for recognisers: en, es, fr, it, ru, or all."""
    note = "telephone prompts of four professional speakers in five languages"
    corpus = read_table(_shipped("prompts"), "prompts", note)
    if not language:
        return corpus
    kept = tuple(entry for entry in corpus.entries if entry.facts["language"] == language)
    if not kept:
        raise UnknownName("language of the prompts", language, {e.facts["language"] for e in corpus.entries})
    return Corpus(f"prompts-{language}", kept, f"telephone prompts of a professional speaker ({language})")


def strings() -> Corpus:
    """The shipped strings of three to five commands, for the embedded recogniser."""
    return read_table(_shipped("strings"), "strings", "strings of commands by eight synthetic voices")


def _shipped(name: str) -> Path:
    return Path(str(files("sottovoce.data") / name / f"{name}.csv"))
