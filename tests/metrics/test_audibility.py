"""P(heard) as a metric, on an ear whose answers are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.metrics import audibility
from sottovoce.metrics.audibility import HeardDistance, PHeard, PHeardMasking
from sottovoce.perception.ears.ear import Ear
from sottovoce.testing import check_metric
from sottovoce.testing.checks.check_metric import example_trial, untouched_trial


@dataclass(frozen=True, kw_only=True)
class Level(Ear):
    """A distance of |delta| / |clean|, heard with P = d / (1 + d); clips of 4000 samples are too short."""

    name = title = "level"

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        if bool((clean.lengths <= 4000).any()):
            raise InputError("expected more than 4000 samples, got fewer; give longer clips.")
        return (changed.waveforms - clean.waveforms).norm(dim=1) / clean.waveforms.norm(dim=1)

    def probability(self, distance: Tensor) -> Tensor:
        return distance / (1.0 + distance)


@pytest.fixture
def level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audibility, "open_ear", lambda name: Level())


def test_probability_and_distance(level: None) -> None:
    """Every clip a quarter louder: d = 0.25, P = 0.2. The second has 4000 samples."""
    trial = example_trial()
    louder = trial.clean.with_waveforms(1.25 * trial.clean.waveforms)
    trial = replace(trial, adversarial=louder)
    parts = PHeard().measure(trial)
    assert parts[[0, 2, 3], 0].tolist() == pytest.approx([0.2] * 3, abs=1e-6)
    assert parts[[0, 2, 3], 1].tolist() == [1.0] * 3
    assert bool(parts[1].isnan().all())
    assert HeardDistance().measure(trial)[[0, 2, 3], 0].tolist() == pytest.approx([0.25] * 3, abs=1e-6)
    assert PHeard().summarise(parts.numpy()).n == 3
    assert PHeard().reasons(trial, parts) == {
        trial.clean.ids[1]: "expected more than 4000 samples, got fewer; give longer clips."
    }


def test_an_ear_without_weights_leaves_every_clip_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Ear:
        raise InputError("expected weights, got none; train some.")

    monkeypatch.setattr(audibility, "open_ear", absent)
    trial = example_trial()
    parts = PHeard().measure(trial)
    assert bool(parts.isnan().all())
    assert set(PHeard().reasons(trial, parts).values()) == {"expected weights, got none; train some."}
    assert len(PHeard().reasons(trial, parts)) == 4


def test_what_was_left_alone_is_not_heard() -> None:
    parts = PHeardMasking().measure(untouched_trial(example_trial()))
    assert parts.tolist() == [[0.0, 1.0]] * 4
    assert PHeardMasking().reasons(untouched_trial(example_trial()), parts) == {}


def test_laws(level: None) -> None:
    for metric in (PHeard(), HeardDistance()):
        check_metric(metric, tolerance=1e-5)


def test_laws_of_the_masking_ear() -> None:
    check_metric(PHeardMasking(), tolerance=1e-5)
    values = PHeardMasking().measure(example_trial())[:, 0]
    assert bool(((values >= 0) & (values <= 1)).all())
    assert torch.isfinite(values).all()
