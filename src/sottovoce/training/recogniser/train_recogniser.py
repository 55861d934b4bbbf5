"""Training of the embedded recogniser: a pack in, a weights file and a report out.

    sottovoce train recogniser --pack PACK --out FOLDER --minutes 8

Every batch is new: half of its rows are strings of two to six recorded commands, half are sentences of
synthetic voices, all at other speeds and levels, with noise of any colour and a few masked bands and frames.
The schedule follows the clock, or the number of steps where one is given: the learning rate reaches zero at
the end. The result is a moving average of the weights, in 16 bits.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sottovoce.errors import InputError
from sottovoce.targets.adapters.unpadded_layers import inside
from sottovoce.targets.zoo.conformer import BLANK, Conformer, ConformerSize, count_output, size_of
from sottovoce.targets.zoo.recogniser_targets import VOCABULARY
from sottovoce.targets.zoo.shipped_weights import PLAIN, fill
from sottovoce.training.coloured_noise import tilt, uniform
from sottovoce.training.recogniser.recogniser_errors import JudgedClips, Rates, add_noise, judge, listen
from sottovoce.training.recogniser.recogniser_pack import RecogniserPack, load_pack
from sottovoce.training.recogniser.word_strings import ItemBank, StringLayout, Style, draw_plan, render

VALID_STRINGS, TEST_STRINGS = 200, 500
# Widths of batches are rounded up to half seconds: few sizes make for few plans of the Fourier transform.
WIDTH_MULTIPLE = 8_000


@dataclass(frozen=True, kw_only=True)
class RecogniserRecipe:
    """Everything that shapes a run besides data, time, seed and device; ranges are uniform."""

    size: ConformerSize = field(default_factory=ConformerSize)
    dropout: float = 0.1
    strings: int = 64
    sentences: int = 64
    style: Style = field(default_factory=lambda: Style(sentences=(1, 2), speed=(0.88, 1.14)))
    learning_rate: float = 1.5e-3
    warm_up_steps: int = 1_000
    weight_decay: float = 0.02
    gradient_norm: float = 1.0
    average_decay: float = 0.999
    noisy_share: float = 0.8
    noise_snr_db: tuple[float, float] = (5.0, 45.0)
    tilt_db: tuple[float, float] = (-1.5, 1.5)
    gain_db: tuple[float, float] = (-22.0, 8.0)
    band_masks: int = 2
    mask_bands: int = 16
    frame_masks: int = 4
    mask_frames: int = 12


RECIPES = {
    "shipped": RecogniserRecipe(),
    "small": RecogniserRecipe(
        size=ConformerSize(maps=32, width=96, blocks=4), strings=16, sentences=0, warm_up_steps=500
    ),
}
"""By name: the shipped recogniser, and one that two cores train on strings of commands in half an hour."""


@dataclass(frozen=True, kw_only=True)
class RecogniserReport:
    """The result of a run, on test items only. sentences: None where the pack has none."""

    seed: int
    parameters: int
    steps: int
    seconds: float
    device: str
    strings: Rates
    sentences: Rates | None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def augment(
    waveforms: Tensor, lengths: Tensor, recipe: RecogniserRecipe, generator: torch.Generator
) -> Tensor:
    """Rows `(rows, time)` as another microphone in another room might have heard them, on 16 bits."""
    rows = len(waveforms)
    heard = add_noise(waveforms, lengths, recipe.noise_snr_db, generator, recipe.noisy_share)
    heard = tilt(heard, uniform(rows, recipe.tilt_db, generator))
    gain = 10.0 ** (uniform(rows, recipe.gain_db, generator) / 20.0)
    heard = (heard * gain.unsqueeze(1) * 32768.0).round().clamp(-32768, 32767) / 32768.0
    return heard * inside(lengths, heard.shape[1])


def mask(features: Tensor, recipe: RecogniserRecipe, generator: torch.Generator) -> Tensor:
    """Blank a few runs of bands and of frames (Park et al. 2019, SpecAugment): `(rows, frames, bands)`.

    Runs of frames are short and their number grows with the row, so that no whole word need vanish.
    """

    def runs(width: int, number: int, longest: int) -> Tensor:
        place = torch.arange(width, device=features.device)
        draws = torch.rand(2, len(features), number, 1, generator=generator, device=generator.device)
        start, length = draws[0] * width, draws[1] * longest
        return ((place >= start) & (place < start + length)).any(dim=1)

    frames = runs(features.shape[1], recipe.frame_masks * (1 + features.shape[1] // 300), recipe.mask_frames)
    bands = runs(features.shape[2], recipe.band_masks, recipe.mask_bands)
    return features.masked_fill(frames.unsqueeze(2) | bands.unsqueeze(1), 0.0)


def batch_loss(
    model: Conformer, bank: ItemBank, plan: StringLayout, recipe: RecogniserRecipe, generator: torch.Generator
) -> Tensor:
    """Mean over rows of the CTC loss per letter, each row freshly augmented and masked."""
    device = bank.samples.device
    waveforms, lengths = render(bank, plan, multiple=WIDTH_MULTIPLE)
    features, frames = model.mel(augment(waveforms, lengths, recipe, generator), lengths)
    rows = [VOCABULARY.encode(text) for text in plan.texts]
    tokens = torch.tensor([token for row in rows for token in row])
    with autocast(device):
        log_probs, _ = model.spell(mask(features, recipe, generator), frames)
    letters = torch.tensor([len(row) for row in rows])
    loss = functional.ctc_loss(
        log_probs.transpose(0, 1),
        tokens.to(device, non_blocking=True),
        count_output(torch.as_tensor(plan.lengths)),
        letters,
        blank=BLANK,
        reduction="none",
        # A fast voice may leave fewer frames than letters.
        zero_infinity=True,
    )
    return (loss / letters.to(device, non_blocking=True)).mean()


def autocast(device: torch.device) -> AbstractContextManager[object]:
    """16-bit arithmetic where it pays."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def learning_rate(recipe: RecogniserRecipe, step: int, spent: float) -> float:
    """Linear warm-up over the first steps, then cosine decay as the share of time goes to 1."""
    risen = min(1.0, step / recipe.warm_up_steps)
    return recipe.learning_rate * risen * 0.5 * (1.0 + math.cos(math.pi * min(spent, 1.0)))


