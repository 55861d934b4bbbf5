"""From what a user asks to the setting of study A and a place where its jobs are done."""

from __future__ import annotations

from pathlib import Path

from sottovoce.data.load import Corpus
from sottovoce.errors import InputError, UnknownName
from sottovoce.studies.amiri2024.detection_material import open_material
from sottovoce.studies.amiri2024.job_plan import JobPlan, JobSetting
from sottovoce.studies.amiri2024.jobs import Workshop
from sottovoce.targets.adapters.speech_encoders import Encoder, open_encoder
from sottovoce.targets.zoo.detector_networks import CLASSES, SAMPLE_RATE

ENCODERS = {"mini": "recogniser", "full": "wav2vec2"}
"""What comes with sottovoce, and the paper's."""
DEPTH = 10 / 12
"""The paper takes the tenth of wav2vec2's twelve layers; of other encoders the layer nearest to that."""


def layer_of(encoder: Encoder, asked: int | None) -> int:
    if asked is None:
        return round(DEPTH * encoder.layers)
    encoder.check_layer(asked)
    return asked


def read_encoder(spec: str) -> tuple[str, int | None]:
    """An encoder as `open_encoder` takes it, and its layer if one is asked for: `wav2vec2:FOLDER` leaves that
    to the study, `wav2vec2(model=FOLDER, layer=9)` does not."""
    if not spec.endswith(")") or ":" in spec.partition("(")[0]:
        return spec, None
    # Imported here: a machine that is only lent for jobs may not have what plans are read with.
    from sottovoce.registry.part_text import Part

    part = Part.parse(spec)
    strange = sorted({*part.settings} - {"model", "layer"})
    if strange:
        raise UnknownName(f"setting of the encoder {part.name}", strange[0], ("model", "layer"))
    layer = part.settings.get("layer")
    if layer is not None and type(layer) is not int:
        raise InputError(f"expected the number of a layer in {spec!r}, got {layer!r}; write layer=9.")
    model = part.settings.get("model")
    return part.name if model is None else f"{part.name}:{model}", layer


def open_workshop(
    corpus: Corpus, data: str, plan: JobPlan, encoder: str, seed: int, folder: Path, device: str
) -> Workshop:
    """Read the clips, split their speakers into folds, and start the folder or continue in it.

    data: what tables call the corpus. encoder: as `read_encoder` takes it.
    """
    encoder, layer = read_encoder(encoder)
    known = open_encoder(encoder, device)
    layer = layer_of(known, layer)
    material = open_material(corpus, plan, seed, known.longest)
    clips = material.utterances.clips
    labels = list(material.labels.values())
    setting = JobSetting(
        plan=plan,
        data=data,
        note=corpus.note,
        encoder=encoder,
        layer=layer,
        layers=known.layers,
        seed=seed,
        speakers={label: labels.count(label) for label in CLASSES},
        clips=len(clips),
        minutes=float(clips.lengths.sum()) / SAMPLE_RATE / 60,
        folds=len(material.splits),
        split=material.given,
        sigma=material.sigma(),
        unused=material.unused,
        digest=material.digest(),
    )
    setting.save(folder)
    return Workshop(setting, material, folder, device)
