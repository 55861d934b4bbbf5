"""The thesis's tables, row by row against the text as it is printed."""

from __future__ import annotations

import pytest

from sottovoce.studies.olivier2023.attack_tables import (
    TABLE_5_1,
    TABLE_5_2,
    TABLE_D_1,
    TARGET,
    row_of,
    strange,
)

PRINTED_5_1 = """
SpeechBrain LSTM Seq2Seq	subword	5.02	16.98	21	66%
SpeechBrain LSTM CTC	subword	6.15	4.63	27	91%
SpeechBrain Transformer Seq2Seq	subword	4.11	0	37	100%
SpeechBrain Transformer CTC	subword	5.88	0	38	100%
DeepSpeech2 (LSTM CTC)	character	9.44	0	40	100%
Wav2Vec2-BASE-100h (Transformer CTC)	character	6.27	0	35	100%
Wav2Vec2-BASE-960h (Transformer CTC)	character	3.53	0	35	100%
Wav2Vec2-LARGE-960h (Transformer CTC)	character	2.85	0	32	100%
"""
# The 35 dB cell of tiny.en is followed by 87.8&, a slip for 87.8%.
PRINTED_5_2 = """
SB	165M	2.4%	89.1%	75.9%	63.2%	93.0%	81.6%	100%	37dB
tiny.en	39M	3.4%	89.6%	99.0%	87.8&	115%	100%	94.1%	41dB
base.en	74M	3.0%	64.7%	92.8%	81.7%	104%	98.3%	100%	39dB
small.en	244M	1.9%	46.1%	67.2%	53.9%	78.7%	66.0%	82.4%	40dB
medium.en	769M	1.7%	40.3%	52.9%	39.3%	65.2%	51.4%	76.5%	41dB
tiny	39M	5.8%	93.2%	103%	96.1%	107%	104%	82.3%	37dB
base	74M	3.4%	77.9%	90.3%	80.4%	102%	96.7%	76.5%	35dB
small	244M	2.0%	52.0%	75.4%	61.5%	89.8%	77.4%	52.9%	32dB
medium	769M	1.5%	36.5%	49.5%	38.9%	63.3%	49.3%	64.7%	30dB
large	1550M	1.6%	32.6%	45.3%	34.1%	49.2%	39%	82.4%	27dB
"""
PRINTED_D_1 = """
SpeechBrain LSTM Seq2Seq	5.02	25.49
SpeechBrain LSTM CTC	6.15	24.27
SpeechBrain Transformer Seq2Seq	4.11	21.6
SpeechBrain Transformer CTC	5.88	20.63
Wav2Vec2-BASE-100h	6.27	13.19
Wav2Vec2-BASE-960h	3.53	16.63
Wav2Vec2-LARGE-960h	2.85	11.08
DeepSpeech2	9.44	74.51
"""


@pytest.mark.parametrize(
    ("text", "table"), [(PRINTED_5_1, TABLE_5_1), (PRINTED_5_2, TABLE_5_2), (PRINTED_D_1, TABLE_D_1)]
)
def test_tables_are_as_printed(text: str, table: dict[str, tuple[float | str, ...]]) -> None:
    rows = [line.split("\t") for line in text.strip().split("\n")]
    assert [row[0] for row in rows] == list(table)
    for name, *cells in rows:
        for cell, value in zip(cells, table[name], strict=True):
            assert (cell if isinstance(value, str) else float(cell.rstrip("%&dB"))) == value


def test_tables_agree_with_what_the_thesis_says_of_them() -> None:
    # "in 50 % to 90 % of all sentences the CW attack succeeds", but for the small models of English alone.
    forced = [row.accuracy for name, row in TABLE_5_2.items() if name not in ("SB", "tiny.en", "base.en")]
    assert min(forced) > 50 and max(forced) < 90
    assert max(TABLE_D_1, key=lambda name: TABLE_D_1[name].wer) == "DeepSpeech2"
    assert TARGET == "OK Google, browse to evil.com"


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("whisper:../models/whisper-tiny.pt", "tiny"),
        ("whisper(model=tiny.en.pt, beams=5)", "tiny.en"),
        ("whisper:openai/whisper-large-v3", "large"),
        ("recogniser", None),
    ],
)
def test_rows_by_the_name_of_a_model(model: str, row: str | None) -> None:
    assert row_of(model) == row


def test_what_is_not_the_thesis_s() -> None:
    assert strange("O7", "whisper:tiny", "librispeech:clips") == []
    assert strange("O7", "whisper:tiny", "prompts") == ["data"]
    assert strange("O5", "recogniser", "strings") == ["model", "data"]
    assert strange("O8", "whisper:medium.pt", "librispeech:clips") == ["data"]
