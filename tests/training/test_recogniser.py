"""Training of the recogniser: its parts by hand, and eight strings learnt by heart."""

from __future__ import annotations

import json
from pathlib import Path

import jiwer
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import InputError
from sottovoce.targets.open_target import open_target
from sottovoce.targets.zoo.conformer import Conformer, ConformerSize
from sottovoce.training.recogniser import train_recogniser as recogniser
from sottovoce.training.recogniser.recogniser_errors import JudgedClips, add_noise, judge, listen
from sottovoce.training.recogniser.recogniser_pack import RecogniserPack, join, of_items, save_pack
from sottovoce.training.recogniser.train_recogniser import (
    RecogniserRecipe,
    augment,
    batch_loss,
    learning_rate,
    mask,
    train,
)
from sottovoce.training.recogniser.word_strings import ItemBank, Style, draw_plan, render
from sottovoce.training.validation_figures import score

TINY = ConformerSize(bands=20, maps=8, width=32, blocks=1, heads=2, kernel=5)
PLAIN = RecogniserRecipe(
    size=TINY,
    dropout=0.0,
    noisy_share=0.0,
    tilt_db=(0.0, 0.0),
    gain_db=(0.0, 0.0),
    band_masks=1,
    mask_bands=0,
    mask_frames=0,
)
PITCHES_HZ = {"go": 300.0, "no": 900.0, "off": 2_700.0}


def beeps(split: str, takes: int, seed: int) -> RecogniserPack:
    """Words that are tones of half a second, each of its own pitch, and one sentence, a tone as well."""
    random = np.random.default_rng(seed)
    texts = [*(word for word in PITCHES_HZ for _ in range(takes)), "go off"]
    items = []
    for text in texts:
        time = np.arange(8_000) / 16_000
        pitch_hz = PITCHES_HZ.get(text, 1_500.0) * random.uniform(0.97, 1.03)
        items.append(
            (8_000 * np.sin(2 * np.pi * pitch_hz * time) + random.normal(0, 20, 8_000)).astype(np.int16)
        )
    kinds = ["word"] * (len(texts) - 1) + ["sentence"]
    return of_items(items, texts=texts, split=[split] * len(texts), kind=kinds, source=["beep"] * len(texts))


def test_word_errors_by_hand() -> None:
    # left for right, and now left out: 2 of 3 words; then 3 of 3 missing, and none wrong of 1: 5 of 7.
    assert score(["go left"], ["go right now"], "words").value == pytest.approx(2 / 3)
    found = score(["go left", "", "stop"], ["go right now", "yes no up", "stop"], "words")
    assert found.value == pytest.approx(5 / 7)


@given(st.lists(st.sampled_from("abc"), max_size=7), st.lists(st.sampled_from("abc"), min_size=1, max_size=7))
def test_word_errors_are_jiwers(said: list[str], meant: list[str]) -> None:
    found = score([" ".join(said)], [" ".join(meant)], "words")
    assert found.value == pytest.approx(jiwer.wer(" ".join(meant), " ".join(said)))


def test_learning_rate_by_hand() -> None:
    recipe = RecogniserRecipe(learning_rate=1e-3, warm_up_steps=100)
    assert learning_rate(recipe, 50, 0.0) == pytest.approx(5e-4)
    assert learning_rate(recipe, 1_000, 0.0) == pytest.approx(1e-3)
    assert learning_rate(recipe, 1_000, 0.5) == pytest.approx(5e-4)
    assert learning_rate(recipe, 1_000, 1.0) == learning_rate(recipe, 1_000, 1.2) == pytest.approx(0.0)


def test_noise_has_its_level_and_ends_with_the_row() -> None:
    tone = torch.sin(torch.arange(16_000) * 0.3).repeat(2, 1)
    tone[1, 8_000:] = 0.0
    lengths = torch.tensor([16_000, 8_000])
    noise = add_noise(tone, lengths, (20.0, 20.0), torch.Generator().manual_seed(0)) - tone
    assert noise[1, 8_000:].abs().max() == 0.0
    # The sine has a power of a half; 20 dB below it is 0.005. Brown noise is uneven over half a row.
    assert noise[0].square().mean().item() == pytest.approx(0.005, rel=1e-2)
    assert noise[1, :8_000].square().mean().item() == pytest.approx(0.005, rel=0.5)
    still = add_noise(tone, lengths, (20.0, 20.0), torch.Generator().manual_seed(0), share=0.0)
    assert torch.equal(still, tone)


def test_augmented_rows_lie_on_16_bits_and_end_where_they_ended() -> None:
    rows = torch.randn(3, 8_000, generator=torch.Generator().manual_seed(0)) * 0.05
    lengths = torch.tensor([8_000, 4_000, 6_000])
    rows[1, 4_000:] = rows[2, 6_000:] = 0.0
    heard = augment(rows, lengths, RecogniserRecipe(), torch.Generator().manual_seed(0)) * 32768.0
    assert torch.equal(heard, heard.round())
    assert heard.abs().max() <= 32768.0
    assert heard[1, 4_000:].abs().max() == heard[2, 6_000:].abs().max() == 0.0


def test_masks_blank_whole_bands_and_frames() -> None:
    recipe = RecogniserRecipe(band_masks=1, mask_bands=10, frame_masks=1, mask_frames=12)
    blank = mask(torch.ones(40, 200, 80), recipe, torch.Generator().manual_seed(0)) == 0
    bands, frames = blank.all(dim=1).sum(dim=1), blank.all(dim=2).sum(dim=1)
    assert 1 <= bands.max() <= 10
    assert 1 <= frames.max() <= 12
    # What is blank is the union of the two, and nothing else.
    assert torch.equal(blank.sum(dim=(1, 2)), bands * 200 + frames * 80 - bands * frames)


