"""Scores from optional packages: the interface by hand, the packages where they are installed."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.errors import MissingExtra
from sottovoce.metrics import quality_extras as extras
from sottovoce.metrics.quality_extras import Cdpam, Dnsmos, DnsmosChange, PairScore, Visqol, Zimtohrli
from sottovoce.studies.manocha2020.judges import as_trial
from sottovoce.testing import check_metric

SLOW = pytest.mark.slow
KEPT = (extras._visqol, extras._dnsmos, extras._cdpam, extras._acoustics, extras._opinion)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What a test put in the place of a package is gone before and after it."""
    for kept in KEPT:
        kept.cache_clear()
    yield
    for kept in KEPT:
        kept.cache_clear()


class Length(PairScore):
    """How many samples it was given, or NaN where the clean clip begins with a negative one."""

    name, title = "length", "Length"
    rate_hz, lowest_rate_hz, shortest_seconds, better = 200, 100, 0.01, "higher"

    def score(self, clean: np.ndarray, changed: np.ndarray) -> float:
        assert len(clean) == len(changed)
        return math.nan if clean[0] < 0 else float(len(clean))


def pair(clean: list[np.ndarray], changed: list[np.ndarray], rate: int) -> Trial:
    ids = [f"clip-{number}" for number in range(len(clean))]
    return as_trial(AudioBatch.of(clean, rate, ids), AudioBatch.of(changed, rate, ids))


def speech_like(seconds: float, rate: int) -> np.ndarray:
    """Harmonics of 120 Hz in bursts of a quarter of a second."""
    time = np.arange(round(seconds * rate)) / rate
    tones = sum(np.sin(2 * np.pi * 120 * k * time) / k for k in range(1, 25))
    return 0.1 * tones * (np.sin(2 * np.pi * 2 * time) > -0.3)


def test_clips_are_resampled_and_unscored_ones_have_reasons() -> None:
    # 100 Hz to 200 Hz doubles the samples; one sample at 100 Hz is 10 ms, which is long enough.
    good, bad, silent = np.full(50, 0.5), np.full(20, -0.5), np.zeros(30)
    trial = pair([good, bad, good, silent], [good, bad, np.zeros(50), silent + 0.1], 100)
    parts = Length().measure(trial)
    assert parts[:, 0].tolist()[0] == 100.0
    assert parts[1:, 0].isnan().all()
    assert Length().reasons(trial, parts) == {
        "clip-1": "Length found no speech to compare",
        "clip-2": "the changed clip is silent",
        "clip-3": "the clean clip is silent",
    }
    short = pair([np.full(9, 0.5)], [np.full(9, 0.5)], 1000)
    reasons = Length().reasons(short, Length().measure(short))
    assert reasons == {"clip-0": "Length needs 0.01 s or more, got 0.009 s"}
    low = pair([good], [good], 99)
    assert Length().reasons(low, Length().measure(low)) == {
        "clip-0": "Length needs 100 Hz or more, got 99 Hz"
    }


def test_no_score_counts_as_nothing() -> None:
    trial = pair([np.full(50, 0.5), np.zeros(50)], [np.full(50, 0.5)] * 2, 200)
    estimate = Length().summarise(Length().measure(trial).numpy())
    assert (estimate.value, estimate.n) == (50.0, 1)


