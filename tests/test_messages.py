"""Mistakes as people make them, and the whole message that each gets: what is wrong, and what to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import sottovoce as sv


def attack(text: str, model: Any = None, **settings: Any) -> sv.Trial:
    """An attack on a toy classifier, or another model."""
    target = sv.testing.ToyClassifier() if model is None else model
    return sv.attack(target, sv.testing.clips_for(target), text, **settings)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: attack("pgdd"), "unknown attack 'pgdd': did you mean 'pgd'?"),
    (lambda: attack("pgd(stepz=3)"), "unknown setting of pgd 'stepz': did you mean 'step'?"),
    (lambda: attack("pgd(steps=many)"), "pgd(steps=many): expected an integer."),
    (lambda: attack("pgd(step=true)"), "pgd(step=true): expected a number."),
    (lambda: attack("pgd(steps=0)"), "pgd: steps and restarts must be at least 1, got 0 and 1."),
    (
        lambda: attack("pgd(steps"),
        "expected name(setting=value, ...), such as pgd(steps=100), got 'pgd(steps'.",
    ),
    (
        lambda: attack("pgd(100)"),
        "pgd(100): expected setting=value, such as steps=100, got '100'; write text with commas in quotes: "
        'text="yes, now".',
    ),
    (
        lambda: attack("deepfool", sv.testing.ToyCtc()),
        "deepfool needs class scores, but the model is a speech recogniser (ToyCtc). Use pgd, apgd or fgsm.",
    ),
    (
        lambda: attack("cw-asr", goal="force(text=north)"),
        "cw-asr needs token scores of a recogniser, but the model is a classifier (ToyClassifier). Use pgd, "
        "apgd or fgsm.",
    ),
    (
        lambda: attack("cw-asr", sv.testing.ToyCtc()),
        "cw-asr forces a text, got the goal evade. Name a text, such as force(text=yes).",
    ),
    (
        lambda: attack("kenansville", budget="linf(eps=0.1)"),
        "kenansville needs a budget in the norm l2, got Linf 0.1. Use snr(db=30) or l2(eps=0.1).",
    ),
    (
        lambda: attack("deepfool", budget="audible(p=0.5)"),
        "deepfool needs a budget with a norm, such as snr(db=30), dbmax(db=-20), l2(eps=0.1) or "
        "linf(eps=0.01), got P(heard) 50 %.",
    ),
    (lambda: attack("pgd", budget="snr"), "snr needs the setting db; write snr(db=...)."),
    (lambda: attack("pgd", budget="snr(db=loud)"), "snr(db=loud): expected a number."),
    (
        lambda: attack("pgd", budget="linf(eps=0)"),
        "linf: eps must be above 0, got 0.0; full scale is 1, so 0.01 is usual.",
    ),
    (lambda: attack("pgd", goal="force"), "force needs the setting text; write force(text=...)."),
    (
        lambda: attack("pgd", goal="language(code=fr)"),
        "language needs language scores, but the model is a classifier (ToyClassifier). Use evade or force.",
    ),
    (
        lambda: sv.attack(sv.testing.ToyClassifier(), sv.testing.example_clips(16000), "pgd"),
        "the model expects audio at 1000 Hz, got 16000 Hz; resample it, for example with "
        "sottovoce.data.load_clip.",
    ),
    (
        lambda: sv.AudioBatch.of([torch.tensor([0.0, 32767.0])], 16000),
        "clip '0': expected samples in [-1, 1], got a peak of 3.277e+04; divide 16-bit integers by 32768.",
    ),
    (
        lambda: sv.audit("keyword", snr="loud"),
        "--snr expected decibels such as 20,40 or 20:60:10, got 'loud'.",
    ),
    (lambda: sv.audit("keyword", seeds="0,x"), "--seeds expected integers such as 0,1,2, got '0,x'."),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_message_says_what_is_wrong_and_what_to_type(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(sv.errors.SottovoceError) as caught:
        mistake()
    assert str(caught.value) == message
