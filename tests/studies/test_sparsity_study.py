"""O4: its numbers by hand, from runs that are made up, and the tables as printed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sottovoce.auditing.sparsity.sparsity_folder import SparseClip, SparsityFolder
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.sparsity import sparsity_study as module
from sottovoce.studies.olivier2023.sparsity import sparsity_tables as thesis
from sottovoce.studies.olivier2023.sparsity.sparsity_plans import BROKEN, VARIANTS, o4
from sottovoce.studies.olivier2023.sparsity.sparsity_setup import EXTRAS, RUNS, open_sparsity, read_sparsity
from sottovoce.studies.run_study import find_study, tabulate
from sottovoce.studies.study import Choice
from sottovoce.studies.study_page import scope_of

CLIPS = ("a", "b", "c", "d")


def test_what_is_run() -> None:
    mini = o4(Ask(scale="mini", model="", data="embedded"))
    assert list(mini)[:6] == ["plain", "fgsm", "pgd", "mixed", "radius-plain", "radius-pgd"]
    assert [name for name in mini if name.startswith("broken-")] == [f"broken-{name}" for name in BROKEN]
    assert mini["pgd"].model == "keyword(variant=pgd)"
    assert mini["pgd"].budgets == ("snr(db=30)", "linf(eps=0.002)")
    assert mini["radius-pgd"].budgets == tuple(f"snr(db={db})" for db in (15, 20, 25, 35, 45))
    assert mini["broken-mp3"].defenses == ("mp3(kbps=32)",)
    assert {plan.limit for name, plan in mini.items() if name != "all-clips"} == {20}
    assert {plan.directions for plan in mini.values()} == {4}
    assert o4(Ask(scale="full", model="", data="embedded"))["plain"].limit is None


def test_tables_as_printed() -> None:
    assert len(thesis.TABLE_4_1) == 14
    assert [row.l2.sparsity for row in thesis.TABLE_4_1 if row.l2][:3] == [0.18, 0.559, 0.553]
    assert [row.linf.sparsity for row in thesis.TABLE_4_1 if row.linf][-2:] == [227, 230]
    assert thesis.TABLE_4_2["FS+SPS"] == (74.5, 0.174, 86.6)
    assert (len(thesis.TABLE_4_3), thesis.TABLE_4_3["Ricap"]) == (10, (92.2, 0.272, 105))
    assert [row.sparsity for row in thesis.TABLE_B_1.values()] == [0.194, 0.426, 0.415]


def test_the_equal_error_rate_by_hand() -> None:
    # From 5 on lie three of four that are right and one of four that are wrong: 25 % either way.
    scores, right = [1, 2, 3, 4, 5, 6, 7, 8], [False, False, True, False, True, False, True, True]
    found = module.predict(scores, right)
    assert found == {"clips": 8, "right": 4, "precision": 0.75, "error": 0.25, "area": 13 / 16}
    assert module.predict([1.0, 2.0], [True, True])["area"] is None
    assert module.predict([1.0, 1.0], [True, False])["area"] == 0.5


def test_rank_correlation() -> None:
    assert module.rank_correlation([(1, 10), (2, 20), (3, 15), (4, 90)]) == pytest.approx(0.8)
    assert module.rank_correlation([(1, 1), (2, 2)]) is None
    assert module.rank_correlation([(1, 1), (1, 2), (1, 3), (1, 4)]) is None


def clip(cell: str, name: str, size: float | None, eps: float = 1.0) -> SparseClip:
    norm = "linf" if cell.startswith(("linf", "mp3-kbps-32_linf")) else "l2"
    sizes = () if size is None else (0.9 * size, 1.1 * size)
    return SparseClip(
        cell=cell, clip=name, status="ok", right=True, fooled=size is not None, sparsity=size, sizes=sizes,
        dimensions=100, norm=norm, eps=eps, passes=200, at_once=0,
    )  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Runs of the plain model and of one hardened, behind MP3, and at other radii."""
    plans = o4(Ask(scale="mini", model="", data="embedded"))
    sizes: dict[str, dict[str, list[float | None]]] = {
        "plain": {"snr-db-30": [0.1, 0.2, 0.3, 0.4], "linf-eps-0.002": [10, 20, 30, 40]},
        "pgd": {"snr-db-30": [0.4, 0.5, 0.6, None], "linf-eps-0.002": [50, 60, None, None]},
        "broken-mp3": {
            "mp3-kbps-32_snr-db-30": [0.1, 0.1, 0.3, 0.4],
            "mp3-kbps-32_linf-eps-0.002": [20, 31, 40, 50],
        },
        "radius-plain": {"snr-db-15": [0.01, 0.02, 0.03, 0.04]},
        "radius-pgd": {"snr-db-15": [0.1, 0.15, 0.2, 0.2]},
        "all-clips": {"snr-db-30": [0.1, 0.2, 0.3, 0.4]},
    }
    for name, cells in sizes.items():
        folder = SparsityFolder(tmp_path / RUNS / name)
        folder.prepare(plans[name].to_yaml(), {})
        with folder.writer() as writer:
            for cell, found in cells.items():
                writer.write([clip(cell, each, size) for each, size in zip(CLIPS, found, strict=True)])
    told = {each: {"distance": 0.01 * place} for place, each in enumerate(CLIPS, start=1)}
    right = {"a": False, "b": False, "c": True, "d": True}
    hardened = {each: {"clean": True, "attacked": good} for each, good in right.items()}
    extras = {"distance-plain": told, "hardened-pgd": hardened}
    (tmp_path / EXTRAS).write_text(json.dumps(extras))
    return tmp_path


