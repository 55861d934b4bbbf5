"""Models as targets: families, adapters, and the models that come with sottovoce.

`sottovoce.open_model` opens them from a text; derive a target of your own from the classes here.

>>> model = sv.open_model("keyword", device="cpu")
>>> isinstance(model, sv.targets.Classifier), model.sample_rate
(True, 16000)
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.core.target import Matches as Matches
    from sottovoce.core.target import evaluating as evaluating
    from sottovoce.targets.families.attention import Attention as Attention
    from sottovoce.targets.families.classifier import Classifier as Classifier
    from sottovoce.targets.families.classifier import ModuleClassifier as ModuleClassifier
    from sottovoce.targets.families.ctc import Ctc as Ctc
    from sottovoce.targets.families.ctc import Vocabulary as Vocabulary
    from sottovoce.targets.families.recogniser import Recogniser as Recogniser
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "target",
            Matches="sottovoce.core.target:Matches",
            evaluating="sottovoce.core.target:evaluating",
            Classifier="sottovoce.targets.families.classifier:Classifier",
            ModuleClassifier="sottovoce.targets.families.classifier:ModuleClassifier",
            Recogniser="sottovoce.targets.families.recogniser:Recogniser",
            Ctc="sottovoce.targets.families.ctc:Ctc",
            Vocabulary="sottovoce.targets.families.ctc:Vocabulary",
            Attention="sottovoce.targets.families.attention:Attention",
        ),
    )
