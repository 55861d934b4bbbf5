"""Checks an attack against its laws."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import soundfile
import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Trial, decode
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Budget, DbMax, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.quantisation import round_clean
from sottovoce.core.target import Target
from sottovoce.errors import BudgetError, InputError
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.testing.checks.check_target import scorer_of
from sottovoce.testing.clips import clips_for, widened
from sottovoce.testing.guards import check_random_state, handed_back, unchanged
from sottovoce.testing.laws import ContractError, Law, distance, gap, require
from sottovoce.testing.toys import ToyClassifier

DRAWS = Draws(7, ("contract",))
BUDGETS: tuple[Ball, ...] = (Snr(20.0), LInf(0.01), L2(0.3), DbMax(-20.0))
STEP = 1.0 / 32768
RATIO_DB = 0.05
"""Largest allowed difference in SNR of a clip's example alone and in a batch. The last digit of a float may
differ, and Adam turns it into whole steps."""


@dataclass(frozen=True)
class Case:
    """One attack on one target, ready to run on any clips."""

    attack: Attack
    target: Target
    goal: Goal
    budget: Budget

    def run(self, clean: AudioBatch, *, bits: int | None = 16) -> Trial:
        """A trial of these clips, whose examples are inside the budget."""
        kept = round_clean(clean.copy(), bits)
        try:
            with handed_back(clean):
                trial = self.attack(self.target, clean, self.goal, self.budget, draws=DRAWS, bits=bits)
        except BudgetError as error:
            raise ContractError(Law.BUDGET, str(error)) from error
        check_inside(trial, kept, self.budget)
        return trial

    def reached(self, trial: Trial) -> Tensor:
        """The objective at the examples, `(batch,)`; of a target that only answers, how near it came."""
        goal = self.goal.bind(trial.references)
        if self.target.shows == "decisions":
            texts = decode(self.target, trial.adversarial, DRAWS)
            return torch.tensor(goal.heard_by(self.target).nearness(texts), dtype=torch.float64)
        with torch.no_grad():
            return goal.objective(self.target, trial.adversarial, draws=DRAWS.turn("judge"))

    def margin(self, trial: Trial) -> Tensor | None:
        """The goal's margin at the examples, `(batch,)`, if the target has scores."""
        scorer = scorer_of(self.target)
        if scorer is None:
            return None
        with torch.no_grad():
            scores = scorer.scores(trial.adversarial, draws=DRAWS.turn("judge"))
        return self.goal.bind(trial.references).margin(scores, scorer.classes)


def check_attack(
    attack: Attack,
    target: Target | None = None,
    budgets: Sequence[Budget] | None = None,
    *,
    goals: Sequence[Goal] | None = None,
    clips: AudioBatch | None = None,
    tolerance: float = 1e-2,
) -> None:
    """Raise `ContractError` if an attack breaks a law.

    It must give the same result alone and in any batch, keep the budget, leave padding and the model alone,
    be reproducible by its seed, and not get worse with more steps.

    target: the model to attack. Default: a toy classifier.
    budgets: default: one of each usual kind that the attack works with. The first is used for the laws that
        need many runs.
    goals: default: evade, and force a text that the target says to one of the clips.
    clips: default: made up, of different lengths.
    tolerance: by how much the objective may differ between equal runs. Many steps amplify the last digit of a
        float, so examples are compared by their decisions and, for gradient attacks, by their SNR within
        0.05 dB, not sample by sample.

    >>> sv.testing.check_attack(sv.attacks.Pgd(steps=3), budgets=[sv.budgets.Snr(20)])
    """
    target = ToyClassifier() if target is None else target
    clean = clips_for(target) if clips is None else clips
    own: list[Budget] = [
        budget for budget in BUDGETS if isinstance(budget, attack.budgets) and budget.norm in attack.norms
    ]
    allowed = own if budgets is None else list(budgets)
    if not allowed:
        raise InputError(f"{attack} works with none of the usual budgets; give check_attack budgets=[...].")
    wanted = list(goals) if goals is not None else default_goals(target, clean)
    wanted = [goal for goal in wanted if isinstance(goal, attack.goals)]
    first = Case(attack, target, wanted[0], allowed[0])
    with unchanged(target):
        _check_perturb(first, clean.copy())
        for budget in allowed:
            for goal in wanted:
                case = Case(attack, target, goal, budget)
                check_examples(case.run(clean), case.goal, target)
        whole = check_random_state(lambda: first.run(clean), _difference)
        _check_batches(first, clean, whole, tolerance)
        for goal in wanted:
            _check_more_steps(Case(attack, target, goal, allowed[0]), clean, tolerance)
    _check_input(first)


