"""What an attack is to reach. `sottovoce.goals.Evade` is the class that `evade` names."""

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
