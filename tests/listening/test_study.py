"""Study files: what is read, and each mistake by its sentence."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from sottovoce.errors import InputError
from sottovoce.listening.study.blocks import NATURALNESS, NamingBlock, SameDifferentBlock
from sottovoce.listening.study.study_file import make_study, read_study

TESTS = ("naming", "abx", "same-different", "mushra", "preference", "closer")


def refused(maker: Any, content: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        read_study(maker.write(content))
    return str(caught.value)


@pytest.mark.parametrize("test", TESTS)
def test_every_kind_of_test_is_read(maker: Any, test: str) -> None:
    study = read_study(maker.write(maker.content(test)))
    assert study.blocks[0].test == test
    assert Path(study.clips["w0"].path).is_absolute()
    assert Path(study.clips["w0"].path).is_file()


def test_the_scale_is_that_of_the_paper() -> None:
    assert NATURALNESS[2] == "Not sure"
    assert NATURALNESS[4] == "The audio clip clearly does not contain any artificial perturbation."


def test_words_that_yaml_takes_for_truth_are_words(maker: Any) -> None:
    clip = maker.clip("on")
    path = maker.folder / "study.yaml"
    path.write_text(
        "title: Words\nvolume: false\n"
        f"clips:\n  on: {{path: {clip['path']}, label: on}}\n"
        f"  no: {{path: {clip['path']}, label: no, level: 20}}\n"
        "blocks:\n- {test: naming, items: [on, no], choices: [yes, no, on, off]}\n",
        encoding="utf-8",
    )
    study = read_study(path)
    assert study.volume is False
    assert list(study.clips) == ["on", "no"]
    assert study.clips["no"].level == "20"
    block = study.blocks[0]
    assert isinstance(block, NamingBlock)
    assert block.choices == ["yes", "no", "on", "off"]


def test_a_missing_clip_is_named_with_its_path(maker: Any) -> None:
    content = maker.content("abx")
    (maker.folder / "audio" / "w3.wav").unlink()
    said = refused(maker, content)
    assert "clip 'w3': expected an audio file" in said
    assert "w3.wav, got no such file" in said


def test_a_file_that_is_no_audio(maker: Any) -> None:
    content = maker.content("abx")
    (maker.folder / "audio" / "w3.wav").write_text("hello")
    assert "clip 'w3': expected audio that libsndfile reads" in refused(maker, content)


def test_an_empty_clip(maker: Any) -> None:
    content = maker.content("abx")
    maker.clip("w3", samples=0)
    assert "clip 'w3': expected 0.05 s of sound or more, got 0 samples" in refused(maker, content)


@pytest.mark.parametrize("test", ["abx", "mushra"])
def test_two_lengths_cannot_be_compared(maker: Any, test: str) -> None:
    content = maker.content(test)
    maker.clip("w1-adv", samples=4001)
    said = refused(maker, content)
    assert f"block 1 ({test}): clips to compare must have the same length and rate" in said
    assert "4000" in said and "4001" in said and "'w1'" in said and "'w1-adv'" in said


def test_two_rates_cannot_be_compared(maker: Any) -> None:
    content = maker.content("abx")
    maker.clip("w1-adv", rate=8000)
    said = refused(maker, content)
    assert "got 8000 Hz of 'w1-adv' and 16000 of 'w1'" in said


def test_one_rate_in_a_block(maker: Any) -> None:
    content = maker.content("naming")
    maker.clip("w4", rate=8000)
    assert "expected one sample rate in a block" in refused(maker, content)


def test_clips_of_a_preference_may_have_two_lengths(maker: Any) -> None:
    content = maker.content("preference")
    maker.clip("w1-adv", samples=5000)
    assert read_study(maker.write(content)).blocks[0].test == "preference"


def test_an_unknown_test_is_answered_with_the_nearest(maker: Any) -> None:
    content = maker.content("abx")
    content["blocks"][0]["test"] = "abxx"
    assert "unknown test 'abxx': did you mean 'abx'?" in refused(maker, content)


def test_a_block_without_a_test(maker: Any) -> None:
    content = maker.content("abx")
    del content["blocks"][0]["test"]
    assert "expected `test: NAME` in every block" in refused(maker, content)


@pytest.mark.parametrize(
    ("place", "key", "said"),
    [
        ((), "titel", "unknown entry 'titel': did you mean 'title'?"),
        (("blocks", 0), "choises", "unknown entry 'choises': did you mean 'choices'?"),
        (("clips", "w0"), "lable", "unknown entry 'lable': did you mean 'label'?"),
    ],
)
def test_unknown_entries_at_every_depth(maker: Any, place: tuple[Any, ...], key: str, said: str) -> None:
    content = maker.content("naming")
    inner = content
    for step in place:
        inner = inner[step]
    inner[key] = "x"
    assert said in refused(maker, content)


def test_choices_without_the_right_answer(maker: Any) -> None:
    said = refused(maker, maker.content("naming", choices=["yes", "maybe"]))
    assert "expected the label of every clip among the choices, got 'no' of clip 'w1'" in said


def test_an_id_twice(maker: Any) -> None:
    clip = maker.clip("w0")["path"]
    path = maker.folder / "study.yaml"
    path.write_text(f"title: T\nclips:\n  w0: {{path: {clip}}}\n  w0: {{path: {clip}}}\nblocks: []\n")
    with pytest.raises(InputError, match=r"line 4: expected every id once, got 'w0' twice"):
        read_study(path)


def test_an_item_twice(maker: Any) -> None:
    said = refused(maker, maker.content("abx", items=["w0-adv", "w1-adv", "w0-adv"]))
    assert "expected every item once, got 'w0-adv' twice" in said


def test_an_item_that_is_no_clip(maker: Any) -> None:
    said = refused(maker, maker.content("abx", items=["w0-adw"]))
    assert "block 1 (abx): unknown clip 'w0-adw': did you mean 'w0-adv'?" in said


def test_an_abx_needs_a_reference(maker: Any) -> None:
    assert "expected clips with a reference, got 'w0' without" in refused(
        maker, maker.content("abx", items=["w0"])
    )


def test_an_anchor_that_the_rate_cannot_hold(maker: Any) -> None:
    content = maker.content("mushra")
    for name in ("w0", "w0-adv", "w1", "w1-adv"):
        maker.clip(name, rate=8000)
    # At 8 kHz there is nothing above 4 kHz, and 3.5 kHz falls off up to there.
    assert "expected anchors of at most 3500 Hz" in refused(maker, content)
    content["blocks"][0]["anchors_hz"] = [3500]
    assert read_study(maker.write(content)).blocks[0].test == "mushra"


def test_an_unknown_degradation(maker: Any) -> None:
    said = refused(maker, maker.content("same-different", items=[{"reference": "w0", "direction": "wite"}]))
    assert "unknown degradation 'wite': did you mean 'white'?" in said


def test_sentinels_that_do_not_share_out(maker: Any) -> None:
    said = refused(maker, maker.content("same-different", sentinels=4))
    assert "expected sentinels that share out evenly over 3 tracks of 10 comparisons, got 4" in said


def test_a_choice_question_needs_choices(maker: Any) -> None:
    content = maker.content("abx") | {"questionnaire": [{"name": "age", "text": "Age?", "kind": "choice"}]}
    assert "question 'age': kind: choice needs choices" in refused(maker, content)


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "https://{host}/x",
        "//example.org",
        "https://x.org/{0}",
        "https://x.org/?{code:d}",
        "https://x.org/?{code!r}",
    ],
)
def test_links_that_a_listener_could_bend(maker: Any, link: str) -> None:
    assert "link" in refused(maker, maker.content("abx") | {"completion": {"link": link}})


def test_the_answer_of_an_attention_test_is_a_choice(maker: Any) -> None:
    content = maker.content("abx")
    content["attention"] = [{"clip": "w0", "choices": ["tea", "sea"], "answer": "bee"}]
    assert "expected the answer among the choices, got 'bee'" in refused(maker, content)


def test_files_that_are_no_study(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a study file, got no such file"):
        read_study(tmp_path / "none.yaml")
    path = tmp_path / "study.yaml"
    path.write_text("- 1\n")
    with pytest.raises(InputError, match="with entries such as"):
        read_study(path)
    path.write_text("a: [")
    with pytest.raises(InputError, match="expected a study in YAML"):
        read_study(path)


def test_a_wrong_value_is_shown(maker: Any) -> None:
    assert "study.yaml, seats: " in refused(maker, maker.content("abx") | {"seats": 0})


def test_too_few_clips_for_the_preset(maker: Any) -> None:
    said = refused(maker, maker.content("abx") | {"preset": "v6"})
    assert "preset v6: expected a naming block and then an abx block, got abx" in said
    assert "unknown preset 'v7': did you mean 'v6'?" in refused(
        maker, maker.content("abx") | {"preset": "v7"}
    )


def test_the_digest_stands_for_the_content_and_not_for_the_place(maker: Any) -> None:
    content = maker.content("abx")
    one = make_study(content)
    moved = {key: clip | {"path": f"/elsewhere/{key}.wav"} for key, clip in content["clips"].items()}
    assert one.digest == make_study(content | {"clips": moved}).digest
    assert one.digest != make_study(content | {"seed": 4}).digest


def test_the_digest_stands_for_the_sound(maker: Any) -> None:
    path = maker.write(maker.content("abx"))
    before = read_study(path).digest
    assert read_study(path).digest == before
    # The report is made in a process of its own.
    assert pickle.loads(pickle.dumps(read_study(path))).digest == before
    # Of a clip that nobody hears nothing is known.
    content = maker.content("abx", items=["w0-adv"])
    short = read_study(maker.write(content)).digest
    maker.clip("w5", rms=0.1)
    assert read_study(path).digest == short
    maker.clip("w0", rms=0.1)
    assert read_study(path).digest != short
    maker.clip("w0")
    assert read_study(path).digest == short != before


def test_answers_to_another_sound_are_another_study_s(make_site: Any, tmp_path: Path) -> None:
    from sottovoce.listening.server.database import read_answers

    url = f"sqlite:///{tmp_path / 'answers.db'}"
    site = make_site("abx", url)
    listener = site.listener()
    listener.answer()
    # The server stops, and goes on with the same clips.
    again = make_site("abx", url)
    assert again.client.get(f"/api/sessions/{listener.token}/screen").json()["screen"] == listener.screen
    assert len(read_answers(again.engine, again.study.digest)) == 1
    (tmp_path / "audio" / "w0.wav").write_bytes((tmp_path / "audio" / "w1.wav").read_bytes())
    other = read_study(tmp_path / "study.yaml")
    assert read_answers(again.engine, other.digest) == []


@pytest.mark.parametrize("test", TESTS)
def test_a_session_shows_all_that_a_study_may_say(maker: Any, make_site: Any, test: str) -> None:
    """The longest texts that are let in, on every screen to the end, and in what is said after teaching."""
    words = ["y" * 4000, "n" * 4000]
    clips = maker.pairs(6)
    block: dict[str, Any] = {"title": "t" * 4000, "instructions": "i" * 20_000, "question": "q" * 4000}
    if test == "naming":
        for clip in clips.values():
            clip["label"] = words[0]
        block |= {"items": ["w0", "w1"], "teaching": ["w2"], "choices": words}
        block |= {"scale": ["s" * 4000] * 5, "scale_question": "s" * 4000}
    link = f"https://x.org/?{{code}}{{WHO}}{'l' * 3974}"
    entries: dict[str, Any] = {
        "consent": "c" * 20_000,
        "instructions": "i" * 20_000,
        "attention": [{"clip": "w0", "choices": words, "answer": words[0], "question": "q" * 4000}],
        "completion": {"text": "t" * 20_000, "code": "c" * 4000, "link": link},
        "clips": clips,
    }
    site = make_site(test, f"sqlite:///{maker.folder / 'answers.db'}", block=block, **entries)
    shown = site.listener(WHO="é" * 200).finish()
    assert (len(shown["text"]), len(shown["code"])) == (20_000, 4000)
    # 15 characters up to the question mark, the code, %C3%A9 for each é, and the rest.
    assert len(shown["link"]) == 15 + 4000 + 6 * 200 + 3974


def test_texts_that_no_screen_could_show(maker: Any) -> None:
    said = refused(maker, maker.content("abx") | {"consent": "c" * 20_001})
    assert "study.yaml, consent: expected a text of at most 20000 characters" in said
    said = refused(maker, maker.content("abx", question="q" * 4001))
    assert "study.yaml, blocks.0.question: expected a text of at most 4000 characters" in said


@pytest.mark.parametrize(
    ("clips", "conditions", "said"),
    [
        (["w1", "w0"], {}, "the reference joins by itself; leave it out of the clips"),
        (["w1", "w1"], {}, "expected every clip once, got 'w1' twice"),
        (["w1", "w2"], {"w2": ""}, "got 'w2' without; add `condition: NAME`"),
        (["w1", "w2"], {"w2": "one"}, "expected every condition once, got 'one' of 'w1' and of 'w2'"),
        (["w1", "w2"], {"w2": "reference"}, "got 'reference' of clip 'w2'"),
        (["w1", "w2"], {"w2": "anchor 3.5 kHz"}, "got 'anchor 3.5 kHz' of clip 'w2'"),
    ],
)
@pytest.mark.parametrize("entry", ["items", "teaching"])
def test_racks_that_make_no_sense(
    maker: Any, clips: list[str], conditions: dict[str, str], said: str, entry: str
) -> None:
    content = maker.content("mushra", **{entry: [{"reference": "w0", "clips": clips}]})
    for key, condition in ({"w1": "one", "w2": "two"} | conditions).items():
        content["clips"][key]["condition"] = condition
    told = refused(maker, content)
    assert told.startswith("block 1 (mushra), reference 'w0': ") and said in told


def test_own_anchors_where_none_are_made(maker: Any) -> None:
    content = maker.content("mushra", items=[{"reference": "w0", "clips": ["w1"]}], anchors_hz=[])
    content["clips"]["w1"]["condition"] = "anchor 3.5 kHz"
    assert read_study(maker.write(content)).blocks[0].test == "mushra"


def test_an_anchor_twice(maker: Any) -> None:
    said = refused(maker, maker.content("mushra", anchors_hz=[3500, 3500]))
    assert "block 1 (mushra): expected every anchor once, got 3500 Hz twice" in said


@pytest.mark.parametrize("test", ["preference", "closer"])
@pytest.mark.parametrize("entry", ["items", "teaching", "sentinels"])
def test_a_pair_of_one_clip(maker: Any, test: str, entry: str) -> None:
    pair = {"reference": "w0", "a": "w1", "b": "w1", "better": "a"}
    said = refused(maker, maker.content(test, **{entry: [pair]}))
    assert f"block 1 ({test}): expected two clips in a pair, got 'w1' twice" in said


def test_keys_and_paths_that_cannot_be(maker: Any) -> None:
    path = maker.write({})
    path.write_text("title: T\n? [a, b]\n: c\n")
    with pytest.raises(
        InputError, match=r"study\.yaml, line 2: expected a name before the colon, got \['a', 'b'\]"
    ):
        read_study(path)
    path.write_text("title: 2024-13-45\n")
    with pytest.raises(InputError, match="expected a study in YAML"):
        read_study(path)
    content = maker.content("abx")
    content["clips"]["w0"]["path"] = "x" * 5000
    assert "clip 'w0': expected an audio file at " in refused(maker, content)
    content["clips"]["w0"]["path"] = "~nouser-of-this-name/x.wav"
    assert "clip 'w0': expected a path, got '~nouser-of-this-name/x.wav'" in refused(maker, content)
    with pytest.raises(InputError, match=r"expected a path, got '~nouser-of-this-name/study\.yaml'"):
        read_study("~nouser-of-this-name/study.yaml")


def test_steps_and_directions_exclude_each_other(maker: Any) -> None:
    both = {"reference": "w0", "direction": "white", "steps": {10: "w0-adv", 50: "w1-adv"}}
    assert "expected a direction or steps" in refused(maker, maker.content("same-different", items=[both]))
    block = make_study(maker.content("same-different")).blocks[0]
    assert isinstance(block, SameDifferentBlock)
    assert block.grid() == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("seats: 1:30", ", line 3: expected a plain number, got 1:30, which YAML takes for 90; "),
        ("seats: 010", ", line 3: expected a plain number, got 010, which YAML takes for 8; "),
        ("title: 010", ", line 3: expected a plain number, got 010, .* or '010' in quotes if it is a text."),
        ("seats: .inf", ", line 3: expected a finite number, got .inf; "),
        ("seats: true", r", seats: expected a number, got true \(line 3\)\."),
        ("seats: yes", r", seats: expected a whole number, got 'yes' \(line 3\)\."),
        ("headphones: {trials: true}", r", headphones.trials: expected a number, got true \(line 3\)\."),
        ("seats: 0", r", seats: expected a number of at least 1, got 0 \(line 3\)\."),
    ],
)
def test_a_mistake_names_its_line(maker: Any, entry: str, message: str) -> None:
    path = maker.write(maker.content("abx"))
    kept = [line for line in path.read_text().splitlines() if not line.startswith(entry.partition(":")[0])]
    rest = "\n".join(kept)
    path.write_text(f"# one\n# two\n{entry}\n{rest}\n")
    with pytest.raises(InputError, match=message) as caught:
        read_study(path)
    assert str(caught.value).startswith(str(path))


def test_numbers_that_are_ids_stay_so(maker: Any) -> None:
    clip = maker.clip("on")["path"]
    path = maker.folder / "study.yaml"
    path.write_text(
        "title: 7\nvolume: True\nclips:\n"
        f"  1: {{path: {clip}, label: 30}}\n  '010': {{path: {clip}, label: no}}\n"
        "blocks:\n- {test: naming, items: [1, '010'], choices: [30, no]}\n"
    )
    study = read_study(path)
    assert (study.title, study.volume, list(study.clips)) == ("7", True, ["1", "010"])
    assert [clip.label for clip in study.clips.values()] == ["30", "no"]
