"""`listen new`: clips chosen from an audit, a folder, a table, pairs; the file that is written."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml
from typer.testing import CliRunner

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.cli.listen import app
from sottovoce.core.record import Record, RecordWriter
from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.study.blocks import (
    AbxBlock,
    MushraBlock,
    NamingBlock,
    PreferenceBlock,
    SameDifferentBlock,
)
from sottovoce.listening.study.clip_sources import Candidate, keep, leave_silence, read_clips, read_run
from sottovoce.listening.study.new_study import write_study
from sottovoce.listening.study.seating import exposure, lay_out
from sottovoce.listening.study.study_file import ListeningStudy, read_study

WORDS = ("yes", "no", "up", "off")


def write(path: Path, value: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(1600, value, dtype=np.int16), 16000, subtype="PCM_16")


def write_run(
    folder: Path, clips: int = 24, cells: tuple[str, ...] = ("pgd_20", "pgd_40"), **changes: Any
) -> Path:
    """A run of `clips` clips: the words in turn, levels in turn after each round of words."""
    folder.mkdir()
    (folder / "plan.yaml").write_text(make_plan({}).to_yaml())
    records = []
    for cell in cells:
        for number in range(clips):
            name = f"{WORDS[number % 4]}/{number}"
            level = ("low", "medium", "high")[number // 4 % 3]
            for kind in ("clean", cell):
                write(folder / "audio" / kind / f"{name}.flac", 100 + number)
            record = {
                "cell": cell,
                "clip": name,
                "status": "ok",
                "label": WORDS[number % 4],
                "clean_text": WORDS[number % 4],
                "adversarial_text": "unknown",
                "achieved": True,
                "facts": {"intensity": level},
                "parts": {"snr": [float(cell.split("_")[1]), 1.0], "pesq": [math.nan, 1.0]},
                "audio": {"clean": f"audio/clean/{name}.flac", "adversarial": f"audio/{cell}/{name}.flac"},
            }
            records.append(Record(**{**record, **changes}))  # type: ignore[arg-type]
    with RecordWriter(folder / "trials.jsonl") as writer:
        writer.write(records)
    return folder


def run_new(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["new", *map(str, arguments)] if _several() else [*map(str, arguments)])


def _several() -> bool:
    """With one command alone Typer takes no name for it."""
    return len(app.registered_commands) > 1


def new(tmp_path: Path, *arguments: Any) -> ListeningStudy:
    result = run_new(tmp_path / "study.yaml", *arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return read_study(tmp_path / "study.yaml")


def test_an_abx_from_an_audit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    study = new(tmp_path, "--from", run, "--limit", 12)
    block = study.blocks[0]
    assert isinstance(block, AbxBlock)
    assert len(block.items) == 12
    clips = [study.clips[key] for key in block.items]
    # 4 words and 3 levels, 12 items: every word three times, every level four times, no clip twice.
    assert Counter(clip.label for clip in clips) == dict.fromkeys(WORDS, 3)
    assert Counter(clip.level for clip in clips) == dict.fromkeys(("low", "medium", "high"), 4)
    assert len({clip.reference for clip in clips}) == 12
    assert Counter(clip.facts["cell"] for clip in clips) == {"pgd_20": 6, "pgd_40": 6}
    assert Counter(clip.condition for clip in clips) == {"pgd_20": 6, "pgd_40": 6}
    for key in block.items:
        changed = study.clips[key]
        clean = study.clips[str(changed.reference)]
        assert clean.condition == "clean"
        assert Path(changed.path).parent.name == "study-clips"
        np.testing.assert_array_equal(soundfile.read(changed.path)[0], soundfile.read(clean.path)[0])
    assert set(exposure(study).values()) == {18}


def test_silence_is_left_out_and_told_of(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clips=8, cells=("pgd_20",))
    records = read_run(run)
    labels = ["silence", "_silence_", "", *(one.label for one in records[3:])]
    silent = [replace(one, label=label) for one, label in zip(records, labels, strict=True)]
    kept, dropped = leave_silence(silent)
    assert ([one.clip for one in kept], dropped) == ([one.clip for one in records[3:]], 3)
    # Where nothing has a label, nothing is known of it.
    assert leave_silence([replace(one, label="") for one in records]) == (
        [replace(one, label="") for one in records],
        0,
    )


def test_a_run_with_silence_in_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clips=4, cells=("pgd_20",))
    lines = (run / "trials.jsonl").read_text().replace('"label":"up"', '"label":"silence"')
    (run / "trials.jsonl").write_text(lines.replace('"label": "up"', '"label": "silence"'))
    result = run_new(tmp_path / "study.yaml", "--from", run)
    assert result.exit_code == 0, result.output
    assert "left out 1 clips of the class silence" in " ".join(result.output.split())
    study = read_study(tmp_path / "study.yaml")
    assert {clip.label for clip in study.clips.values()} == {"yes", "no", "off"}
    # Whoever asks for them gets them.
    asked = new(tmp_path / "asked", "--from", run, "--where", "class=silence")
    assert {clip.label for clip in asked.clips.values()} == {"silence"}


def test_an_anchor_that_nobody_hears_is_told_of(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clips=4)
    result = run_new(tmp_path / "study.yaml", "--from", run, "--test", "mushra")
    assert result.exit_code == 0, result.output
    assert "clips at 16 kHz: the 7 kHz anchor sounds almost like the reference" in " ".join(
        result.output.split()
    )


def test_the_folder_can_be_moved(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "here").mkdir()
    before = new(tmp_path / "here", "--from", run)
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "run").rename(tmp_path / "gone")
    after = read_study(tmp_path / "there" / "study.yaml")
    assert after.digest == before.digest
    assert all(Path(clip.path).is_file() for clip in after.clips.values())


def test_the_same_seed_chooses_the_same(tmp_path: Path) -> None:
    found = read_run(write_run(tmp_path / "run"))
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = tmp_path / name
        write_study(folder / "study.yaml", found, "abx", limit=6, seed=seed)
        texts.append((folder / "study.yaml").read_text())
    assert texts[0] == texts[1]
    assert yaml.safe_load(texts[0])["blocks"] != yaml.safe_load(texts[2])["blocks"]


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (["level=high"], 16),
        (["class=yes"], 12),
        (["snr>=30"], 24),
        (["snr<30", "level!=low"], 16),
        (["cell=pgd_20", "label=off"], 6),
        (["success=yes"], 48),
        (["snr=20"], 24),
    ],
)
def test_where(tmp_path: Path, conditions: list[str], count: int) -> None:
    assert len(keep(read_run(write_run(tmp_path / "run")), conditions)) == count


def test_where_it_goes_wrong(tmp_path: Path) -> None:
    found = read_run(write_run(tmp_path / "run"))
    with pytest.raises(UnknownName, match="unknown fact or figure 'levle': did you mean 'level'"):
        keep(found, ["levle=high"])
    with pytest.raises(InputError, match="expected --where with a condition such as"):
        keep(found, ["high"])
    with pytest.raises(InputError, match="none of 48 clips"):
        keep(found, ["level=loud"])
    with pytest.raises(InputError, match="compares numbers, got"):
        keep(found, ["level>3"])
    with pytest.raises(UnknownName, match="unknown fact or figure 'sno': did you mean 'snr'"):
        read_run(tmp_path / "run", "sno")


def test_levels_by_a_figure(tmp_path: Path) -> None:
    study = new(tmp_path, "--from", write_run(tmp_path / "run"), "--level", "snr", "--limit", 4)
    assert Counter(study.clips[key].level for key in study.blocks[0].items) == {"20": 2, "40": 2}


def test_the_published_experiment(tmp_path: Path) -> None:
    """54 clips a level: all different. 162 clips, the words in turn."""
    study = new(tmp_path, "--from", write_run(tmp_path / "run", clips=168, cells=("pgd_30",)), "--test", "v6")
    assert study.preset == "v6" and study.seats == 18
    naming, abx = study.blocks
    assert isinstance(naming, NamingBlock) and isinstance(abx, AbxBlock)
    assert naming.choices == ["no", "off", "up", "yes"]
    # Table 3: experiments 1 to 9.
    clean = [sum(study.clips[key].condition == "clean" for key in keys) for keys in naming.sets.values()]
    assert clean == [6, 6, 5, 6, 6, 7, 6, 6, 7]
    # The paper has one condition beside the clean one, whatever attack made it.
    assert {clip.condition for clip in study.clips.values()} == {"clean", "adversarial"}
    assert [len(keys) for keys in naming.sets.values()] == [12] * 9
    assert [len(keys) for keys in abx.sets.values()] == [6] * 9
    for name, keys in naming.sets.items():
        sources = {study.clips[key].reference or key for key in keys}
        assert len(sources) == 12
        assert {study.clips[key].level for key in keys} == {name.split("-")[0]}
        assert Counter(study.clips[key].label for key in keys) == dict.fromkeys(WORDS, 3)
        assert not sources & {study.clips[key].reference for key in abx.sets[name]}
    heard = Counter(trial.test for seat in range(18) for trial in lay_out(study, seat))
    assert heard == {"naming": 216, "abx": 108}


def test_the_published_experiment_with_few_clips(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clips=27, cells=("pgd_30",))
    result = run_new(tmp_path / "study.yaml", "--from", run, "--test", "v6")
    assert result.exit_code == 0
    assert "note: level high: 8 clips for 12 places" in result.output.replace("\n", " ")
    short = write_run(tmp_path / "short", clips=20, cells=("pgd_30",))
    with pytest.raises(InputError, match=r"preset v6 needs at least 7 successful clips of level .*, got 4"):
        new(tmp_path, "--from", short, "--test", "v6", "--force")


def test_the_published_experiment_wants_attacks_that_work(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", achieved=False)
    with pytest.raises(InputError, match="none of 48 clips meets --where right=yes and success=yes"):
        new(tmp_path, "--from", run, "--test", "v6")


def test_other_tests_from_an_audit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    study = new(tmp_path, "--from", run, "--test", "mushra", "--limit", 3)
    block = study.blocks[0]
    assert isinstance(block, MushraBlock)
    assert len(block.items) == 3
    for rack in block.items:
        assert [study.clips[key].condition for key in rack.clips] == ["pgd_20", "pgd_40"]
        assert {study.clips[key].reference for key in rack.clips} == {rack.reference}
    study = new(tmp_path, "--from", run, "--test", "same-different", "--direction", "white", "--force")
    searches = study.blocks[0]
    assert isinstance(searches, SameDifferentBlock)
    assert {track.direction for track in searches.items} == {"white"}
    # 30 comparisons = 3 references x 10, 6 of them sentinels, and 2 teaching trials.
    assert len(lay_out(study, 0)) == 32
    assert sum(trial.sentinel for trial in lay_out(study, 0)) == 6
    study = new(tmp_path, "--from", run, "--test", "closer", "--limit", 5, "--force")
    for pair in study.blocks[0].items:
        assert study.clips[pair.a].reference == study.clips[pair.b].reference == pair.reference
    study = new(tmp_path, "--from", run, "--test", "naming", "--limit", 8, "--force")
    conditions = Counter(study.clips[key].condition for key in study.blocks[0].items)
    assert conditions == {"clean": 4, "pgd_20": 2, "pgd_40": 2}


def test_pairs_with_their_key(tmp_path: Path) -> None:
    """As exported for an A/B test of denoisers: names that say nothing, and a key beside them."""
    for name in ("r1", "x1", "y1", "r2", "x2", "y2"):
        write(tmp_path / "pairs" / "audio" / f"{name}.wav")
    (tmp_path / "pairs" / "pairs.csv").write_text("pair,reference,a,b\np1,r1,x1,y1\np2,r2,y2,x2\n")
    (tmp_path / "pairs" / "key.csv").write_text(
        "pair,clip,snr_db,noise,a_system,b_system\np1,c1,0,rain,ours,wiener\np2,c2,5,hum,wiener,ours\n"
    )
    study = new(tmp_path, "--clips", tmp_path / "pairs", "--test", "preference")
    block = study.blocks[0]
    assert isinstance(block, PreferenceBlock)
    assert len(block.items) == 2 and len(study.clips) == 4
    for pair in block.items:
        assert {study.clips[pair.a].condition, study.clips[pair.b].condition} == {"ours", "wiener"}
    assert {clip.level for clip in study.clips.values()} == {"0", "5"}
    study = new(tmp_path, "--clips", tmp_path / "pairs" / "pairs.csv", "--test", "closer", "--force")
    assert len(study.clips) == 6
    with pytest.raises(InputError, match="pairs to compare need --test preference or --test closer"):
        new(tmp_path, "--clips", tmp_path / "pairs", "--test", "abx", "--force")
    with pytest.raises(InputError, match="--where does not work with pairs"):
        new(tmp_path, "--clips", tmp_path / "pairs", "--test", "closer", "--where", "level=0", "--force")


def test_folders_of_conditions(tmp_path: Path) -> None:
    for condition in ("clean", "mp3", "noisy"):
        for name in ("a", "b"):
            write(tmp_path / "clips" / condition / f"{name}.wav")
    study = new(tmp_path, "--clips", tmp_path / "clips", "--test", "mushra")
    assert {clip.condition for clip in study.clips.values()} == {"clean", "mp3", "noisy"}
    write(tmp_path / "clips" / "mp3" / "c.wav")
    with pytest.raises(InputError, match=r"expected a clip of the same name in clean/"):
        read_clips(tmp_path / "clips")


def test_conditions_of_folders_stay_apart(tmp_path: Path) -> None:
    """Two words in two conditions: each condition has rows of its own in results."""
    for condition in ("clean", "mild", "harsh"):
        for word in ("yes", "no"):
            write(tmp_path / "clips" / condition / word / "1.wav")
    study = new(tmp_path, "--clips", tmp_path / "clips", "--test", "abx")
    conditions = Counter(study.clips[key].condition for key in study.blocks[0].items)
    assert conditions == {"mild": 2, "harsh": 2}
    study = new(tmp_path, "--clips", tmp_path / "clips", "--test", "naming", "--force")
    conditions = Counter(study.clips[key].condition for key in study.blocks[0].items)
    assert conditions == {"clean": 2, "mild": 2, "harsh": 2}


def test_class_folders_and_loose_files(tmp_path: Path) -> None:
    for word in ("yes", "no"):
        write(tmp_path / "words" / word / "1.wav")
    study = new(tmp_path, "--clips", tmp_path / "words", "--test", "naming")
    assert study.blocks[0].choices == ["no", "yes"]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="expected a changed version to compare it with"):
        new(tmp_path, "--clips", tmp_path / "words", "--test", "abx", "--force")
    write(tmp_path / "loose" / "one.wav")
    found = read_clips(tmp_path / "loose")
    assert [one.clip for one in found if isinstance(one, Candidate)] == ["one"]


def test_a_table(tmp_path: Path) -> None:
    for name in ("clean", "bad"):
        write(tmp_path / f"{name}.wav")
    table = tmp_path / "clips.csv"
    table.write_text("path,reference,condition,level,label,speaker\nbad.wav,clean.wav,mp3,20,yes,anna\n")
    study = new(tmp_path, "--clips", table)
    (key,) = study.blocks[0].items
    assert study.clips[key].reference == "clean"
    assert study.clips[key].level == "20"
    assert study.clips[key].facts == {"speaker": "anna"}
    table.write_text("file\nbad.wav\n")
    with pytest.raises(
        InputError, match="expected a column path, or the columns reference, a and b, got file"
    ):
        read_clips(table)
    table.write_text("path\nnone.wav\n")
    with pytest.raises(InputError, match=r"got none for 'none.wav'"):
        read_clips(table)


def test_mistakes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clips=4)
    with pytest.raises(InputError, match="give either --from RUN or --clips FOLDER"):
        new(tmp_path)
    with pytest.raises(UnknownName, match="unknown test 'abc': did you mean 'abx'"):
        new(tmp_path, "--from", run, "--test", "abc")
    with pytest.raises(InputError, match=r"expected a file name that ends in \.yaml"):
        write_study(tmp_path / "study.txt", read_run(run), "abx")
    with pytest.raises(InputError, match="is not the folder of a run"):
        new(tmp_path, "--from", tmp_path / "none")
    with pytest.raises(InputError, match="--test v6 needs the clips of an audit"):
        new(tmp_path, "--clips", tmp_path, "--test", "v6")
    new(tmp_path, "--from", run)
    with pytest.raises(InputError, match="exists already; choose another name"):
        new(tmp_path, "--from", run)
    (run / "audio" / "pgd_20" / "yes" / "0.flac").unlink()
    with pytest.raises(InputError, match="the audio file of a clip is missing; run the audit again"):
        new(tmp_path, "--from", run, "--where", "cell=pgd_20", "--force")
    # What was there is still there.
    assert read_study(tmp_path / "study.yaml").blocks[0].test == "abx"


def test_own_recordings_are_not_replaced(tmp_path: Path) -> None:
    """The folder for the copies may be the one that the clips lie in, or somebody's own."""
    own = tmp_path / "study-clips" / "clean" / "a.wav"
    write(own)
    write(tmp_path / "study-clips" / "loud" / "a.wav")
    with pytest.raises(InputError, match="this clip lies in study-clips"):
        new(tmp_path, "--clips", tmp_path / "study-clips", "--force")
    run = write_run(tmp_path / "run", clips=4)
    with pytest.raises(InputError, match=r"--force replaces only clips of study\.yaml, but there is a"):
        new(tmp_path, "--from", run, "--force")
    assert own.is_file() and not (tmp_path / "study.yaml").exists()


