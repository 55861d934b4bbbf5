"""Made-up listeners: what they answer, and whole studies that they take through the real server."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import TypeAdapter
from scipy import stats
from typer.testing import CliRunner

from sottovoce.cli.listen_results import results as results_command
from sottovoce.cli.listen_results import simulate as simulate_command
from sottovoce.errors import InputError
from sottovoce.listening.analysis.answer_rows import AnswerRow, counted
from sottovoce.listening.analysis.counted_answers import abx_success, choices, name_accuracy
from sottovoce.listening.analysis.jnd_searches import sounds_of
from sottovoce.listening.server.database import default_url, open_engine, read_answers
from sottovoce.listening.session import protocol
from sottovoce.listening.session.protocol import Slot
from sottovoce.listening.session.simulate import Wire, make_person, simulate
from sottovoce.listening.session.simulated_persons import Hearing, Person, abx_chance
from sottovoce.listening.study.sound_keys import ANTIPHASE, PLAIN, QUIET
from sottovoce.listening.study.stimuli import prepare
from sottovoce.listening.study.study_file import read_study
from sottovoce.perception.jnd.answers import read_answers as read_folder

KINDS = ("naming", "abx", "same-different", "mushra", "preference", "closer")
GIVEN: TypeAdapter[protocol.Given] = TypeAdapter(protocol.Given)


def slot(label: str) -> Slot:
    return Slot(label=label, audio="x")


@pytest.fixture
def hearing(maker: Any) -> Hearing:
    content = read_study(maker.write(maker.content("abx")))
    return Hearing(content, sounds_of(prepare(content, maker.folder / "cache"), content))


def sober(hearing: Hearing, number: int = 0) -> Person:
    return Person(hearing=hearing, number=number, lapse=0.0, noise=0.0)


def ask(person: Person, screen: Any, clips: dict[str, str], times: int = 200) -> list[dict[str, Any]]:
    """The same screen at many places of a session; every answer is one that the protocol has."""
    found = [person.answer(screen, clips, place) for place in range(times)]
    for one in found:
        GIVEN.validate_python(one)
    return found


def test_same_different(hearing: Hearing) -> None:
    screen = protocol.SameDifferent(id="s", question="?", first=slot("First"), second=slot("Second"))
    chance = hearing.probability(hearing.apart("w0", "w0-adv"))
    said = sum(one["different"] for one in ask(sober(hearing), screen, {"First": "w0", "Second": "w0-adv"}))
    assert chance > 0.9 and stats.binomtest(said, 200, chance).pvalue > 1e-4
    assert not any(one["different"] for one in ask(sober(hearing), screen, {"First": "w0", "Second": "w0"}))
    # Who throws a coin says "different" half of the time: 200 draws, 4.4 standard deviations.
    coin = Person(hearing=hearing, number=1, lapse=1.0)
    said = sum(one["different"] for one in ask(coin, screen, {"First": "w0", "Second": "w0"}))
    assert abs(said - 100) < 4.4 * math.sqrt(50)


def test_abx_by_a_given_d_prime(hearing: Hearing) -> None:
    screen = protocol.Abx(id="s", question="?", a=slot("A"), b=slot("B"), x=slot("X"))
    clips = {"A": "w0", "B": "w0-adv", "X": "w0-adv"}
    for d_prime, expected in ((0.0, 0.5), (1.0, 0.59973), (8.0, 1.0)):
        person = Person(hearing=hearing, number=2, lapse=0.0, noise=0.0, d_prime=d_prime)
        right = sum(one["choice"] == "b" for one in ask(person, screen, clips, 400))
        assert stats.binomtest(right, 400, expected).pvalue > 1e-4


def test_abx_chance_by_simulation() -> None:
    # One observation of A, B and X each, unit normals d' apart: X goes to the nearer side when A and B are
    # told apart by which is larger. P = Phi(d'/sqrt 2) Phi(d'/2) + its complement, by hand for d' = 1:
    # 0.76025 * 0.69146 + 0.23975 * 0.30854.
    assert abx_chance(1.0) == pytest.approx(0.76025 * 0.69146 + 0.23975 * 0.30854, abs=1e-4)
    assert abx_chance(0.0) == 0.5


def test_confidence_follows_what_is_heard(hearing: Hearing) -> None:
    screen = protocol.Abx(id="s", question="?", a=slot("A"), b=slot("B"), x=slot("X"))
    clips = {"A": "w0", "B": "w0-adv", "X": "w0"}
    for d_prime, mostly in ((0.0, "low"), (8.0, "high")):
        person = Person(hearing=hearing, number=3, lapse=0.0, noise=0.0, d_prime=d_prime)
        given = Counter(one["confidence"] for one in ask(person, screen, clips))
        assert given[mostly] > 100


def test_naming(hearing: Hearing) -> None:
    screen = protocol.Naming(
        id="s",
        question="?",
        clip=slot("Clip"),
        choices=["yes", "no"],
        scale_question="?",
        scale=list("12345"),
    )
    clean, changed = (ask(sober(hearing), screen, {"Clip": key}) for key in ("w0", "w0-adv"))
    assert stats.binomtest(sum(one["choice"] == "yes" for one in clean), 200, 0.94).pvalue > 1e-4
    means = [sum(one["naturalness"] for one in some) / 200 for some in (clean, changed)]
    assert means[0] == pytest.approx(4.3, abs=0.3) and means[1] < means[0] - 1


def test_a_reference_that_the_study_does_not_play(maker: Any) -> None:
    content = read_study(maker.write(maker.content("naming", items=["w0-adv", "w1"])))
    shelf = prepare(content, maker.folder / "cache")
    assert "w0" not in shelf
    found = Hearing(content, sounds_of(shelf, content))
    assert found.changed("w0-adv") == pytest.approx(found.apart("w0", "w0-adv"), rel=1e-6) != 0.0
    assert (found.changed("w1"), found.changed("render:white:0:w1")) == (0.0, None)


def test_mushra_and_choices(hearing: Hearing) -> None:
    screen = protocol.Mushra(id="s", question="?", reference=slot("Reference"), clips=[slot("A"), slot("B")])
    (one,) = ask(sober(hearing), screen, {"Reference": "w0", "A": "w0-adv", "B": "w0"}, 1)
    assert one["ratings"]["B"] == 100 and one["ratings"]["A"] < 100
    closer = protocol.Closer(id="s", question="?", reference=slot("Reference"), a=slot("A"), b=slot("B"))
    chosen = ask(sober(hearing), closer, {"Reference": "w0", "A": "w0-adv", "B": "w0"})
    assert sum(one["choice"] == "b" for one in chosen) > 140
    # Without a reference slot, the clips' own references count.
    prefer = protocol.Preference(id="s", question="?", a=slot("A"), b=slot("B"))
    assert sum(one["choice"] == "b" for one in ask(sober(hearing), prefer, {"A": "w0-adv", "B": "w0"})) > 140


def test_checks_and_forms(hearing: Hearing) -> None:
    person = sober(hearing)
    phones = protocol.Headphones(id="s", question="?", clips=[slot("1"), slot("2"), slot("3")])
    right = [one["choice"] for one in ask(person, phones, {"1": PLAIN, "2": ANTIPHASE, "3": QUIET})]
    assert right.count(2) > 185
    form = protocol.Questionnaire(
        id="s",
        title="You",
        questions=[
            protocol.Question(name="age", text="?", kind="number"),
            protocol.Question(name="where", text="?", kind="choice", choices=["here", "there"]),
            protocol.Question(name="say", text="?"),
        ],
    )
    (one,) = ask(person, form, {}, 1)
    assert one["answers"]["say"] == "simulated" and one["answers"]["where"] in ("here", "there")
    assert ask(person, protocol.Consent(id="s", title="", text=""), {}, 1) == [
        {"kind": "consent", "agreed": True}
    ]
    assert ask(person, protocol.Notice(id="s", title="", text=""), {}, 1) == [{"kind": "notice"}]
    with pytest.raises(InputError, match="the end of the session"):
        person.answer(protocol.Done(id="s", title="", text=""), {}, 0)


def test_answers_hang_on_the_seed_and_place_alone(hearing: Hearing) -> None:
    screen = protocol.SameDifferent(id="s", question="?", first=slot("First"), second=slot("Second"))
    clips = {"First": "w0", "Second": "w0-adv"}
    one, again, other = (Person(hearing=hearing, number=4, seed=seed, lapse=0.5) for seed in (1, 1, 2))
    assert ask(one, screen, clips) == ask(again, screen, clips) != ask(other, screen, clips)
    assert one.seconds(3) == again.seconds(3) > 0


def test_persons_differ_and_some_do_not_listen(hearing: Hearing) -> None:
    people = [make_person(hearing, number, 0, 0.25, None) for number in range(200)]
    assert len({person.bias for person in people}) == 200
    asleep = sum(person.lapse == 1.0 for person in people)
    assert stats.binomtest(asleep, 200, 0.25).pvalue > 1e-4
    with pytest.raises(InputError, match="lapse from 0 to 1"):
        Person(hearing=hearing, number=0, lapse=2.0)


app = typer.Typer()
app.command(name="results")(results_command)
app.command(name="simulate")(simulate_command)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def rows_of(path: Path) -> list[AnswerRow]:
    engine = open_engine(default_url(path))
    try:
        return read_answers(engine)
    finally:
        engine.dispose()


def write_everything(maker: Any) -> Path:
    content = maker.content("naming")
    content["blocks"] = [maker.content(kind)["blocks"][0] for kind in KINDS]
    content["consent"] = "May we keep your answers?"
    content["headphones"] = {"trials": 6}
    content["questionnaire"] = [{"name": "age", "text": "Age?", "kind": "number"}]
    return Path(maker.write(content))


@pytest.mark.slow
def test_a_dry_run_of_every_test(maker: Any) -> None:
    path = write_everything(maker)
    said = run("simulate", str(path), "--listeners", "6", "--inattentive", "0")
    assert "6 SIMULATED listeners, 0 of them inattentive" in said
    rows = rows_of(path)
    assert all(row.simulated for row in rows)
    assert len({row.session for row in rows}) == 6
    kept = counted(rows)
    assert set(KINDS) <= {row.kind for row in kept}
    # What a session draws is its own: now and then one slips on a sentinel. 12 clips named, six ABX each.
    accepted = len({row.session for row in kept})
    assert accepted >= 3
    assert sum(rate.n for rate in name_accuracy(kept)) == 12 * accepted
    assert abx_success(kept)[0].n == 6 * accepted
    worse = choices(kept, "closer")[0]
    assert worse.group == ("adversarial", "clean", "all") and worse.hits < worse.n / 2
    said = run("results", str(path), "--ear", "auditory", "--export", str(maker.folder / "answers"))
    assert "SIMULATED listeners, not people" in said and "ABX: how often X was found" in said
    page = maker.folder / "study-results" / "simulated-report.html"
    assert "MUSHRA: mean ratings" in page.read_text()
    folder = read_folder(maker.folder / "answers")
    # 24 comparisons and 6 sentinels each.
    assert (folder.summary().answers, folder.summary().sentinels) == (30 * accepted, 6 * accepted)
    assert folder.summary().simulated == folder.summary().listeners == accepted


@pytest.mark.slow
def test_who_does_not_listen_is_discarded(maker: Any) -> None:
    path = Path(maker.write(maker.content("same-different")))
    run("simulate", str(path), "--listeners", "4", "--inattentive", "1")
    rows = rows_of(path)
    # Six sentinels by a coin: one in 64 listeners gets through.
    assert sum(row.accepted is False for row in rows) >= len(rows) / 2
    said = run("results", str(path), "--ear", "none")
    assert "discarded" in said and "sentinels" in said


def test_results_before_anybody_came(maker: Any) -> None:
    path = maker.write(maker.content("abx"))
    with pytest.raises(InputError, match="there are no answers yet; run `sottovoce listen serve` first"):
        CliRunner().invoke(app, ["results", str(path)], catch_exceptions=False)


def test_bad_requests(maker: Any) -> None:
    content = read_study(maker.write(maker.content("abx")))
    shelf = prepare(content, maker.folder / "cache")
    with pytest.raises(InputError, match="expected --listeners of 1 or more"):
        simulate(content, shelf, "http://127.0.0.1:9", 0)
    with pytest.raises(InputError, match="no listening test server answers"):
        Wire("http://127.0.0.1:9").read("GET", "/healthz")
