"""Sottovoce audits speech models: it attacks them, defends them, and measures whether a person hears it.

>>> import sottovoce as sv
>>> clips = sv.open_data("embedded", model="keyword", limit=2)
>>> trial = sv.attack("keyword", clips, "pgd(steps=20)", budget="snr(db=30)")
>>> trial.achieved
(True, True)

Start with `help(sv.open_model)`, `sv.open_data`, `sv.attack` for one attack, `sv.audit` for a whole audit
with a report, `sv.measure` and `sv.certify`. `sv.attacks`, `sv.budgets`, `sv.goals`, `sv.defenses` and
`sv.metrics` have the parts as classes. A text such as "pgd(steps=20)" means the same as on the command line,
and can be given wherever an object can. What `dir(sv)` lists is the stable API; everything else may change.
Names are imported on first use: `import sottovoce` loads no torch.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy

__version__ = "0.1.0.dev2"

_NAMES = {
    "sottovoce.api.attack_clips": "attack",
    "sottovoce.api.audit_model": "audit",
    "sottovoce.api.certifying": "Certificates certify",
    "sottovoce.api.measuring": "measure",
    "sottovoce.api.open_parts": "Clips open_data open_model",
    "sottovoce.api.registering": "register",
    "sottovoce.api.finished_run": "Run read_run",
    "sottovoce.api.sparse": "Sparsity sparsity",
    "sottovoce.core.attack": "Attack Best Trial climb within",
    "sottovoce.core.batch": "AudioBatch",
    "sottovoce.core.budget": "Ball Budget Searchable",
    "sottovoce.core.draws": "Draws",
    "sottovoce.core.goal": "Goal",
    "sottovoce.core.metric": "Estimate Metric",
    "sottovoce.core.target": "Scores Target",
    "sottovoce.core.transform": "Transform",
    "sottovoce.core.vote": "Vote",
}
_MODULES = "attacks budgets data defenses ears errors goals metrics targets testing"


def _places() -> dict[str, str]:
    names = {name: f"{module}:{name}" for module, some in _NAMES.items() for name in some.split()}
    return {**names, **{name: f"sottovoce.{name}" for name in _MODULES.split()}}


if TYPE_CHECKING:
    from sottovoce import attacks as attacks
    from sottovoce import budgets as budgets
    from sottovoce import data as data
    from sottovoce import defenses as defenses
    from sottovoce import ears as ears
    from sottovoce import errors as errors
    from sottovoce import goals as goals
    from sottovoce import metrics as metrics
    from sottovoce import targets as targets
    from sottovoce import testing as testing
    from sottovoce.api.attack_clips import attack as attack
    from sottovoce.api.audit_model import audit as audit
    from sottovoce.api.certifying import Certificates as Certificates
    from sottovoce.api.certifying import certify as certify
    from sottovoce.api.finished_run import Run as Run
    from sottovoce.api.finished_run import read_run as read_run
    from sottovoce.api.measuring import measure as measure
    from sottovoce.api.open_parts import Clips as Clips
    from sottovoce.api.open_parts import open_data as open_data
    from sottovoce.api.open_parts import open_model as open_model
    from sottovoce.api.registering import register as register
    from sottovoce.api.sparse import Sparsity as Sparsity
    from sottovoce.api.sparse import sparsity as sparsity
    from sottovoce.core.attack import Attack as Attack
    from sottovoce.core.attack import Best as Best
    from sottovoce.core.attack import Trial as Trial
    from sottovoce.core.attack import climb as climb
    from sottovoce.core.attack import within as within
    from sottovoce.core.batch import AudioBatch as AudioBatch
    from sottovoce.core.budget import Ball as Ball
    from sottovoce.core.budget import Budget as Budget
    from sottovoce.core.budget import Searchable as Searchable
    from sottovoce.core.draws import Draws as Draws
    from sottovoce.core.goal import Goal as Goal
    from sottovoce.core.metric import Estimate as Estimate
    from sottovoce.core.metric import Metric as Metric
    from sottovoce.core.target import Scores as Scores
    from sottovoce.core.target import Target as Target
    from sottovoce.core.transform import Transform as Transform
    from sottovoce.core.vote import Vote as Vote
else:
    __getattr__, __dir__ = lazy(__name__, _places)
