"""Training runs of moments: what they learn, what they write, and how they go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from sottovoce.core.budget import LInf
from sottovoce.core.draws import Draws
from sottovoce.errors import GradientError, InputError, MissingExtra, ScoreError, UnknownName
from sottovoce.testing import check_transform
from sottovoce.training import loop
from sottovoce.training.hardening import AdversarialShare, Hardening, make_adversary, make_noise, pick
from sottovoce.training.learner import ClassLearner
from sottovoce.training.loop import fit
from sottovoce.training.recipe import TrainingRecipe, learning_rate
from sottovoce.training.recogniser.word_strings import ItemBank
from sottovoce.training.sources import ClipsInMemory, ClipSource, Jitter, StringSource, hold_clips
from sottovoce.training.validation_figures import score

MakeLearner = Callable[..., ClassLearner]
MakeClips = Callable[..., ClipsInMemory]
QUICK = TrainingRecipe(epochs=4, batch_size=16, learning_rate=0.05, warm_up_steps=4)
ATTACK = make_adversary("pgd", LInf(0.1), steps=4)


def quiet(line: str) -> None:
    return None


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def test_the_learning_rate_by_hand() -> None:
    recipe = TrainingRecipe(learning_rate=0.1, warm_up_steps=10)
    # Half risen; at the top; a cosine of 60 degrees; over.
    wanted = [0.05, 0.1, 0.075, 0.0]
    got = [learning_rate(recipe, step, spent) for step, spent in ((5, 0), (10, 0), (99, 1 / 3), (99, 1))]
    assert got == pytest.approx(wanted)


def test_scores_by_hand() -> None:
    assert score(["a", "b", "c"], ["a", "b", "b"], "class").value == pytest.approx(2 / 3)
    # One word of five wrong, one too many; case does not count.
    heard = score(["go LEFT now", "stop it"], ["go left", "stop at the"], "words")
    assert heard.value == pytest.approx(3 / 5)


def test_adversarial_training_makes_a_toy_problem_robust(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    """Plain training leans on the fifteen small samples, which the attack turns over."""
    train, valid = make_clips(320, 0), make_clips(200, 1)
    recipe = TrainingRecipe(epochs=8, batch_size=32, learning_rate=0.3, warm_up_steps=5, check_epochs=8)
    hard = Hardening(adversary=ATTACK)
    plain, robust = make_learner(), make_learner()
    fit(plain, ClipSource(train), valid, out=tmp_path / "plain", recipe=recipe, log=quiet)
    report = fit(
        robust, ClipSource(train), valid, out=tmp_path / "robust", recipe=recipe, hardening=hard, log=quiet
    )
    judge = loop.Validator(clips=valid, hardening=hard, size=64)
    fooled, held = judge(plain.target()), judge(robust.target())
    assert fooled["clean"].value > 0.97
    assert fooled["attacked"].value < 0.5
    assert held["attacked"].value > 0.8
    assert held["clean"].value > 0.85
    assert report.valid["attacked"].value == held["attacked"].value
    assert report.watched == "attacked"


def harden(share: str = "0.5,0.8") -> Hardening:
    adversary = make_adversary("pgd", LInf(0.1), steps=2, share=AdversarialShare.parse(share))
    return Hardening(noise=make_noise("gaussian", "0:0.02"), adversary=adversary)


class Killed(Exception):
    pass


def test_a_run_that_was_killed_ends_where_it_would_have_ended(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    """With dropout, noise, an adversary, an average and a shuffled order: all that is random."""
    recipe = TrainingRecipe(epochs=4, batch_size=16, learning_rate=0.05, average_decay=0.9)
    train, valid = ClipSource(make_clips(60, 0), Jitter()), make_clips(30, 1)
    lines: list[str] = []

    def run(folder: str, log: Callable[[str], None], resume: bool) -> None:
        fit(
            make_learner(dropout=0.3),
            train,
            valid,
            out=tmp_path / folder,
            recipe=recipe,
            hardening=harden(),
            resume=resume,
            log=log,
        )

    def kill(line: str) -> None:
        if line.startswith("epoch 2"):
            raise Killed

    run("whole", lines.append, False)
    with pytest.raises(Killed):
        run("halves", kill, False)
    torch.rand(7)
    run("halves", lines.append, True)
    assert any(line.startswith("continuing after epoch 2") for line in lines)
    whole, halves = weights_in(tmp_path / "whole"), weights_in(tmp_path / "halves")
    assert all(torch.equal(whole[name], halves[name]) for name in whole)
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "halves")]
    for report in reports:
        del report["seconds"]
    assert reports[0] == reports[1]
    assert [row["share"] for row in reports[0]["history"]] == [0.5, 0.5, 0.8, 0.8]


def test_shares_change_inside_an_epoch(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One epoch of 40 clips in batches of 10: half of the first two are attacked, four fifths of the rest."""
    picked: list[int] = []

    def watch(clips: int, share: float, draws: Draws) -> list[int]:
        picked.append(len(pick(clips, share, draws)))
        return pick(clips, share, draws)

    monkeypatch.setattr(loop, "pick", watch)
    recipe = TrainingRecipe(epochs=1, batch_size=10, learning_rate=0.05)
    lines: list[str] = []
    report = fit(
        make_learner(),
        ClipSource(make_clips(40, 0)),
        make_clips(20, 1),
        out=tmp_path,
        recipe=recipe,
        hardening=harden("0.5,0.8"),
        log=lines.append,
    )
    assert picked == [5, 5, 8, 8]
    assert [row["share"] for row in report.history] == pytest.approx([0.65])
    assert any("65 % attacked" in line for line in lines)


