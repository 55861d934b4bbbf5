"""The jobs of study A: each trains in one fold with one seed, attacks what it made, and leaves plain data.

A job is one file, `jobs/NAME.json`, written atomically when it is done, so that a folder can be continued
anywhere. Needs no library for audio files or pages.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from sottovoce.core.budget import NormName, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.core.transform import Defended, Transform
from sottovoce.defenses.filters import IdealLowPass
from sottovoce.defenses.noisy_passes import Smoothed
from sottovoce.defenses.quantise import Quantise
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise
from sottovoce.studies.amiri2024 import job_plan as plans
from sottovoce.studies.amiri2024.detection_material import NOISE_SNR_DB, DetectionMaterial
from sottovoce.studies.amiri2024.detector_attacks import (
    BITS,
    CLEAN,
    Arena,
    Cell,
    Examples,
    Pairs,
    cell,
    mean_psd,
)
from sottovoce.studies.amiri2024.job_plan import CLAIMED_DB, JOBS, OPTION_LEVELS_DB, Job, JobSetting
from sottovoce.studies.amiri2024.noise_stand_ins import recordings
from sottovoce.targets.adapters.speech_encoders import Encoder, open_encoder
from sottovoce.targets.zoo.detector_targets import (
    EmbeddingDetector,
    SegmentDetector,
    load_detector,
    save_detector,
)
from sottovoce.training.detector.detector_embeddings import (
    EmbeddingCache,
    Embeddings,
    embed,
    train_embeddings,
)
from sottovoce.training.detector.detector_material import Background, changed
from sottovoce.training.detector.train_detector import (
    FOR_EMBEDDINGS,
    FOR_SEGMENTS,
    DetectorRecipe,
    TrainedDetector,
    adversary,
    train_detector,
)
from sottovoce.training.sources import ClipsInMemory

MODELS = "models"
LOW_PASS_SHARE = 0.5
"""Of the frequencies that the front end keeps: those up to 4 kHz at 16 kHz."""
Found = dict[str, Any]


@final
@dataclass(frozen=True, eq=False)
class Workshop:
    """Where jobs are done. All jobs of one folder share its networks and embeddings."""

    setting: JobSetting
    material: DetectionMaterial
    folder: Path
    device: str

    @cached_property
    def encoder(self) -> Encoder:
        return open_encoder(self.setting.encoder, self.device)

    @cached_property
    def embeddings(self) -> Embeddings:
        cache = EmbeddingCache(self.folder / "embeddings")
        return embed(self.encoder, self.setting.layer, self.material.utterances.clips, cache)

    @property
    def recipe(self) -> DetectorRecipe:
        plan = self.setting.plan
        return replace(FOR_SEGMENTS, epochs=plan.epochs, batch_size=plan.batch)

    def arena(self, job: Job, clips: ClipsInMemory | None = None) -> Arena:
        heard = self.material.test(job.fold) if clips is None else clips
        draws = Draws(self.setting.seed).turn("pathology", job.name)
        return Arena(heard.to(self.device), self.setting.plan, draws, by_segments=job.kind != plans.EMBEDDING)

    def model(self, job: Job) -> Path:
        return self.folder / MODELS / f"{job.name}.safetensors"

    def result(self, job: Job) -> Path:
        return self.folder / JOBS / f"{job.name}.json"

    def ready(self, job: Job) -> bool:
        """Whether what the job needs is done."""
        return job.needs is None or self.result(job.needs).exists()

    def train(self, job: Job, **options: Any) -> tuple[SegmentDetector, Found]:
        """A CNN of the fold, kept as a file that is a detector of its own."""
        trained = train_detector(
            self.material.train(job.fold),
            self.material.valid(job.fold),
            seed=self.setting.seed + job.seed,
            device=self.device,
            recipe=self.recipe,
            **options,
        )
        made = SegmentDetector(trained.module)
        self._keep(job, made)
        return made, _history(trained)

    def train_head(self, job: Job) -> tuple[EmbeddingDetector, Found]:
        """The head of the embeddings, on the clips that the CNN learns from; its epochs are its own, for it
        costs next to nothing."""
        parts = (self.material.train(job.fold), self.material.valid(job.fold))
        trained = train_embeddings(
            *(self.embeddings.of(part.ids) for part in parts),
            seed=self.setting.seed + job.seed,
            device=self.device,
            recipe=FOR_EMBEDDINGS,
        )
        made = EmbeddingDetector(self.encoder, self.setting.layer, trained.module)
        self._keep(job, made)
        return made, _history(trained)

    def plain(self, job: Job) -> SegmentDetector:
        """The CNN of the same fold and seed."""
        found = load_detector(self.model(Job(plans.CNN, job.fold, job.seed)), self.device)
        if not isinstance(found, SegmentDetector):
            raise TypeError("the plain detector is a CNN")
        return found

    @cached_property
    def _made_on_plain(self) -> dict[tuple[int, int, int, str], Pairs]:
        return {}

    def transferred(self, job: Job, db: int, norm: NormName) -> Pairs:
        """The fold's clips and what an attack on its plain CNN makes of them, found once for all options."""
        key = (job.fold, job.seed, db, norm)
        if key not in self._made_on_plain:
            arena = self.arena(Job(plans.CNN, job.fold, job.seed))
            self._made_on_plain[key] = arena.utterances(self.plain(job), db, norm=norm)[2]
        return self._made_on_plain[key]

    def _keep(self, job: Job, made: SegmentDetector | EmbeddingDetector) -> None:
        path = self.model(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_detector(path, made, trained_on=f"study A, {job.name}, {self.setting.note or self.setting.data}")


def run_job(shop: Workshop, job: Job) -> Path:
    """Do a job that is not done yet; its file."""
    path = shop.result(job)
    if path.exists():
        return path
    started = time.perf_counter()
    examples = Examples(shop.setting.plan.examples if job.seed == 0 else 0)
    test = shop.material.test(job.fold)
    found = _maker(job)(shop, job, examples)
    found |= {
        "job": {"kind": job.kind, "fold": job.fold, "seed": job.seed},
        "clips": list(test.ids),
        "speakers": shop.material.speakers_of(test),
        "labels": list(test.labels),
        "seconds": time.perf_counter() - started,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    if examples.arrays:
        arrays: dict[str, Any] = dict(examples.arrays)
        np.savez_compressed(path.with_suffix(".part.npz"), **arrays)
        path.with_suffix(".part.npz").replace(path.with_suffix(".npz"))
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(path)
    return path


def _maker(job: Job) -> Callable[[Workshop, Job, Examples], Found]:
    if job.kind == plans.CNN:
        return _cnn
    if job.kind == plans.EMBEDDING:
        return _embedding
    if job.kind == plans.ADVERSARIAL:
        return _adversarial
    return _noisy if job.kind.startswith("noise-") else _option


def _cnn(shop: Workshop, job: Job, examples: Examples) -> Found:
    target, trained = shop.train(job)
    arena = shop.arena(job)
    cells: dict[str, Cell] = {CLEAN: arena.clean(target)}
    spectra = {}
    for db in shop.setting.plan.levels_db:
        for how, attack in (("segments", arena.segments), ("utterances", arena.utterances)):
            floats, files, pairs = attack(target, db)
            cells |= {cell(how, db): floats, cell(how, db, bits=BITS): files}
            if db == CLAIMED_DB:
                spectra[how] = mean_psd(pairs)
            if how == "utterances" and examples.most:
                examples.add(cell(how, db), pairs)
    cells |= _other_norms(shop, arena, target, examples)
    return {"cells": cells, "spectra": spectra, "trained": trained}


def _embedding(shop: Workshop, job: Job, examples: Examples) -> Found:
    target, trained = shop.train_head(job)
    arena = shop.arena(job)
    cells: dict[str, Cell] = {CLEAN: arena.clean(target)}
    spectra = {}
    for db in shop.setting.plan.levels_db:
        floats, files, pairs = arena.utterances(target, db)
        cells |= {cell("utterances", db): floats, cell("utterances", db, bits=BITS): files}
        if db == CLAIMED_DB:
            spectra["utterances"] = mean_psd(pairs)
        if examples.most:
            examples.add(cell("utterances", db), pairs)
    cells |= _other_norms(shop, arena, target, examples)
    return {"cells": cells, "spectra": spectra, "trained": trained}


def _adversarial(shop: Workshop, job: Job, examples: Examples) -> Found:
    target, trained = shop.train(job, adversarial=adversary(CLAIMED_DB))
    arena = shop.arena(job)
    cells: dict[str, Cell] = {CLEAN: arena.clean(target)}
    for db in shop.setting.plan.levels_db:
        floats, files, _ = arena.segments(target, db)
        cells |= {cell("segments", db): floats, cell("segments", db, bits=BITS): files}
    cells |= _strongest(shop, job, arena, target, examples)
    return {"cells": cells, "trained": trained}


def _noisy(shop: Workshop, job: Job, examples: Examples) -> Found:
    name = job.kind.removeprefix("noise-")
    target, trained = shop.train(job, noise=_background(name, "train"))
    clean = shop.arena(job)
    draws = Draws(shop.setting.seed).turn("pathology", "behind", name)
    noisy = shop.arena(job, changed(shop.material.test(job.fold), _background(name, "test"), draws))
    floats, files, _ = noisy.segments(target, CLAIMED_DB)
    return {
        "cells": {
            CLEAN: clean.clean(target),
            "noisy": noisy.clean(target),
            cell("segments", CLAIMED_DB): floats,
            cell("segments", CLAIMED_DB, bits=BITS): files,
        },
        "trained": trained,
    }


def _option(shop: Workshop, job: Job, examples: Examples) -> Found:
    front = front_of(job.kind, shop.setting.sigma)
    inner: SegmentDetector = shop.plain(job)
    trained: Found = {}
    if job.kind == plans.LOW_PASS:
        inner, trained = shop.train(job, noise=front[0])
    elif job.kind.endswith("-trained"):
        inner, trained = shop.train(job, smoothing=front[0])
    target = Defended(inner, front)
    arena = shop.arena(job)
    cells: dict[str, Cell] = {CLEAN: arena.clean(target)}
    cells |= _strongest(shop, job, arena, target, examples)
    found: Found = {"cells": cells, "trained": trained}
    if job.kind.startswith("gaussian"):
        found["certificates"] = _certify(shop, arena, inner)
    return found


def front_of(kind: str, sigma: float) -> tuple[Transform, ...]:
    """What an option hears through."""
    if kind == plans.LOW_PASS:
        # Rounded as the clips that it was trained on were: empty bands hold the noise of rounding.
        return IdealLowPass(share=LOW_PASS_SHARE), Quantise(bits=BITS)
    return (Gaussian(sigma=sigma) if kind.startswith("gaussian") else MadNoise(sigma=sigma),)


def _strongest(shop: Workshop, job: Job, arena: Arena, target: Target, examples: Examples) -> dict[str, Cell]:
    """Through the defense and, made on the plain CNN, without knowing of it."""
    cells: dict[str, Cell] = {}
    for db in OPTION_LEVELS_DB:
        for norm in shop.setting.plan.norms:
            floats, files, pairs = arena.utterances(target, db, norm=norm)
            cells |= {cell("utterances", db, norm): floats, cell("utterances", db, norm, bits=BITS): files}
            if examples.most:
                examples.add(cell("utterances", db, norm), pairs)
            floats, files = arena.judge(target, shop.transferred(job, db, norm), Snr(db, shape=norm))
            cells |= {cell("transfer", db, norm): floats, cell("transfer", db, norm, bits=BITS): files}
    return cells


def _other_norms(shop: Workshop, arena: Arena, target: Target, examples: Examples) -> dict[str, Cell]:
    """What the paper does not try on the bare detectors."""
    cells: dict[str, Cell] = {}
    for db in OPTION_LEVELS_DB:
        for norm in shop.setting.plan.norms:
            if norm == "linf" and db in shop.setting.plan.levels_db:
                continue
            floats, files, pairs = arena.utterances(target, db, norm=norm)
            cells |= {cell("utterances", db, norm): floats, cell("utterances", db, norm, bits=BITS): files}
            if examples.most:
                examples.add(cell("utterances", db, norm), pairs)
    return cells


def _certify(shop: Workshop, arena: Arena, inner: SegmentDetector) -> list[Found]:
    """How often each clip's right label is said through the noise: what certificates are counted from."""
    smoothed = Smoothed(target=inner, sigma=shop.setting.sigma, seed=shop.setting.seed)
    rows = []
    for place in range(len(arena.clips)):
        one = arena.clips.batch([place])
        passes = shop.setting.plan.passes
        said = (text for block in smoothed.texts(one.batch, "count", passes) for text in block)
        right = sum(text == one.labels[0] for text in said)
        rows.append({"right": right, "passes": passes, "length_l2": float(one.batch.length_l2[0])})
    return rows


def _background(name: str, part: str) -> Background:
    return Background(recordings=recordings(name, part), snr_db=NOISE_SNR_DB)


def _history(trained: TrainedDetector[Any]) -> Found:
    return {
        "epochs": len(trained.history),
        "best": trained.best,
        "valid_loss": trained.history[trained.best].valid_loss,
        "seconds": sum(one.seconds for one in trained.history),
    }