@pytest.mark.parametrize(
    "metric", [Length, Visqol, Zimtohrli, *(pytest.param(one, marks=SLOW) for one in (Dnsmos, DnsmosChange))]
)
def test_contract(metric: type[PairScore]) -> None:
    try:
        check_metric(metric())
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("metric", "module", "command"),
    [
        (Visqol, "visqol", "sottovoce[judges]"),
        (Visqol, "ai_edge_litert", "sottovoce[judges]"),
        (Zimtohrli, "zimtohrli", "sottovoce[judges]"),
        (Cdpam, "cdpam", "pip install --no-deps cdpam"),
        (Dnsmos, "speechmos", "sottovoce[judges]"),
    ],
)
def test_a_package_that_is_not_there_is_named(
    metric: type[PairScore], module: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == "ai_edge_litert":
        pytest.importorskip("visqol")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    clip = speech_like(1.2, 16000)
    with pytest.raises(MissingExtra, match=module) as error:
        metric().measure(pair([clip], [clip], 16000))
    assert command in str(error.value)


def test_cdpam_weighs_differences_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 and 3; times 1: differ by 2. Times -1: -1 and -3, leaked to -0.01 and -0.03; weight 10: 0.2. Times 100
    # plus 2: 1 and -1, leaked to 1 and -0.01: 1.01. Times 1, weight -1: 1.01 again. In all 4.22.
    layers = [(1.0, 0.0, 1.0), (-1.0, 0.0, 10.0), (100.0, 2.0, 1.0), (1.0, 0.0, -1.0)]
    state = {}
    for place, (weight, bias, channel) in enumerate(layers):
        state[f"model_dist.convs.{place}.0.weight"] = torch.tensor([[weight]])
        state[f"model_dist.convs.{place}.0.bias"] = torch.tensor([bias])
        state[f"model_dist.chan_w.{place}"] = torch.tensor([channel])
    monkeypatch.setattr(extras, "_cdpam", lambda: state)
    found = extras._weighted_distance(torch.tensor([1.0]), torch.tensor([3.0]))
    assert float(found) == pytest.approx(4.22, abs=1e-4)


@pytest.mark.slow
def test_cdpam_gives_the_published_distance() -> None:
    if find_spec("cdpam") is None:
        pytest.skip("needs cdpam: pip install --no-deps cdpam")
    folder = (
        Path(os.environ.get("SOTTOVOCE_MODELS", Path(__file__).parents[3] / "shared" / "models")) / "dpam"
    )
    if not (folder / "ref.wav").is_file():
        pytest.skip("needs dpam/ref.wav in the folder named by SOTTOVOCE_MODELS")
    clips = [soundfile.read(folder / name)[0] for name in ("ref.wav", "2.wav")]
    # "It should return (approx) distance = 0.1696", says the package of these two files.
    assert Cdpam().score(*clips) == pytest.approx(0.1696, abs=5e-5)


class Session:
    """Says 2 to every window, and keeps them."""

    def __init__(self) -> None:
        self.windows: list[np.ndarray] = []

    def run(self, names: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.windows.append(inputs["input_1"])
        return [np.array([[1.0, 1.0, 2.0]])]


def test_dnsmos_repeats_short_clips_and_steps_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(extras, "_dnsmos", lambda: session)
    clip = np.linspace(-0.5, 0.5, 3 * 16000)
    # -0.06766283 * 4 + 1.11546468 * 2 + 0.04602535
    assert Dnsmos().score(clip, clip) == pytest.approx(2.00630339, abs=1e-8)
    # 3 s are doubled to 12 s, in which windows of 9.01 s start at 0, 1 and 2 s.
    assert [window.shape for window in session.windows] == [(1, 144160)] * 3
    np.testing.assert_allclose(session.windows[1][0, : 2 * 16000], clip[16000:], atol=1e-7)
    assert DnsmosChange().score(clip, clip[::-1].copy()) == 0.0


def test_dnsmos_hears_noise() -> None:
    pytest.importorskip("onnxruntime")
    if find_spec("speechmos") is None:
        pytest.skip("needs speechmos: pip install speechmos")
    clip = speech_like(2.5, 16000)
    noisy = clip + 0.05 * np.random.default_rng(0).standard_normal(len(clip))
    assert Dnsmos().score(clip, noisy) < Dnsmos().score(clip, clip)
    assert DnsmosChange().score(clip, noisy) < 0


def test_zimtohrli_grows_with_noise_and_refuses_what_would_crash_it() -> None:
    pytest.importorskip("zimtohrli")
    clip = speech_like(0.5, 16000)
    noise = np.random.default_rng(0).standard_normal(len(clip))
    trial = pair([clip] * 3, [clip, clip + 0.001 * noise, clip + 0.03 * noise], 16000)
    same, little, much = Zimtohrli().measure(trial)[:, 0].tolist()
    assert same == 0.0
    assert 0.0 < little < much
    short = pair([clip[:3000]], [clip[:3000]], 16000)
    assert Zimtohrli().measure(short)[:, 0].isnan().all()


@pytest.mark.slow
def test_visqol_is_the_packages_own_score_in_speech_mode() -> None:
    visqol = pytest.importorskip("visqol")
    pytest.importorskip("ai_edge_litert")
    clip = speech_like(2.0, 16000)
    noisy = clip + 0.02 * np.random.default_rng(0).standard_normal(len(clip))
    own = visqol.VisqolApi()
    own.create(mode="speech", use_lattice_model=True)
    wanted = own.measure_from_arrays(clip, noisy, 16000).moslqo
    found = Visqol().measure(pair([clip, clip], [noisy, clip], 16000))[:, 0].tolist()
    assert found[0] == pytest.approx(wanted, abs=1e-3)
    assert found[0] < found[1]


def test_weights_are_found_beside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cdpam"
    (package / "CDPAM_trained").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('an old package')")
    file = package / "CDPAM_trained" / "scratchJNDdefault_best_model.pth"
    torch.save({"state": {"one": torch.ones(2)}}, file)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cdpam", raising=False)
    assert extras._cdpam()["one"].tolist() == [1.0, 1.0]
