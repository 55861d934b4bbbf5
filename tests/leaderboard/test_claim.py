"""Claims as files: what is in them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims.claim import MIGRATIONS, Claim, parse_claim, read_claim, schema_text
from sottovoce.leaderboard.claims.make_claims import make_claims, merge_seeds
from sottovoce.leaderboard.run_reading import read_run

LOUD = {"attacks": ["fgsm"], "budgets": ["snr(db=20)"]}
SCHEMA = Path(__file__).parents[2] / "docs" / "claim.schema.json"


def claim_of(folder: Path) -> Claim:
    (claim,) = make_claims(read_run(RunFolder(folder)))
    return claim


@pytest.fixture
def content(four: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(claim_of(four).to_json())
    return found


def test_a_claim_says_what_the_records_say(content: dict[str, Any]) -> None:
    assert (content["schema"], content["target"], content["lead"]) == (1, "python:nobody:makes", "success")
    assert (content["clips"], content["manifest"], content["run"]) == (5, "abcdef", "0123456789")
    assert content["clean"]["accuracy"]["value"] == 0.8
    loud, quiet = content["worst"]
    assert (loud["budget"], loud["success"]["value"], loud["success"]["n"]) == ("snr(db=20)", 0.75, 4)
    assert [rival["attack"] for rival in loud["cells"]] == ["fgsm", "pgd(steps=5)"]
    assert [rival["attack"] for rival in quiet["cells"]] == ["pgd(steps=5)", "fgsm"]
    table = content["outcomes"]
    assert table["clips"] == ["a", "b", "c", "d", "e"] and table["clean"] == [1, 1, 1, 1, 0]
    assert table["success"] == {"snr(db=20)": "1110-", "snr(db=40)": "1000-"}
    assert content["plan"]["attacks"] == ["noise", "fgsm", "pgd(steps=5)"]
    assert "few-clips" in [doubt["kind"] for doubt in content["doubts"]]


def test_a_claim_reads_back_as_it_was(four: Path, tmp_path: Path) -> None:
    claim = claim_of(four)
    path = tmp_path / "claim.json"
    path.write_text(claim.to_json())
    assert read_claim(path) == claim


def change(content: dict[str, Any], field: str, value: Any) -> None:
    *places, last = field.split(".")
    there: Any = content
    for place in places:
        there = there[int(place)] if place.isdecimal() else there[place]
    there[last] = value


@pytest.mark.parametrize(
    ("field", "value", "named", "reason"),
    [
        ("worst.0.success.value", float("nan"), "worst.0.success.value", "finite"),
        ("worst.0.success.value", 1.5, "worst.0.success.value", "at most 1"),
        ("worst.0.success.high", 1.5, "worst.0.success.high", "at most 1"),
        ("worst.0.success.low", 0.9, "worst.0.success", "interval around the value 0.75, got \\[0.9, "),
        ("worst.0.success", {"value": 0.1, "n": 4}, "worst.0.success", "0.75, got 0.1"),
        ("clean.accuracy.value", -0.1, "clean.accuracy.value", "at least 0"),
        ("plan.attacks", ["pgdd"], "plan", "unknown attack 'pgdd': did you mean 'pgd'"),
        ("plan.atacks", ["pgd"], "plan", "did you mean 'attacks'"),
        ("defense", "gausian(sigma=0.1)", "defense", "did you mean 'gaussian'"),
        ("goal", "evad", "goal", "did you mean 'evade'"),
        ("target", "keyword", "target", "expected the plan's model"),
        ("worst.0.cells.0.cell", "fgsm_evade_snr-db-99", "worst.0.cells", "attacks of this plan"),
        ("outcomes.clean", [1, 1], "outcomes", "expected 5 places in clean, got 2"),
        ("outcomes.clean", [1, 1, 1, 2, -1], "outcomes.clean.4", "at least 0"),
        ("worst", [], "worst", "at least 1"),
        ("colour", "red", "colour", "not permitted"),
        ("url", "javascript:alert(1)", "claim", "begins with https"),
        ("id", "../../etc/passwd", "id", "pattern"),
    ],
)  # fmt: skip
def test_a_bad_claim_is_refused_with_file_and_field(
    content: dict[str, Any], tmp_path: Path, field: str, value: Any, named: str, reason: str
) -> None:
    change(content, field, value)
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"theirs\\.json, field '{named}': .*{reason}"):
        read_claim(path)


@pytest.mark.parametrize(
    ("version", "fix"),
    [
        (2, "newer sottovoce"),
        (None, "write the claim again"),
        ("1", "claim again"),
        (True, "again"),
        ([1], "again"),
    ],
)
def test_another_schema_is_refused(content: dict[str, Any], version: Any, fix: str) -> None:
    with pytest.raises(InputError, match=f"field 'schema': expected 1, got .*{fix}"):
        parse_claim({**content, "schema": version}, "theirs.json")


def test_an_older_schema_is_migrated(content: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    old = {**content, "schema": 0, "model": content["target"]}
    del old["target"]

    def rename(entries: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in entries.items() if key != "model"}
        return {**kept, "target": entries["model"], "schema": 1}

    monkeypatch.setitem(MIGRATIONS, 0, rename)
    assert parse_claim(old, "old.json") == parse_claim(content, "new.json")


def test_a_claim_too_large_or_no_json_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text(json.dumps(content) + " " * 200_000)
    with pytest.raises(InputError, match="at most 200 kB"):
        read_claim(path)
    path.write_text("{")
    with pytest.raises(InputError, match=r"large\.json: cannot be read as a claim in JSON"):
        read_claim(path)


def test_a_claim_of_many_clips_stays_small(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> None:
    budgets = [f"snr(db={db})" for db in range(10, 70, 10)]
    records = [
        make_record(
            f"fgsm_evade_snr-db-{db}", f"{'speaker/chapter/' * 6}{number:05d}", broken=number % 3 == 0,
            wer=[float(number % 7), 12.0], **{"clean-wer": [1.0, 12.0]},
        )
        for number in range(3000)
        for db in range(10, 70, 10)
    ]  # fmt: skip
    folder = write_run(tmp_path / "run", records, {"attacks": ["fgsm"], "budgets": budgets})
    claim = claim_of(folder)
    assert len(claim.to_json().encode()) < 200_000
    assert claim.outcomes.of == 3000 and len(claim.outcomes.clips) >= 500
    assert not claim.outcomes.complete
    parse_claim(json.loads(claim.to_json()), "it")


def sampled(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> dict[str, Any]:
    """1200 clips of ten words, of which 1000 are listed: every third is broken, an error in each."""
    records = [
        make_record(
            "fgsm_evade_snr-db-20", str(number), broken=number % 3 == 0,
            wer=[1.0, 10.0], **{"clean-wer": [1.0, 10.0]},
        )
        for number in range(1200)
    ]  # fmt: skip
    claim = claim_of(write_run(tmp_path / "run", records, LOUD))
    assert (len(claim.outcomes.clips), claim.outcomes.of) == (1000, 1200)
    content: dict[str, Any] = json.loads(claim.to_json())
    parse_claim(content, "true")
    return content


def test_a_sample_of_clips_must_bear_the_figures(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> None:
    content = sampled(tmp_path, write_run, make_record)
    low, high = stats.beta.ppf([0.025, 0.975], [360, 361], [841, 840])
    content["worst"][0]["success"] = {"value": 0.3, "low": low, "high": high, "n": 1200}
    # Of 1200 clips with 360 broken, 1000 hold 300 on average, give or take 5.9 (hypergeometric).
    broken = content["outcomes"]["success"]["snr(db=20)"].count("1")
    assert broken > 300 + 4 * 5.9
    with pytest.raises(InputError, match=r"field 'worst\.0\.success': .*, 0\.3\d+, got 0\.3;"):
        parse_claim(content, "forged")


def test_a_sample_of_clips_must_bear_the_errors(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> None:
    content = sampled(tmp_path, write_run, make_record)
    # Every clip listed has a WER of a tenth. What 7 in 1000 clips, too rare to be listed, could hide is less.
    content["worst"][0]["wer"] = {"value": 0.095, "low": 0.09, "high": 0.1, "n": 1200}
    parse_claim(content, "true")
    content["worst"][0]["wer"]["value"] = 0.09
    with pytest.raises(InputError, match=r"field 'worst\.0\.wer': .*, 0\.1, got 0\.09;"):
        parse_claim(content, "forged")


def test_words_are_listed_where_no_clean_error_rate_was_measured(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    """Two errors in four words and one in six: three in ten."""
    records = [
        Record(cell="fgsm_evade_snr-db-20", clip=clip, status="ok", parts={"wer": [errors, words]})
        for clip, errors, words in (("a", 2.0, 4.0), ("b", 1.0, 6.0))
    ]
    claim = claim_of(write_run(tmp_path / "run", records, {**LOUD, "metrics": ["wer"]}))
    assert claim.outcomes.words == (4, 6) and claim.outcomes.errors == {"snr(db=20)": (2, 1)}
    content = json.loads(claim.to_json())
    assert content["worst"][0]["wer"]["value"] == pytest.approx(0.3)
    parse_claim(content, "true")
    content["worst"][0]["wer"] = {"value": 0.1, "n": 2}
    with pytest.raises(InputError, match=r"add up to, 0\.3, got 0\.1"):
        parse_claim(content, "forged")


def test_every_seed_has_its_value(content: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"field 'clean\.accuracy': expected a value of each of the 2 seeds"):
        parse_claim({**content, "seeds": [0, 1]}, "theirs.json")


def test_seeds_are_merged_to_mean_and_range(
    tmp_path: Path, write_run: Callable[..., Path], make_records: Callable[..., list[Record]]
) -> None:
    claims = [
        claim_of(
            write_run(
                tmp_path / str(seed), make_records({"fgsm_evade_snr-db-20": letters}), {**LOUD, "seed": seed}
            )
        )
        for seed, letters in ((0, "1100"), (1, "1110"), (2, "1111"))
    ]
    assert len({claim.id for claim in claims}) == 1
    merged, notes = merge_seeds([*claims, claims[1]])
    (worst,) = merged.worst
    assert worst.success is not None
    assert (worst.success.value, worst.success.seeds) == (0.75, (0.5, 0.75, 1.0))
    # Clopper-Pearson of 2 of 4 begins at 0.0676, that of 4 of 4 ends at 1.
    assert (worst.success.low, worst.success.high) == pytest.approx((0.06759, 1.0), abs=1e-5)
    assert merged.seeds == (0, 1, 2) and merged.trials == 12
    assert len(notes) == 1 and "seed 1 came twice" in notes[0]
    found = json.loads(merged.to_json())
    parse_claim(found, "merged")
    # That of 2 of 4, the seed whose clips are listed, begins lower.
    found["worst"][0]["success"]["low"] = 0.2
    with pytest.raises(InputError, match=r"worst\.0\.success': expected an interval that spans those"):
        parse_claim(found, "narrowed")


def test_the_schema_in_the_documentation_is_current() -> None:
    assert SCHEMA.read_text() == schema_text(), (
        "write it anew: python -m sottovoce.leaderboard.claims.claim > docs/claim.schema.json"
    )
