"""Material of M5: clean clips, the same in noise at four SNRs, and what each system makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce import __version__
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Clip, Corpus
from sottovoce.data.pack import FULL_SCALE
from sottovoce.defenses.denoiser import FOLDER, LOSSES, Denoise
from sottovoce.defenses.enhancement import Asnr
from sottovoce.defenses.omlsa import Omlsa
from sottovoce.errors import InputError, SottovoceError
from sottovoce.perception.degradations.recorded_files import cut, list_files, read_recording
from sottovoce.studies.manocha2020.judges import Judge, Measured, try_all
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale
from sottovoce.training.denoiser.denoiser_material import COLOURED, KINDS, make_one

SAMPLE_RATE = 16_000
TRANCHES_DB = (2.5, 7.5, 12.5, 17.5)
"""The SNRs of the test set that the paper took its clips from, hardest first."""
CLIPS, SECONDS = {"mini": 5, "full": 150}, {"mini": 3.0, "full": 10.0}
MADE = (*KINDS, "engine", "keyboard_typing", "rain", "vacuum_cleaner", "wind", COLOURED)
AT_ONCE = 8
NOISY = "noisy"
TITLES = {
    NOISY: "noisy, as it is",
    "wiener": "Wiener filter",
    "omlsa": "OMLSA",
    "l1": "denoiser, L1",
    "mrstft": "denoiser, MR-STFT",
    "features": "denoiser, deep features",
    "dpam": "denoiser, DPAM",
    "learned": "denoiser, ours",
    "l1-learned": "denoiser, L1 + ours",
    "mrstft-learned": "denoiser, MR-STFT + ours",
}
JUDGES = (
    Judge(id="pesq", title="PESQ", name="pesq", better="higher"),
    Judge(id="stoi", title="STOI", name="stoi", better="higher"),
    Judge(id="fwssnr", title="fwSSNR, dB", name="fwssnr", better="higher"),
    Judge(id="distance", title="learned distance, JND", name="learned", kind="ear"),
)


class Mixed(NamedTuple):
    """One clip in one noise. snr_db: its tranche."""

    id: str
    clip: str
    noise: str
    snr_db: float
    clean: NDArray[np.float32]
    noisy: NDArray[np.float32]


@final
@dataclass(frozen=True)
class DenoiserSetup:
    """heard: what each system made of the noisy clips. measured: by system, then by judge."""

    folder: Path
    mixed: list[Mixed]
    clean: AudioBatch
    heard: dict[str, AudioBatch]
    measured: dict[str, dict[str, Measured]]
    absent: dict[str, str]
    setting: dict[str, Any]
    corpus: str
    seed: int
    unused: dict[str, str]

    def facts(self) -> dict[str, Any]:
        return self.setting

    def scope(self, study: Study[Any]) -> list[str]:
        return [
            f"Data {self.setting['data']} ({self.corpus}): {len(self.mixed) // len(TRANCHES_DB)} clips, each "
            f"at {', '.join(f'{db:g}' for db in TRANCHES_DB)} dB, {self.setting['noise']} noise, seed "
            f"{self.seed}.",
            "The paper asked people which of two clips they prefer; these are objective measures. Its "
            "denoiser "
            "was trained on 11,572 sentences for 400 epochs, these only briefly on minutes of speech. Our "
            "metric "
            "was learned from simulated listeners.",
        ]

    def values(self, system: str, judge: str) -> NDArray[np.float64] | None:
        """Of all mixtures `(n,)`; None where it was not measured. "heard" is P(heard) of the learned ear."""
        found = self.measured.get(system, {}).get("distance" if judge == "heard" else judge)
        if found is None:
            return None
        return found.heard if judge == "heard" else found.values

    def rows(self, snr_db: float | None) -> list[int]:
        """Mixtures of a tranche, or all."""
        return [row for row, one in enumerate(self.mixed) if snr_db is None or one.snr_db == snr_db]


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> DenoiserSetup:
    """choice.data: CORPUS, or CORPUS@DIR with a folder of noises. choice.model: a folder of weights."""
    choice.refuse("M5", "attack", "fit", "batch")
    scale = "full" if find_scale(choice.scale).name == "full" else "mini"
    data = choice.data or "prompts"
    spec, _, noises = data.partition("@")
    count = choice.clips or CLIPS[scale]
    tell(0.0, "reading speech")
    parts, absent = systems(Path(choice.model).expanduser() if choice.model else FOLDER)
    corpus = unheard(open_corpus(spec), parts).limit(count, choice.seed)
    (chunk,) = corpus.chunks(len(corpus), SAMPLE_RATE)
    draws = Draws(choice.seed).turn("study", "M5")
    mixed = mix(chunk.clips, noises or None, SECONDS[scale], draws)
    ids = [one.id for one in mixed]
    clean, noisy = (
        AudioBatch.of([getattr(one, side) for one in mixed], SAMPLE_RATE, ids) for side in ("clean", NOISY)
    )
    heard, measured = {}, {}
    for place, (name, part) in enumerate(parts.items()):
        tell(place / len(parts), f"hearing {TITLES[name]}")
        heard[name] = noisy if part is None else run_all(part, noisy, draws)
        measured[name], missing = try_all(JUDGES, clean, heard[name], slow=True, tell=lambda *_: None)
        absent |= missing
    setting = {
        "version": __version__,
        "data": data,
        "noise": "recorded" if noises else "synthesised",
        "model": choice.model,
        "scale": scale,
        "clips": [clip.id for clip in chunk.clips],
        "seed": choice.seed,
    }
    reasons = {
        f"{name}, {judge}: {clip}": reason
        for name, found in measured.items()
        for judge, one in found.items()
        for clip, reason in one.reasons.items()
    }
    unused = {failure.id: failure.reason for failure in chunk.failures} | reasons
    folder = out or default_folder("M5", scale, [data, count, choice.model or "", choice.seed])
    return DenoiserSetup(
        folder, mixed, clean, heard, measured, absent, setting, corpus.note, choice.seed, unused
    )


def systems(folder: Path) -> tuple[dict[str, Transform | None], dict[str, str]]:
    """What is compared, by name, and why the rest cannot be. folder: of weights denoiser-LOSS.safetensors."""
    # A lower floor than smoothing noise asks for: people listen here, not recognisers.
    found: dict[str, Transform | None] = {NOISY: None, "wiener": Asnr(floor_db=-20.0), "omlsa": Omlsa()}
    absent: dict[str, str] = {}
    for loss in LOSSES:
        try:
            found[loss] = Denoise(loss=loss, weights=str(folder / f"denoiser-{loss}.safetensors"))
        except SottovoceError as error:
            absent[loss] = str(error)
    return found, absent


def unheard(corpus: Corpus, parts: Mapping[str, Transform | None]) -> Corpus:
    """The clips of speakers that no denoiser was trained on."""
    known: set[str] = set()
    for part in parts.values():
        if isinstance(part, Denoise):
            known |= {
                *part.facts.get("trained_on", "").split(","),
                *part.facts.get("validated_on", "").split(","),
            }
    kept = tuple(entry for entry in corpus if entry.facts.get("speaker", "") not in known - {""})
    if not kept:
        raise InputError(
            f"corpus {corpus.name!r}: the denoisers were trained on all of its speakers; name another corpus "
            "with --data."
        )
    lost = len(corpus) - len(kept)
    note = f"{lost} clips of training speakers left out" if lost else ""
    return Corpus(corpus.name, kept, "; ".join(filter(None, (corpus.note, note))))


def mix(clips: list[Clip], noises: str | None, seconds: float, draws: Draws) -> list[Mixed]:
    """Every clip at each SNR, each time in another noise; the SNR is exact over the clip.

    noises: a file or folder of recordings; synthesised where it is not given.
    """
    if not clips:
        raise InputError("expected clean clips, got none that can be read; check the corpus.")
    mixed = []
    for number, clip in enumerate(clips):
        clean = clip.waveform[: int(seconds * clip.sample_rate)].double().numpy()
        for place, snr_db in enumerate(TRANCHES_DB):
            id = f"{clip.id}@{snr_db:g}"
            name, noise = _noise(noises, number + place * max(1, len(clips) // 2), len(clean), draws, id)
            gain = np.linalg.norm(clean) / np.linalg.norm(noise) * 10 ** (-snr_db / 20)
            noisy = clean + gain * noise
            # What people would hear fits into 16 bits, clean and noisy alike.
            fit = min(1.0, (FULL_SCALE - 1) / FULL_SCALE / float(np.abs([clean, noisy]).max()))
            sounds = (np.asarray(fit * sound, dtype=np.float32) for sound in (clean, noisy))
            mixed.append(Mixed(id, clip.id, name, snr_db, *sounds))
    return mixed


def _noise(
    folder: str | None, number: int, samples: int, draws: Draws, id: str
) -> tuple[str, NDArray[np.float64]]:
    source = draws.turn("noise").generator(id)
    if folder is not None:
        files = list_files(folder)
        path = files[number % len(files)]
        name, sound = path.stem, read_recording(path, SAMPLE_RATE)
    else:
        name = MADE[number % len(MADE)]
        sound = make_one((name, f"denoiser/test/{name}-{id}")).astype(np.float64)
    return name, cut(sound, samples, source.random())


@torch.no_grad()
def run_all(part: Transform, noisy: AudioBatch, draws: Draws) -> AudioBatch:
    """What a system makes of clips, a few at a time, no louder than full scale."""
    found = torch.zeros_like(noisy.waveforms)
    for first in range(0, len(noisy), AT_ONCE):
        rows = list(range(first, min(first + AT_ONCE, len(noisy))))
        piece = part(noisy.select(rows), draws=draws).waveforms
        found[rows, : piece.shape[1]] = piece.clamp(-1.0, 1.0)
    return noisy.with_waveforms(found)
