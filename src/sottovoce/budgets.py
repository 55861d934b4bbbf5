"""How much may be added to a clip. `sottovoce.budgets.Snr` is the class that `snr` names."""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.core.budget import L2 as L2
    from sottovoce.core.budget import DbMax as DbMax
    from sottovoce.core.budget import LInf as LInf
    from sottovoce.core.budget import Snr as Snr
    from sottovoce.perception.audible_budget import Audible as Audible
else:
    __getattr__, __dir__ = lazy(__name__, registered("budget"))
