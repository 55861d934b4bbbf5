"""Checks a target against its laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Languages, Matches, Scores, Target, check_clips
from sottovoce.errors import InputError, MissingCapability
from sottovoce.testing.checks.check_capabilities import check_capabilities
from sottovoce.testing.clips import clips_for, misnamed, widened
from sottovoce.testing.guards import check_random_state, handed_back, in_training_mode, unchanged
from sottovoce.testing.laws import ContractError, Law, distance, gap, require

DRAWS = Draws(7, ("contract",))


@dataclass(frozen=True)
class TargetAnswers:
    """All answers of a target to a batch, clip by clip, so that batches of other shapes can be compared.

    What the target does not show is missing: no loss, no gradients.
    """

    loss: Tensor | None
    gradients: tuple[Tensor, ...]
    texts: tuple[str, ...]
    scores: Tensor | None

    def select(self, rows: Sequence[int]) -> TargetAnswers:
        """The answers to some of the clips."""
        picked = list(rows)
        return TargetAnswers(
            None if self.loss is None else self.loss[picked],
            tuple(self.gradients[row] for row in picked if self.gradients),
            tuple(self.texts[row] for row in picked),
            None if self.scores is None else self.scores[picked],
        )

    def difference(self, other: TargetAnswers, tolerance: float) -> str | None:
        """What differs by more than the tolerance, in words; None: nothing."""
        if self.loss is not None and other.loss is not None and gap(other.loss, self.loss) > tolerance:
            return f"loss ({self.loss.tolist()} and {other.loss.tolist()})"
        if (
            self.scores is not None
            and other.scores is not None
            and gap(other.scores, self.scores) > tolerance
        ):
            return "scores"
        for mine, theirs in zip(self.gradients, other.gradients, strict=True):
            # A gradient has its own scale, and a kink may amplify the last digit of a loss.
            if distance(theirs, mine, float(mine.abs().max()) or 1.0) > 10.0 * tolerance:
                return "gradient"
        if self.texts != other.texts:
            return f"decoded text ({self.texts} and {other.texts})"
        return None


def check_target(
    target: Target,
    clips: AudioBatch | None = None,
    labels: Sequence[str] | None = None,
    *,
    tolerance: float = 1e-4,
) -> None:
    """Raise `ContractError` if a target breaks a law.

    Its answers must not depend on padding, on other clips or on global random state; a gradient must reach
    the waveform; the model must not be changed; its capabilities must agree with what it decodes. Of a target
    that shows scores or decisions alone only what it shows is checked, and that it shows no more.

    clips: three or more clips of different lengths. Default: made up.
    labels: one for each clip. Default: what the target itself says.
    tolerance: the largest difference by float arithmetic, as a share of the largest value.

    >>> sv.testing.check_target(sv.testing.ToyClassifier())
    """
    batch = clips_for(target) if clips is None else clips
    with unchanged(target), handed_back(batch):
        with torch.no_grad():
            texts = target.decode(batch, draws=DRAWS)
        wanted = tuple(texts) if labels is None else tuple(labels)
        _check_sight(target)
        _check_shapes(target, batch, wanted)
    whole = check_random_state(lambda: ask(target, batch, wanted), lambda a, b: a.difference(b, tolerance))
    _check_training_mode(target, batch, wanted, whole, tolerance)
    if target.shows == "gradient":
        _check_gradient(batch, whole)
        _check_isolation(target, batch, wanted)
    if whole.loss is not None:
        _check_labels(target, batch, wanted, whole.loss)
    wide = ask(target, widened(batch, longest=target.longest), wanted)
    difference = whole.difference(wide, tolerance)
    require(difference is None, Law.PADDING, f"More padding changed the {difference}.")
    _check_batches(target, batch, wanted, whole, tolerance)
    if target.random:
        _check_sound(target, batch, wanted, whole)
    with unchanged(target), handed_back(batch):
        check_capabilities(target, batch, wanted, DRAWS, tolerance)
    _check_input(target)


def ask(target: Target, batch: AudioBatch, labels: Sequence[str]) -> TargetAnswers:
    """What the target shows: loss, gradient, scores, and text. The gradient is computed as in an attack."""
    loss: Tensor | None = None
    gradients: tuple[Tensor, ...] = ()
    if target.shows == "gradient":
        loss, gradients = _climbed(target, batch, labels)
    with torch.no_grad(), handed_back(batch):
        if target.shows == "scores":
            loss = target.loss(batch, labels, draws=DRAWS)
        texts = target.decode(batch, draws=DRAWS)
        scorer = scorer_of(target)
        scores = None if scorer is None else scorer.scores(batch, draws=DRAWS)
    return TargetAnswers(loss, gradients, tuple(texts), scores)


def _climbed(target: Target, batch: AudioBatch, labels: Sequence[str]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The loss `(batch,)`, and the gradient of each clip without its padding."""
    leaf = batch.waveforms.detach().clone().requires_grad_()
    heard = batch.with_waveforms(leaf)
    with torch.enable_grad():
        with handed_back(heard):
            loss = target.loss(heard, labels, draws=DRAWS)
        gradient = slope(loss.sum(), leaf)
    lengths = batch.lengths.tolist()
    return loss.detach(), tuple(row[:length] for row, length in zip(gradient, lengths, strict=True))


