"""Clips as the page gets them: 16-bit WAV files of which nothing but the sound tells one from another.

Within a block all have one rate and one length: shorter ones end in silence. Blocks that share a clip count
as one. Levels are left as they are, bit for bit, unless the study asks for equal loudness or an anchor would
clip: then all sounds of the block are turned down together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce import __version__
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.load import load_clip
from sottovoce.errors import InputError, StoreError, UnknownName
from sottovoce.listening.study.blocks import Block, MushraBlock, Rack, SameDifferentBlock
from sottovoce.listening.study.sound_keys import NOISE, OBVIOUS, anchor_key, render_key
from sottovoce.listening.study.study_checks import block_keys
from sottovoce.listening.study.study_file import ListeningStudy
from sottovoce.listening.study.test_sounds import STEPS, lowpass, to_pcm, to_wav, tones, volume_noise
from sottovoce.perception.degradations.perturbation_space import Direction

SHORTEST_LUFS_SECONDS = 0.4
DEFAULT_RMS = 0.05
Array = NDArray[Any]
Job = tuple[str, str, tuple[float, ...]]
"""A reference, a direction, strengths."""
Tell = Callable[[float, str], None]


class WavSound(NamedTuple):
    """What a WAV is made of. samples: `(time,)` or `(time, channels)` in 16-bit steps; frames: its length
    with the silence at the end."""

    samples: Array
    rate: int
    frames: int
    gain: float = 1.0


@final
class StimulusStore:
    """All sounds of a study, ready to be played."""

    def __init__(self, sounds: Mapping[str, WavSound]) -> None:
        self._sounds = sounds

    def __contains__(self, key: str) -> bool:
        return key in self._sounds

    def keys(self) -> Iterable[str]:
        return self._sounds.keys()

    def wav(self, key: str) -> bytes:
        """The whole file."""
        sound = self._find(key)
        return to_wav(to_pcm(sound.samples * (sound.gain / STEPS)), sound.rate, sound.frames)

    def rate(self, key: str) -> int:
        """Samples per second."""
        return self._find(key).rate

    def seconds(self, key: str) -> float:
        """How long it plays, silence at the end included."""
        sound = self._find(key)
        return sound.frames / sound.rate

    def _find(self, key: str) -> WavSound:
        if key not in self._sounds:
            raise UnknownName("sound", key, self._sounds)
        return self._sounds[key]


class Raw(NamedTuple):
    """A sound before it has its level and length. source: the clip whose gain it shares."""

    samples: Array
    rate: int
    source: str


def prepare(study: ListeningStudy, folder: str | Path, tell: Tell | None = None) -> StimulusStore:
    """Load, render and level everything a study plays.

    folder: where rendered changes are kept, to be there at once next time. tell: hears how far it is.
    """
    keys = {key for block in study.blocks for key in block_keys(study, block)}
    keys |= {test.clip for test in study.attention}
    clips = {key: _load(study, key) for key in sorted(keys)}
    jobs = [job for block in study.blocks for job in _renders(block)]
    made: dict[str, Raw] = {}
    for number, (reference, direction, strengths) in enumerate(dict.fromkeys(jobs)):
        if tell is not None:
            tell(number / len(jobs), f"{direction} of {reference}")
        rows = _render(clips[reference], direction, strengths, study.seed, Path(folder))
        for strength, row in zip(strengths, rows, strict=True):
            raw = Raw(row, clips[reference].rate, reference)
            made[render_key(direction, strength, reference)] = raw
    if tell is not None:
        tell(1.0, f"{len(clips)} clips, {len(made)} rendered")
    sounds: dict[str, WavSound] = {}
    for blocks in _joined(study):
        sounds |= _finish(study, blocks, clips, made)
    for test in study.attention:
        sounds.setdefault(test.clip, WavSound(*clips[test.clip][:2], len(clips[test.clip].samples)))
    return StimulusStore(sounds | _around(study, [sounds[key] for key in clips]))


def _load(study: ListeningStudy, key: str) -> Raw:
    import soundfile

    path = Path(study.clips[key].path)
    try:
        rate = int(soundfile.info(path).samplerate)
    except soundfile.SoundFileError as error:
        raise InputError(f"clip {key!r}: cannot read audio from {path}: {error}; check the file.") from None
    clip = load_clip(path, rate, id=key, label="")
    return Raw(to_pcm(clip.waveform.double().numpy()), rate, key)


def _joined(study: ListeningStudy) -> list[list[Block]]:
    """Blocks, those that share a clip together: a clip has one length and one level wherever it is heard."""
    groups: list[tuple[set[str], list[Block]]] = []
    for block in study.blocks:
        keys, blocks = set(block_keys(study, block)), [block]
        apart = []
        for group in groups:
            if group[0] & keys:
                keys, blocks = group[0] | keys, group[1] + blocks
            else:
                apart.append(group)
        groups = [*apart, (keys, blocks)]
    return [blocks for _, blocks in groups]


def _finish(
    study: ListeningStudy, blocks: Sequence[Block], clips: Mapping[str, Raw], made: Mapping[str, Raw]
) -> dict[str, WavSound]:
    """Anchors, levels and one length for all sounds of some blocks."""
    own = {key: clips[key] for block in blocks for key in block_keys(study, block)}
    gains = _match(own, study) if study.level == "matched" else dict.fromkeys(own, 1.0)
    sounds = dict(own)
    for block in blocks:
        for reference, direction, strengths in _renders(block):
            for key in (render_key(direction, strength, reference) for strength in strengths):
                sounds[key] = made[key]
        if isinstance(block, MushraBlock):
            for rack in [*block.all_items(), *block.teaching]:
                sounds |= _anchors(block, rack, clips[rack.reference])
    peak = max(_peak(raw.samples) * gains[raw.source] for raw in sounds.values())
    # Negative full scale is no clipping, so that clips which were recorded too loud stay as they are.
    down = (STEPS - 1) / peak if peak > STEPS else 1.0
    frames = max(len(raw.samples) for raw in sounds.values())
    return {
        key: WavSound(raw.samples, raw.rate, frames, gains[raw.source] * down) for key, raw in sounds.items()
    }


def _peak(samples: Array) -> float:
    """The largest sample by its size; that of -32768 is not among numbers of 16 bits."""
    return max(float(samples.max()), -float(samples.min()))


def _anchors(block: MushraBlock, rack: Rack, reference: Raw) -> dict[str, Raw]:
    return {
        anchor_key(hz, rack.reference): Raw(
            lowpass(reference.samples.astype(np.float64), reference.rate, hz), reference.rate, rack.reference
        )
        for hz in block.anchors_hz
    }


def _match(clips: Mapping[str, Raw], study: ListeningStudy) -> dict[str, float]:
    """Gains that bring all clips to their mean level in decibels; a clip of zeros keeps its own."""
    levels = {key: _level_db(raw, study.loudness) for key, raw in clips.items()}
    known = [level for level in levels.values() if np.isfinite(level)]
    mean = float(np.mean(known)) if known else 0.0
    return {key: 10 ** ((mean - level) / 20) if np.isfinite(level) else 1.0 for key, level in levels.items()}


def _level_db(raw: Raw, loudness: str) -> float:
    if loudness == "rms":
        rms = _rms(raw.samples)
        return 20 * float(np.log10(rms)) if rms > 0 else -np.inf
    import pyloudnorm

    samples = raw.samples / STEPS

    if len(samples) < SHORTEST_LUFS_SECONDS * raw.rate:
        raise InputError(
            f"clip {raw.source!r}: expected {SHORTEST_LUFS_SECONDS} s or more to measure LUFS, got "
            f"{len(samples) / raw.rate:.2f}; take `loudness: rms`."
        )
    with np.errstate(divide="ignore"):
        return float(pyloudnorm.Meter(raw.rate).integrated_loudness(samples))


def _rms(samples: Array) -> float:
    return float(np.sqrt(np.mean((samples / STEPS) ** 2)))


def _renders(block: Block) -> list[Job]:
    """What has to be rendered for a block: of every reference its directions, and an obvious change."""
    if not isinstance(block, SameDifferentBlock):
        return []
    tracks = list(block.all_items())
    grid = tuple(block.grid())
    jobs = [(track.reference, track.direction, grid) for track in tracks if track.direction is not None]
    return list(dict.fromkeys([*jobs, *((track.reference, OBVIOUS, (100.0,)) for track in tracks)]))


def _render(clip: Raw, direction: str, strengths: Sequence[float], seed: int, folder: Path) -> Array:
    """A clip at some strengths, `(strengths, time)` in 16-bit steps; from the folder where it is there."""
    about = f"{__version__} {direction} {list(strengths)} {seed} {clip.rate} {clip.source}"
    name = sha256(about.encode() + clip.samples.tobytes()).hexdigest()[:32]
    path = folder / f"{name}.npy"
    try:
        if not path.is_file():
            batch = AudioBatch.of([clip.samples / STEPS], clip.rate, [clip.source])
            draws = Draws(seed).turn("render")
            with torch.no_grad():
                rows = [
                    to_pcm(one.batch.clip(0).double().numpy())
                    for one in Direction.parse(direction).render(batch, strengths, draws=draws)
                ]
            folder.mkdir(parents=True, exist_ok=True)
            torn = path.with_name(f"{name}.part.npy")
            np.save(torn, np.stack(rows))
            torn.replace(path)
        # Left on the disk: of many strengths few are played at a time.
        found: Array = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path}: cannot read or write rendered clips: {error}; free some space, or delete the file."
        ) from None
    return found


def _around(study: ListeningStudy, clips: Sequence[WavSound]) -> dict[str, WavSound]:
    """What is heard before the first block: the noise to set the volume by, and three tones.

    clips: as they will be played, with their gains.
    """
    rate = clips[0].rate
    sounds: dict[str, WavSound] = {}
    if study.volume:
        levels = [_rms(clip.samples) * clip.gain for clip in clips]
        loud = max(levels) or DEFAULT_RMS
        noise = volume_noise(rate, loud, min(levels), study.seed)
        sounds[NOISE] = WavSound(noise, rate, len(noise))
    if study.headphones is not None:
        sounds |= {name: WavSound(tone, rate, len(tone)) for name, tone in tones(rate).items()}
    return sounds
