"""What a study's model and data are: asked of themselves, never of the letters in their names."""

from __future__ import annotations

from importlib import import_module
from inspect import isabstract
from pathlib import Path

from sottovoce.core.target import CtcFrames
from sottovoce.data.corpora import open_corpus
from sottovoce.data.embedded import strings
from sottovoce.data.load import Corpus
from sottovoce.errors import SottovoceError
from sottovoce.registry.part_text import Part
from sottovoce.targets.open_target import declared_classes, open_target

WHISPER, HUGGINGFACE = "whisper", "huggingface"
WAV2VEC2_IDS = tuple(f"facebook/wav2vec2-{kind}" for kind in ("base-100h", "base-960h", "large-960h"))
"""The models of Table 5.1 on the hub."""
OWN, STRINGS, SPEAKERS = "embedded", "strings", "audiomnist"
_LISTS = ("pack", "csv", "folder")
"""Corpora that may hold anything: they are looked into."""


def name_of(model: str) -> str:
    """The registered name that a model goes by: `whisper` of `whisper:tiny`."""
    return Part.parse(model).name if model.endswith(")") else model.partition(":")[0]


def corpus_of(data: str) -> str:
    """The registered name that clips go by, or a path."""
    return data.partition(":")[0]


def _source_of(model: str) -> str:
    """What follows the name of a model: its argument, or the setting `model`."""
    if model.endswith(")"):
        return str(Part.parse(model).settings.get("model", ""))
    return model.partition(":")[2]


def family_of(model: str) -> str:
    """The kind of a model: its registered name, and of one of the transformers library what its configuration
    says, such as "wav2vec2"; "" where that is not here to be read."""
    if name_of(model) != HUGGINGFACE:
        return name_of(model)
    source = _source_of(model)
    if source in WAV2VEC2_IDS:
        return "wav2vec2"
    try:
        found = import_module("transformers").AutoConfig.from_pretrained(source, local_files_only=True)
    except (ImportError, OSError, ValueError):
        return ""
    return str(found.model_type)


def whisper_size(model: str) -> str | None:
    """The published size of a Whisper, such as "tiny.en"; None where the model is no Whisper, or another."""
    from sottovoce.targets.adapters.whisper import size_of

    return size_of(_source_of(model)) if name_of(model) == WHISPER else None


def has_frames(model: str) -> bool:
    """Whether scores of frames can be averaged: not those of attention models, such as Whisper.

    A model is opened if its name may mean both; if it cannot be opened, frames are expected.
    """
    declared = declared_classes(model)
    known = {issubclass(each, CtcFrames) for each in declared}
    if len(known) == 1 and not any(isabstract(each) for each in declared):
        return known.pop()
    try:
        return open_target(model, "cpu").offers(CtcFrames)
    except Exception:  # whatever someone's own model does on the way; its run will tell
        return True


def is_strings(data: str, model: str) -> bool:
    """Whether the clips are the shipped strings of commands, under their name or copied elsewhere."""
    if data == OWN:
        return _own_clips(model) == STRINGS
    if corpus_of(data) == STRINGS:
        return True
    corpus = _looked_into(data)
    if corpus is None:
        return False
    shipped = {(entry.id, entry.label) for entry in strings()}
    return all((entry.id, entry.label) in shipped for entry in corpus)


def has_speakers(data: str) -> bool:
    """Whether the clips are of speakers that the speaker models know, and labelled with them."""
    from sottovoce.targets.zoo.speaker_cnn import CLASSES

    if corpus_of(data) == SPEAKERS:
        return True
    corpus = _looked_into(data)
    return corpus is not None and all(
        entry.label in CLASSES and entry.facts.get("speaker") == entry.label for entry in corpus
    )


def _own_clips(model: str) -> str:
    """The corpus that a model is audited on where no other is named."""
    declared = {each.clips for each in declared_classes(model) if "clips" in vars(each)}
    if len(declared) == 1:
        return declared.pop()
    try:
        return open_target(model, "cpu").clips
    except Exception:  # as above
        return OWN


def _looked_into(data: str) -> Corpus | None:
    """A corpus whose name does not say what it holds; None where it says, or there is none."""
    if corpus_of(data) not in _LISTS and not Path(data).expanduser().exists():
        return None
    try:
        return open_corpus(data)
    except (SottovoceError, OSError):
        return None
