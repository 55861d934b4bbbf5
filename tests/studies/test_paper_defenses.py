"""The thesis's tables of defenses, row by row against the text as it is printed."""

from __future__ import annotations

from sottovoce.studies.olivier2023.defense_tables import (
    SNRS_DB,
    TABLE_7_1,
    TABLE_7_2,
    TABLE_7_3,
    TABLE_7_4,
    TABLE_7_5,
    TABLE_7_6,
    TABLE_E_1,
    TABLE_E_2,
)
from sottovoce.studies.olivier2023.runs.defense_plans import NOISY_ROWS
from sottovoce.studies.olivier2023.runs.hardening_plans import SMOOTHED, SPEAKERS, TRANSFERS, asr_walls

# In the order of the thesis; "σ -AUG" is written AUG here.
PRINTED_7_1 = """
DeepSpeech2	9.7%	27%	63%
Transformer	5.7%	12%	35%
DeepSpeech2 + AUG	-	11%	16%
DeepSpeech2 + ASNR	-	17%	33%
DeepSpeech2 + AUG + ASNR	-	12%	18%
Transformer + ASNR	-	9.1%	19%
DeepSpeech2 + Maj-100	-	27%	69%
DeepSpeech2 + Avg-100	-	25%	62%
DeepSpeech2 + ROVER-8	-	21%	52%
DeepSpeech2 + ROVER-16	-	20%	50%
DeepSpeech2 + ROVER-32	-	20%	50%
DeepSpeech2 + ASNR + ROVER-16	-	14%	26%
DeepSpeech2 + AUG + ROVER-16	-	9%	12%
Transformer + ASNR + ROVER-16	-	8.1%	15%
"""
PRINTED_7_2 = """
Vanilla	8	100	0	27dB
MP3 compression	9	100	3	16dB
Trained (.01)	11	100	8	14dB
Off-the-shelf (.01)	17	100	4	10dB
Trained (.02)	14	100	6	8dB
Off-the-shelf (.02)	31	100	6	5dB
"""
PRINTED_7_3 = """
None	88%	7%	10%
Ideal lowpass (5%)	68%	10%	-
Biquad lowpass (f = 200)	71%	9%	-
Gaussian smoothing (.1)	71%	69%	63%
Adversarial training	77%	31%	-
MAD smoothing (.15)	80%	74%	68%
"""
PRINTED_7_5 = """
None	78%	13%
Gaussian smoothing (.1)	65%	63%
MAD smoothing (.15)	68%	64%
"""
PRINTED_7_6 = """
None	9.7%	88%
Gaussian smoothing (.01)	14%	46%
MAD smoothing (.01)	13%	51%
MAD smoothing (.015)	18%	46%
"""
# The thesis has "+ RS + ASNR" and "RS + σ-AUG + ROVER" for the second and third last of .01.
PRINTED_E_2 = """
0	DeepSpeech2	8	63	89	100	100	100	100	100	0	27
0	MP3 compression	9	59	71	79	100	100	100	100	3	16
0.01	AUG	12	50	64	82	100	100	100	100	0	19
0.01	RS	34	58	66	84	95	100	100	100	13	15
0.01	RS + AUG	11	30	46	57	82	100	100	100	11	14
0.01	RS + ASNR	23	35	45	60	71	91	100	100	11	10
0.01	RS + ROVER	29	51	64	81	93	100	100	100	7	15
0.01	RS + AUG + ROVER	9	31	43	59	81	100	100	100	8	14
0.01	RS + ASNR + ROVER	20	34	46	60	70	92	100	100	4	10
0.02	AUG	13	46	63	83	100	100	100	100	0	15
0.02	RS	72	79	82	87	96	97	100	100	12	10
0.02	RS + AUG	19	35	46	64	77	100	100	100	9	8
0.02	RS + ASNR	41	44	55	62	74	84	100	100	13	5
0.02	RS + ROVER	62	72	77	84	93	98	100	100	7	10
0.02	RS + AUG + ROVER	14	34	46	60	77	100	100	100	6	8
0.02	RS + ASNR + ROVER	36	40	46	56	71	83	100	100	6	5
"""


def lines(text: str) -> dict[str, list[float | None]]:
    rows = [line.split("\t") for line in text.strip().split("\n")]
    return {
        name: [None if cell == "-" else float(cell.rstrip("%dB")) for cell in cells] for name, *cells in rows
    }


def test_noisy_clips() -> None:
    assert {name: [row.clean, row.sigma_01, row.sigma_02] for name, row in TABLE_7_1.items()} == lines(
        PRINTED_7_1
    )
    groups = [row.group for row in TABLE_7_1.values()]
    assert groups == [
        *["baseline"] * 2,
        *["enhancement, augmentation"] * 4,
        *["voting"] * 5,
        *["proposed"] * 3,
    ]


def test_forced_texts() -> None:
    assert {name: list(row) for name, row in TABLE_7_2.items()} == lines(PRINTED_7_2)


def test_high_frequency_smoothing() -> None:
    assert {name: list(row) for name, row in TABLE_7_3.items()} == lines(PRINTED_7_3)
    assert {name: list(row) for name, row in TABLE_7_5.items()} == lines(PRINTED_7_5)
    assert {name: list(row) for name, row in TABLE_7_6.items()} == lines(PRINTED_7_6)
    assert list(TABLE_7_4.items()) == [
        (("Undefended", "Ideal lowpass (2%)"), 72),
        (("Ideal lowpass (2%)", "Undefended"), 74),
        (("Ideal lowpass (2%)", "Biquad lowpass"), 39),
    ]


def test_attacks_on_defenses() -> None:
    rows = [line.split("\t") for line in PRINTED_E_2.strip().split("\n")]
    printed = {(float(sigma), name): list(map(float, cells)) for sigma, name, *cells in rows}
    ours = {key: [row.clean, *row.pgd, row.truth, row.target, row.snr_db] for key, row in TABLE_E_2.items()}
    assert ours == printed and list(ours) == list(printed)
    assert TABLE_E_1 == {"No": (29, 39, 54, 66, 90, 100), "Yes": (34, 46, 60, 70, 92, 100)}
    assert SNRS_DB == (35, 30, 25, 20, 15, 10)


def test_what_we_say_of_the_tables() -> None:
    # The adaptive row of Table E.1 is that of another table under another name.
    assert TABLE_E_1["Yes"] == TABLE_E_2[0.01, "RS + ASNR + ROVER"].pgd
    # "as low as 10 - 14 under sigma = .01 and 5 - 8 with sigma = .02".
    shown = {name: row.snr_db for name, row in TABLE_7_2.items()}
    assert sorted(value for name, value in shown.items() if "(.01)" in name) == [10, 14]
    assert sorted(value for name, value in shown.items() if "(.02)" in name) == [5, 8]


def test_every_row_of_ours_has_one_of_the_thesis() -> None:
    assert [row.paper for row in NOISY_ROWS] == [name for name in TABLE_7_1 if "Transformer" not in name]
    assert [one.paper for one in SPEAKERS] == list(TABLE_7_3)
    assert [one.paper for one in SMOOTHED] == list(TABLE_7_5)
    assert list(TRANSFERS) == list(TABLE_7_4)
    assert ["None", *asr_walls(0.01)] == list(TABLE_7_6)