def test_strings_to_judge_by_are_the_same_each_time() -> None:
    bank = ItemBank(beeps("test", 2, seed=0))
    one, two = listen(bank, strings=5), listen(bank, strings=5)
    assert one.texts == two.texts
    assert torch.equal(one.waveforms, two.waveforms)
    assert all(2 <= len(text.split()) <= 6 for text in one.texts)
    assert listen(bank).texts == ("go off",)


@pytest.mark.slow
def test_eight_strings_are_learnt_by_heart() -> None:
    bank = ItemBank(beeps("train", 3, seed=0))
    plan = draw_plan(bank, np.random.default_rng(0), Style(words=(2, 3)), strings=7, sentences=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Conformer(TINY, dropout=0.0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(250):
        loss = batch_loss(model, bank, plan, PLAIN, generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 < 2.0 < losses[0]
    rates = judge(model.eval(), JudgedClips(*render(bank, plan), plan.texts))
    assert (rates.clips, rates.wer.value, rates.cer.value) == (8, 0.0, 0.0)


@pytest.mark.slow
def test_a_run_writes_weights_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recogniser, "VALID_STRINGS", 3)
    monkeypatch.setattr(recogniser, "TEST_STRINGS", 4)
    pack = join([beeps(split, 2, seed) for seed, split in enumerate(("train", "valid", "test"))])
    save_pack(pack, tmp_path, parts=2)
    state = torch.random.get_rng_state()
    lines: list[str] = []
    recipe = RecogniserRecipe(size=TINY, strings=2, sentences=2)
    report = train(tmp_path, tmp_path / "out", minutes=0.02, recipe=recipe, log=lines.append)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert report.sentences is not None
    assert (report.strings.clips, report.sentences.clips) == (4, 1)
    assert report.steps >= 1
    assert json.loads((tmp_path / "out" / "recogniser.json").read_text())["parameters"] == report.parameters
    weights = safetensors.torch.load_file(tmp_path / "out" / "recogniser.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float16}
    assert sum(value.numel() for value in weights.values()) == report.parameters
    assert lines[-2].startswith("test strings: WER ")
    assert lines[-1].startswith("test sentences: WER ")


@pytest.mark.slow
def test_a_run_of_so_many_steps_on_words_alone_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recogniser, "VALID_STRINGS", 3)
    monkeypatch.setattr(recogniser, "TEST_STRINGS", 4)
    packs = [beeps(split, 2, seed) for seed, split in enumerate(("train", "valid", "test"))]
    save_pack(join([pack.part(pack.kind == "word") for pack in packs]), tmp_path, parts=2)
    recipe = RecogniserRecipe(size=ConformerSize(maps=8, width=16, blocks=2), strings=2, sentences=0)
    runs = [tmp_path / name for name in ("one", "two")]
    reports = [train(tmp_path, run, steps=3, recipe=recipe, log=lambda line: None) for run in runs]
    assert [report.steps for report in reports] == [3, 3]
    assert [report.sentences for report in reports] == [None, None]
    one, two = ((run / "recogniser.safetensors").read_bytes() for run in runs)
    assert one == two
    # Files of any size open as targets.
    target = open_target(f"recogniser(weights={runs[0] / 'recogniser.safetensors'})", "cpu")
    assert sum(value.numel() for value in target.module.parameters()) == reports[0].parameters


@pytest.mark.slow
def test_a_run_goes_on_from_a_file_and_keeps_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recogniser, "VALID_STRINGS", 3)
    monkeypatch.setattr(recogniser, "TEST_STRINGS", 4)
    save_pack(
        join([beeps(split, 2, seed) for seed, split in enumerate(("train", "valid", "test"))]),
        tmp_path,
        parts=2,
    )
    size = ConformerSize(maps=8, width=16, blocks=2)
    start = {name: value.half() for name, value in Conformer(size).state_dict().items()}
    safetensors.torch.save_file(start, tmp_path / "start.safetensors")
    # Without a rate nothing is learnt: what comes out is what went in, not what the recipe would begin with.
    recipe = RecogniserRecipe(learning_rate=0.0, strings=2, sentences=0)
    file = tmp_path / "start.safetensors"
    train(tmp_path, tmp_path / "out", steps=2, recipe=recipe, log=lambda line: None, weights=file)
    kept = safetensors.torch.load_file(tmp_path / "out" / "recogniser.safetensors")
    assert kept.keys() == start.keys()
    learnt = [name for name, _ in Conformer(size).named_parameters()]
    assert all(torch.equal(kept[name], start[name]) for name in learnt)


def test_a_file_to_begin_with_must_hold_a_recogniser(tmp_path: Path) -> None:
    save_pack(
        join([beeps(split, 1, seed) for seed, split in enumerate(("train", "valid", "test"))]),
        tmp_path,
        parts=2,
    )
    (tmp_path / "start.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"start\.safetensors: no Conformer"):
        train(tmp_path, tmp_path / "out", weights=tmp_path / "start.safetensors")


def test_sentences_are_asked_for_where_the_pack_has_none(tmp_path: Path) -> None:
    packs = [beeps(split, 1, seed) for seed, split in enumerate(("train", "valid", "test"))]
    save_pack(join([pack.part(pack.kind == "word") for pack in packs]), tmp_path, parts=2)
    with pytest.raises(InputError, match="has no sentences, and this recipe trains on them; pack some with"):
        train(tmp_path, tmp_path / "out")


def test_a_missing_split_is_refused(tmp_path: Path) -> None:
    save_pack(beeps("train", 1, seed=0), tmp_path, parts=2)
    with pytest.raises(InputError, match="has no test, valid items"):
        train(tmp_path, tmp_path / "out")
