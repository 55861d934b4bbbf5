"""From what a user asks to the setting of study A and a place where its jobs are done."""

from __future__ import annotations

from pathlib import Path

from sottovoce.data.load import Corpus
from sottovoce.studies.pathology.jobs import Workshop
from sottovoce.studies.pathology.material import open_material
from sottovoce.studies.pathology.plan import Plan, Setting
from sottovoce.targets.encoders import Encoder, open_encoder
from sottovoce.targets.zoo.detector import CLASSES, SAMPLE_RATE

ENCODERS = {"mini": "recogniser", "full": "wav2vec2"}
"""What comes with sottovoce, and the paper's."""
DEPTH = 10 / 12
"""The paper takes the tenth of wav2vec2's twelve layers; of other encoders the layer nearest to that."""


def layer_of(encoder: Encoder) -> int:
    return round(DEPTH * encoder.layers)


def open_workshop(
    corpus: Corpus, data: str, plan: Plan, encoder: str, seed: int, folder: Path, device: str
) -> Workshop:
    """Read the clips, share out their speakers, and begin the folder or go on in it.

    data: what tables call the corpus. encoder: as `open_encoder` takes it.
    """
    known = open_encoder(encoder, device)
    material = open_material(corpus, plan, seed, known.longest)
    clips = material.utterances.clips
    labels = list(material.labels.values())
    setting = Setting(
        plan=plan,
        data=data,
        note=corpus.note,
        encoder=encoder,
        layer=layer_of(known),
        layers=known.layers,
        seed=seed,
        speakers={label: labels.count(label) for label in CLASSES},
        clips=len(clips),
        minutes=float(clips.lengths.sum()) / SAMPLE_RATE / 60,
        folds=len(material.splits),
        split=material.given,
        sigma=material.sigma(),
        unused=material.unused,
    )
    setting.save(folder)
    return Workshop(setting, material, folder, device)