def default_goals(target: Target, clean: AudioBatch) -> list[Goal]:
    """To evade, and to force the shortest text that the target says, for which every clip has room."""
    texts = sorted(
        {text for text in decode(target, clean, DRAWS) if text}, key=lambda text: (len(text), text)
    )
    return [Evade(), *(Force(text) for text in texts[:1])]


def check_inside(trial: Trial, clean: AudioBatch, budget: Budget) -> None:
    """Every example is inside the budget, measured from a copy of the clips that the attack was given."""
    require(
        trial.clean.same_as(clean), Law.LENT, "The trial has other clean clips than the attack was given."
    )
    require(
        trial.adversarial.waveforms.shape == clean.waveforms.shape,
        Law.SHAPE,
        "The examples have another shape.",
    )
    worst = float(budget.excess(trial.adversarial.waveforms - clean.waveforms, clean).max())
    require(worst <= 1.0, Law.BUDGET, f"An example reaches {worst:.9g} of what {budget} allows.")


def _check_perturb(case: Case, clean: AudioBatch) -> None:
    """`perturb` by itself must not write into its clips: another attack may call it directly."""
    goal = case.goal.heard_by(case.target)
    texts = decode(case.target, clean, DRAWS)
    goal = goal.bind(goal.read(case.target, clean, texts, draws=DRAWS.turn("judge")))
    with handed_back(clean):
        delta = case.attack.perturb(case.target, clean, goal, case.budget, DRAWS.turn("attack"))
    got, expected = tuple(delta.shape), tuple(clean.waveforms.shape)
    require(got == expected, Law.SHAPE, f"Expected a perturbation of shape {expected}, got {got}.")


def check_examples(trial: Trial, goal: Goal, target: Target) -> None:
    """The laws of every finished example."""
    clean, adversarial = trial.clean, trial.adversarial
    waveforms = adversarial.waveforms
    finite = bool(torch.isfinite(waveforms).all())
    require(finite, Law.GRID, "An example has NaN or infinity in it.")
    silent = not bool(waveforms.masked_select(~clean.mask).any())
    require(silent, Law.PADDING, "An example has sound past its end.")
    peak = float(waveforms.abs().max())
    require(peak <= 1.0, Law.GRID, f"An example has a peak of {peak}.")
    steps = waveforms.double() / STEP
    require(torch.equal(steps, steps.round()), Law.GRID, "A sample is between two steps of 16 bits.")
    loaded = _saved(adversarial)
    same = torch.equal(loaded.waveforms, waveforms.cpu())
    require(same, Law.GRID, "An example that was saved and loaded again has other samples.")
    texts = tuple(decode(target, loaded.to(adversarial.device), DRAWS))
    heard = f"{trial.adversarial_texts} and {texts}"
    require(texts == trial.adversarial_texts, Law.GRID, f"Judged and loaded examples differ: {heard}.")
    bound = goal.bind(trial.references).heard_by(target)
    achieved = tuple(bound.achieved(bound.read(target, adversarial, texts, draws=DRAWS.turn("judge"))))
    require(achieved == trial.achieved, Law.SUCCESS, f"{trial.achieved} was recorded, {achieved} is true.")


def _saved(batch: AudioBatch) -> AudioBatch:
    """The clips through 16-bit WAV files and back."""
    rows = []
    for row in range(len(batch)):
        file = io.BytesIO()
        clip = batch.clip(row).cpu().numpy()
        soundfile.write(file, clip, batch.sample_rate, subtype="PCM_16", format="WAV")
        file.seek(0)
        rows.append(soundfile.read(file, dtype="float32")[0])
    return AudioBatch.of(rows, batch.sample_rate, batch.ids)


