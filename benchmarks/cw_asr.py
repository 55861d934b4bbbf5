"""Carlini-Wagner for recognisers beside that of adversarial-robustness-toolbox.

    python benchmarks/cw_asr.py         # prints a section for benchmarks/README.md

Same CTC model, clips of different length, texts, first radius, first step length and number of steps. Success
is judged by one function on clips as 16-bit files hold them; those of the other toolbox are rounded first.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner_asr import CarliniWagnerAsr
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import LInf
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Force
from sottovoce.core.quantisation import nearest_step
from sottovoce.core.target import Target
from sottovoce.data.embedded import embedded
from sottovoce.errors import InputError
from sottovoce.targets.zoo.conformer import Conformer, ConformerSize
from sottovoce.targets.zoo.recogniser_targets import recogniser, spell_with

EPS, STEP, SHRINK, TIMES = 0.05, 0.1, 0.8, 8
DRAWS = Draws(0)


def model(weights: str | None) -> tuple[Target, str]:
    """The shipped recogniser, or a small one with random weights where it has none."""
    try:
        return recogniser(weights=weights), "the shipped recogniser"
    except (InputError, FileNotFoundError):
        if weights is not None:
            raise
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = Conformer(ConformerSize(width=64, blocks=4)).requires_grad_(False).eval()
        return spell_with(module), "a small Conformer with random weights"


def clips(target: Target, count: int) -> AudioBatch:
    """Strings of two to four of the shipped clips, none as long as another."""
    corpus = embedded()
    entries = list(corpus)
    words = [np.asarray(corpus.load(entry, target.sample_rate).waveform) for entry in entries[: 4 * count]]
    rows = [np.concatenate(words[4 * row : 4 * row + 2 + row % 3]) for row in range(count)]
    cut = [row[: len(row) - 800 * place] for place, row in enumerate(rows)]
    return AudioBatch.of(cut, target.sample_rate)


def as_estimator(target: Target) -> object:
    """The target as ART asks for it: gradients and texts of clips in an array of arrays."""
    from art.estimators.pytorch import PyTorchEstimator
    from art.estimators.speech_recognition.speech_recognizer import SpeechRecognizerMixin

    class Estimator(SpeechRecognizerMixin, PyTorchEstimator):  # type: ignore[misc]
        input_shape = (None,)

        def __init__(self) -> None:
            super().__init__(model=None, clip_values=None, channels_first=None, device_type="cpu")

        def _batch(self, x: np.ndarray) -> AudioBatch:
            batch = AudioBatch.of([np.zeros(len(row)) for row in x], target.sample_rate)
            rows = [torch.as_tensor(np.asarray(row, dtype=np.float32)) for row in x]
            return batch.with_waveforms(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))

        def predict(self, x: np.ndarray, batch_size: int = 16, **_: object) -> np.ndarray:
            with torch.no_grad():
                return np.array([text.upper() for text in target.decode(self._batch(x), draws=DRAWS)])

        def loss_gradient(self, x: np.ndarray, y: np.ndarray, **_: object) -> np.ndarray:
            batch = self._batch(x)
            waveforms = batch.waveforms.requires_grad_()
            loss = target.loss(batch.with_waveforms(waveforms), [text.lower() for text in y], draws=DRAWS)
            (slope,) = torch.autograd.grad(loss.sum(), waveforms)
            found = np.empty(len(x), dtype=object)
            found[:] = [slope[row, : len(clip)].numpy() for row, clip in enumerate(x)]
            return found

        def compute_loss(self, x: np.ndarray, y: np.ndarray, **_: object) -> np.ndarray:
            raise NotImplementedError

        def get_activations(self, *_: object, **__: object) -> np.ndarray:
            raise NotImplementedError

        def fit(self, *_: object, **__: object) -> None:
            raise NotImplementedError

    return Estimator()


@dataclass(frozen=True)
class Side:
    """What one toolbox came to: share of clips won, median L-infinity of those in steps of 16 bits, and their
    median signal-to-noise ratio."""

    success: float
    size: float
    snr_db: float


def judge(target: Target, clean: AudioBatch, text: str, found: Tensor) -> Side:
    rounded = clean.with_waveforms(nearest_step(found, 16))
    with torch.no_grad():
        said = target.decode(rounded, draws=DRAWS)
    won = np.array([target.canonical(one) == target.canonical(text) for one in said])
    delta = rounded.waveforms - clean.waveforms
    sizes = (delta.abs().amax(dim=1) * 32768).numpy()
    snr = 20 * (clean.length_l2 / delta.double().norm(dim=1).clamp_min(1e-12)).log10().numpy()
    if not won.any():
        return Side(0.0, np.nan, np.nan)
    return Side(float(won.mean()), float(np.median(sizes[won])), float(np.median(snr[won])))


def ours(target: Target, clean: AudioBatch, text: str, steps: int) -> Tensor:
    attack = CarliniWagnerAsr(steps=steps, learning_rate=STEP, eps=EPS, shrink=SHRINK, times=TIMES)
    return attack(target, clean, Force(text), LInf(EPS), draws=DRAWS).adversarial.waveforms


def theirs(target: Target, clean: AudioBatch, text: str, steps: int) -> Tensor:
    from art.attacks.evasion import CarliniWagnerASR

    attack = CarliniWagnerASR(
        as_estimator(target),
        eps=EPS,
        learning_rate=STEP * EPS,
        max_iter=steps,
        decrease_factor_eps=SHRINK,
        num_iter_decrease_eps=10,
        batch_size=len(clean),
    )
    rows = np.empty(len(clean), dtype=object)
    rows[:] = [clean.clip(row).numpy() for row in range(len(clean))]
    found = attack.generate(rows, np.array([text.upper()] * len(clean)))
    padded = [torch.as_tensor(np.asarray(row, dtype=np.float32)) for row in found]
    return torch.nn.utils.rnn.pad_sequence(padded, batch_first=True)


SIDES: dict[str, Callable[[Target, AudioBatch, str, int], Tensor]] = {"sottovoce": ours, "ART": theirs}


def step_seconds(target: Target, clean: AudioBatch, text: str, turns: int) -> dict[str, np.ndarray]:
    """Seconds a step of each toolbox in each turn, `(turns,)`: what 24 steps cost beyond 4, so that judging
    and setting up do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(turns):
        for name, side in SIDES.items():
            spent = []
            for steps in (4, 24):
                start = time.perf_counter()
                side(target, clean, text, steps)
                spent.append(time.perf_counter() - start)
            seconds[name].append((spent[1] - spent[0]) / 20)
    return {name: np.array(found) for name, found in seconds.items()}