def test_other_clips_are_noticed_when_a_run_goes_on(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    train, valid = make_clips(40, 0), make_clips(20, 1)

    def run(train: ClipsInMemory, valid: ClipsInMemory) -> None:
        fit(make_learner(), ClipSource(train), valid, out=tmp_path, recipe=QUICK, resume=True, log=quiet)

    run(train, replace(valid, name="held-out"))
    told = json.loads((tmp_path / "report.json").read_text())["data"]
    assert (told["training"]["clips"], told["validation"]["clips"]) == (40, 20)
    assert told["validation"]["name"] == "held-out"
    run(replace(train, name="elsewhere"), valid)  # the same clips under another name
    with pytest.raises(InputError, match="this training was started with training clips 40 of no name"):
        run(make_clips(40, 2), valid)
    with pytest.raises(InputError, match="this training was started with validation clips 20 of held"):
        run(train, replace(valid, labels=("up",) * 20))
    with pytest.raises(InputError, match=r"not 40 of no name .*continue with the same clips"):
        run(replace(train, ids=tuple(f"other-{name}" for name in train.ids)), valid)
    # A checkpoint that does not know its clips.
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    del state["data"]
    torch.save(state, tmp_path / "checkpoint.pt")
    run(make_clips(40, 2), valid)


def test_strings_of_other_words_are_other_data() -> None:
    from sottovoce.training.recogniser.recogniser_pack import of_items

    def bank(texts: list[str]) -> ItemBank:
        tone = (8_000 * np.sin(np.arange(4_000) / 5)).astype(np.int16)
        rows = {"split": ["train"] * 2, "kind": ["word"] * 2, "source": ["beep"] * 2}
        return ItemBank(of_items([tone, tone], texts=texts, **rows))

    one, same, other = (
        StringSource(bank(texts)).describe() for texts in (["go", "no"], ["go", "no"], ["go", "on"])
    )
    assert (one["name"], one["clips"]) == ("strings", 2)
    assert one["hash"] == same["hash"] != other["hash"]


def test_a_finished_run_that_goes_on_is_finished(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    source, valid = ClipSource(make_clips(40, 0)), make_clips(20, 1)
    first = fit(make_learner(), source, valid, out=tmp_path, recipe=QUICK, log=quiet)
    again = fit(make_learner(), source, valid, out=tmp_path, recipe=QUICK, resume=True, log=quiet)
    assert (again.epochs, again.steps, again.valid) == (first.epochs, first.steps, first.valid)


def test_nothing_global_is_changed_and_the_learner_is_left_at_rest(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    learner, before = make_learner(dropout=0.2), torch.get_rng_state()
    fit(learner, ClipSource(make_clips(40, 0)), make_clips(20, 1), out=tmp_path, recipe=QUICK, log=quiet)
    assert torch.equal(before, torch.get_rng_state())
    assert not any(part.training for part in learner.module.modules())
    assert not any(value.requires_grad for value in learner.module.parameters())
    assert torch.equal(learner.module.state_dict()["weight"], weights_in(tmp_path)["weight"])


def test_training_stops_when_nothing_gets_better(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    """A learning rate of next to nothing: no judgement is better than the first, two are waited for."""
    recipe = TrainingRecipe(epochs=50, batch_size=16, learning_rate=1e-12, patience=2)
    lines: list[str] = []
    learner = make_learner([1.0] * 16)
    report = fit(
        learner,
        ClipSource(make_clips(40, 0)),
        make_clips(20, 1),
        out=tmp_path,
        recipe=recipe,
        log=lines.append,
    )
    assert (report.epochs, report.best_epoch, report.stopped_early) == (3, 3, True)
    assert any("no improvement in 2 validations" in line for line in lines)


def test_the_clock_ends_a_run_and_its_rate(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes on a second at each look: 6 s are over after a few steps."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))
    recipe = TrainingRecipe(epochs=None, minutes=0.1, batch_size=8, check_epochs=1_000)
    source, valid = ClipSource(make_clips(400, 0)), make_clips(20, 1)
    report = fit(make_learner(), source, valid, out=tmp_path, recipe=recipe, log=quiet)
    assert report.epochs == 1
    assert 1 <= report.steps <= 6
    assert (tmp_path / "model.safetensors").exists()


def test_weights_in_16_bits_are_the_ones_that_are_judged(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    recipe = TrainingRecipe(epochs=1, batch_size=16, learning_rate=0.05, half=True)
    learner = make_learner()
    fit(learner, ClipSource(make_clips(40, 0)), make_clips(20, 1), out=tmp_path, recipe=recipe, log=quiet)
    written = weights_in(tmp_path)["weight"]
    assert written.dtype == torch.float16
    assert torch.equal(written.float(), learner.module.state_dict()["weight"])


def test_one_class_is_refused(make_learner: MakeLearner, tmp_path: Path) -> None:
    lone = hold_clips([np.zeros(16, np.int16)] * 3, ["up"] * 3, ["a", "b", "c"], 100)
    with pytest.raises(InputError, match="two classes or more, got 3 of 'up' only"):
        fit(make_learner(), ClipSource(lone), lone, out=tmp_path, recipe=QUICK, log=quiet)


def test_other_classes_and_lengths_are_refused(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    good = make_clips(10, 0)
    strange = hold_clips([np.zeros(16, np.int16)] * 2, ["up", "dawn"], ["a", "b"], 100)
    with pytest.raises(UnknownName, match="did you mean 'down'"):
        fit(make_learner(), ClipSource(good), strange, out=tmp_path, recipe=QUICK, log=quiet)
    fast = hold_clips([np.zeros(16, np.int16)] * 2, ["up", "down"], ["a", "b"], 200)
    with pytest.raises(InputError, match="expected training clips at 100 Hz, got 200 Hz"):
        fit(make_learner(), ClipSource(fast), good, out=tmp_path, recipe=QUICK, log=quiet)
    short = hold_clips([np.zeros(16, np.int16), np.zeros(1, np.int16)], ["up", "down"], ["a", "b"], 100)
    with pytest.raises(InputError, match="training clip 'b': expected 2 to 16 samples"):
        fit(make_learner(), ClipSource(short), good, out=tmp_path, recipe=QUICK, log=quiet)


def test_a_folder_in_use_and_another_recipe_or_model_are_refused(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    source, valid = ClipSource(make_clips(40, 0)), make_clips(20, 1)

    def run(learner: ClassLearner, recipe: TrainingRecipe = QUICK, resume: bool = True) -> None:
        fit(learner, source, valid, out=tmp_path, recipe=recipe, resume=resume, log=quiet)

    run(make_learner(), resume=True)  # nothing to go on from yet: begins
    with pytest.raises(InputError, match="add --resume"):
        run(make_learner(), resume=False)
    with pytest.raises(InputError, match=r"started with learning_rate 0.1, not 0.05"):
        run(make_learner(), TrainingRecipe(epochs=4, batch_size=16, learning_rate=0.1, warm_up_steps=4))
    with pytest.raises(InputError, match="expected parameters 17, got 16"):
        run(make_learner([0.0] * 17))
    whole = (tmp_path / "checkpoint.pt").read_bytes()
    for content in (b"no checkpoint", b"torn\n", b"", whole[:100], whole[: len(whole) // 2]):
        (tmp_path / "checkpoint.pt").write_bytes(content)
        with pytest.raises(InputError, match="not a checkpoint"):
            run(make_learner())


def test_a_loss_that_explodes_is_named(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    with pytest.raises(GradientError, match=r"step \d+: expected a finite gradient"):
        fit(
            make_learner([0.1] * 16),
            ClipSource(make_clips(40, 0)),
            make_clips(20, 1),
            out=tmp_path,
            recipe=replace(QUICK, learning_rate=1e38),
            log=quiet,
        )


def test_a_model_of_nan_is_named_before_the_first_step(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    with pytest.raises(ScoreError, match="expected scores with a finite best one, got NaN"):
        fit(
            make_learner([float("nan")] * 16),
            ClipSource(make_clips(40, 0)),
            make_clips(20, 1),
            out=tmp_path,
            recipe=QUICK,
            log=quiet,
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 0},
        {"epochs": None},
        {"epochs": -1, "minutes": 0.01},
        {"minutes": -1.0},
        {"minutes": 0.0},
        {"minutes": float("nan")},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"average_decay": 1.0},
        {"patience": -3},
    ],
)
def test_recipes_that_cannot_be_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        TrainingRecipe(**settings)  # type: ignore[arg-type]


def test_tensorboard_reads_what_was_written(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    source, valid = ClipSource(make_clips(40, 0)), make_clips(20, 1)
    fit(
        make_learner(),
        source,
        valid,
        out=tmp_path,
        recipe=QUICK,
        hardening=harden(),
        tensorboard=True,
        log=quiet,
    )
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = {"loss", "learning_rate", "share", "valid/clean", "valid/noisy", "valid/attacked"}
    assert set(events.Tags()["scalars"]) == tags
    # 40 clips in batches of 16 are three steps an epoch.
    assert [event.step for event in events.Scalars("share")] == [3, 6, 9, 12]
    assert [event.value for event in events.Scalars("share")] == pytest.approx([0.5, 0.5, 0.8, 0.8])


def test_without_tensorboard_it_says_so_before_any_work(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    clips = make_clips(40, 0)
    with pytest.raises(MissingExtra, match="tensorboard"):
        fit(make_learner(), ClipSource(clips), clips, out=tmp_path / "run", tensorboard=True, log=quiet)
    assert not (tmp_path / "run").exists()


def test_without_accelerate_several_processes_are_refused(
    make_learner: MakeLearner, make_clips: MakeClips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    clips = make_clips(40, 0)
    with pytest.raises(MissingExtra, match="needs accelerate"):
        fit(make_learner(), ClipSource(clips), clips, out=tmp_path, log=quiet)


def test_every_clip_comes_once_an_epoch_in_an_order_that_changes(make_clips: MakeClips) -> None:
    source = ClipSource(make_clips(21, 0))
    first = [name for one in source.batches(8, Draws(0)) for name in one.batch.ids]
    second = [name for one in source.batches(8, Draws(1)) for name in one.batch.ids]
    assert sorted(first) == sorted(second) == sorted(source.clips.ids)
    assert first != second
    assert source.steps(8) == 3


def test_clips_of_different_lengths_come_padded_with_zeros() -> None:
    clips = hold_clips([np.array([1, 2, 3], np.int16), np.array([4], np.int16)], ["a", "b"], ["0", "1"], 100)
    drawn = clips.batch([1, 0])
    assert (drawn.batch.waveforms * 32768).tolist() == [[4, 0, 0], [1, 2, 3]]
    assert drawn.batch.lengths.tolist() == [1, 3]
    assert drawn.labels == ("b", "a")


def test_jitter_shifts_and_turns_up_by_hand() -> None:
    clips = hold_clips([np.full(100, 3_277, np.int16)] * 50, ["a"] * 50, [str(n) for n in range(50)], 100)
    louder = Jitter(gain_db=(20.0, 20.0), shift_seconds=0.0)
    clean = clips.batch(range(50)).batch
    torch.testing.assert_close(
        louder(clean, draws=Draws(0)).waveforms, torch.full((50, 100), 32_770 / 32_768).clamp(max=1)
    )
    moved = Jitter(gain_db=(0.0, 0.0), shift_seconds=0.2)(clean, draws=Draws(0)).waveforms
    silent = (moved == 0).sum(dim=1)
    assert int(silent.max()) <= 20
    assert len(set(silent.tolist())) > 5
    check_transform(Jitter())


def test_strings_are_the_same_for_the_same_draws_and_end_after_their_steps() -> None:
    from sottovoce.training.recogniser.recogniser_pack import of_items

    tone = (8_000 * np.sin(np.arange(4_000) / 5)).astype(np.int16)
    pack = of_items(
        [tone, tone], texts=["go", "no"], split=["train"] * 2, kind=["word"] * 2, source=["beep"] * 2
    )
    source = StringSource(ItemBank(pack), epoch_steps=3)
    first, second = (list(source.batches(4, Draws(7))) for _ in range(2))
    assert len(first) == source.steps(4) == 3
    for one, two in zip(first, second, strict=True):
        assert one.labels == two.labels
        assert torch.equal(one.batch.waveforms, two.batch.waveforms)
        torch.testing.assert_close(one.batch.peak, torch.full((4,), 0.9).double())
        assert all(set(text.split()) <= {"go", "no"} and 2 <= len(text.split()) <= 6 for text in one.labels)


def train_in_processes(folder: Path, processes: int) -> Path:
    """The toy problem in processes that torch starts, as `accelerate launch` would, or alone."""
    script = folder / "train.py"
    script.write_text(TOGETHER)
    out = folder / f"run-{processes}"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launch += ["--nproc_per_node", str(processes)]
    command = [*(launch if processes > 1 else [sys.executable]), str(script), str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (f"{processes} processes on cpu" if processes > 1 else "one process on cpu") in done.stdout
    assert done.stdout.count("epoch 3/3") == 1
    return out


TOGETHER = """
import sys
from pathlib import Path

import numpy as np
import torch

from sottovoce.core.budget import LInf
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.training.hardening import AdversarialShare, Hardening, make_adversary, make_noise
from sottovoce.training.learner import ClassLearner, apart
from sottovoce.training.loop import fit
from sottovoce.training.recipe import TrainingRecipe
from sottovoce.training.sources import ClipSource, hold_clips


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(16, 2))

    def forward(self, waveforms):
        return waveforms @ self.weight


random = np.random.default_rng(0)
rows = [random.integers(-9000, 9000, 16).astype(np.int16) for _ in range(11)]
labels = ["up" if row.sum() > 0 else "down" for row in rows]
clips = hold_clips(rows, labels, [str(place) for place in range(11)], 100)
learner = ClassLearner(
    Linear(),
    name="linear",
    read=apart,
    as_target=lambda module: ModuleClassifier(module, ("up", "down"), 100),
)
hardening = Hardening(
    noise=make_noise("gaussian", 0.02),
    adversary=make_adversary("pgd", LInf(0.05), steps=2, share=AdversarialShare((0.5,))),
)
# Batches of 5, 5 and 1: the last leaves one process without a clip.
recipe = TrainingRecipe(epochs=3, batch_size=5, learning_rate=0.1, warm_up_steps=2, average_decay=0.5)
fit(learner, ClipSource(clips), clips, out=Path(sys.argv[1]), recipe=recipe, hardening=hardening)
"""


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    folders = [train_in_processes(tmp_path, count) for count in (1, 2)]
    # After the last epoch, and those that were kept.
    last = [torch.load(folder / "checkpoint.pt", weights_only=True)["module"] for folder in folders]
    torch.testing.assert_close(last[0], last[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(*map(weights_in, folders), rtol=1e-5, atol=1e-6)
    assert float(last[0]["weight"].abs().max()) > 0.1
