"""Defenses: transforms that a clip passes before the model hears it, and votes over several answers.

`sottovoce.defenses.Gaussian` is the class that the text `gaussian` names. Put transforms around a model with
`Defended`, and a vote around that with `Voted`: the result is a target like any other. `elect_words` is ROVER
on transcripts.

>>> model = sv.open_model("keyword", device="cpu")
>>> noisy = sv.defenses.Defended(model, (sv.defenses.Gaussian(sigma=0.01),))
>>> defended = sv.defenses.Voted(noisy, sv.defenses.Majority(passes=16))
>>> defended.classes == model.classes
True
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.core.transform import Averaged as Averaged
    from sottovoce.core.transform import Defended as Defended
    from sottovoce.core.transform import StraightThrough as StraightThrough
    from sottovoce.core.vote import Passes as Passes
    from sottovoce.core.vote import Voted as Voted
    from sottovoce.defenses.codecs import Mp3 as Mp3
    from sottovoce.defenses.codecs import MuLaw as MuLaw
    from sottovoce.defenses.denoiser import Denoise as Denoise
    from sottovoce.defenses.enhancement import Asnr as Asnr
    from sottovoce.defenses.filters import BiquadLowPass as BiquadLowPass
    from sottovoce.defenses.filters import IdealLowPass as IdealLowPass
    from sottovoce.defenses.filters import MedianSmoothing as MedianSmoothing
    from sottovoce.defenses.filters import Resample as Resample
    from sottovoce.defenses.omlsa import Omlsa as Omlsa
    from sottovoce.defenses.quantise import Quantise as Quantise
    from sottovoce.defenses.randomised_smoothing import Gaussian as Gaussian
    from sottovoce.defenses.randomised_smoothing import MadNoise as MadNoise
    from sottovoce.defenses.rover import Rover as Rover
    from sottovoce.defenses.rover import elect_words as elect_words
    from sottovoce.defenses.votes import Average as Average
    from sottovoce.defenses.votes import Majority as Majority
    from sottovoce.defenses.votes import OneSentence as OneSentence
    from sottovoce.perception.degradations.added_noise import Noise as Noise
    from sottovoce.perception.degradations.equaliser import Equaliser as Equaliser
    from sottovoce.perception.degradations.griffin_lim import GriffinLim as GriffinLim
    from sottovoce.perception.degradations.lost_samples import Dropouts as Dropouts
    from sottovoce.perception.degradations.lost_samples import Pops as Pops
    from sottovoce.perception.degradations.reverberation import ReverbRatio as ReverbRatio
    from sottovoce.perception.degradations.reverberation import ReverbTime as ReverbTime
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "transform",
            "vote",
            Averaged="sottovoce.core.transform:Averaged",
            Defended="sottovoce.core.transform:Defended",
            Passes="sottovoce.core.vote:Passes",
            StraightThrough="sottovoce.core.transform:StraightThrough",
            Voted="sottovoce.core.vote:Voted",
            elect_words="sottovoce.defenses.rover:elect_words",
        ),
    )
