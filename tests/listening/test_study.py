"""Study files: what is read, and each mistake by its sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sottovoce.errors import InputError
from sottovoce.listening.blocks import NATURALNESS, NamingBlock, SameDifferentBlock
from sottovoce.listening.study import make_study, read_study

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
    assert f"block 1 ({test}): expected clips of one length and rate to compare" in said
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
    assert "question 'age': expected choices" in refused(maker, content)


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "https://{host}/x", "//example.org", "https://x.org/{0}"]
)
def test_links_that_a_listener_could_bend(maker: Any, link: str) -> None:
    assert "link" in refused(maker, maker.content("abx") | {"completion": {"link": link}})


def test_the_answer_of_an_attention_test_is_a_choice(maker: Any) -> None:
    content = maker.content("abx")
    content["attention"] = [{"clip": "w0", "choices": ["tea", "sea"], "answer": "bee"}]
    assert "expected the answer among the choices, got 'bee'" in refused(maker, content)


def test_files_that_are_no_study(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a study file, got No such file"):
        read_study(tmp_path / "none.yaml")
    path = tmp_path / "study.yaml"
    path.write_text("- 1\n")
    with pytest.raises(InputError, match="expected entries such as"):
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


def test_steps_and_directions_exclude_each_other(maker: Any) -> None:
    both = {"reference": "w0", "direction": "white", "steps": {10: "w0-adv", 50: "w1-adv"}}
    assert "expected a direction or steps" in refused(maker, maker.content("same-different", items=[both]))
    block = make_study(maker.content("same-different")).blocks[0]
    assert isinstance(block, SameDifferentBlock)
    assert block.grid() == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