def test_what_runs_amount_to(made: Path) -> None:
    bench = read_sparsity(made)
    values = module.values_of(bench)
    # Three clips that both are fooled on, each 0.3 sparser; in L-infinity two, 40 of 100 samples.
    assert values["gain"]["pgd"][0] == pytest.approx(0.3)
    assert values["gain_linf"]["pgd"][0] == pytest.approx(0.4)
    assert values["gain"]["fgsm"] is None
    assert values["broken"]["mp3"][0] == pytest.approx(-0.025)
    assert values["broken_linf"]["mp3"][0] == pytest.approx(0.1025)
    assert values["runs"]["pgd"]["snr(db=30)"]["counted"]["value"] == pytest.approx((1.5 + math.pi) / 4)
    assert values["distance"]["plain"]["snr(db=30)"] == {
        "expected": pytest.approx(0.025, abs=1e-4), "rank": pytest.approx(1.0), "clips": 4,
    }  # fmt: skip
    assert values["prediction"]["pgd"]["attacked"]["area"] == 1.0
    assert values["prediction"]["pgd"]["clean"]["area"] is None
    assert values["prediction"]["fgsm"]["clean"]["clips"] == 0


def test_claims_are_answered(made: Path) -> None:
    bench, result, page = tabulate(find_study("o4"), made)
    claims = {row[0]: row[1:] for row in result.sheets[0].rows}
    assert claims["L2 30 dB: adversarial training (pgd) makes the model sparser (4.5.1)"][0] == "yes"
    assert claims["L2 30 dB: adversarial training (fgsm) makes the model sparser (4.5.1)"][0] == "–"
    assert claims["L2: mp3 brings no significant sparsity (4.5.2, JPEG)"][0] == "yes"
    assert claims["L-infinity: mp3 does bring some (4.5.2, JPEG)"][0] == "yes"
    # 0.1625 against 0.025.
    numbers = claims["At large radii a hardened model is over five times as sparse (4.5.4)"]
    assert numbers == ("yes", "6.5 times at SNR 15 dB")
    assert claims["Sparsity varies between trainings alike, and goes with transfer (4.7)"][0] == "–"
    tables = {sheet.title: sheet for sheet in result.sheets}
    models = tables["Hardened models against the plain one (Table 4.1)"]
    assert [row[0] for row in models.rows] == list(VARIANTS)
    assert models.rows[0][-1] == "0.180; 1.8"
    assert [one.name for one in result.drawings] == ["radius", "models", "distance"]
    scope = " ".join(scope_of(find_study("O4"), bench))
    assert "Not run: fgsm, mixed" in scope
    assert json.loads((page.parent / "results.json").read_text())["values"]["gain"]["fgsm"] is None


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    from sottovoce.errors import InputError

    with pytest.raises(InputError, match="study O4 expected a folder with sparsity of plain, fgsm"):
        read_sparsity(tmp_path)
    with pytest.raises(InputError, match="study O4 does not use --model"):
        open_sparsity(Choice(model="keyword"), tmp_path, "cpu", lambda done, note: None)


@pytest.mark.slow
def test_the_study_runs_on_two_clips(tmp_path: Path) -> None:
    bench = open_sparsity(Choice(clips=2), tmp_path / "run", "cpu", lambda done, note: None)
    assert set(bench.runs) == set(o4(Ask(scale="mini", model="", data="embedded")))
    assert bench.seconds
    assert module.run(bench).sheets[0].claims
