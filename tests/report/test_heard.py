"""The report's answer to "would anyone hear it?", on a run of a few lines."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record
from sottovoce.report.report_page import write_report

NAN = math.nan
ABOUT = {
    "run": "abc123",
    "started": "2025-01-02T03:04:05+00:00",
    "device": "cpu",
    "machine": "Linux x86_64, 2 threads",
    "versions": {"sottovoce": "0.1.0", "torch": "2.13.0"},
}
WEIGHTS = "expected weights of the learned ear, got no such file"
LOUD, SOFT, NOISE = "pgd_evade_snr-db-20", "pgd_evade_snr-db-40", "noise_evade_snr-db-20"


def written(path: Path, heard: dict[str, list[float]], **settings: object) -> str:
    """The page of a run of clips a, b, c, d: pgd fools all four at 20 dB, a and b at 40 dB, noise none.

    heard: the values of p-heard and p-heard-masking in each of the three cells in turn.
    """
    folder = RunFolder(path)
    plan = {"attacks": ["noise", "pgd"], "budgets": ["snr(db=20)", "snr(db=40)"], "probe": 0, **settings}
    folder.prepare(make_plan(plan), ABOUT)
    fooled = {LOUD: "abcd", SOFT: "ab", NOISE: ""}
    with folder.writer() as writer:
        for place, (cell, clips) in enumerate(fooled.items()):
            for row, clip in enumerate("abcd"):
                parts = {"success": [float(clip in clips), 1.0], "clean-accuracy": [1.0, 1.0]}
                unscored = {}
                for name, values in heard.items():
                    value = values[4 * place + row]
                    parts[name] = [value, 1.0 if value == value else NAN]
                    unscored |= {name: WEIGHTS} if value != value else {}
                writer.write([Record(cell=cell, clip=clip, status="ok", parts=parts, unscored=unscored)])
    return write_report(folder).read_text(encoding="utf-8")


def words(page: str) -> str:
    page = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).replace("\N{NO-BREAK SPACE}", " ").split())


LEARNED = [0.9, 0.2, 0.6, 0.3] + [0.1, 0.3, 0.1, 0.1] + [0.5] * 4


def test_the_sentence_of_the_first_screen(tmp_path: Path) -> None:
    """The smallest P(heard) of a success: a 0.1, b 0.2, c 0.6, d 0.3. Two of four are below 0.25."""
    text = words(written(tmp_path, {"p-heard": LEARNED}))
    assert (
        "2 of 4 clips can be fooled with a perturbation that fewer than one in four attentive listeners "
        "would notice: 50 % [6.8, 93.2] (learned metric, trained on simulated listeners)."
    ) in text
    assert text.index("2 of 4 clips") < text.index("What is claimed")
    assert "P(heard) is a prediction by a model of hearing (learned metric, trained on simulated" in text
    assert "did not judge" not in text


def test_the_curve(tmp_path: Path) -> None:
    page = written(tmp_path, {"p-heard": LEARNED})
    (block,) = re.findall(r'data-chart="heard-0">(.*?)</script>', page, flags=re.DOTALL)
    spec = json.loads(block)
    rows = spec["data"]["values"]
    points = {(row["p"], row["share"]) for row in rows if row.get("attack") == "pgd"}
    assert points == {(0.0, 0.0), (0.1, 0.25), (0.2, 0.5), (0.3, 0.75), (0.6, 1.0), (1.0, 1.0)}
    noise = {(row["p"], row["share"]) for row in rows if row.get("attack") == "white noise"}
    assert noise == {(0.0, 0.0), (1.0, 0.0)}
    assert "trained on simulated listeners" in spec["description"]


def test_the_table(tmp_path: Path) -> None:
    """At 20 dB pgd is heard with 0.5 in the mean, and two of its four successes are below one half; at 40 dB
    both are."""
    page = written(tmp_path, {"p-heard": LEARNED, "p-heard-masking": [0.9] * 12})
    section = words(page[page.index('<section id="heard">') : page.index('<section id="setup">')])
    assert "P(heard), masking model" in section
    row = r"pgd SNR 20 dB 100 % \[[^]]+\] 50 % \[[^]]+\] 50 % \[6\.8, 93\.2\] 90 % \[[^]]+\]"
    assert re.search(row, section)
    assert re.search(r"SNR 40 dB 50 % \[[^]]+\] 15 % \[[^]]+\] 100 % \[15\.8, 100\.0\]", section)


def test_without_weights_the_masking_model_speaks_and_the_reason_is_given_once(tmp_path: Path) -> None:
    text = words(written(tmp_path, {"p-heard": [NAN] * 12, "p-heard-masking": LEARNED}))
    assert "(psychoacoustic masking model, not tested with listeners)." in text
    assert text.count(WEIGHTS) == 1
    assert "simulated" not in text


def test_without_any_ear_it_says_so(tmp_path: Path) -> None:
    text = words(written(tmp_path, {"p-heard": [NAN] * 12}))
    assert "Success against P(heard) is not known in this run." in text
    assert text.count(WEIGHTS) == 1
    assert "can be fooled" not in text


def test_a_run_that_did_not_ask_says_nothing(tmp_path: Path) -> None:
    text = words(written(tmp_path, {}))
    assert "P(heard)" not in text
    assert "Would anyone hear it?" not in text


def test_ears_that_disagree_are_a_doubt(tmp_path: Path) -> None:
    """Below 0.25 the learned ear hears b at 20 dB, and a, c and d at 40 dB; the masking model hears all.
    Cells of white noise are not asked."""
    text = words(written(tmp_path, {"p-heard": LEARNED, "p-heard-masking": [0.9] * 12}))
    assert "Two ears disagree in 2 of 2 cells" in text
    assert "of 4 clips 3 are heard by the masking model alone, 0 by the learned ear alone" in text
