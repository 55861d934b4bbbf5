"""Examples of a run tried again: the same sounds, on the same clips, beside noise that is as loud."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.attacks.replay import saved_perturbations
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.main import app
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part
from sottovoce.report.shown_words import attack_title

CELL = "pgd-steps-20_evade_snr-db-3"


@pytest.fixture
def made(mean_model: str, mean_clips: Path) -> sv.Run:
    """Six clips of the model of the mean, fooled at -3 dB and at 3 dB by what is saved."""
    return sv.audit(
        mean_model,
        "clips",
        attacks="noise,pgd(steps=20)",
        snr=[-3, 3],
        probe=0,
        out="made",
        metrics="success,snr",
    )


def test_the_model_itself_is_fooled_by_the_same_clips(made: sv.Run, mean_model: str) -> None:
    again = sv.audit(mean_model, examples="made", out="again", metrics="success,snr")
    ours = {(record.cell, record.clip): record for record in RunFolder(Path("made")).records()}
    theirs = [record for record in RunFolder(Path("again")).records() if record.cell.startswith("replay-run")]
    cells = {"pgd-steps-20_evade_snr-db--3", CELL}
    assert len(theirs) == 12 == sum(cell in cells for cell, _ in ours)
    for record in theirs:
        twin = ours[f"pgd-steps-20_evade_{record.cell.rpartition('_')[2]}", record.clip]
        assert (record.adversarial_text, record.achieved, record.label) == (
            twin.adversarial_text, twin.achieved, twin.label,
        )  # fmt: skip
        sounds = [soundfile.read(folder / each.audio["adversarial"], dtype="int16")[0]
                  for folder, each in ((Path("made"), twin), (Path("again"), record))]  # fmt: skip
        assert np.array_equal(*sounds)
    assert [row["attack"] for row in again.summary() if row["metric"] == "success"][:2] == [
        "replay-noise(run=made, cell=pgd-steps-20_evade_snr-db--3)",
        "replay(run=made, cell=pgd-steps-20_evade_snr-db--3)",
    ]


def test_noise_is_as_loud_as_each_example(made: sv.Run, mean_model: str) -> None:
    sv.audit(mean_model, examples="made", out="again", metrics="success,snr")
    rows = {(record.cell, record.clip): record.parts["snr"] for record in RunFolder(Path("again")).records()}
    pairs = [
        (rows[cell, clip], rows[cell.replace("replay-noise", "replay"), clip])
        for cell, clip in rows
        if cell.startswith("replay-noise")
    ]
    assert len(pairs) == 12
    # Rounding to 16 bits changes the level of a loud perturbation by much less than a hundredth of a decibel.
    for noise, example in pairs:
        assert noise[0] == pytest.approx(example[0], abs=0.05)


def test_the_clips_of_a_run_are_a_corpus(made: sv.Run, mean_model: str) -> None:
    clips = sv.open_data("run:made", model=mean_model)
    before = sv.open_data("clips", model=mean_model)
    assert sorted(clip.id for clip in clips) == sorted(clip.id for clip in before)
    by_id = {clip.id: clip for clip in before}
    assert all(torch.equal(clip.waveform, by_id[clip.id].waveform) for clip in clips)
    assert all(clip.label == by_id[clip.id].label for clip in clips)
    added = saved_perturbations("made", CELL, clips.batch())
    snr = 10.0 * (clips.batch().waveforms.square().sum(1) / added.square().sum(1)).log10()
    assert float(snr.min()) >= 3.0


@pytest.mark.parametrize(
    "part, title",
    [
        ("replay(run=r, cell=cw-asr-steps-9_force-text-stop_snr-db-10)", "examples of cw-asr-steps-9"),
        ("replay-noise(run=r, cell=pgd_evade_snr-db-3)", "noise as loud as pgd"),
        ("replay(run=r, cell=quantise-bits-8_pgd_evade_snr-db-3)", "examples of quantise-bits-8 pgd"),
        ("replay(run=r, cell=mp3_pgd_evade_snr-db-3_transfer)", "examples of mp3 pgd, transferred"),
        ("replay(run=r, cell=odd)", "examples of odd"),
        ("pgd(steps=9)", "pgd(steps=9)"),
    ],
)
def test_titles_by_hand(part: str, title: str) -> None:
    assert attack_title(Part.parse(part)) == title


def test_budgets_share_a_row_in_the_terminal(made: sv.Run, mean_model: str) -> None:
    done = CliRunner().invoke(
        app, ["audit", "--examples", "made", "--model", mean_model, "--metrics", "success"]
    )
    rows = [line.split() for line in done.output.splitlines() if line.startswith((" examples", " noise as"))]
    assert [row[:-4] for row in rows] == [
        ["noise", "as", "loud", "as", "pgd-steps-20"], ["examples", "of", "pgd-steps-20"],
    ]  # fmt: skip
    # Five clips are heard right, and their nearest mistake is at 0 dB: all of them at -3 dB and none at 3 dB,
    # with the ends of Clopper-Pearson for five, 0.478 and 0.522.
    assert rows[1][-4:] == ["100", "[48,100]", "0", "[0,52]"]


def test_another_length_and_another_cell_are_told(made: sv.Run) -> None:
    clip = sv.AudioBatch.of([[0.5] * 7], sample_rate=8000, ids=["up/0"])
    with pytest.raises(InputError, match="with 7 samples, as the clip has, got"):
        saved_perturbations("made", CELL, clip)
    with pytest.raises(
        InputError, match="cells that have some: noise_evade_snr-db--3, noise_evade_snr-db-3, pgd"
    ):
        saved_perturbations("made", "pgd", clip)
    with pytest.raises(InputError, match="has no saved example of clip 'other'"):
        saved_perturbations("made", CELL, sv.AudioBatch.of([[0.5] * 7], sample_rate=8000, ids=["other"]))
    with pytest.raises(InputError, match="expected the folder of a run, got none"):
        saved_perturbations("nowhere", CELL, clip)


def test_what_comes_with_the_examples_cannot_be_chosen(made: sv.Run, mean_model: str) -> None:
    words = ["audit", "--examples", "made", "--model", mean_model]
    for more, told in (
        (["--attacks", "pgd"], "got attacks beside"),
        (["--data", "clips"], "got data beside"),
    ):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code != 0 and told in str(done.exception)
    sv.audit(
        mean_model, "clips", attacks="pgd", snr=3, probe=0, out="silent", metrics="success", audio="none"
    )
    with pytest.raises(InputError, match="expected saved examples of cell"):
        sv.audit(mean_model, examples="silent")
    with pytest.raises(InputError, match="expected saved clips, got none"):
        sv.open_data("run:silent", model=mean_model)


def test_examples_meet_a_defense(made: sv.Run, mean_model: str) -> None:
    sv.audit(mean_model, examples="made", defenses="none,quantise(bits=2)", out="again", metrics="success")
    cells = {record.cell for record in RunFolder(Path("again")).records()}
    assert len(cells) == 8 and sum("quantise" in cell for cell in cells) == 4
