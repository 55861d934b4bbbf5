"""Training of the keyword classifier: one pack in, one weights file and a report out.

Clips are augmented in each epoch on the training device: background noise of any colour, a tilted spectrum,
speed, position in the second, level, and a few masked frames. The result is a moving average of the
weights, from the epoch that did best on the validation clips. The same seed gives the same
weights on a CPU; on a GPU, sums run in an order that varies, and so does the last digit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sottovoce.core.statistics import clopper_pearson
from sottovoce.errors import InputError
from sottovoce.targets.zoo.keyword_cnn import CLASSES, CLIP_SAMPLES, KeywordCnn
from sottovoce.training.coloured_noise import coloured_noise, tilt, uniform
from sottovoce.training.keyword.keyword_pack import KeywordPack, load_pack


@dataclass(frozen=True, kw_only=True)
class KeywordRecipe:
    """Everything that shapes a run besides the data, the seed and the device; ranges are uniform."""

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    label_smoothing: float = 0.1
    average_decay: float = 0.998
    noisy_share: float = 0.5
    noise_snr_db: tuple[float, float] = (8.0, 45.0)
    tilt_db: tuple[float, float] = (-1.0, 1.0)
    gain_db: tuple[float, float] = (-25.0, 10.0)
    speed: tuple[float, float] = (0.9, 1.1)
    shift_samples: int = 1_600
    masks: int = 1
    mask_frames: int = 8


@dataclass(frozen=True, kw_only=True)
class Score:
    """Right answers out of all, as a share with its exact (Clopper-Pearson) 95 % interval."""

    correct: int
    total: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class KeywordReport:
    """The result of a run: validation accuracy of the epoch kept, and figures on the test split."""

    seed: int
    epoch: int
    parameters: int
    valid: float
    test: Score
    test_words: Score
    per_class: dict[str, Score]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def score(correct: int, total: int) -> Score:
    accuracy, low, high, _ = clopper_pearson(correct, total)
    return Score(correct=correct, total=total, accuracy=accuracy, low=low, high=high)


def move(waveforms: Tensor, speed: Tensor, shift: Tensor) -> Tensor:
    """Play `(batch, time)` at `(batch,)` speeds about the middle, `(batch,)` samples later; zeros come in."""
    middle = (CLIP_SAMPLES - 1) / 2
    time = torch.arange(CLIP_SAMPLES, device=waveforms.device) - middle
    position = (time - shift.unsqueeze(1)) * speed.unsqueeze(1) + middle
    before = position.floor().long()
    share = position - before
    padded = functional.pad(waveforms, (1, 1))
    left = padded.gather(1, (before + 1).clamp(0, CLIP_SAMPLES + 1))
    right = padded.gather(1, (before + 2).clamp(0, CLIP_SAMPLES + 1))
    return left * (1 - share) + right * share


def augment(waveforms: Tensor, recipe: KeywordRecipe, generator: torch.Generator) -> Tensor:
    """Clips `(batch, 16000)` as another microphone in another room might have heard them, on 16 bits."""
    count = len(waveforms)
    noise = coloured_noise(uniform(count, (-6.0, 1.0), generator), CLIP_SAMPLES, generator)
    power = waveforms.square().mean(dim=1) * 10.0 ** (-uniform(count, recipe.noise_snr_db, generator) / 10.0)
    noisy = uniform(count, (0.0, 1.0), generator) < recipe.noisy_share
    heard = waveforms + noise * (power.sqrt() * noisy).unsqueeze(1)
    heard = tilt(heard, uniform(count, recipe.tilt_db, generator))
    shift = uniform(count, (-recipe.shift_samples, recipe.shift_samples), generator).round()
    heard = move(heard, uniform(count, recipe.speed, generator), shift)
    gain = 10.0 ** (uniform(count, recipe.gain_db, generator) / 20.0)
    return (heard * gain.unsqueeze(1) * 32768.0).round().clamp(-32768, 32767) / 32768.0


def mask(image: Tensor, recipe: KeywordRecipe, generator: torch.Generator) -> Tensor:
    """Blank a few runs of frames in MFCC images `(batch, 1, frames, coefficients)`."""
    frame = torch.arange(image.shape[2], device=image.device)
    for _ in range(recipe.masks):
        start = uniform(len(image), (0.0, float(image.shape[2])), generator).unsqueeze(1)
        width = uniform(len(image), (0.0, float(recipe.mask_frames)), generator).unsqueeze(1)
        hidden = (frame >= start) & (frame < start + width)
        image = image.masked_fill(hidden[:, None, :, None], 0.0)
    return image


def to_waveforms(clips: np.ndarray | Tensor) -> Tensor:
    """int16 `(n, 16000)` to float in [-1, 1)."""
    return torch.as_tensor(clips).float() / 32768.0


def to_targets(labels: np.ndarray) -> Tensor:
    """Names of classes `(n,)` to their places in `CLASSES`."""
    return torch.tensor([CLASSES.index(label) for label in labels.tolist()])


@torch.no_grad()
def predict(model: KeywordCnn, clips: np.ndarray, *, batch_size: int = 256) -> Tensor:
    """The most likely class of each int16 clip, `(n,)` on the CPU."""
    device = model.center.device
    batches = to_waveforms(clips).split(batch_size)
    return torch.cat([model(batch.to(device)).argmax(dim=1).cpu() for batch in batches])


def standardise(model: KeywordCnn, waveforms: Tensor) -> None:
    """Fix each coefficient's mean and deviation to those of some clips, `(n, 16000)`."""
    with torch.no_grad():
        coefficients = model.mfcc(waveforms).flatten(0, 1)
        model.center.copy_(coefficients.mean(dim=0))
        model.spread.copy_(coefficients.std(dim=0))


