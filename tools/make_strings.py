"""Make the embedded strings of commands from the embedded clips.

    python tools/make_strings.py                        # src/sottovoce/data/strings/

Each string is three to five words of one synthetic voice with short gaps between them, drawn again until the
embedded recogniser hears it right: what an attack does to it is then plain to see. Every choice is seeded:
the same command and weights give the same files.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.targets.zoo.recogniser_targets import recogniser
from sottovoce.training.recogniser.recogniser_pack import trim

DATA = Path(__file__).parents[1] / "src" / "sottovoce" / "data"
SAMPLE_RATE = 16000
STRINGS_A_VOICE = 3
WORDS = (3, 5)
GAP_SECONDS = (0.03, 0.15)


def draw_string(words: list[dict[str, str]], random: np.random.Generator) -> tuple[np.ndarray, str]:
    """Samples `(time,)` int16 and what they say."""
    count = min(int(random.integers(WORDS[0], WORDS[1] + 1)), len(words))
    chosen = [words[place] for place in random.permutation(len(words))[:count]]
    pieces = [np.zeros(800, dtype=np.int16)]
    for word in chosen:
        samples, _ = soundfile.read(DATA / "clips" / word["path"], dtype="int16")
        gap = int(random.uniform(*GAP_SECONDS) * SAMPLE_RATE)
        pieces += [trim(samples), np.zeros(gap, dtype=np.int16)]
    return np.concatenate(pieces), " ".join(word["label"] for word in chosen)


def main() -> None:
    random = np.random.default_rng(0)
    voices: dict[str, list[dict[str, str]]] = defaultdict(list)
    with (DATA / "clips" / "clips.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["label"] not in ("silence", "unknown"):
                voices[row["voice"]].append(row)
    out = DATA / "strings"
    out.mkdir(exist_ok=True)
    rows = []
    target = recogniser()
    for voice, words in sorted(voices.items()):
        texts: set[str] = set()
        while len(texts) < STRINGS_A_VOICE:
            whole, text = draw_string(words, random)
            heard = AudioBatch.of([whole.astype(np.float32) / 32768], SAMPLE_RATE)
            if text in texts or target.decode(heard, draws=Draws(0)) != [text]:
                continue
            texts.add(text)
            name = f"{voice.replace(' ', '-').replace('+', '-')}-{len(texts)}"
            soundfile.write(out / f"{name}.flac", whole, SAMPLE_RATE, subtype="PCM_16")
            rows.append((f"{name}.flac", text, name, voice, "en"))
    with (out / "strings.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("path", "label", "id", "speaker", "language"))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