def _difference(one: Trial, two: Trial) -> str | None:
    if one.adversarial_texts != two.adversarial_texts:
        return f"decisions ({one.adversarial_texts} and {two.adversarial_texts})"
    # The same work twice on one machine: at most a sample may round to the next step of the grid.
    return "samples" if gap(one.adversarial.waveforms, two.adversarial.waveforms) > 2 * STEP else None


def _check_batches(case: Case, clean: AudioBatch, whole: Trial, tolerance: float) -> None:
    value, ratios = case.reached(whole), _ratios(whole)

    def compare(trial: Trial, rows: list[int], law: Law, where: str) -> None:
        expected = tuple(whole.adversarial_texts[row] for row in rows)
        found = trial.adversarial_texts
        require(found == expected, law, f"For {where} the decisions are {found}, not {expected}.")
        off = gap(case.reached(trial), value[rows])
        require(off <= tolerance, law, f"For {where} the objective that is reached differs by {off:.3g}.")
        if case.attack.sees == "gradient":
            # A search that compares losses may branch differently at the last digit.
            off = distance(_ratios(trial), ratios[rows], 1.0)
            require(off <= RATIO_DB, law, f"For {where} the SNR differs by {off:.3g} dB.")

    everything = list(range(len(clean)))
    compare(case.run(widened(clean, longest=case.target.longest)), everything, Law.PADDING, "more padding")
    for row in everything:
        compare(case.run(clean.select([row])), [row], Law.ALONE, f"clip {clean.ids[row]!r} alone")
    compare(
        case.run(clean.select(everything[::-1])), everything[::-1], Law.ALONE, "another order of the batch"
    )


def _ratios(trial: Trial) -> Tensor:
    """SNR of the examples, `(batch,)` in dB."""
    return snr_db(trial.clean.waveforms, trial.delta, trial.clean.lengths)


def _check_more_steps(case: Case, clean: AudioBatch, tolerance: float) -> None:
    """Run again with twice the steps.

    Attacks optimise different things (the objective, the margin, the size of a success), so that a clip
    counts as worse only if it is worse in all of them.
    """
    attack = case.attack
    if not (is_dataclass(attack) and any(item.name == "steps" for item in fields(attack))):
        return
    if _is_random(case, clean):
        # One random pass does not tell how far the search has come.
        return
    # Without rounding, which comes after the search and affects both.
    few = case.run(clean, bits=None)
    longer = replace(case, attack=replace(attack, steps=2 * attack.steps))
    many = longer.run(clean, bits=None)
    fooled, still = torch.tensor(few.achieved), torch.tensor(many.achieved)
    fine = case.reached(many) >= case.reached(few) - tolerance
    margins = case.margin(few), case.margin(many)
    if margins[0] is not None and margins[1] is not None:
        fine |= margins[1] >= margins[0] - tolerance
    smaller = many.delta.norm(dim=1) <= few.delta.norm(dim=1) * (1.0 - tolerance)
    fine |= (fooled & still & smaller).to(fine.device)
    worse = ~fine | (fooled & ~still).to(fine.device)
    names = [clean.ids[row] for row in worse.nonzero()[:, 0].tolist()]
    require(not names, Law.BEST, f"With twice the steps these clips are worse: {', '.join(names)}.")


def _is_random(case: Case, clean: AudioBatch) -> bool:
    if case.target.shows == "decisions":
        return case.target.random
    texts = decode(case.target, clean, DRAWS)
    goal = case.goal.bind(case.goal.read(case.target, clean, texts, draws=DRAWS))
    with torch.no_grad():
        values = [goal.objective(case.target, clean, draws=DRAWS.turn("try", place)) for place in range(2)]
    return not torch.equal(values[0], values[1])


def _check_input(case: Case) -> None:
    rate, short = case.target.sample_rate, case.target.shortest
    bad = {"another sample rate": AudioBatch.of([torch.zeros(4 * short)], 2 * rate)}
    if short > 1:
        bad["a clip that is too short"] = AudioBatch.of([torch.zeros(short - 1)], rate)
    for what, batch in bad.items():
        try:
            case.run(batch)
        except InputError:
            continue
        raise ContractError(Law.INPUT, f"Expected InputError for {what}, got none.")