def evaluate(model: KeywordCnn, test: KeywordPack) -> tuple[Score, Score, dict[str, Score]]:
    """Scores on a pack: all clips, all but the made silence, and class by class."""
    truth = to_targets(test.labels)
    right = predict(model, test.clips) == truth
    spoken = truth != CLASSES.index("silence")

    def part(chosen: Tensor) -> Score:
        return score(int(right[chosen].sum()), int(chosen.sum()))

    present = [(name, truth == place) for place, name in enumerate(CLASSES) if (truth == place).any()]
    return part(torch.ones_like(right)), part(spoken), {name: part(chosen) for name, chosen in present}


def batch_loss(
    model: KeywordCnn, clips: Tensor, targets: Tensor, recipe: KeywordRecipe, generator: torch.Generator
) -> Tensor:
    """Mean cross-entropy of int16 clips `(batch, 16000)`, freshly augmented and masked."""
    image = model.image(augment(to_waveforms(clips), recipe, generator))
    logits = model.classify(mask(image, recipe, generator))
    return functional.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)


def fit(
    data: KeywordPack, *, seed: int, recipe: KeywordRecipe, device: torch.device, log: Callable[[str], None]
) -> tuple[KeywordCnn, int, float]:
    """The model of the best epoch, that epoch, and its accuracy on the validation clips."""
    train, valid = data.part(data.split == "train"), data.part(data.split == "valid")
    clips, targets = torch.as_tensor(train.clips).to(device), to_targets(train.labels).to(device)
    truth = to_targets(valid.labels)
    generator = torch.Generator(device).manual_seed(seed)
    model = KeywordCnn().to(device)
    standardise(model, augment(to_waveforms(clips[:: len(clips) // 512 + 1]), recipe, generator))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.average_decay), use_buffers=True)
    steps = recipe.epochs * -(-len(clips) // recipe.batch_size)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, total_steps=steps, pct_start=0.1
    )
    best, best_epoch, best_accuracy = model.state_dict(), 0, -1.0
    for epoch in range(1, recipe.epochs + 1):
        model.train()
        total = torch.zeros((), device=device)
        for chosen in torch.randperm(len(clips), generator=generator, device=device).split(recipe.batch_size):
            loss = batch_loss(model, clips[chosen], targets[chosen], recipe, generator)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
            average.update_parameters(model)
            total += loss.detach() * len(chosen)
        right = predict(cast(KeywordCnn, average.module).eval(), valid.clips) == truth
        accuracy = float(right.float().mean())
        log(f"epoch {epoch}/{recipe.epochs}: loss {total.item() / len(clips):.4f}, valid {accuracy:.4f}")
        # A later epoch wins a tie: its average is longer.
        if accuracy >= best_accuracy:
            best = {name: value.clone() for name, value in average.module.state_dict().items()}
            best_epoch, best_accuracy = epoch, accuracy
    model.load_state_dict(best)
    return model.eval(), best_epoch, best_accuracy


def train(
    pack: Path,
    out: Path,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    recipe: KeywordRecipe | None = None,
    log: Callable[[str], None] = print,
) -> KeywordReport:
    """Train on a pack, write the weights as safetensors, and score them on the pack's test split."""
    data = load_pack(pack)
    missing = {"train", "valid", "test"} - set(data.split.tolist())
    if missing:
        raise InputError(f"{pack} has no {', '.join(sorted(missing))} clips; pack all three splits.")
    # Initial weights and dropout draw from torch's own state, which is put back afterwards.
    place = torch.device(device)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        model, epoch, valid = fit(data, seed=seed, recipe=recipe or KeywordRecipe(), device=place, log=log)
    weights = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    safetensors.torch.save_file(weights, out)
    test, test_words, per_class = evaluate(model, data.part(data.split == "test"))
    report = KeywordReport(
        seed=seed,
        epoch=epoch,
        parameters=sum(value.numel() for value in model.parameters()),
        valid=valid,
        test=test,
        test_words=test_words,
        per_class=per_class,
    )
    log(f"test {test.accuracy:.4f} ({test.low:.4f} to {test.high:.4f}) on {test.total} clips")
    return report