def main() -> None:
    warnings.filterwarnings("ignore")
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--clips", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--text", default="stop it")
    parser.add_argument("--weights", help="a recogniser of one's own instead of the shipped one")
    options = parser.parse_args()
    target, what = model(options.weights)
    clean = clips(target, options.clips)
    clean = clean.with_waveforms(nearest_step(clean.waveforms, 16))
    lengths = ", ".join(f"{int(length) / target.sample_rate:.2f}" for length in clean.lengths)
    times = step_seconds(target, clean, options.text, options.turns)
    print("## Carlini-Wagner for recognisers\n")
    print(f"{what[0].upper()}{what[1:]}, {len(clean)} clips of {lengths} s in one batch,")
    print(f"made to say {options.text!r} within {EPS}, {options.steps} steps.\n")
    print("| toolbox | ms a step | times sottovoce's | success | L-infinity, steps of 16 bits | SNR |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, side in SIDES.items():
        ratio = np.median(times[name] / times["sottovoce"])
        row = judge(target, clean, options.text, side(target, clean, options.text, options.steps))
        cells = (
            *(name, f"{1000 * np.median(times[name]):.1f}", f"{ratio:.2f}", f"{100 * row.success:.0f} %"),
            *(f"{row.size:.0f}", f"{row.snr_db:.1f} dB"),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
