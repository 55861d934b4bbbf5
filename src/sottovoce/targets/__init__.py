"""Models as targets: families, adapters, and the zoo that this project ships.

Texts open them with `sottovoce.open_model`; these are what a target of your own is made from.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.targets.attention import Attention as Attention
    from sottovoce.targets.classifier import Classifier as Classifier
    from sottovoce.targets.classifier import ModuleClassifier as ModuleClassifier
    from sottovoce.targets.ctc import Ctc as Ctc
    from sottovoce.targets.ctc import Vocabulary as Vocabulary
    from sottovoce.targets.recogniser import Recogniser as Recogniser
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "target",
            Classifier="sottovoce.targets.classifier:Classifier",
            ModuleClassifier="sottovoce.targets.classifier:ModuleClassifier",
            Recogniser="sottovoce.targets.recogniser:Recogniser",
            Ctc="sottovoce.targets.ctc:Ctc",
            Vocabulary="sottovoce.targets.ctc:Vocabulary",
            Attention="sottovoce.targets.attention:Attention",
        ),
    )
