"""Google Speech Commands (Warden 2018) as the task of 12 classes: ten words, unknown and silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from sottovoce.core.draws import Draws
from sottovoce.data.corpora import audio_in, existing_folder, folders_in, id_of, inventory, lhotse_module
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, UnknownName

Split = Literal["train", "valid", "test"]

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
NOISE = "_background_noise_"
OTHERS = ("_unknown_", "_silence_")
"""Folders that the test archive has beside those of the ten words, and the training archive has not."""

_LISTS = {"valid": "validation_list.txt", "test": "testing_list.txt"}
# The minutes of background noise are shared out by time, so that no split hears another's.
_SHARES = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0)}


def speech_commands(path: str, split: Split = "test", seed: int = 0) -> Corpus:
    """Google Speech Commands (Warden 2018) as the task of 12 classes: ten words, unknown and silence.

    path is one of: lhotse's download (both archives side by side), the training archive by itself
    (`WORD/*.wav` with its two lists), the test archive by itself (`WORD/*.wav`, `_unknown_/` and
    `_silence_/`; for the split `test`), or `train|valid|test/WORD/*`. Other words are `unknown`. `silence`
    is the test archive's own, or else pieces of one second from `_background_noise_`, one for every ten
    clips of the ten words; which pieces is drawn from `seed`.
    """
    if split not in _SHARES:
        raise UnknownName("split", split, _SHARES)
    root = existing_folder(path)
    name = f"speechcommands-{split}"
    archives = sorted(root.glob("speech_commands_v0.0?"))
    if archives:
        version = archives[-1].name[-1]
        if (root / f"speech_commands_test_set_v0.0{version}").is_dir():
            return _from_lhotse(root, version, split, name, seed)
        root = archives[-1]
    elif sets := sorted(root.glob("speech_commands_test_set_v0.0?")):
        root = sets[-1]
    if any((root / one).is_dir() for one in OTHERS):
        files, note = _test_archive(root, split), ""
        noise, share = root / NOISE, (0.0, 1.0)
    elif all((root / one).is_file() for one in _LISTS.values()):
        files, note = _listed(root, split)
        noise, share = root / NOISE, _SHARES[split]
    elif (root / split).is_dir():
        files, note = _words_in(root / split), ""
        inner = root / split / NOISE
        noise, share = (inner, (0.0, 1.0)) if inner.is_dir() else (root / NOISE, _SHARES[split])
    else:
        raise InputError(
            f"{root}: expected Speech Commands ({' and '.join(_LISTS.values())} beside the words, "
            f"or a folder {split}, or {' and '.join(OTHERS)} as in the test archive), got {inventory(root)}; "
            "name the unpacked archive."
        )
    words = [Entry(id_of(file, file.parent.parent), file, _label_of(file.parent.name)) for file in files]
    recordings = [_recording(file) for file in audio_in(noise)] if noise.is_dir() else []
    return _with_silence(name, words, recordings, share, Draws(seed).turn(split), note)


def _test_archive(root: Path, split: str) -> list[Path]:
    if split != "test":
        raise InputError(
            f"{root}: the test archive of Speech Commands has the split test only, got {split}; name the "
            "folder of the training archive."
        )
    return _words_in(root)


def _from_lhotse(root: Path, version: str, split: str, name: str, seed: int) -> Corpus:
    recipe = lhotse_module("lhotse.recipes.speechcommands")
    try:
        manifest = recipe.prepare_speechcommands(version, root)[split]
    except (lhotse_module("lhotse.audio.utils").AudioLoadingError, OSError, AssertionError) as error:
        reason = str(error).splitlines()[0].removesuffix(" Details:").rstrip(".")
        raise InputError(
            f"{root}: expected Speech Commands v0.0{version} that lhotse can read, got: {reason}; repair or "
            "drop that file."
        ) from error
    texts = {segment.recording_id: segment.text for segment in manifest["supervisions"]}
    words, noise = [], []
    for recording in sorted(manifest["recordings"], key=lambda one: str(one.sources[0].source)):
        source = Path(recording.sources[0].source)
        if source.parent.name == NOISE:
            noise.append(recording)
        else:
            word = texts[recording.id] or "silence"
            words.append(Entry(id_of(source, source.parent.parent), source, _label_of(word)))
    return _with_silence(name, words, noise, (0.0, 1.0), Draws(seed).turn(split), "")


def _with_silence(
    name: str,
    words: list[Entry],
    noise: list[Any],
    share: tuple[float, float],
    draws: Draws,
    note: str,
) -> Corpus:
    """The corpus of some words, with silence cut from lhotse recordings of noise if there is none yet."""
    notes = [note] if note else []
    silence: list[Entry] = []
    if not any(entry.label == "silence" for entry in words):
        count = max(1, round(sum(entry.label in WORDS for entry in words) / len(WORDS)))
        silence = list(_pieces(noise, count, share, draws))
        made = f"silence: {len(silence)} pieces of {NOISE}"
        notes.append(made if silence else f"no silence: {NOISE} is missing or too short")
    return Corpus(name, (*words, *silence), "; ".join(notes))


def _pieces(recordings: list[Any], count: int, share: tuple[float, float], draws: Draws) -> Iterator[Entry]:
    """One second at a time from each recording in turn, at places drawn inside its share of time."""
    spans = [(one, *(round(part * one.num_samples) for part in share)) for one in recordings]
    spans = [(one, first, last) for one, first, last in spans if last - first >= one.sampling_rate]
    for number in range(count if spans else 0):
        recording, first, last = spans[number % len(spans)]
        source, rate = Path(recording.sources[0].source), recording.sampling_rate
        id = f"silence/{source.stem}_{number:05d}"
        start = int(draws.generator(id).integers(first, last - rate, endpoint=True))
        cut = recording.to_cut().truncate(offset=start / rate, duration=1.0)
        yield Entry(id, source, "silence", round(cut.start * rate), cut.num_samples)


def _recording(file: Path) -> Any:
    audio = lhotse_module("lhotse.audio")
    try:
        return audio.Recording.from_file(file)
    except lhotse_module("lhotse.audio.utils").AudioLoadingError as error:
        raise InputError(f"{file}: expected background noise, got no audio; unpack it again.") from error


def _listed(root: Path, split: str) -> tuple[list[Path], str]:
    """The files on a split's list, or for training those on none; and a remark on what is listed in vain."""
    lists = {key: set((root / file).read_text("utf-8").split()) for key, file in _LISTS.items()}
    found = {file.relative_to(root).as_posix(): file for file in _words_in(root)}
    if split == "train":
        return [found[one] for one in found if not any(one in listed for listed in lists.values())], ""
    absent = len(lists[split] - set(found))
    note = f"{absent} on {_LISTS[split]} without a file" if absent else ""
    return [file for one, file in found.items() if one in lists[split]], note


def _words_in(root: Path) -> list[Path]:
    return [file for sub in folders_in(root) if sub.name != NOISE for file in audio_in(sub)]


def _label_of(word: str) -> str:
    bare = word.strip("_")
    return bare if bare in (*WORDS, "silence") else "unknown"
