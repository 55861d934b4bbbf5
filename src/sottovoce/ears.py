"""Models of a listener: how different two clips sound, and how likely the difference is heard.

`sottovoce.ears.Learned` is the class that the text `learned` names.

>>> clips = sv.testing.example_clips(16000)
>>> sv.ears.Learned().heard(clips, clips).tolist()  # P(different) of equal clips
[0.0, 0.0, 0.0, 0.0]
"""

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
