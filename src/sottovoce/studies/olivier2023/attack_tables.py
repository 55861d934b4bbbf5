"""What Olivier's thesis (2023) reports of attacks on recognisers: Tables 5.1, 5.2 and D.1, as printed, and
the settings and findings in the text of chapter 5 and appendix D.1."""

from __future__ import annotations

from typing import NamedTuple

from sottovoce.studies.identify import corpus_of, family_of, whisper_size

TARGET = "OK Google, browse to evil.com"
"""What Whisper is forced to write (section 5.3.1)."""
BEAMS = 5
UNIVERSAL_SECONDS = 30
PGD_STEPS, CW_STEPS, CW_CLIPS = 100, 5000, 100
"""Of section 5.2."""
GENETIC_STEPS, GENETIC_SNR_DB = 2000, 20
"""Of appendix D.1; the SNR is the mean that the L-infinity bound comes to."""


class ForcedText(NamedTuple):
    """A row of Table 5.1: word error rates in per cent, the one under attack against the forced text."""

    output: str
    clean_wer: float
    wer: float
    snr_db: float
    accuracy: float


class Whispered(NamedTuple):
    """A row of Table 5.2: word error rates and the share of forced texts in per cent, their SNR in dB.

    noise: white noise at 0 dB. l2: PGD by SNR. linf: PGD by L-infinity radius.
    """

    parameters: str
    clean: float
    noise: float
    l2_35db: float
    l2_40db: float
    linf_005: float
    linf_0015: float
    accuracy: float
    snr_db: float


class Searched(NamedTuple):
    """A row of Table D.1: word error rates in per cent."""

    clean_wer: float
    wer: float


TABLE_5_1 = {
    "SpeechBrain LSTM Seq2Seq": ForcedText("subword", 5.02, 16.98, 21, 66),
    "SpeechBrain LSTM CTC": ForcedText("subword", 6.15, 4.63, 27, 91),
    "SpeechBrain Transformer Seq2Seq": ForcedText("subword", 4.11, 0, 37, 100),
    "SpeechBrain Transformer CTC": ForcedText("subword", 5.88, 0, 38, 100),
    "DeepSpeech2 (LSTM CTC)": ForcedText("character", 9.44, 0, 40, 100),
    "Wav2Vec2-BASE-100h (Transformer CTC)": ForcedText("character", 6.27, 0, 35, 100),
    "Wav2Vec2-BASE-960h (Transformer CTC)": ForcedText("character", 3.53, 0, 35, 100),
    "Wav2Vec2-LARGE-960h (Transformer CTC)": ForcedText("character", 2.85, 0, 32, 100),
}

TABLE_5_2 = {
    "SB": Whispered("165M", 2.4, 89.1, 75.9, 63.2, 93.0, 81.6, 100, 37),
    "tiny.en": Whispered("39M", 3.4, 89.6, 99.0, 87.8, 115, 100, 94.1, 41),
    "base.en": Whispered("74M", 3.0, 64.7, 92.8, 81.7, 104, 98.3, 100, 39),
    "small.en": Whispered("244M", 1.9, 46.1, 67.2, 53.9, 78.7, 66.0, 82.4, 40),
    "medium.en": Whispered("769M", 1.7, 40.3, 52.9, 39.3, 65.2, 51.4, 76.5, 41),
    "tiny": Whispered("39M", 5.8, 93.2, 103, 96.1, 107, 104, 82.3, 37),
    "base": Whispered("74M", 3.4, 77.9, 90.3, 80.4, 102, 96.7, 76.5, 35),
    "small": Whispered("244M", 2.0, 52.0, 75.4, 61.5, 89.8, 77.4, 52.9, 32),
    "medium": Whispered("769M", 1.5, 36.5, 49.5, 38.9, 63.3, 49.3, 64.7, 30),
    "large": Whispered("1550M", 1.6, 32.6, 45.3, 34.1, 49.2, 39, 82.4, 27),
}
"""SB is SpeechBrain's Transformer."""
LINF_SNR_DB = {"linf_005": 38.0, "linf_0015": 49.0}
"""What the two radii come to on average (section 5.3.1)."""

TABLE_D_1 = {
    "SpeechBrain LSTM Seq2Seq": Searched(5.02, 25.49),
    "SpeechBrain LSTM CTC": Searched(6.15, 24.27),
    "SpeechBrain Transformer Seq2Seq": Searched(4.11, 21.6),
    "SpeechBrain Transformer CTC": Searched(5.88, 20.63),
    "Wav2Vec2-BASE-100h": Searched(6.27, 13.19),
    "Wav2Vec2-BASE-960h": Searched(3.53, 16.63),
    "Wav2Vec2-LARGE-960h": Searched(2.85, 11.08),
    "DeepSpeech2": Searched(9.44, 74.51),
}

CONFUSION = {
    "low-resource languages (Armenian, Lithuanian)": "WER above 100 %",
    "higher-resource languages (Czech, Danish, Indonesian)": "WER up to 75 % or higher",
    "best represented (English, Italian)": "16 to 60 points more WER",
    "one perturbation for all clips": "20 to 40 points more WER, in every language",
}
"""Section 5.4.2, of Whisper medium: Fig. 5.3 has no numbers in the text beyond these."""

OLDER = ("wav2vec2", "speechbrain", "deepspeech2")
STRONG = ("whisper", "wav2vec2", "hubert", "data2vec-audio")
"""Kinds of models: those of most studies, and those of section 7.4."""
_LIBRISPEECH = "LibriSpeech test-clean"
SETUP = {
    "O5": f"eight models of SpeechBrain and Wav2Vec2 on {_LIBRISPEECH}, 100 clips where texts are forced",
    "O6": f"the same models and utterances as for forced texts, {_LIBRISPEECH}",
    "O7": f"nine Whispers on {_LIBRISPEECH}, 100 utterances, 20 where a text is forced",
    "O8": "Whisper medium on 100 sentences of CommonVoice in each of seven languages",
    "O12": f"eight models of SpeechBrain and Wav2Vec2 on {_LIBRISPEECH}",
}
"""Models and data, by study."""


def strange(study: str, model: str, data: str) -> list[str]:
    """Which of "model" and "data" are not the thesis's."""
    if study in ("O7", "O8"):
        fits = row_of(model) in (TABLE_5_2 if study == "O7" else ("medium",))
    else:
        fits = family_of(model) in (STRONG if study == "O14" else OLDER)
    corpus = "commonvoice" if study == "O8" else "librispeech"
    found = {"model": fits, "data": corpus_of(data) == corpus}
    return [name for name, fit in found.items() if not fit]


def row_of(model: str) -> str | None:
    """The row of Table 5.2 that a Whisper's size has."""
    size = whisper_size(model)
    if size in ("large-v2", "large-v3"):
        return "large"
    return size if size in TABLE_5_2 else None
