"""Attacks on many networks of images at once: closed forms of linear ones, and what must not move."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.core.draws import Draws
from sottovoce.data.images import stroke_images as stroke_module
from sottovoce.data.images.stroke_images import stroke_images
from sottovoce.errors import InputError, UnknownName
from sottovoce.studies.olivier2023.accidental import image_attacks as attack
from sottovoce.studies.olivier2023.accidental import image_runs as runs
from sottovoce.studies.olivier2023.accidental.accidental_robustness_images import STUDY
from sottovoce.studies.olivier2023.accidental.network_batch import BlockDraws, Design, Networks, draw_ball
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice

EPS = 0.06


def quiet(done: float, note: str) -> None:
    """Nobody is told."""


@pytest.fixture(scope="module")
def linear() -> tuple[Networks, torch.Tensor, torch.Tensor]:
    """Three linear networks of two classes over 25 pixels, and 60 images that stay off the ends of [0, 1]."""
    source = torch.Generator().manual_seed(4)
    design = Design(widths=(), bias=True, inputs=25, outputs=2)
    networks = Networks(design, torch.randn(3, design.parameters, generator=source))
    images = EPS + (1 - 2 * EPS) * torch.rand(3, 60, 25, generator=source)
    labels = torch.randint(0, 2, (3, 60), generator=source)
    return networks, images, labels


def signed(
    networks: Networks, images: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """y (w x + b) of each image and ||w||_1 of each network; w and b of class 1 less those of class 0."""
    (layer,) = networks.layers()
    assert layer.bias is not None
    weight, bias = layer.weight[:, 1] - layer.weight[:, 0], layer.bias[:, 1] - layer.bias[:, 0]
    value = (images * weight[:, None]).sum(dim=2) + bias[:, None]
    return (2 * labels - 1) * value, weight.abs().sum(dim=1)


@pytest.mark.parametrize("name", ["pgd", "auto_pgd", "margin"])
def test_a_linear_network_is_right_where_the_closed_form_says(
    linear: tuple[Networks, torch.Tensor, torch.Tensor], name: str
) -> None:
    """To the point: y (w x + b) > eps ||w||_1."""
    networks, images, labels = linear
    distance, length = signed(networks, images, labels)
    wanted = distance > EPS * length[:, None]
    points = {
        "pgd": lambda: attack.pgd(networks, images, labels, EPS, 10, source=torch.Generator().manual_seed(0)),
        "auto_pgd": lambda: attack.auto_pgd(networks, images, labels, EPS, 20, "cross-entropy"),
        "margin": lambda: attack.auto_pgd(networks, images, labels, EPS, 20, "margin"),
    }[name]()
    assert (points - images).abs().max() <= EPS + 1e-6
    assert torch.equal(attack.right(networks, points, labels), wanted)
    assert 0.1 < wanted.float().mean() < 0.9


def test_the_search_by_scores_is_inside_and_never_better_than_the_closed_form(
    linear: tuple[Networks, torch.Tensor, torch.Tensor],
) -> None:
    networks, images, labels = linear
    points = attack.square_search(networks, images, labels, EPS, 200, torch.Generator().manual_seed(0))
    assert (points - images).abs().max() <= EPS + 1e-6 and points.min() >= 0 and points.max() <= 1
    distance, length = signed(networks, images, labels)
    must_hold = distance > EPS * length[:, None] + 1e-5
    still = attack.right(networks, points, labels)
    assert bool(still[must_hold].all())
    # It finds most of what there is, and more than no attack does.
    falls = (distance > 0) & ~must_hold
    assert (~still)[falls].float().mean() > 0.5


def test_tau_is_enough() -> None:
    flags = torch.arange(200).expand(3, 200) < torch.tensor([169, 170, 171])[:, None]
    assert attack.reaches(flags, 0.85).tolist() == [False, True, True]
    assert attack.reaches(flags[:, :20], 0.85).tolist() == [True, True, True]


def test_losses_by_hand() -> None:
    """Scores 1, 3, 2: the margin of class 0 is 3 - 1, of class 1 2 - 3. Equal scores of three: log 3."""
    scores = torch.tensor([[[1.0, 3.0, 2.0], [1.0, 3.0, 2.0], [5.0, 5.0, 5.0]]])
    labels = torch.tensor([[0, 1, 2]])
    assert attack.loss_of(scores, labels, "margin").tolist() == [[2.0, -1.0, 0.0]]
    assert float(attack.loss_of(scores, labels, "cross-entropy")[0, 2]) == pytest.approx(1.098612)


def test_checkpoints_of_autopgd() -> None:
    """Those of the paper for 100 steps: .22, then .19, .16, .13, .10, .07, .06 and .06 further on."""
    assert sorted(attack._checkpoints(100))[:8] == [22, 41, 57, 70, 80, 87, 93, 99]


def test_attacks_move_no_running_statistic() -> None:
    design = Design(widths=(6,), batch_norm=True, inputs=25, outputs=3)
    networks = Networks(design, draw_ball(design, 5.0, BlockDraws(Draws(0), 0, 4)))
    images, labels = torch.rand(4, 12, 25), torch.randint(0, 3, (4, 12))
    networks.scores(images, training=True)
    before = [value.clone() for value in networks.running[0]]
    weights = networks.parameters.clone()
    assert not torch.equal(before[0], torch.zeros(4, 6))
    for training in (True, False):
        attack.pgd(networks, images, labels, 0.1, 3, training=training)
    attack.auto_pgd(networks, images, labels, 0.1, 5, "margin")
    attack.square_search(networks, images, labels, 0.1, 3, torch.Generator())
    assert all(torch.equal(one, other) for one, other in zip(before, networks.running[0], strict=True))
    assert torch.equal(weights, networks.parameters)


def test_vanishing_gradients_are_seen_and_do_not_fool_the_judges() -> None:
    """A steep network has no gradient at all: plain PGD finds nothing, the search by scores does."""
    design = Design(widths=(), bias=True, inputs=25, outputs=2)
    weight = torch.zeros(1, 2, 25)
    weight[0, 1] = 40_000.0
    networks = Networks(design, torch.cat([weight.flatten(), torch.tensor([0.0, -40_000.0 * 12.5])])[None])
    # 25 pixels of .52 or .48: right by .5 of 12.5, which .03 a pixel takes away.
    images = torch.cat([torch.full((20, 25), 0.52), torch.full((20, 25), 0.48)])
    labels = torch.tensor([1] * 20 + [0] * 20)
    x, y = runs.spread(images, 1), runs.spread(labels, 1)
    assert attack.right(networks, x, y).all()
    assert attack.quiet_share(networks, x, y).tolist() == [1.0]
    assert torch.equal(attack.pgd(networks, x, y, 0.03, 20), x)
    size = replace(runs.SCALES["mini"], judge_steps=10, queries=100)
    found = runs.judge(networks, images, labels, (0.01, 0.03), size, torch.Generator().manual_seed(1))
    assert found[0, 0, 0] and found[0, 1, 0] and found[0, 2, 0]
    assert not found[0, 1, 1] and not found[0, 2, 1]


SMALL = replace(
    runs.SCALES["mini"], networks=3, train=200, test=40, steps=30, attack_steps=2, margins=(0.0, 0.02),
    judge_steps=5, queries=5,
)  # fmt: skip


def pictures() -> runs.Pictures:
    train, test = stroke_images(side=8, each=20), stroke_images("test", side=8, each=4)
    return runs.Pictures(train.pixels().flatten(1), train.labels, test.pixels().flatten(1), test.labels)


def test_a_part_of_the_study() -> None:
    """Strokes of 8 x 8: better than chance, and no judge calls robust what an earlier one does not."""
    design = Design(widths=(12,), inputs=64, outputs=10)
    job = runs.ImageJob(design, 0.02, runs.ImageTraining(batch=32, radius=8.0), 0, 3)
    found = runs.ImageFound(**runs._run(job, pictures=pictures(), size=SMALL, draws=Draws(0), device="cpu"))
    again = runs._run(job, pictures=pictures(), size=SMALL, draws=Draws(0), device="cpu")
    assert found.clean.min() > 0.3 and (found.clean == again["clean"]).all()
    assert found.robust.shape == (int(found.valid.sum()), 3, len(runs.TESTS))
    assert not (found.robust[:, 1] & ~found.robust[:, 0]).any()
    assert not (found.robust[:, 2] & ~found.robust[:, 1]).any()


def test_adversarial_training_has_its_points_inside_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    plain = attack.pgd

    def watched(networks: Networks, images: torch.Tensor, *rest: object, **more: object) -> torch.Tensor:
        points = plain(networks, images, *rest, **more)  # type: ignore[arg-type]
        seen.append(float((points - images).abs().max()))
        return points

    monkeypatch.setattr(attack, "pgd", watched)
    job = runs.ImageJob(Design(widths=(4,), inputs=64, outputs=10), 0.03, runs.ImageTraining(batch=8), 0, 2)
    source = torch.Generator().manual_seed(0)
    runs.train_networks(job, pictures(), replace(SMALL, steps=4), Draws(0), source)
    assert len(seen) == 4 and 0.02 < max(seen) <= 0.03 + 1e-6


@pytest.mark.slow
def test_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On strokes, in small: every table has its rows, and a second run reads what the first kept."""
    monkeypatch.setattr(stroke_module, "EACH", {"train": 30, "test": 5})
    monkeypatch.setitem(runs.SCALES, "mini", replace(SMALL, steps=60))
    monkeypatch.setattr(runs.os, "cpu_count", lambda: 1)
    _, result, page = run_study(STUDY, Choice(), tmp_path)
    facts = json.loads((page.parent / "results.json").read_text("utf-8"))
    assert len(facts["values"]["designs"]) == 16 and len(facts["values"]["grid"]) == 4
    assert [len(sheet.rows) for sheet in result.sheets[1:]] == [16, 32, 16, 4]
    assert {one["name"] for one in facts["figures"]} == {"robustness", "areas"}
    assert any("NOT MNIST" in line for line in facts["scope"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    again = run_study(STUDY, Choice(), tmp_path)[1]
    assert [sheet.rows for sheet in again.sheets] == [sheet.rows for sheet in result.sheets]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()} == before


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stroke_module, "EACH", {"train": 12, "test": 3})
    bench = runs.open_bench(Choice(clips=2, batch=16, fit="sgd(rate=0.5)"), tmp_path, "cpu", quiet)
    assert (bench.size.networks, bench.training.batch, bench.training.rate) == (2, 16, 0.5)
    assert bench.pictures.train.shape == (120, 196) and "NOT MNIST" in bench.scope(None)[0]  # type: ignore[arg-type]
    weights = {str(one): one.parameters for each in bench.designs().values() for one in each}
    assert weights["MLP-32-ReLU"] == 196 * 32 + 32 * 10 == 6592
    assert weights["MLP-28_28-ReLU"] == 6552 and weights["MLP-26_26_26-ReLU"] == 6708
    with pytest.raises(InputError, match="where size was another"):
        runs.open_bench(Choice(clips=3, batch=16, fit="sgd(rate=0.5)"), tmp_path, "cpu", quiet)
    with pytest.raises(InputError, match="expected no --model"):
        runs.open_bench(Choice(model="keyword"), tmp_path, "cpu", quiet)
    np.savez(
        tmp_path / "cifar10.npz",
        **{f"{split}_images": np.zeros((2, 32, 32, 3), dtype=np.uint8) for split in ("train", "test")},
        **{f"{split}_labels": np.zeros(2, dtype=np.uint8) for split in ("train", "test")},
    )
    with pytest.raises(InputError, match="expected grey images, got cifar10"):
        runs.open_bench(Choice(data=f"cifar10:{tmp_path}"), tmp_path, "cpu", quiet)
    with pytest.raises(InputError, match="expected a folder with MNIST"):
        runs.open_bench(Choice(data=f"mnist:{tmp_path / 'none'}"), tmp_path, "cpu", quiet)
    with pytest.raises(UnknownName, match="setting of sgd 'loss'"):
        runs.ImageTraining.read("sgd(loss=hinge)")
    with pytest.raises(InputError, match="expected an integer"):
        runs.ImageTraining.read("sgd(batch=1.5)")
