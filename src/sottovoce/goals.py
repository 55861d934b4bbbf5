"""Goals: what counts as success of an attack. `sottovoce.goals.Evade` is the class behind "evade".

`Evade` wants any other answer, `Force` and `ForceNearest` a given text, `Prefix` a word in front, `Language`
another language.

>>> sv.goals.Force("stop").text
'stop'
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.core.goal import Evade as Evade
    from sottovoce.core.goal import Force as Force
    from sottovoce.core.goal import ForceNearest as ForceNearest
    from sottovoce.core.goal import Language as Language
    from sottovoce.core.goal import Prefix as Prefix
else:
    __getattr__, __dir__ = lazy(__name__, registered("goal"))
