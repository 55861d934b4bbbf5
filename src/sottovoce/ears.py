"""Models of hearing: how likely a person notices a change. `sottovoce.ears.Learned` is "learned"."""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.perception.ears.auditory import Auditory as Auditory
    from sottovoce.perception.ears.dpam import Dpam as Dpam
    from sottovoce.perception.ears.ear import Ear as Ear
    from sottovoce.perception.ears.learned import Learned as Learned
    from sottovoce.perception.ears.masking_ear import MaskingEar as MaskingEar
else:
    __getattr__, __dir__ = lazy(__name__, registered("ear", Ear="sottovoce.perception.ears.ear:Ear"))