def test_force_replaces_copies_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clips=4)
    new(tmp_path, "--from", run)
    study = new(tmp_path, "--from", run, "--test", "same-different", "--force")
    there = sorted(path.name for path in (tmp_path / "study-clips").iterdir())
    assert there == sorted(Path(clip.path).name for clip in study.clips.values())
    assert there == ["no-1.flac", "off-3.flac", "up-2.flac", "yes-0.flac"]
    write(tmp_path / "study-clips" / "mine.wav")
    with pytest.raises(InputError, match=r"but there is mine\.wav; move it away"):
        new(tmp_path, "--from", run, "--force")
    assert (tmp_path / "study-clips" / "mine.wav").is_file()
    assert read_study(tmp_path / "study.yaml").blocks[0].test == "same-different"


def test_a_study_that_cannot_be_run_leaves_nothing(tmp_path: Path) -> None:
    for condition in ("clean", "loud"):
        path = tmp_path / "clips" / condition / "a.wav"
        path.parent.mkdir(parents=True)
        soundfile.write(path, np.full(800, 100, dtype=np.int16), 8000, subtype="PCM_16")
    with pytest.raises(InputError, match="expected anchors of at most 3500 Hz"):
        new(tmp_path, "--clips", tmp_path / "clips", "--test", "mushra")
    assert [path.name for path in tmp_path.iterdir()] == ["clips"]
    new(tmp_path, "--clips", tmp_path / "clips", "--test", "abx")
    with pytest.raises(InputError, match="expected anchors of at most 3500 Hz"):
        new(tmp_path, "--clips", tmp_path / "clips", "--test", "mushra", "--force")
    assert read_study(tmp_path / "study.yaml").blocks[0].test == "abx"


def test_the_file_teaches(tmp_path: Path) -> None:
    """Every entry of a study is in it, most with a comment, and what is commented out can be put in."""
    new(tmp_path, "--from", write_run(tmp_path / "run", clips=4))
    text = (tmp_path / "study.yaml").read_text()
    for entry in ListeningStudy.model_fields:
        assert entry == "preset" or f"\n{entry}:" in text or f"\n# {entry}:" in text
    lines = [
        line[2:] if line.startswith(("# completion:", "#   code", "#   screened", "#   link")) else line
        for line in text.splitlines()
    ]
    (tmp_path / "study.yaml").write_text("\n".join(lines))
    study = read_study(tmp_path / "study.yaml")
    assert study.completion is not None and study.completion.code == "C1A2B3C4"
