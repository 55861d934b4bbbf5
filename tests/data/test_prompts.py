"""The embedded prompts: what they hold, and that a recogniser hears what their table says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import soundfile

from sottovoce.data.embedded import prompts
from sottovoce.data.load import Corpus

LANGUAGES = ("en", "es", "fr", "it", "ru")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return prompts()


def test_six_sentences_in_each_of_five_languages(corpus: Corpus) -> None:
    assert corpus.name == "prompts" and len(corpus) == 30
    assert Counter(entry.facts["language"] for entry in corpus) == dict.fromkeys(LANGUAGES, 6)
    # English and Spanish have one speaker.
    assert Counter(entry.facts["speaker"] for entry in corpus) == {
        "Allison Smith": 12,
        "June Wallack": 6,
        "Carlo Flora": 6,
        "ivrvoice.ru": 6,
    }
    assert len(corpus.labels) == 30
    assert all(entry.id.startswith(f"{entry.facts['language']}/") for entry in corpus)


def test_texts_are_sentences_without_digits(corpus: Corpus) -> None:
    for entry in corpus:
        assert re.fullmatch(r"[^\W\d_].*[.?]", entry.label) and not re.search(r"\d", entry.label), entry.id
        assert 4 <= len(entry.label.split()) <= 20
    spelled = {entry.id: entry.label for entry in corpus}
    assert spelled["es/vm-nonumber"] == "Lo siento, pero no sé quién ha enviado este mensaje."
    assert spelled["ru/vm-nobodyavail"] == "В данный момент никто не может принять Ваш звонок."


def test_files_are_small_and_need_nothing_done(corpus: Corpus) -> None:
    assert sum(entry.path.stat().st_size for entry in corpus) < 3e6
    for entry in corpus:
        kind = soundfile.info(entry.path)
        assert (kind.samplerate, kind.channels, kind.subtype) == (16000, 1, "PCM_16")
        clip = corpus.load(entry, 16000)
        assert clip.loaded == "" and 1.5 <= len(clip.waveform) / 16000 <= 6.0
        # Spoken, and not clipped.
        assert 0.05 < float(clip.waveform.abs().max()) < 1.0


def test_a_limit_takes_every_language(corpus: Corpus) -> None:
    few = corpus.limit(10)
    assert Counter(entry.facts["language"] for entry in few) == dict.fromkeys(LANGUAGES, 2)


def test_speakers_and_licences_are_named(corpus: Corpus) -> None:
    folder = corpus.entries[0].path.parents[1]
    credits, licence = (folder / "ATTRIBUTION.md").read_text(), (folder / "LICENSE.txt").read_text()
    for words in ("Allison Smith", "June Wallack", "Carlo Flora", "Maxim Topal", "converted from G.722"):
        assert words in credits
    for address in ("licenses/by-sa/3.0/us/legalcode", "licenses/by/3.0/legalcode"):
        assert f"https://creativecommons.org/{address}" in licence
    assert {file.name for file in folder.iterdir()} == {
        *LANGUAGES,
        "ATTRIBUTION.md",
        "LICENSE.txt",
        "prompts.csv",
    }


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_whisper_tiny_hears_every_word(corpus: Corpus, whisper_tiny: Path, language: str) -> None:
    whisper = pytest.importorskip("sottovoce.targets.adapters.whisper")
    from sottovoce.core.draws import Draws
    from sottovoce.data.load import collate
    from sottovoce.metrics.text_errors import word_edits

    target = whisper.load_whisper(str(whisper_tiny), language=language)
    entries = [entry for entry in corpus if entry.facts["language"] == language]
    batch = collate([corpus.load(entry, 16000) for entry in entries])
    heard = target.decode(batch, draws=Draws(0))
    found = {
        entry.id: word_edits(entry.label, text, language).errors
        for entry, text in zip(entries, heard, strict=True)
    }
    assert found == dict.fromkeys(found, 0)
