"""Models of a listener: how different two clips sound, and how likely the difference is heard.

`sottovoce.ears.Learned` is the class that the text `learned` names. `Direction` renders clips that differ
more and more, `Jnd` finds the smallest difference that is noticed, and `Masker` gives the masking threshold
of a clip.

>>> clips = sv.testing.example_clips(16000)
>>> sv.ears.Learned().heard(clips, clips).tolist()  # P(different) of equal clips
[0.0, 0.0, 0.0, 0.0]
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.perception.degradations.perturbation_space import Direction as Direction
    from sottovoce.perception.ears.auditory import Auditory as Auditory
    from sottovoce.perception.ears.dpam import Dpam as Dpam
    from sottovoce.perception.ears.ear import Ear as Ear
    from sottovoce.perception.ears.learned import Learned as Learned
    from sottovoce.perception.ears.masking_ear import MaskingEar as MaskingEar
    from sottovoce.perception.jnd.jnd_rule import Jnd as Jnd
    from sottovoce.perception.masking.threshold import Masker as Masker
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "ear",
            Direction="sottovoce.perception.degradations.perturbation_space:Direction",
            Ear="sottovoce.perception.ears.ear:Ear",
            Jnd="sottovoce.perception.jnd.jnd_rule:Jnd",
            Masker="sottovoce.perception.masking.threshold:Masker",
        ),
    )
