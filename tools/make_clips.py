"""Make the embedded clips, and the synthetic part of the keyword classifier's training data.

    python tools/make_clips.py                          # src/sottovoce/data/clips/
    python tools/make_clips.py --training voices.npz    # thousands of clips in other voices

Needs espeak-ng, flite and festival with festvox-us-slt-hts and festvox-kallpc16k. The engines are
deterministic, every random choice is seeded: the same command gives the same clips. A voice that speaks in
the embedded clips is never in the training mix, whatever its accent, pitch or speed.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
import soxr
import torch

from sottovoce.targets.zoo.keyword_cnn import CLASSES, CLIP_SAMPLES, SAMPLE_RATE
from sottovoce.training.coloured_noise import coloured_noise
from sottovoce.training.keyword.keyword_pack import KeywordPack

CLIPS = Path(__file__).parents[1] / "src" / "sottovoce" / "data" / "clips"
WORDS = CLASSES[2:]
TAKES = 5


@dataclass(frozen=True)
class Voice:
    """A speaker: `name` is what the engine calls it; pitch and speed are 1 where the voice is unchanged."""

    engine: str
    name: str
    sex: str = ""
    pitch: float = 1.0
    speed: float = 1.0

    @property
    def id(self) -> str:
        return f"{self.engine} {self.name}"


# Female and male in turn, so that any five in a row hold at least two of each.
EMBEDDED_VOICES = (
    Voice("flite", "slt", "female"),
    Voice("flite", "rms", "male"),
    Voice("espeak-ng", "en-us+f2", "female"),
    Voice("flite", "awb", "male"),
    Voice("festival", "cmu_us_slt_arctic_hts", "female"),
    Voice("espeak-ng", "en-gb+m3", "male"),
    Voice("espeak-ng", "en-gb-scotland+f4", "female"),
    Voice("espeak-ng", "en-us+m7", "male"),
)
EMBEDDED_UNKNOWN = ("bed", "house", "seven", "marvin", "three")

ACCENTS = (
    "en-us",
    "en-us",
    "en-us-nyc",
    "en-gb",
    "en-gb-scotland",
    "en-gb-x-gbclan",
    "en-gb-x-rp",
    "en-gb-x-gbcwmd",
)
VARIANTS = """
m1 m2 m4 m5 m6 m8 f1 f3 f5 adam Alex Alicia Andrea Andy Annie antonio aunty belinda benjamin boris
caleb david Denis ed edward Gene Gene2 grandma grandpa Henrique Hugo iven iven2 Jacky john klatt
klatt2 klatt4 Lee linda marcelo Marco Mario max Michael michel Mike norbert pablo paul pedro quincy
rob robert sandro shelby steph steph2 steph3 travis victor zac anika croak
"""
TRAINING_UNKNOWN = """
one two three zero four five six eight nine ten cat dog bird tree happy sheila wow hello please
thanks water light music open close start pause play next back home call phone time weather red
green blue black white table chair door window car train summer winter monday friday morning evening
apple orange banana coffee sugar king queen mother father brother sister river mountain paper pencil
letter number under over inside maybe never always because people follow forward backward visual
learn cup dawn town know show low snow loft lift rest gone
"""


def run_engine(voice: Voice, text: str, wav: Path) -> None:
    if voice.engine == "espeak-ng":
        pitch, words_per_minute = round(50 * voice.pitch), round(150 * voice.speed)
        command = [
            "espeak-ng",
            "-v",
            voice.name,
            "-p",
            str(pitch),
            "-s",
            str(words_per_minute),
            "-w",
            str(wav),
            text,
        ]
    elif voice.engine == "flite":
        changes = ["--setf", f"duration_stretch={1 / voice.speed:.3f}"]
        if voice.pitch != 1:
            changes += ["--setf", f"int_f0_target_mean={110 * voice.pitch:.0f}"]
        command = ["flite", "-voice", voice.name, *changes, "-t", text, str(wav)]
    else:
        stretch = f"(Parameter.set 'Duration_Stretch {1 / voice.speed:.3f})"
        script = wav.with_suffix(".txt")
        script.write_text(text + "\n")
        command = [
            "text2wave",
            "-eval",
            f"(begin (voice_{voice.name}) {stretch})",
            "-o",
            str(wav),
            str(script),
        ]
    subprocess.run(command, check=True, capture_output=True)


def speak(voice: Voice, text: str) -> np.ndarray:
    """The word alone at 16 kHz: float `(time,)` with a peak of one, silence before and after cut off."""
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "speech.wav"
        run_engine(voice, text, wav)
        samples, rate = soundfile.read(wav, dtype="float64")
    samples = soxr.resample(samples, rate, SAMPLE_RATE) if rate != SAMPLE_RATE else samples
    loud = np.convolve(np.abs(samples), np.full(160, 1 / 160), mode="same")
    heard = np.flatnonzero(loud > 0.01 * loud.max())
    word = samples[max(heard[0] - 160, 0) : heard[-1] + 160][:CLIP_SAMPLES]
    return word / np.abs(word).max()


def noise_like(slope_db: float, samples: int, seed: int) -> np.ndarray:
    """Noise `(samples,)` of mean absolute value one."""
    noise = coloured_noise(torch.tensor([slope_db]), samples, torch.Generator().manual_seed(seed))[0]
    return (noise / noise.abs().mean()).double().numpy()


def to_int16(samples: np.ndarray) -> np.ndarray:
    return np.clip(np.round(samples), -32768, 32767).astype(np.int16)


def set_level(clip: np.ndarray, level_db: float) -> np.ndarray:
    """Scale to a mean level in dB above one 16-bit step, through a limiter that bends peaks near full scale.

    Peaks are driven to four times full scale at most: a word that is mostly click stays below its level.
    """
    low, high = 0.0, 4 * 32_000 / np.abs(clip).max()
    for _ in range(60):
        gain = (low + high) / 2
        limited = 32_000 * np.tanh(clip * gain / 32_000)
        low, high = (gain, high) if np.abs(limited).mean() < 10.0 ** (level_db / 20.0) else (low, gain)
    return limited


def record(voice: Voice, text: str, level_db: float, random: np.random.Generator) -> np.ndarray:
    """A word somewhere in 0.7 to 1 s of faint noise; loud takes are spoken slowly and fill a shorter clip."""
    loud = level_db > 70.0
    word = speak(replace(voice, speed=0.8) if loud else voice, text)
    shortest = max(len(word), round(0.7 * SAMPLE_RATE))
    longest = max(shortest, round((0.8 if loud else 1.0) * SAMPLE_RATE))
    whole = not loud and random.random() < 0.6
    samples = CLIP_SAMPLES if whole else int(random.integers(shortest, longest + 1))
    start = int(random.integers(0, samples - len(word) + 1))
    clip = np.zeros(samples)
    clip[start : start + len(word)] = word
    background = noise_like(random.uniform(-6.0, 0.0), samples, int(random.integers(2**31)))
    clip += background * np.abs(clip).mean() * 10.0 ** (random.uniform(-36.0, -22.0) / 20.0)
    return to_int16(set_level(clip, level_db))


def hum(samples: int) -> np.ndarray:
    """Mains hum: 50 Hz and its odd harmonics, mean absolute value about one."""
    phase = 2 * np.pi * 50.0 * np.arange(samples) / SAMPLE_RATE
    return np.sum([np.sin(order * phase) / order for order in (1, 3, 5)], axis=0) * 1.4


def word_level_db(take: int, word: int, random: np.random.Generator) -> float:
    """Two loud takes, two of middle level, and a last one that is faint for every other word."""
    low, high = ((70.2, 71.5), (61.0, 69.0), (70.2, 71.5), (52.0, 61.0), (43.0, 49.0))[take]
    return random.uniform(low, high) if take < 4 or word % 2 == 0 else random.uniform(56.0, 66.0)


def make_embedded(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []

    def keep(label: str, take: int, voice: str, sex: str, text: str, clip: np.ndarray) -> None:
        name = f"{label}-{take + 1}"
        soundfile.write(folder / f"{name}.flac", clip, SAMPLE_RATE, subtype="PCM_16")
        rows.append(
            {"id": name, "path": f"{name}.flac", "label": label, "voice": voice, "sex": sex, "text": text}
        )

    colours = (
        ("white", 0.0, 30.0),
        ("pink", -3.0, 44.0),
        ("brown", -6.0, 52.0),
        ("blue", 3.0, 24.0),
        ("hum", -3.0, 38.0),
    )
    for take, (colour, slope_db, level_db) in enumerate(colours):
        noise = noise_like(slope_db, CLIP_SAMPLES - 800 * take, seed + take)
        noise = noise + hum(len(noise)) if colour == "hum" else noise
        keep("silence", take, f"noise {colour}", "", "", to_int16(noise * 10.0 ** (level_db / 20.0)))
    for word, label in enumerate(("unknown", *WORDS)):
        for take in range(TAKES):
            voice = EMBEDDED_VOICES[(word + take) % len(EMBEDDED_VOICES)]
            text = EMBEDDED_UNKNOWN[take] if label == "unknown" else label
            clip = record(voice, text, word_level_db(take, word, random), random)
            keep(label, take, voice.id, voice.sex, text, clip)
    with (folder / "clips.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def draw_voice(random: np.random.Generator) -> Voice:
    pitch, speed = random.uniform(0.5, 1.5), random.uniform(0.75, 1.35)
    other = random.random()
    if other < 0.06:
        return Voice("flite", "kal16", pitch=pitch, speed=speed)
    if other < 0.09:
        return Voice("festival", "kal_diphone", speed=speed)
    return Voice(
        "espeak-ng", f"{random.choice(ACCENTS)}+{random.choice(VARIANTS.split())}", pitch=pitch, speed=speed
    )


def make_training(out: Path, seed: int, takes: int) -> None:
    """A pack of `takes` clips a word and twice as many of other words, each loud, dry and centred."""
    random = np.random.default_rng(seed)
    texts = [word for word in WORDS for _ in range(takes)]
    texts += [str(word) for word in random.choice(TRAINING_UNKNOWN.split(), 2 * takes)]
    jobs = [(draw_voice(random), text) for text in texts]
    clips = np.zeros((len(jobs), CLIP_SAMPLES), dtype=np.int16)
    with ThreadPoolExecutor(2) as pool:
        for clip, word in zip(clips, pool.map(lambda job: speak(*job), jobs), strict=True):
            start = (CLIP_SAMPLES - len(word)) // 2
            clip[start : start + len(word)] = to_int16(word * 16_000)
    labels = np.array([text if text in WORDS else "unknown" for text in texts])
    source = np.array([voice.id for voice, _ in jobs])
    KeywordPack(clips=clips, labels=labels, split=np.full(len(jobs), "train"), source=source).save(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--training", type=Path, metavar="OUT.npz", help="make the training mix instead")
    parser.add_argument("--takes", type=int, default=300, help="training clips a word (default 300)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.training is None:
        make_embedded(CLIPS, options.seed)
    else:
        make_training(options.training, options.seed, options.takes)


if __name__ == "__main__":
    main()
