"""Dropout left on in a model that is attacked, so that examples carry over (Olivier 2023, section 6.3).

The network stays in evaluation mode: batch norms keep their statistics, and no flag is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Languages, Matches, Scores, Target, TimedWord, Timings
from sottovoce.core.transform import Wrapped
from sottovoce.errors import InputError
from sottovoce.targets.open_target import open_target

LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)


@final
@dataclass(frozen=True)
class Dropping(Wrapped):
    """A target whose network drops a share of what its dropout layers see, clip by clip from its own draws.

    A layer of features `(batch, frames, width)` draws frame after frame, so that padding changes no mask.
    """

    target: Target
    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.share < 1.0:
            raise InputError(f"dropout: expected a share from 0 to below 1, got {self.share:g}.")
        if not self._layers:
            raise InputError(
                "dropout: expected a model whose network has dropout layers, got "
                f"{type(self.target).__name__}; keyword and recogniser have some."
            )

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.share > 0.0 or self.target.random

    @property
    def _layers(self) -> list[nn.Module]:
        network = getattr(self.target, "module", None)
        return [layer for layer in network.modules() if isinstance(layer, LAYERS)] if network else []

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        with self._dropping(batch, draws):
            return self.target.loss(batch, labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        with self._dropping(batch, draws):
            return self.target.decode(batch, draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with self._dropping(batch, draws):
            return self.target.capability(Scores).scores(batch, draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner = self.target.capability(Matches)
        with self._dropping(batch, draws):
            return inner.loss_and_match(batch, labels, draws=draws, first_token=first_token)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        with self._dropping(batch, draws):
            return self.target.capability(CtcFrames).log_probs(batch, draws=draws)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with self._dropping(batch, draws):
            return self.target.capability(Languages).language_scores(batch, draws=draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        with self._dropping(batch, draws):
            return self.target.capability(Timings).timings(batch, draws=draws)

    @contextmanager
    def _dropping(self, batch: AudioBatch, draws: Draws) -> Iterator[None]:
        calls = 0

        def drop(layer: nn.Module, seen: Any, output: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            turn = draws.turn("dropout", calls)
            whole = output.shape[1:2] if isinstance(layer, nn.Dropout1d | nn.Dropout2d) else output.shape[1:]
            kept = [turn.generator(name).random(whole.numel(), dtype=np.float32) for name in batch.ids]
            mask = torch.from_numpy(np.stack(kept) >= self.share).view(len(batch), *whole)
            mask = mask.view(*mask.shape, *[1] * (output.dim() - mask.dim()))
            return output * mask.to(output) / (1.0 - self.share)

        hooks = [layer.register_forward_hook(drop) for layer in self._layers] if self.share else []
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def dropout(model: str, share: float = 0.1, device: str = "cpu") -> Dropping:
    """A model with dropout left on, as a proxy: what fools it through many masks carries over better.

    model: as in plans, such as `recogniser`; its network needs dropout layers.
    share: of the features that each of them drops.
    device: where it runs.
    """
    return Dropping(open_target(model, device), share)
