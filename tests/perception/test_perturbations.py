"""Laws of the engine: strengths, draws, directions, bad input."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended
from sottovoce.defenses import codecs
from sottovoce.errors import InputError, MissingExtra, UnknownName
from sottovoce.perception.degradations.added_noise import Noise
from sottovoce.perception.degradations.coding_rates import Mp3Coding, MuLawCoding, nearest_kbps, odd_levels
from sottovoce.perception.degradations.equaliser import Equaliser
from sottovoce.perception.degradations.griffin_lim import GriffinLim
from sottovoce.perception.degradations.lost_samples import Dropouts, Pops
from sottovoce.perception.degradations.perturbation_space import CATEGORIES, MAKERS, Direction
from sottovoce.perception.degradations.reverberation import ReverbRatio, ReverbTime
from sottovoce.testing import check_target, check_transform
from sottovoce.testing.clips import example_clips, widened
from sottovoce.testing.toys import ToyClassifier

RATE = 16000
# Names, least and most figure: Table 1 of Manocha et al. 2020; levels by the reading of "1 to 60 bits".
TABLE_1 = {
    "white": (66.0, 2.0),
    "pink": (66.0, 2.0),
    "applause": (66.0, 2.0),
    "water-drops": (66.0, 2.0),
    "room": (66.0, 2.0),
    "drr": (65.0, -27.0),
    "rt60": (0.05, 8.0),
    "mp3": (320.0, 8.0),
    "mulaw": (60.0, 3.0),
    "eq": (0.0, 1.0),
    "pops": (0.01, 10.0),
    "griffin-lim": (500.0, 1.0),
    "dropouts": (0.01, 20.0),
}
FAST = sorted(set(MAKERS) - {"griffin-lim"})


def clip(samples: int = 8000, seed: int = 0) -> AudioBatch:
    sound = 0.1 * np.random.default_rng(seed).standard_normal(samples)
    return AudioBatch.of([sound.clip(-1, 1)], RATE, ["clip"])


def test_the_table() -> None:
    assert set(MAKERS) == set(TABLE_1) == {name for names in CATEGORIES.values() for name in names}
    for name, (least, most) in TABLE_1.items():
        assert MAKERS[name](strength=0).asked == pytest.approx(least)
        assert MAKERS[name](strength=100).asked == pytest.approx(most)


def test_strengths_in_between() -> None:
    # Linear in dB: 66 - 64/2. Logarithmic elsewhere: sqrt(0.05 * 8), sqrt(320 * 8), sqrt(500 * 1).
    assert Noise(strength=50).asked == pytest.approx(34.0)
    assert ReverbRatio(strength=50).asked == pytest.approx(19.0)
    assert ReverbTime(strength=50).asked == pytest.approx(0.6324555)
    assert Mp3Coding(strength=50).asked == pytest.approx(50.5964)
    assert GriffinLim(strength=50).asked == pytest.approx(22.3607)
    assert Equaliser(strength=25).asked == pytest.approx(0.25)
    assert Pops(strength=50).asked == pytest.approx(0.316228)
    # Nothing said: the middle.
    assert Noise() == Noise(strength=50.0)
    assert Noise(snr_db=12.5).asked == 12.5


@pytest.mark.parametrize("name", MAKERS)
def test_laws(name: str) -> None:
    check_transform(MAKERS[name]())
    check_transform(MAKERS[name](strength=100))


@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"mp3"}))
def test_in_front_of_a_model(name: str) -> None:
    check_target(Defended(ToyClassifier(), (MAKERS[name](),)))


def test_laws_of_the_slowest() -> None:
    check_transform(GriffinLim(iterations=200))


@pytest.mark.parametrize(
    "text", ["white+drr+griffin-lim+eq+mp3", "griffin-lim+mulaw+rt60", "eq+mp3+room+pops"]
)
def test_a_clip_alone_and_in_a_batch(text: str) -> None:
    """A last bit that depends on the batch would grow in the codec and in Griffin-Lim."""
    batch, chain = example_clips(RATE), Direction.parse(text).at(60)
    whole = chain(batch, draws=Draws(3)).waveforms
    wide = chain(widened(batch), draws=Draws(3)).waveforms[:, : whole.shape[1]]
    assert float((whole - wide).abs().max()) < 1e-5
    alone = chain(batch.select([1]), draws=Draws(3)).waveforms
    assert float((whole[1, : alone.shape[1]] - alone[0]).abs().max()) < 1e-5


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(FAST),
    strength=st.floats(0, 100),
    samples=st.integers(2, 4000),
    seed=st.integers(0, 10),
)
def test_any_length_and_strength(name: str, strength: float, samples: int, seed: int) -> None:
    batch = clip(samples, seed)
    heard = MAKERS[name](strength=strength)(batch, draws=Draws(seed))
    assert heard.waveforms.shape == batch.waveforms.shape
    assert bool(torch.isfinite(heard.waveforms).all())
    again = MAKERS[name](strength=strength)(batch, draws=Draws(seed))
    assert torch.equal(heard.waveforms, again.waveforms)


@pytest.mark.parametrize("samples", [1, 7, 300])
def test_griffin_lim_of_less_than_a_frame(samples: int) -> None:
    heard = GriffinLim(iterations=3)(clip(samples), draws=Draws(0))
    assert heard.waveforms.shape == (1, samples) and bool(torch.isfinite(heard.waveforms).all())


@pytest.mark.parametrize("name", sorted(set(MAKERS)))
def test_silence(name: str) -> None:
    """Nothing is loud in silence: noise and pops are at half a 16-bit step, all else leaves it."""
    batch = AudioBatch.of([np.zeros(4000)], RATE)
    heard = MAKERS[name](strength=80)(batch, draws=Draws(0)).waveforms
    assert bool(torch.isfinite(heard).all()) and float(heard.abs().max()) < 2e-4


# Draws


@pytest.mark.parametrize("name", ["white", "pink", "applause", "water-drops", "room"])
def test_the_same_noise_gets_louder(name: str) -> None:
    batch = clip()
    quiet, loud = (
        (MAKERS[name](strength=one)(batch, draws=Draws(1)).waveforms - batch.waveforms)[0].double()
        for one in (50, 90)
    )
    assert float(torch.nn.functional.cosine_similarity(quiet, loud, dim=0)) == pytest.approx(1.0, abs=1e-4)
    other = (MAKERS[name](strength=90)(batch, draws=Draws(2)).waveforms - batch.waveforms)[0].double()
    assert abs(float(torch.nn.functional.cosine_similarity(other, loud, dim=0))) < 0.6


@pytest.mark.parametrize("maker", [Pops, Dropouts])
def test_more_bursts_keep_the_places_of_fewer(maker: type) -> None:
    batch = clip()
    few, many = (
        maker(percent=percent)(batch, draws=Draws(1)).waveforms != batch.waveforms for percent in (1, 7)
    )
    assert bool((few & many == few).all()) and int(few.sum()) == 80 and int(many.sum()) == 560


def test_a_longer_tail_has_the_same_signs() -> None:
    impulse = AudioBatch.of([np.eye(1, 4000)[0] * 0.5], RATE, ["one"])
    short, long = (ReverbTime(rt60_seconds=s)(impulse, draws=Draws(0)).clip(0)[40:1000] for s in (0.2, 2.0))
    assert torch.equal(short.sign(), long.sign())


# Directions


def test_directions_are_written_and_read() -> None:
    one = Direction.parse("white + drr+mp3")
    assert one.names == ("white", "drr", "mp3") and str(one) == "white+drr+mp3"
    assert Direction.parse(str(one)) == one


def test_random_directions() -> None:
    drawn = [Direction.draw(Draws(0), f"pair-{number}") for number in range(500)]
    assert drawn[3] == Direction.draw(Draws(0), "pair-3") != Direction.draw(Draws(1), "pair-3")
    assert all(Direction.parse(str(one)) == one for one in drawn)
    # Each number of members from 1 to 5 in a fifth of them (100, give or take 4 deviations of 9), all names,
    # and either order of any two.
    counts = np.bincount([len(one.names) for one in drawn], minlength=6)
    assert counts[0] == 0 and all(64 <= count <= 136 for count in counts[1:])
    assert {name for one in drawn for name in one.names} == set(MAKERS)
    orders = [
        one.names.index("eq") < one.names.index("mp3") for one in drawn if {"eq", "mp3"} <= {*one.names}
    ]
    assert 0.25 < np.mean(orders) < 0.75


def test_directions_among_some() -> None:
    for number in range(20):
        assert set(Direction.draw(Draws(0), str(number), among=("white", "eq")).names) <= {"white", "eq"}


def test_a_direction_is_its_members_in_order() -> None:
    batch, draws = clip(), Draws(5)
    found = Direction.parse("eq+white").at(70)(batch, draws=draws).waveforms
    by_hand = Equaliser(strength=70)(batch, draws=draws.turn("eq"))
    by_hand = Noise(kind="white", strength=70)(by_hand, draws=draws.turn("white"))
    assert torch.equal(found, by_hand.waveforms.clamp(-1, 1))


def test_what_is_too_loud_is_clamped_and_counted() -> None:
    # Full-scale square wave; noise at 2 dB pushes half of the samples over, up to chance.
    square = AudioBatch.of([np.sign(np.sin(np.arange(8000) * 0.1 + 0.05))], RATE)
    (one,) = Direction.parse("white").render(square, [100], draws=Draws(0))
    assert float(one.batch.waveforms.abs().max()) == 1.0
    assert float(one.clipped[0]) == pytest.approx(0.5, abs=0.03)
    (quiet,) = Direction.parse("white").render(clip(), [0], draws=Draws(0))
    assert float(quiet.clipped[0]) == 0.0


@pytest.mark.parametrize(
    "text", ["pink+drr", "eq+pops", "mulaw", "rt60+applause", "mp3+room", "dropouts+white"]
)
def test_farther_along_a_direction_is_farther_away(text: str) -> None:
    batch, levels = clip(16000), (0, 20, 40, 60, 80, 100)
    gaps = [
        float((one.batch.waveforms - batch.waveforms).norm())
        for one in Direction.parse(text).render(batch, levels, draws=Draws(0))
    ]
    # Bit rates stand still for a while; nothing falls by more than a fiftieth.
    assert all(after >= 0.98 * before for before, after in pairwise(gaps))
    assert gaps[-1] > 1.2 * gaps[0]


# Recordings


def test_a_recorded_noise(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    hum = 0.3 * source.standard_normal(3000)
    soundfile.write(tmp_path / "hum.wav", hum, RATE, subtype="FLOAT")
    batch = clip(8000)
    noisy = Noise(kind="room", snr_db=10, file=str(tmp_path / "hum.wav"))(batch, draws=Draws(0))
    added = (noisy.waveforms - batch.waveforms)[0].double().numpy()
    # Too short: it comes again after 3000 samples.
    assert np.allclose(added[:3000], added[3000:6000], atol=1e-6)
    # Some turn of the recording, up to its level.
    ratio = np.array([np.corrcoef(added[:3000], np.roll(hum, -start))[0, 1] for start in range(3000)])
    assert ratio.max() > 0.9999


def test_a_piece_of_a_recording_is_taken_where_it_sounds(tmp_path: Path) -> None:
    sound = np.zeros(5 * RATE)
    sound[3 * RATE : 3 * RATE + 8000] = 0.2 * np.random.default_rng(0).standard_normal(8000)
    soundfile.write(tmp_path / "drop.flac", sound.clip(-1, 1), RATE)
    for seed in range(20):
        batch = clip(4000)
        noisy = Noise(kind="water-drops", snr_db=20, file=str(tmp_path))(batch, draws=Draws(seed))
        added = noisy.waveforms - batch.waveforms
        assert int((added.abs() > 1e-6).sum()) > 600


def test_a_folder_of_recordings_is_shared_out(tmp_path: Path) -> None:
    for number, hz in enumerate((500, 3000)):
        tone = 0.5 * np.sin(2 * np.pi * hz * np.arange(RATE) / RATE)
        soundfile.write(tmp_path / f"{number}.wav", tone, RATE)
    batch = AudioBatch.of([clip().clip(0).numpy()] * 12, RATE)
    noisy = Noise(kind="room", snr_db=0, file=str(tmp_path))(batch, draws=Draws(0))
    spectra = torch.fft.rfft(noisy.waveforms - batch.waveforms).abs()
    # 8000 samples at 16 kHz: bins of 2 Hz.
    assert {int(place) * 2 for place in spectra.argmax(dim=1)} == {500, 3000}


def test_recordings_in_a_direction(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "hall.wav", np.r_[np.zeros(50), 0.9, np.zeros(99), 0.3, np.zeros(40)], RATE)
    chain = Direction.parse("drr+white").at(80, {"drr": str(tmp_path / "hall.wav"), "room": "not used"})
    assert chain.members[0][1] == ReverbRatio(strength=80, file=str(tmp_path / "hall.wav"))
    with pytest.raises(UnknownName, match="recorded"):
        Direction.parse("white").at(80, {"white": "x.wav"})


# Bad input


@pytest.mark.parametrize("strength", [-1, 100.5, float("nan"), float("inf")])
@pytest.mark.parametrize("name", MAKERS)
def test_strengths_out_of_range(name: str, strength: float) -> None:
    with pytest.raises(InputError, match="strength: expected 0 to 100"):
        MAKERS[name](strength=strength)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Noise(snr_db=float("nan")),
        lambda: Noise(snr_db=3.0, strength=3.0),
        lambda: Noise(kind="white", file="a.wav"),
        lambda: Noise(kind="room", file="/nowhere/room.wav"),
        lambda: ReverbRatio(file="/nowhere/hall.wav"),
        lambda: ReverbRatio(drr_db=float("inf")),
        lambda: ReverbRatio(rt60_seconds=0.0),
        lambda: ReverbTime(rt60_seconds=-1.0),
        lambda: ReverbTime(drr_db=float("nan")),
        lambda: Mp3Coding(kbps=4),
        lambda: MuLawCoding(levels=2),
        lambda: Equaliser(amount=1.5),
        lambda: Equaliser(bands=(1, 1, 1)),
        lambda: Pops(percent=0),
        lambda: Dropouts(percent=101),
        lambda: GriffinLim(iterations=0),
        lambda: Direction(()),
        lambda: Direction.parse(""),
        lambda: Direction.parse("whit"),
        lambda: Direction.parse("white+pink"),
        lambda: Direction.draw(Draws(0), "a", among=()),
        lambda: Direction.draw(Draws(0), "a", among=("echo",)),
    ],
)
def test_bad_settings(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]


def test_bad_recordings(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(100), RATE)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.wav").write_text("not audio", encoding="utf-8")
    with pytest.raises(InputError, match="silence"):
        Noise(kind="room", file=str(tmp_path / "silent.wav"))(clip(), draws=Draws(0))
    with pytest.raises(InputError, match="audio files"):
        Noise(kind="room", file=str(tmp_path / "empty"))
    with pytest.raises(InputError, match="libsndfile"):
        Noise(kind="room", file=str(tmp_path / "text.wav"))(clip(), draws=Draws(0))
    soundfile.write(tmp_path / "dry.wav", np.r_[0.9, np.zeros(10)], RATE)
    with pytest.raises(InputError, match="tail"):
        ReverbRatio(file=str(tmp_path / "dry.wav"))(clip(), draws=Draws(0))


@pytest.mark.parametrize("name", MAKERS)
def test_not_a_number(name: str) -> None:
    batch = clip()
    broken = batch.with_waveforms(batch.waveforms / 0.0)
    with pytest.raises(InputError, match="'clip': got NaN or infinite samples"):
        MAKERS[name]()(broken, draws=Draws(0))


def test_a_clip_of_one_sample() -> None:
    with pytest.raises(InputError, match="without DC"):
        Noise(snr_db=10)(clip(1), draws=Draws(0))


def test_no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        @staticmethod
        def available_formats() -> dict[str, str]:
            return {"WAV": ""}

    monkeypatch.setattr(codecs, "_soundfile", lambda: Old)
    with pytest.raises(MissingExtra, match="libsndfile"):
        Mp3Coding(kbps=64)


def test_odd_levels() -> None:
    assert [odd_levels(one) for one in (3, 3.9, 4.1, 6.344, 28.37, 60)] == [3, 3, 5, 7, 29, 59]


def test_nearest_bit_rates() -> None:
    # By ratio: 20 lies nearer to 24 (1.2) than to 16 (1.25).
    assert [nearest_kbps(kbps, 16000) for kbps in (320, 150, 20, 8)] == [160, 144, 24, 8]
    assert [nearest_kbps(kbps, 44100) for kbps in (320, 8)] == [320, 32]
    assert [nearest_kbps(kbps, 8000) for kbps in (320, 8)] == [64, 8]
    with pytest.raises(InputError, match="resample"):
        nearest_kbps(64, 1000)
