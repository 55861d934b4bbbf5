"""Studies of recognisers, from records written by hand: every figure can be worked out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.studies.olivier2023 import attacks_without_gradient as o12
from sottovoce.studies.olivier2023 import imperceptible_attack as o6
from sottovoce.studies.olivier2023 import language_confusion as o8
from sottovoce.studies.olivier2023 import whisper_attacks as o7
from sottovoce.studies.olivier2023 import whitebox_attacks as o5
from sottovoce.studies.olivier2023.runs.recogniser_plans import Ask, plans_of
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, read_runs
from sottovoce.studies.run_study import tabulate
from sottovoce.studies.study import Result, StudyTable
from sottovoce.studies.study_page import scope_of
from sottovoce.studies.vadillo2022 import fooling_ratio as v2

TINY = "whisper:whisper-tiny.pt"
LIBRISPEECH = "librispeech:clips"


def ask(**more: Any) -> Ask:
    return Ask(**{"scale": "full", "model": TINY, "data": LIBRISPEECH, **more})


def cell(plan: Plan, attack: str, budget: str, goal: str = "") -> Cell:
    (one,) = [
        one
        for one in plan.cells()
        if one.attack.name == attack and str(one.budget) == budget and goal in ("", str(one.goal))
    ]
    return one


def write(folder: Path, plan: Plan, records: list[Record]) -> None:
    run = RunFolder(folder)
    run.prepare(plan, {"data_note": "written by hand"})
    with run.writer() as writer:
        writer.write(records)


def record(one: Cell, clip: int, achieved: bool | None = None, **parts: Any) -> Record:
    """`wer=(2, 8)` and so on; words, language and status by their names."""
    words = {
        name: parts.pop(name)
        for name in ("clean_text", "adversarial_text", "status", "reason")
        if name in parts
    }
    language = parts.pop("language", None)
    return Record(
        cell=one.id,
        clip=str(clip),
        achieved=achieved,
        achieved_unrounded=achieved,
        facts={"language": language} if language else {},
        parts={name.replace("_", "-"): list(pair) for name, pair in parts.items()},
        **{"status": "ok", **words},
    )


def rows_of(sheet: StudyTable) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in sheet.rows}


def value(text: str) -> float:
    """The figure before its interval."""
    return float(text.partition(" ")[0])


@pytest.fixture
def whispered(tmp_path: Path) -> AsrSetup:
    plans = plans_of("O7", ask())
    loud = cell(plans["untargeted"], "pgd", "snr(db=35)")
    noise = cell(plans["untargeted"], "noise", "snr(db=35)")
    zero = cell(plans["noise"], "noise", "snr(db=0)")
    forced = cell(plans["targeted"], "cw-asr", "linf(eps=0.1)")
    write(
        tmp_path / "untargeted",
        plans["untargeted"],
        [
            record(loud, 1, wer=(8, 8), clean_wer=(1, 8), snr=(35, 1)),
            record(loud, 2, wer=(4, 2), clean_wer=(0, 2), snr=(36, 1)),
            record(loud, 3, status="failed", reason="too long"),
            record(noise, 1, wer=(1, 8)),
            record(noise, 2, wer=(1, 2)),
        ],
    )
    write(tmp_path / "noise", plans["noise"], [record(zero, 1, wer=(9, 10)), record(zero, 2, wer=(10, 10))])
    write(
        tmp_path / "targeted",
        plans["targeted"],
        [
            record(forced, 1, True, success=(1, 1), snr=(30, 1)),
            record(forced, 2, True, success=(1, 1), snr=(40, 1)),
            record(forced, 3, False, success=(0, 1), snr=(10, 1)),
        ],
    )
    return read_runs("O7", tmp_path)


def test_whisper_beside_the_row_of_its_size(whispered: AsrSetup) -> None:
    result = o7.run(whispered)
    table = rows_of(result.sheets[0])
    # 12 errors in 10 words, 1 error before; noise of 35 dB: 2 in 10; noise of 0 dB: 19 in 20.
    assert (value(table["clean"][0]), table["clean"][1], table["clean"][-1]) == (10.0, "5.8", "2")
    wer, paper, noise, snr, _, clips = table["PGD, 35 dB"]
    assert (value(wer), paper, value(noise), value(snr), clips) == (120.0, "103", 20.0, 35.5, "2")
    assert (value(table["white noise, 0 dB"][0]), table["white noise, 0 dB"][1]) == (95.0, "93.2")
    # What was not run has no figure, and the paper's stands there all the same.
    assert table["PGD, L-infinity .005"] == ("–", "107", "–", "–", "38", "–")
    forced = rows_of(result.sheets[1])
    share, snr_of_forced = forced["texts forced, %"], forced["SNR of those, dB"]
    assert (value(share[0]), *share[1:]) == (66.7, "82.3", "3")
    assert (value(snr_of_forced[0]), *snr_of_forced[1:]) == (35.0, "37", "2")
    assert result.values["row"] == "tiny" and result.values["wer"]["l2_35db"].value == 1.2


def test_scope_is_honest(whispered: AsrSetup) -> None:
    lines = " ".join(scope_of(o7.STUDY, whispered))
    assert "whisper-tiny.pt" in lines and "written by hand" in lines
    assert "The clips are our choice" in lines and "NOT" not in lines
    assert "the paper's settings" in lines and "Only 2 clips in places" in lines and "16 bits" in lines
    assert whispered.unused == {"3": "too long"}


def test_scope_of_a_short_run(tmp_path: Path) -> None:
    plans = plans_of("O5", ask(scale="mini", model="recogniser", data="strings"))
    one = cell(plans["untargeted"], "pgd", "snr(db=20)")
    write(tmp_path / "plans" / "untargeted", plans["untargeted"], [record(one, 1, wer=(1, 2))])
    lines = " ".join(scope_of(o5.STUDY, read_runs("O5", tmp_path)))
    assert "NOT the paper's model and data" in lines and "NOT the paper's scale" in lines
    assert "pgd(steps=20, step=0.25)" in lines and "pgd(steps=100, step=0.1)" in lines
    assert "Not run yet: targeted." in lines


def test_page_from_runs_made_elsewhere(whispered: AsrSetup) -> None:
    _, _, page = tabulate(o7.STUDY, whispered.folder)
    text = page.read_text("utf-8")
    assert "120.0" in text and "96.1" in text and "http" not in text.replace("http://www.w3.org", "")
    facts = json.loads((page.parent / "results.json").read_text("utf-8"))
    assert facts["study"] == "O7" and facts["setting"]["data"] == LIBRISPEECH
    assert facts["values"]["wer"]["l2_35db"]["value"] == 1.2
    assert facts["values"]["wer"]["l2_40db"] is None


def test_texts_that_were_forced(tmp_path: Path) -> None:
    plans = plans_of("O5", ask(model="recogniser"))
    one = cell(plans["targeted"], "cw-asr", "linf(eps=0.1)")
    short = {"clean_text": "go left now", "clean_wer": (0, 3)}
    write(
        tmp_path / "targeted",
        plans["targeted"],
        [
            record(
                one,
                1,
                True,
                **short,
                adversarial_text="Really short test string.",
                success=(1, 1),
                snr=(20, 1),
            ),
            record(
                one, 2, False, **short, adversarial_text="really short string", success=(0, 1), snr=(30, 1)
            ),
        ],
    )
    result = o5.run(read_runs("O5", tmp_path))
    table = rows_of(result.sheets[1])
    # One of the four words of "really short test string" is missing in one of two clips: 1 of 8.
    clean, wer, snr, accuracy = (value(text) for text in table["here: recogniser"][1:])
    assert (clean, wer, snr, accuracy) == (0.0, 12.5, 20.0, 50.0)
    assert table["paper: SpeechBrain LSTM Seq2Seq"] == ("subword", "5.02", "16.98", "21", "66")


def test_untargeted_attacks_by_size(tmp_path: Path) -> None:
    plan = plans_of("O5", ask(model="recogniser"))["untargeted"]
    errors = {"noise": 1, "fgsm": 2, "pgd": 4, "apgd": 5}
    records = [
        record(cell(plan, name, "snr(db=20)"), 1, wer=(count, 4), clean_wer=(0, 4), snr=(20, 1))
        for name, count in errors.items()
    ]
    write(tmp_path / "untargeted", plan, records)
    result = o5.run(read_runs("O5", tmp_path))
    row = rows_of(result.sheets[0])["SNR 20 dB"]
    assert [value(text) for text in row] == [0.0, 25.0, 50.0, 100.0, 125.0, 20.0, 1.0]


def test_what_is_hidden(tmp_path: Path) -> None:
    plans = plans_of("O6", ask(model="recogniser"))
    first = cell(plans["imperceptible"], "cw-asr", "linf(eps=0.1)")
    both = cell(plans["imperceptible"], "imperceptible", "linf(eps=0.1)")
    noise = cell(plans["noise"], "noise", "snr(db=30)")
    loud, soft = {"masking_share": (0.5, 1), "snr": (30, 1)}, {"masking_share": (0.1, 1), "snr": (28, 1)}
    write(
        tmp_path / "imperceptible",
        plans["imperceptible"],
        [
            record(first, 1, True, success=(1, 1), **loud),
            record(first, 2, True, success=(1, 1), masking_share=(1, 1), snr=(10, 1)),
            record(both, 1, True, success=(1, 1), **soft),
            record(both, 2, False, success=(0, 1), masking_share=(0, 1), snr=(50, 1)),
        ],
    )
    write(tmp_path / "noise", plans["noise"], [record(noise, 1, masking_share=(0.9, 1), snr=(30, 1))])
    table = rows_of(o6.run(read_runs("O6", tmp_path)).sheets[0])
    # Sizes are those of clip 1 alone: only there do both attacks win.
    assert [value(table["forced"][place]) for place in (0, 2, 3)] == [100.0, 30.0, 50.0]
    assert [value(table["forced and hidden"][place]) for place in (0, 2, 3)] == [50.0, 28.0, 10.0]
    assert value(table["white noise, SNR 30 dB"][3]) == 90.0


def test_languages(tmp_path: Path) -> None:
    plans = plans_of("O8", ask(data="prompts"))
    serbian = cell(plans["confusion"], "pgd", "snr(db=45)", "language(code=sr)")
    english = cell(plans["confusion"], "pgd", "snr(db=45)", "language(code=en)")
    quiet, louder = (cell(plans["noise"], "noise", f"snr(db={level})") for level in (45, 40))
    for_all = cell(plans["universal"], "universal-gradient", "snr(db=40)")
    write(
        tmp_path / "confusion",
        plans["confusion"],
        [
            record(serbian, 1, language="en", wer=(3, 4), success=(1, 1)),
            record(serbian, 2, language="fr", wer=(6, 4), success=(1, 1)),
            record(serbian, 3, language="fr", wer=(0, 2), success=(0, 1)),
            record(english, 1, status="skipped", reason="already says it"),
            record(english, 2, language="fr", wer=(2, 4), success=(1, 1)),
        ],
    )
    write(
        tmp_path / "noise",
        plans["noise"],
        [
            record(quiet, 1, language="en", wer=(0, 4), clean_wer=(1, 4), language_confusion=(0, 1)),
            record(quiet, 2, language="fr", wer=(1, 4), clean_wer=(2, 4), language_confusion=(1, 1)),
            record(louder, 1, language="en", wer=(4, 4)),
            record(louder, 2, language="fr", wer=(1, 4)),
        ],
    )
    write(
        tmp_path / "universal",
        plans["universal"],
        [record(for_all, 2, language="fr", wer=(3, 4), clean_wer=(1, 4), success=(1, 1))],
    )
    result = o8.run(read_runs("O8", tmp_path))
    wers, heard, universal = (rows_of(sheet) for sheet in result.sheets[:3])
    # Columns: clean, heard as en, tl, sr, white noise, clips. English is not made English.
    assert [value(text) for text in wers["en"] if text != "–"] == [25.0, 75.0, 0.0, 1.0]
    assert wers["en"][1] == wers["en"][2] == "–"
    assert [value(text) for text in wers["fr"] if text != "–"] == [50.0, 50.0, 100.0, 25.0, 1.0]
    assert value(wers["all"][3]) == 90.0
    assert [value(heard["fr"][place]) for place in (0, 2, 3)] == [100.0, 50.0, 100.0]
    # White noise is judged on the clips that the perturbation was judged on: clip 2 alone.
    assert [value(text) for text in universal["all"]] == [25.0, 75.0, 25.0, 100.0, 1.0]


def test_without_a_gradient(tmp_path: Path) -> None:
    plans = plans_of("O12", ask(model="recogniser"))
    bred, beside = (cell(plans["genetic"], name, "linf(eps=0.01)") for name in ("genetic", "noise"))
    write(
        tmp_path / "genetic",
        plans["genetic"],
        [record(bred, 1, wer=(1, 4), clean_wer=(0, 4), snr=(21, 1)), record(beside, 1, wer=(0, 4))],
    )
    removal = plans["removal"]
    names = ("noise", "kenansville", "kenansville-ssa", "yeehaw")
    write(
        tmp_path / "removal",
        removal,
        [
            record(
                cell(removal, name, "snr(db=20)"),
                clip,
                wer=(errors + clip - 1, 4),
                clean_wer=(0, 4),
                snr=(20, 1),
            )
            for errors, name in enumerate(names)
            for clip in (1, 2)
        ],
    )
    least = cell(plans["least"], "yeehaw", "snr(db=0)")
    write(
        tmp_path / "least",
        plans["least"],
        [
            record(least, 1, True, success=(1, 1), snr=(25, 1)),
            record(least, 2, False, success=(0, 1), snr=(0, 1)),
        ],
    )
    for_all = cell(plans["universal"], "universal-gradient", "snr(db=20)")
    write(tmp_path / "universal", plans["universal"], [record(for_all, 2, wer=(3, 4), clean_wer=(0, 4))])
    result = o12.run(read_runs("O12", tmp_path))
    genetic, by_size, smallest, universal = (rows_of(sheet) for sheet in result.sheets)
    assert [value(text) for text in genetic["here: recogniser, Linf 0.01"]] == [
        0.0,
        25.0,
        0.0,
        21.0,
        1.0,
    ]
    assert genetic["paper: DeepSpeech2"][:2] == ("9.44", "74.51")
    # Two clips of 4 words: 0 + 1, 1 + 2, 2 + 3, 3 + 4 errors.
    assert [value(text) for text in by_size["SNR 20 dB"]] == [0.0, 12.5, 37.5, 62.5, 87.5, 2.0]
    assert [value(text) for text in smallest["Yeehaw"]] == [50.0, 25.0, 2.0]
    assert [value(text) for text in universal["SNR 20 dB"]] == [0.0, 75.0, 25.0, 1.0]


def test_runs_of_two_models_make_no_table(tmp_path: Path) -> None:
    for name, model in (("untargeted", "whisper:tiny"), ("noise", "whisper:base")):
        plan = plans_of("O7", ask(model=model))[name]
        write(tmp_path / name, plan, [record(plan.cells()[0], 1, wer=(1, 2))])
    with pytest.raises(InputError, match=r"needs runs with the same model, got .*base.*tiny"):
        scope_of(o7.STUDY, read_runs("O7", tmp_path))


def test_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no runs of untargeted, noise, targeted"):
        read_runs("O7", tmp_path)
    with pytest.raises(InputError, match="sottovoce study run V2"):
        tabulate(v2.STUDY, tmp_path)


def test_results_of_no_records_are_no_zeros(tmp_path: Path) -> None:
    plan = plans_of("O7", ask())["untargeted"]
    write(tmp_path / "untargeted", plan, [])
    result: Result = o7.run(read_runs("O7", tmp_path))
    assert set(result.values["wer"].values()) == {None}
