"""The zoo's recognisers as targets: the embedded Conformer, and Deep Speech 2 from a file."""

from __future__ import annotations

from pathlib import Path
from typing import final

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import evaluating
from sottovoce.errors import InputError
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.targets.families.recogniser import check_beams
from sottovoce.targets.zoo import conformer
from sottovoce.targets.zoo.deepspeech2 import DeepSpeech2, DeepSpeech2Size
from sottovoce.targets.zoo.log_mel import WINDOW
from sottovoce.targets.zoo.shipped_weights import PLAIN

VOCABULARY = Vocabulary(("", *conformer.LETTERS), blank=conformer.BLANK, case="lower")


@final
class LetterCtc(Ctc):
    """A module from waveforms `(batch, time)` and lengths to log probabilities of letters and frames."""

    vocabulary = VOCABULARY
    sample_rate = conformer.SAMPLE_RATE
    clips = "strings"

    def __init__(
        self, module: torch.nn.Module, *, frame_seconds: float, shortest: int, beams: int = 1
    ) -> None:
        check_beams(beams)
        self.module = module
        self.beams = beams
        self._frame_seconds = frame_seconds
        self._shortest = shortest

    @property
    def frame_seconds(self) -> float:
        return self._frame_seconds

    @property
    def shortest(self) -> int:
        return self._shortest

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        with evaluating(self.module):
            log_probs, frames = self.module(batch.waveforms, batch.lengths)
        return log_probs, frames


def spell_with(module: conformer.Conformer, *, beams: int = 1) -> LetterCtc:
    """A Conformer as a target."""
    return LetterCtc(module, frame_seconds=0.04, shortest=conformer.SHORTEST, beams=beams)


def recogniser(
    device: str = "cpu", weights: str | None = None, beams: int = 1, variant: str = PLAIN
) -> LetterCtc:
    """The embedded recogniser: English letters at 16 kHz, trained for strings of spoken commands.

    weights: path of another file that `sottovoce train recogniser` wrote.
    beams: 1 for the most likely token of each frame, more for a search over texts.
    variant: how the embedded one was trained: plain, noisy (Gaussian noise added) or pgd (against attacks).
    """
    return spell_with(conformer.load(device, Path(weights) if weights else None, variant), beams=beams)


def deepspeech2(
    weights: str, device: str = "cpu", maps: int = 32, layers: int = 5, width: int = 512, beams: int = 1
) -> LetterCtc:
    """Deep Speech 2 with your own weights.

    weights: path of a safetensors file.
    maps, layers, width: its size.
    """
    if not Path(weights).is_file():
        raise InputError(
            f"deepspeech2:{weights}: expected a file of weights, got no such file; check the path."
        )
    module = DeepSpeech2(DeepSpeech2Size(maps=maps, layers=layers, width=width))
    try:
        module.load_state_dict(safetensors.torch.load_file(weights))
    except (OSError, RuntimeError, safetensors.SafetensorError) as problem:
        raise InputError(
            f"expected the weights of a Deep Speech 2 with {maps} maps and {layers} layers of width {width}, "
            f"got {weights!r} ({str(problem).splitlines()[0]}); give the file's own size: "
            "'deepspeech2(weights=FILE, maps=..., layers=..., width=...)'."
        ) from problem
    module = module.requires_grad_(False).to(device).eval()
    return LetterCtc(module, frame_seconds=0.02, shortest=WINDOW, beams=beams)
