"""What is known of a run beyond its plan, as `about.json` holds it, and the list of its clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from sottovoce.auditing.run.repeatability import Repeated
from sottovoce.core.files.field_ranges import Count, Digest
from sottovoce.core.files.strict_json import STRICT, read_json

ABOUT, CORPUS = "about.json", "corpus.json"


class About(BaseModel):
    """The entries that there may be: what `store.describe` writes. Of an old run some are missing."""

    model_config = ConfigDict(**STRICT, frozen=True)

    run: str = ""
    started: str = ""
    device: str = ""
    data_note: str = ""
    ear_weights: str = ""
    machine: str = ""
    versions: dict[str, str] = {}
    workers: Count = 1
    corpus: Digest = ""
    """Of what `corpus.json` holds."""
    corpus_note: str = ""
    repeated: Repeated | None = None
    """Whether the model answered the same clips alike, before the run began."""
    requests: Count = 0
    """Those that were sent to a model behind an address."""
    weights: dict[str, Digest] = {}
    """Of the files of weights that the model, its defenses and the ears were read from, by their names."""


NOTHING = About().model_dump()
"""What is taken for entries that are missing."""
_ABOUT = TypeAdapter(About)
_CORPUS = TypeAdapter(dict[str, Digest])


def read_about(folder: Path) -> dict[str, Any]:
    """The entries that are there, each checked."""
    found = read_json(folder / ABOUT, _ABOUT, "what is known of the run, an object in JSON")
    return found.model_dump(exclude_unset=True)


def read_corpus(folder: Path) -> dict[str, str]:
    """The digest of each clip, by its id."""
    return read_json(folder / CORPUS, _CORPUS, "a digest of each clip, an object in JSON")