@dataclass(frozen=True)
class Fitted:
    model: Conformer
    steps: int
    seconds: float


def fit(
    data: RecogniserPack,
    *,
    minutes: float,
    steps: int | None = None,
    seed: int,
    recipe: RecogniserRecipe,
    device: torch.device,
    log: Callable[[str], None],
    every_seconds: float = 60.0,
    weights: Path | None = None,
) -> Fitted:
    """The averaged model when the time or the steps are over; validation errors are logged every minute.

    minutes: the time that a run may take. steps: the steps that it takes instead, if given.
    weights: a file to begin with instead of random weights; its size takes the place of the recipe's.
    """
    bank = ItemBank(data.part(data.split == "train"), device)
    checks = judged_clips(data, "valid", VALID_STRINGS)
    random, generator = np.random.default_rng(seed), torch.Generator(device).manual_seed(seed)
    model = initial_model(recipe, weights).to(device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.average_decay))
    kept = cast(Conformer, average.module)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=recipe.weight_decay,
        fused=device.type == "cuda",
    )
    began = reported = time.monotonic()
    taken, total, since = 0, torch.zeros((), device=device), 0

    def spent() -> float:
        return taken / steps if steps else (time.monotonic() - began) / (60.0 * minutes)

    while (share := spent()) < 1.0:
        taken, since = taken + 1, since + 1
        optimiser.param_groups[0]["lr"] = learning_rate(recipe, taken, share)
        plan = draw_plan(bank, random, recipe.style, strings=recipe.strings, sentences=recipe.sentences)
        loss = batch_loss(model.train(), bank, plan, recipe, generator)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_norm)
        optimiser.step()
        average.update_parameters(model)
        total += loss.detach()
        if time.monotonic() - reported >= every_seconds:
            rates = {name: judge(kept.eval(), heard) for name, heard in checks.items()}
            wer = ", ".join(f"{name} {100 * rate.wer.value:.1f} %" for name, rate in rates.items())
            clock = time.monotonic() - began
            log(f"{clock:.0f} s, step {taken}: loss {total.item() / since:.4f}, valid WER {wer}")
            reported, since = time.monotonic(), 0
            total.zero_()
    return Fitted(kept.eval(), taken, time.monotonic() - began)


def initial_model(recipe: RecogniserRecipe, weights: Path | None) -> Conformer:
    """Random weights of the recipe's size, or those of a file."""
    if weights is None:
        return Conformer(recipe.size, dropout=recipe.dropout)
    model = Conformer(size_of(weights), dropout=recipe.dropout)
    fill(model, "recogniser", PLAIN, (PLAIN,), weights)
    return model.requires_grad_(True)


def judged_clips(data: RecogniserPack, split: str, strings: int) -> dict[str, JudgedClips]:
    """Random strings of a split's words, and its sentences where it has any."""
    bank = ItemBank(data.part(data.split == split))
    found = {"strings": listen(bank, strings=strings)}
    return {**found, "sentences": listen(bank)} if len(bank.sentences) else found


def train(
    pack: Path,
    out: Path,
    *,
    minutes: float = 8.0,
    steps: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    recipe: RecogniserRecipe | None = None,
    log: Callable[[str], None] = print,
    weights: Path | None = None,
) -> RecogniserReport:
    """Train on a pack, write `recogniser.safetensors` and `recogniser.json` into a folder.

    What is judged is the file: its weights have been rounded to 16 bits.

    weights: a file to begin with instead of random weights, for a fine-tuned relative of it.
    """
    data = load_pack(pack)
    missing = {"train", "valid", "test"} - set(data.split.tolist())
    if missing:
        raise InputError(f"{pack} has no {', '.join(sorted(missing))} items; pack all three splits.")
    recipe = recipe or RecogniserRecipe()
    if recipe.sentences and not (data.kind == "sentence").any():
        raise InputError(
            f"{pack} has no sentences, and this recipe trains on them; pack some with --hours above 0, or "
            "take the recipe small, which trains on strings of words."
        )
    place = torch.device(device)
    log(f"{len(data)} items, {data.lengths.sum() / 3600 / 16_000:.2f} h")
    # Initial weights and dropout draw from torch's own state, which is put back afterwards.
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        fitted = fit(
            data,
            minutes=minutes,
            steps=steps,
            seed=seed,
            recipe=recipe,
            device=place,
            log=log,
            weights=weights,
        )
    model = fitted.model.half().float()
    values = {name: value.half().cpu().contiguous() for name, value in model.state_dict().items()}
    out.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(values, out / "recogniser.safetensors")
    rates = {name: judge(model, heard) for name, heard in judged_clips(data, "test", TEST_STRINGS).items()}
    report = RecogniserReport(
        seed=seed,
        parameters=sum(value.numel() for value in model.parameters()),
        steps=fitted.steps,
        seconds=fitted.seconds,
        device=torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
        strings=rates["strings"],
        sentences=rates.get("sentences"),
    )
    (out / "recogniser.json").write_text(report.to_json() + "\n", encoding="utf-8")
    for name, found in rates.items():
        value, low, high = (100 * number for number in found.wer[:3])
        log(f"test {name}: WER {value:.2f} % ({low:.2f} to {high:.2f}) on {found.clips} clips")
    return report
