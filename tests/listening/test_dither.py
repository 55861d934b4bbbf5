"""Dither in each slot: a program that compares bytes finds nothing, and nobody hears it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.listening.analysis.jnd_searches import export, sounds_of
from sottovoce.listening.analysis.results import analyse
from sottovoce.listening.analysis.results_page import answers_csv
from sottovoce.listening.session.simulate import serving, simulate
from sottovoce.listening.study.study_file import make_study
from sottovoce.listening.study.test_sounds import dither, to_wav
from sottovoce.perception.jnd.answers import read_answers

PLAIN = {
    "title": "Which one is X?",
    "clips": {"a": {"path": "a.wav"}, "b": {"path": "b.wav", "reference": "a"}},
    "blocks": [{"test": "abx", "items": ["b"]}],
}


def samples_of(wav: bytes) -> np.ndarray:
    return np.frombuffer(wav[44:], dtype="<i2").astype(int)


def fetch(site: Any, listener: Any, slots: Any) -> dict[str, Any]:
    """What is behind each slot of the screen, as it comes over HTTP."""
    return {
        slot["label"]: site.client.get(f"/api/audio/{slot['audio']}?token={listener.token}")
        for slot in slots(listener.screen)
    }


def by_bytes(heard: dict[str, Any]) -> str:
    """X by its bytes; "a" where they say nothing."""
    return "b" if heard["X"].content == heard["B"].content else "a"


def by_difference(heard: dict[str, Any]) -> str:
    """X by what is left when A, and when B, is taken from it."""
    a, b, x = (samples_of(heard[label].content) for label in "ABX")
    return "a" if ((x - a) ** 2).sum() < ((x - b) ** 2).sum() else "b"


def solve(site: Any, slots: Any, solver: Any) -> tuple[int, int]:
    """Right answers and all answers of a program that takes the seats of a study: of 8 listeners, 6 each."""
    for _ in range(8):
        listener = site.listener()
        while listener.screen["kind"] != "done":
            given = None
            if listener.screen["kind"] == "abx":
                choice = solver(fetch(site, listener, slots))
                given = {"kind": "abx", "choice": choice, "confidence": "high"}
            listener.answer(given)
    rows = [row for row in site.rows() if row.kind == "abx"]
    return sum(bool(row.right) for row in rows), len(rows)


@pytest.mark.parametrize(
    ("dithered", "solver", "right"),
    [(False, by_bytes, 48), (True, by_bytes, 24), (True, by_difference, 48)],
)
def test_what_a_program_makes_of_an_abx(make_site, slots, tmp_path: Path, dithered, solver, right):
    """Over all seats X is A in 24 of the 48 trials: who always says so is at chance, and no better."""
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", dither=dithered)
    assert solve(site, slots, solver) == (right, 48)


@pytest.mark.parametrize("test", ["abx", "same-different", "mushra", "closer", "naming"])
def test_each_slot_has_noise_of_its_own_of_one_step(make_site, slots, tmp_path: Path, test):
    site = make_site(test, f"sqlite:///{tmp_path / 'a.db'}", dither=True)
    listener, seen = site.listener(), []
    while listener.screen["kind"] != "done":
        heard = fetch(site, listener, slots)
        listener.answer()
        row = site.rows()[-1]
        assert row.dither
        for label, reply in heard.items():
            plain = site.shelf.wav(row.roles[label])
            assert reply.content[:44] == plain[:44] and len(reply.content) == len(plain)
            apart = samples_of(reply.content) - samples_of(plain)
            assert set(apart.tolist()) == {-1, 0, 1}
            seen.append(reply.content)
        # Neither headers nor names tell more than they do without dither.
        assert len({tuple(sorted(reply.headers.items())) for reply in heard.values()}) <= 1
        assert not {"etag", "last-modified"} & {name for one in heard.values() for name in one.headers}
    assert len(set(seen)) == len(seen) >= 10


@pytest.mark.parametrize("dithered", [False, True])
def test_two_clips_that_are_the_same(make_site, slots, tmp_path: Path, dithered):
    """The second teaching trial of same-different plays one clip twice."""
    site = make_site("same-different", f"sqlite:///{tmp_path / 'a.db'}", dither=dithered)
    listener = site.listener()
    listener.until("same-different")
    listener.answer()
    heard = fetch(site, listener, slots)
    listener.answer()
    roles = site.rows()[-1].roles
    assert roles["First"] == roles["Second"]
    assert (heard["First"].content == heard["Second"].content) is not dithered


def test_a_page_that_is_loaded_again_gets_the_same_bytes(make_site, slots, tmp_path: Path):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", dither=True)
    listener = site.listener()
    listener.until("abx")
    first = {label: reply.content for label, reply in fetch(site, listener, slots).items()}
    assert {label: reply.content for label, reply in fetch(site, listener, slots).items()} == first
    # A server that was started again, and has nothing in memory.
    other = site.open()
    assert {label: reply.content for label, reply in fetch(other, listener, slots).items()} == first
    other.engine.dispose()


def test_another_listener_gets_other_noise(make_site, slots, tmp_path: Path):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", dither=True, block={"items": ["w0-adv"]})
    heard = []
    for _ in range(4):
        listener = site.listener()
        listener.until("abx")
        heard += [reply.content for reply in fetch(site, listener, slots).values()]
    # Twelve slots, two clips.
    assert len(set(heard)) == 12


def test_the_noise_is_that_of_shake():
    """SHAKE128 of nothing begins 7f9c2ba4e88f827d616045507605853e (FIPS 202): of sixteen bytes e8 is among
    the highest 32, and 05 among the lowest 32."""
    plain = to_wav(np.full(16, 1000, dtype=np.int16), 16000, 16)
    noise = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0]
    assert (samples_of(dither(plain, b"")) - 1000).tolist() == noise
    assert dither(plain, b"")[:44] == plain[:44]


def test_dither_does_not_wrap_at_full_scale():
    loud = np.tile(np.array([32767, -32768], dtype=np.int16), 1000)
    heard = samples_of(dither(to_wav(loud, 16000, 2000), b"any"))
    assert set(heard[::2].tolist()) == {32766, 32767} and set(heard[1::2].tolist()) == {-32768, -32767}


def test_dither_is_triangular():
    """Noise of density 1 - |x| rounds to a step up, and to one down, an eighth of the time each; its power is
    a quarter of a step squared, 96.3 dB below full scale. Silence at the end has it too."""
    noise = samples_of(dither(to_wav(np.zeros(0, dtype=np.int16), 16000, 400_000), b"any"))
    # Five standard errors: 5 sqrt(1/8 7/8 / 400000).
    for step, share in ((-1, 0.125), (0, 0.75), (1, 0.125)):
        assert np.mean(noise == step) == pytest.approx(share, abs=0.0035)
    assert 10 * np.log10(np.mean(noise**2) / 32768**2) == pytest.approx(-96.3, abs=0.1)


def test_a_study_without_dither_is_the_one_it_was():
    """The digest is that of the version before there was dither."""
    before = "51fa9dc803bafee06fae96f9fe846aca1d0fc2fe0829c28771333c96e82b5ccd"
    assert make_study(PLAIN).digest == make_study({**PLAIN, "dither": False}).digest == before
    assert make_study({**PLAIN, "dither": True}).digest != before
    with pytest.raises(InputError, match=r"study, dither: .* got 'maybe'"):
        make_study({**PLAIN, "dither": "maybe"})


@pytest.mark.parametrize("dithered", [False, True])
def test_results_say_whether_clips_were_dithered(make_site, tmp_path: Path, dithered):
    block = {"items": [{"reference": "w0", "direction": "white"}], "comparisons": 4, "sentinels": 1}
    site = make_site("same-different", f"sqlite:///{tmp_path / 'a.db'}", block=block, dither=dithered)
    listener = site.listener()
    while listener.screen["kind"] != "done":
        different = len(listener.seen) % 2 == 0
        given = {"kind": "same-different", "different": different}
        listener.answer(given if listener.screen["kind"] == "same-different" else None)
    rows = [row for row in site.rows() if row.kind == "same-different"]
    assert {row.dither for row in rows} == {dithered}

    told = site.client.get("/api/admin/answers.csv", headers=site.admin).text
    for text in (told, answers_csv(site.rows())):
        assert {line["dither"] for line in csv.DictReader(io.StringIO(text))} == {str(dithered)}
    assert site.client.get("/api/admin/progress", headers=site.admin).json()["dither"] is dithered
    page = site.client.get("/results", headers=site.admin).text
    assert ("Clips are dithered" in page) is dithered

    table = analyse(site.study, site.rows(), ear=None).tables[0]
    assert (("heard with dither, different in each slot", 1) in table.rows) is dithered

    accepted = [type(row)(**{**vars(row), "accepted": True}) for row in rows]
    export(accepted, sounds_of(site.shelf, site.study), tmp_path / "answers")
    assert {one.dither for one in read_answers(tmp_path / "answers").answers} == {dithered}


def test_simulated_listeners_recognise_dithered_clips(make_site, tmp_path: Path):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", dither=True)
    with serving(site.app) as url:
        sat = simulate(site.study, site.shelf, url, 2, inattentive=0.0, d_prime=20.0)
    assert [one.screens for one in sat] == [7, 7]
    # Who hears every difference finds X; a lapse in fifty may miss one.
    assert sum(bool(row.right) for row in site.rows() if row.kind == "abx") >= 11
