"""One attack on some clips: `attack`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from sottovoce.api.open_parts import Clips, device_of, open_data, open_model
from sottovoce.auditing.plan.plan_file import PASSES
from sottovoce.auditing.run.run_cell import judging, seen_through
from sottovoce.core.attack import Attack, Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target
from sottovoce.core.transform import Transform
from sottovoce.core.universal_attack import UniversalAttack
from sottovoce.core.vote import Vote
from sottovoce.data.load import Corpus
from sottovoce.defenses.defense_text import Defense
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part, attack_kind

DefenseLike = str | Transform | Vote | Defense | Sequence[str | Transform | Vote] | None
"""A defense: a text, a transform or a vote, or several in order. None: no defense."""


def attack(
    model: str | Target,
    clips: str | Clips | Corpus | AudioBatch,
    attack: str | Attack,
    budget: str | Budget = "snr(db=30)",
    goal: str | Goal = "evade",
    defense: DefenseLike = None,
    *,
    seed: int = 0,
    labels: Sequence[str] | None = None,
    bits: int | None = 16,
    average: int | None = None,
    attacker: Literal["adaptive", "transfer"] = "adaptive",
    device: str = "auto",
) -> Trial:
    """Attack clips once and judge the examples. Returns a `Trial`.

    For several attacks and budgets with figures, intervals and a report, use `audit`. All clips go through
    the model as one batch: take a `limit` with long ones.

    model: what to attack: "keyword", what `open_model` returned, or any `Target`.
    clips: what `open_data` returned, a text as for it, or an `AudioBatch` (with `labels`, if they are known).
    attack, budget, goal: texts such as "pgd(steps=20)", "snr(db=30)" and "force(text=stop)", or objects such
        as `sv.attacks.Pgd(steps=20)`. `sottovoce parts` lists all of them.
    defense: transforms before the model and a vote over its answers, as "gaussian(sigma=0.01)+majority" or as
        a list of objects.
    attacker: "adaptive" attacks through the defense; "transfer" attacks the bare model, and the examples are
        then judged behind the defense.
    average: passes that gradients of a random model are averaged over; None: 16.
    seed: of all random numbers. The same seed gives the same examples.
    bits: resolution that the examples are rounded to, as in a 16-bit file; None keeps floats.
    device: where a model that is given as text is opened.

    >>> import sottovoce as sv
    >>> trial = sv.attack("keyword", sv.open_data("embedded", limit=4), "pgd(steps=20)", budget="snr(db=20)")
    >>> sum(trial.achieved)
    4
    """
    target = open_model(model, device=device) if isinstance(model, str) else open_model(model)
    built = _attack(attack)
    wall = defense if isinstance(defense, Defense) else _defense(defense)
    aim = Part.parse(goal).build("goal") if isinstance(goal, str) else goal
    room = Part.parse(budget).build("budget") if isinstance(budget, str) else budget
    if attacker not in ("adaptive", "transfer"):
        raise InputError(f"attack expected attacker='adaptive' or 'transfer', got {attacker!r}.")
    heard = wall.around(target)
    known = target if attacker == "transfer" else heard
    passes = average or (PASSES if known.random else 1)
    batch, labels, facts = _batch(clips, target, labels)
    return built(
        judging(heard, len(batch)),
        batch.to(device_of(target)),
        aim,
        room,
        draws=Draws(seed),
        labels=None if labels is None else tuple(labels),
        facts=facts,
        bits=bits,
        through=seen_through(known, heard, built.sees, passes),
    )


def _attack(attack: str | Attack) -> Attack:
    if isinstance(attack, str):
        part = Part.parse(attack)
        attack = part.build(attack_kind(part.name))
    if isinstance(attack, UniversalAttack):
        raise InputError(
            f"attack expected an attack on single clips, got {type(attack).__name__}, which is fitted on "
            "many clips; run it with sottovoce.audit(...), or call its fit() and give the result here."
        )
    if not isinstance(attack, Attack):
        raise InputError(
            f"attack expected a text such as 'pgd(steps=20)' or an Attack, got {type(attack).__name__}."
        )
    return attack


def _defense(defense: str | Transform | Vote | Sequence[str | Transform | Vote] | None) -> Defense:
    """A defense from texts and objects; the objects need not be registered."""
    if defense is None:
        return Defense()
    if isinstance(defense, str):
        return Defense.parse(defense)
    transforms: tuple[Transform, ...] = ()
    vote: Vote | None = None
    for part in defense if isinstance(defense, Sequence) else [defense]:
        found = Defense.parse(part) if isinstance(part, str) else part
        if vote is not None:
            raise InputError("attack expected one vote at the end of the defense, got something after it.")
        if isinstance(found, Defense):
            transforms, vote = (*transforms, *found.transforms), found.vote
        elif isinstance(found, Vote):
            vote = found
        else:
            transforms = (*transforms, found)
    return Defense(transforms, vote)


def _batch(
    clips: str | Clips | Corpus | AudioBatch, target: Target, labels: Sequence[str] | None
) -> tuple[AudioBatch, Sequence[str] | None, tuple[Mapping[str, str], ...]]:
    if isinstance(clips, AudioBatch):
        if labels is not None and len(labels) != len(clips):
            raise InputError(f"attack expected {len(clips)} labels, one a clip, got {len(labels)}.")
        return clips, labels, ()
    if labels is not None:
        raise InputError(
            "attack expected labels with an AudioBatch alone, got them with clips that have some."
        )
    if isinstance(clips, str):
        clips = open_data(clips, model=target)
    if isinstance(clips, Corpus):
        clips = Clips(clips)
    if not isinstance(clips, Clips):
        raise InputError(
            "attack expected clips as what open_data(...) returned, a text such as 'embedded', or an "
            f"AudioBatch such as sv.AudioBatch.of(waveforms, sample_rate), got {type(clips).__name__}."
        )
    return clips.batch(target.sample_rate), clips.labels, clips.facts
