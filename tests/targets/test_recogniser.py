"""The embedded recogniser as it is shipped: on its own strings, and on real voices that it never heard."""

from __future__ import annotations

from pathlib import Path

import jiwer
import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.embedded import strings
from sottovoce.data.load import collate
from sottovoce.targets.zoo.recogniser_targets import recogniser
from sottovoce.training.recogniser.recogniser_errors import listen
from sottovoce.training.recogniser.recogniser_pack import read_words
from sottovoce.training.recogniser.word_strings import ItemBank

WEIGHTS = Path(__file__).parents[2] / "src/sottovoce/targets/zoo/weights/recogniser.safetensors"


def test_the_weights_are_under_twelve_megabytes() -> None:
    assert WEIGHTS.stat().st_size < 12_000_000


def test_most_words_of_the_shipped_strings_are_heard() -> None:
    target, corpus = recogniser(), strings()
    (clips, failures) = next(iter(corpus.chunks(len(corpus), target.sample_rate)))
    assert len(clips) == 24 and not failures
    with torch.no_grad():
        told = target.decode(collate(clips), draws=Draws(0))
    assert jiwer.wer([clip.label for clip in clips], told) < 0.2


@pytest.mark.slow
def test_strings_of_unseen_speakers(spoken_words: Path, tmp_path: Path) -> None:
    """The promise of the model card: under 12 % of words wrong on strings of speakers it never heard."""
    (tmp_path / "test").symlink_to(spoken_words / "test")
    heard = listen(ItemBank(read_words(tmp_path)), strings=200)
    target = recogniser()
    told: list[str] = []
    for row in range(0, 200, 20):
        clips = [
            heard.waveforms[place, : int(heard.lengths[place])].clamp(-1, 1) for place in range(row, row + 20)
        ]
        with torch.no_grad():
            told += target.decode(AudioBatch.of(clips, target.sample_rate), draws=Draws(0))
    assert jiwer.wer(list(heard.texts), told) < 0.12
