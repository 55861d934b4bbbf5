"""Metrics: what an attack did to the decisions and the words, and how loud or audible it is.

`sottovoce.metrics.Snr` is the class that the text `snr` names. Called with two waveforms, it measures them;
`sottovoce.measure` takes either for two clips. `measure(trial)` of a metric gives two numbers a clip, and
`summarise` makes an estimate with an interval of them. A metric with the unit % gives shares: 0.5 is shown
as 50 %.

>>> sv.metrics.Snr.name, sv.metrics.Snr.unit
('snr', 'dB')
>>> clean = torch.tensor([0.5, -0.5, 0.5, -0.5])
>>> sv.measure(clean, 0.75 * clean, metrics=[sv.metrics.LInfNorm], sample_rate=16000)["linf"]
0.125
"""

from typing import TYPE_CHECKING

from sottovoce.lazy import lazy, registered

if TYPE_CHECKING:
    from sottovoce.metrics.audibility import HeardDistance as HeardDistance
    from sottovoce.metrics.audibility import PHeard as PHeard
    from sottovoce.metrics.audibility import PHeardMasking as PHeardMasking
    from sottovoce.metrics.decisions import Accuracy as Accuracy
    from sottovoce.metrics.decisions import ChanceOfRight as ChanceOfRight
    from sottovoce.metrics.decisions import CleanAccuracy as CleanAccuracy
    from sottovoce.metrics.decisions import CleanChanceOfRight as CleanChanceOfRight
    from sottovoce.metrics.decisions import FoolingRatio as FoolingRatio
    from sottovoce.metrics.decisions import Success as Success
    from sottovoce.metrics.distortion import BelowAccepted as BelowAccepted
    from sottovoce.metrics.distortion import DbMax as DbMax
    from sottovoce.metrics.distortion import DbMaxBackground as DbMaxBackground
    from sottovoce.metrics.distortion import DbMaxVocal as DbMaxVocal
    from sottovoce.metrics.distortion import DbMean as DbMean
    from sottovoce.metrics.distortion import DbMeanBackground as DbMeanBackground
    from sottovoce.metrics.distortion import DbMeanVocal as DbMeanVocal
    from sottovoce.metrics.distortion import L2Norm as L2Norm
    from sottovoce.metrics.distortion import LInfNorm as LInfNorm
    from sottovoce.metrics.distortion import SegmentalSnrDb as SegmentalSnrDb
    from sottovoce.metrics.distortion import Snr as Snr
    from sottovoce.metrics.masking_excess import MaskingExcess as MaskingExcess
    from sottovoce.metrics.masking_excess import MaskingMax as MaskingMax
    from sottovoce.metrics.masking_excess import MaskingShare as MaskingShare
    from sottovoce.metrics.quality import CepstralDistance as CepstralDistance
    from sottovoce.metrics.quality import Estoi as Estoi
    from sottovoce.metrics.quality import Fwssnr as Fwssnr
    from sottovoce.metrics.quality import LevelChange as LevelChange
    from sottovoce.metrics.quality import LogLikelihoodRatio as LogLikelihoodRatio
    from sottovoce.metrics.quality import LoudnessChange as LoudnessChange
    from sottovoce.metrics.quality import Pesq as Pesq
    from sottovoce.metrics.quality import PesqNb as PesqNb
    from sottovoce.metrics.quality import Shift as Shift
    from sottovoce.metrics.quality import Stoi as Stoi
    from sottovoce.metrics.quality_extras import Cdpam as Cdpam
    from sottovoce.metrics.quality_extras import Dnsmos as Dnsmos
    from sottovoce.metrics.quality_extras import DnsmosChange as DnsmosChange
    from sottovoce.metrics.quality_extras import Visqol as Visqol
    from sottovoce.metrics.quality_extras import Zimtohrli as Zimtohrli
    from sottovoce.metrics.text_errors import Cer as Cer
    from sottovoce.metrics.text_errors import CleanCer as CleanCer
    from sottovoce.metrics.text_errors import CleanWer as CleanWer
    from sottovoce.metrics.text_errors import Deletions as Deletions
    from sottovoce.metrics.text_errors import Edits as Edits
    from sottovoce.metrics.text_errors import Insertions as Insertions
    from sottovoce.metrics.text_errors import LanguageConfusion as LanguageConfusion
    from sottovoce.metrics.text_errors import SentenceError as SentenceError
    from sottovoce.metrics.text_errors import Substitutions as Substitutions
    from sottovoce.metrics.text_errors import TasrChar as TasrChar
    from sottovoce.metrics.text_errors import TasrWord as TasrWord
    from sottovoce.metrics.text_errors import TranscriptChange as TranscriptChange
    from sottovoce.metrics.text_errors import UasrChar as UasrChar
    from sottovoce.metrics.text_errors import UasrWord as UasrWord
    from sottovoce.metrics.text_errors import Wer as Wer
    from sottovoce.metrics.text_errors import WerClips as WerClips
    from sottovoce.metrics.text_errors import character_edits as character_edits
    from sottovoce.metrics.text_errors import word_edits as word_edits
else:
    __getattr__, __dir__ = lazy(
        __name__,
        registered(
            "metric",
            Edits="sottovoce.metrics.text_errors:Edits",
            character_edits="sottovoce.metrics.text_errors:character_edits",
            word_edits="sottovoce.metrics.text_errors:word_edits",
        ),
    )
