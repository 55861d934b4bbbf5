"""For tests of your own parts: a check for each kind of part, toy models that run in moments, and clips.

A check runs the part on toy models and raises `ContractError` if it breaks one of the laws that all parts
keep, such as "every example is inside its budget". `Law` lists them.

>>> sv.testing.check_attack(sv.attacks.Fgsm())  # silent: nothing is wrong
"""

from sottovoce.testing.checks.check_attack import check_attack
from sottovoce.testing.checks.check_budget import check_budget
from sottovoce.testing.checks.check_goal import check_goal
from sottovoce.testing.checks.check_metric import check_metric
from sottovoce.testing.checks.check_target import check_target
from sottovoce.testing.checks.check_transform import check_transform
from sottovoce.testing.checks.check_universal import check_universal
from sottovoce.testing.checks.check_weakest import check_weakest
from sottovoce.testing.clips import clips_for, example_clips
from sottovoce.testing.laws import ContractError, Law
from sottovoce.testing.sequence_toys import ToyAttention, ToyCtc, ToyEndpoint, ToyTransducer
from sottovoce.testing.toys import ToyClassifier, ToyNoise, ToyScorer, toy_random

__all__ = [
    "ContractError",
    "Law",
    "ToyAttention",
    "ToyClassifier",
    "ToyCtc",
    "ToyEndpoint",
    "ToyNoise",
    "ToyScorer",
    "ToyTransducer",
    "check_attack",
    "check_budget",
    "check_goal",
    "check_metric",
    "check_target",
    "check_transform",
    "check_universal",
    "check_weakest",
    "clips_for",
    "example_clips",
    "toy_random",
]
