"""Budgets: how much an attack may change a clip. `sottovoce.budgets.Snr` is the class behind "snr".

`Snr` and `DbMax` follow the level of each clip, `L2` and `LInf` are the same for all, and `Audible` limits
how likely a listener notices.

>>> sv.budgets.Snr(30)
Snr(db=30, shape='l2')
"""

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