def scorer_of(target: Target) -> Scores | None:
    """The target's scores, if it has that capability."""
    try:
        return target.capability(Scores)
    except MissingCapability:
        return None


def slope(value: Tensor, leaf: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of a scalar with respect to the waveform; raises if they are not connected."""
    require(value.requires_grad, Law.GRADIENT, "The result is detached: it carries no gradient at all.")
    (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True, retain_graph=keep)
    require(
        gradient is not None,
        Law.GRADIENT,
        "The result does not depend on the waveform: features are detached.",
    )
    return gradient


def _check_sight(target: Target) -> None:
    """A target that gives answers alone has nothing that would tell an attacker more."""
    more = [kind for kind in (Scores, Matches, CtcFrames, Languages) if target.offers(kind)]
    told = target.shows != "decisions" or not more
    names = ", ".join(kind.__name__ for kind in more)
    require(told, Law.CAPABILITY, f'It offers {names}, but shows "decisions"; set shows to "scores".')


def _check_shapes(target: Target, batch: AudioBatch, labels: Sequence[str]) -> None:
    count = len(batch)
    with torch.no_grad():
        loss = None if target.shows == "decisions" else target.loss(batch, labels, draws=DRAWS)
        texts = target.decode(batch, draws=DRAWS)
        scorer = scorer_of(target)
        scores = None if scorer is None else scorer.scores(batch, draws=DRAWS)
    got = (count,) if loss is None else tuple(loss.shape)
    require(got == (count,), Law.SHAPE, f"Expected a loss of shape ({count},), one a clip, got {got}.")
    require(len(texts) == count, Law.SHAPE, f"Expected {count} decoded texts, got {len(texts)}.")
    if scorer is not None and scores is not None:
        expected, got = (count, len(scorer.classes)), tuple(scores.shape)
        require(got == expected, Law.SHAPE, f"Expected scores of shape {expected}, got {got}.")


def _check_training_mode(
    target: Target, batch: AudioBatch, labels: Sequence[str], whole: TargetAnswers, tolerance: float
) -> None:
    """A module in training mode must be used in evaluation mode, and stay in training mode afterwards."""
    with in_training_mode(target), unchanged(target):
        answer = ask(target, batch, labels)
    difference = whole.difference(answer, tolerance)
    detail = f"A module in training mode changed the {difference}; run it under `evaluating`."
    require(difference is None, Law.UNCHANGED, detail)


def _check_gradient(batch: AudioBatch, whole: TargetAnswers) -> None:
    for name, gradient in zip(batch.ids, whole.gradients, strict=True):
        require(
            bool(torch.isfinite(gradient).all()), Law.GRADIENT, f"Clip {name!r} has NaN or infinity in it."
        )
        require(
            bool((gradient != 0).any()),
            Law.GRADIENT,
            f"Clip {name!r} has zero everywhere; a rounding step needs StraightThrough.",
        )


def _check_labels(target: Target, batch: AudioBatch, labels: Sequence[str], known: Tensor) -> None:
    """Another label has another loss."""
    others = _other_labels(target, labels)
    with torch.no_grad():
        loss = target.loss(batch, others, draws=DRAWS)
    for row, (label, other) in enumerate(zip(labels, others, strict=True)):
        same = label != other and bool(loss[row] == known[row])
        detail = f"Clip {batch.ids[row]!r} has one loss, {float(loss[row]):.6g}, for {label!r} and {other!r}."
        require(not same, Law.LABEL, detail)


def _other_labels(target: Target, labels: Sequence[str]) -> list[str]:
    """For each label another class or, for recognisers, the empty text.

    The label itself if there is no other, or if the target refuses the empty text.
    """
    scorer = scorer_of(target)
    if target.says == "class":
        known = sorted(set(labels) if scorer is None else scorer.classes)
        return [known[known.index(label) - 1] for label in labels]
    try:
        target.check_labels([""])
    except InputError:
        return list(labels)
    return [""] * len(labels)


def _check_isolation(target: Target, batch: AudioBatch, labels: Sequence[str]) -> None:
    leaf = batch.waveforms.detach().clone().requires_grad_()
    with torch.enable_grad():
        loss = target.loss(batch.with_waveforms(leaf), labels, draws=DRAWS)
        for row in range(len(batch)):
            gradient = slope(loss[row], leaf, keep=True).abs().amax(dim=1)
            check_leak(gradient, row, "loss", batch)


def check_leak(peaks: Tensor, row: int, what: str, batch: AudioBatch) -> None:
    """`peaks (batch,)`: how strongly each clip affects what belongs to clip `row` only."""
    leaks = peaks > 1e-6 * peaks[row]
    leaks[row] = False
    others = [batch.ids[other] for other in leaks.nonzero()[:, 0].tolist()]
    require(
        not others, Law.ISOLATED, f"The {what} of clip {batch.ids[row]!r} depends on {', '.join(others)}."
    )


def _check_batches(
    target: Target, batch: AudioBatch, labels: Sequence[str], whole: TargetAnswers, tolerance: float
) -> None:
    count = len(batch)
    backwards = list(reversed(range(count)))
    for rows in [*([row] for row in range(count)), backwards]:
        wanted = [labels[row] for row in rows]
        # What is random depends on the names.
        part = batch.select(rows) if target.random else misnamed(batch, rows)
        difference = whole.select(rows).difference(ask(target, part, wanted), tolerance)
        if difference is None:
            continue
        again = whole.select(rows).difference(ask(target, batch.select(rows), wanted), tolerance)
        where = f"clip {batch.ids[rows[0]]!r} alone" if len(rows) == 1 else "another order of the batch"
        require(again is None, Law.ALONE, f"For {where} the {again} differs.")
        raise ContractError(Law.SOUND, f"Under another clip's name {where} has another {difference}.")


def _check_sound(target: Target, batch: AudioBatch, labels: Sequence[str], whole: TargetAnswers) -> None:
    """For a random target: the same names with other audio must give other answers.

    Its answers depend on the names too, so that nothing else is known about them.
    """
    rows = [*range(1, len(batch)), 0]
    with torch.no_grad():
        part = misnamed(batch, rows)
        texts = target.decode(part, draws=DRAWS)
    found, before = (_told(each) for each in (ask(target, part, [labels[row] for row in rows]), whole))
    other = [place for place, row in enumerate(rows) if not torch.equal(batch.clip(place), batch.clip(row))]
    for place in other:
        # A loss may well be zero for more than one sound.
        same = torch.equal(found[place], before[place]) and bool(found[place].any())
        detail = f"Another sound under the name {part.ids[place]!r} has the same scores, or the same loss."
        require(not same, Law.SOUND, detail)
    moved = [place for place in other if whole.texts[place] != whole.texts[rows[place]]]
    stuck = bool(moved) and all(texts[place] == whole.texts[place] for place in moved)
    require(not stuck, Law.SOUND, f"Other sounds under the same names have the same texts: {texts}.")


def _told(answers: TargetAnswers) -> Tensor:
    """What a target shows of each clip beside its text, `(batch, n)`; zeros if that is nothing."""
    loss = torch.zeros(len(answers.texts)) if answers.loss is None else answers.loss
    return loss[:, None] if answers.scores is None else answers.scores


def _check_input(target: Target) -> None:
    rate, short = target.sample_rate, target.shortest
    bad = {
        "another sample rate": AudioBatch.of([torch.zeros(short * 4)], rate * 2),
        "a clip that is too short": AudioBatch.of([torch.zeros(max(1, short - 1))], rate)
        if short > 1
        else None,
        "a clip that is too long": AudioBatch.of([torch.zeros(target.longest + 1)], rate)
        if target.longest is not None
        else None,
    }
    for what, batch in bad.items():
        if batch is None:
            continue
        try:
            check_clips(target, batch)
        except InputError:
            continue
        raise ContractError(Law.INPUT, f"Expected InputError for {what}, got none.")
