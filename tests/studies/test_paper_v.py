"""The paper's tables, cell by cell against the text as it is printed."""

from __future__ import annotations

from sottovoce.studies.vadillo2022.vadillo_tables import TABLE_1, TABLE_2
from sottovoce.targets.zoo.keyword_cnn import CLASSES

PRINTED_1 = """
Silence 23.80 19.46 22.24 19.61
Left 52.30 49.73 42.20 40.59
On 76.00 75.65 54.42 53.28
Go 87.80 80.06 86.24 80.90
"""
PRINTED_2 = """
Silence -29.52 48.04
Up -40.24 89.18
Left -48.10 99.03
Go -41.88 93.28
"""


def test_tables_are_as_printed() -> None:
    for text, table in ((PRINTED_1, TABLE_1), (PRINTED_2, TABLE_2)):
        for line in text.split("\n")[1:-1]:
            name, *cells = line.split()
            assert [f"{value:.2f}" for value in table[name.lower()]] == cells


def test_tables_agree_with_what_the_paper_says_of_them() -> None:
    assert tuple(TABLE_1) == tuple(TABLE_2) == CLASSES
    high = [name for name, row in TABLE_1.items() if min(row.max_train, row.max_valid) > 70]
    assert len(high) == 7
    assert max(TABLE_1["silence"].max_train, TABLE_1["silence"].max_valid) < 25
    assert all(row.mean_db < -40 for name, row in TABLE_2.items() if name != "silence")
