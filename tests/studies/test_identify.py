"""Study settings follow from what a model and its data are, whatever their files are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sottovoce.data.embedded import strings
from sottovoce.data.load import Clip
from sottovoce.data.pack import save_pack
from sottovoce.errors import InputError
from sottovoce.studies.ask import Ask
from sottovoce.studies.identify import family_of, has_frames, has_speakers, is_strings, whisper_size
from sottovoce.studies.olivier2023.attack_tables import row_of, strange
from sottovoce.studies.olivier2023.runs.defense_plans import hardened
from sottovoce.studies.olivier2023.runs.recogniser_plans import plans_of, regularisation

# Layers of encoder and decoder, width and tokens, as OpenAI's checkpoints have them.
DIMS = {
    "tiny": (4, 4, 384, 51865), "tiny.en": (4, 4, 384, 51864), "base": (6, 6, 512, 51865),
    "base.en": (6, 6, 512, 51864), "small": (12, 12, 768, 51865), "small.en": (12, 12, 768, 51864),
    "medium": (24, 24, 1024, 51865), "medium.en": (24, 24, 1024, 51864), "large": (32, 32, 1280, 51865),
    "large-v3-turbo": (32, 4, 1280, 51866),
}  # fmt: skip


def checkpoint(path: Path, size: str) -> str:
    """A file in OpenAI's form with the sizes of a model, and no weights."""
    encoder, decoder, width, tokens = DIMS[size]
    dims = {
        "n_mels": 80, "n_audio_ctx": 1500, "n_audio_state": width, "n_audio_head": 6,
        "n_audio_layer": encoder, "n_vocab": tokens, "n_text_ctx": 448, "n_text_state": width,
        "n_text_head": 6, "n_text_layer": decoder,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"dims": dims, "model_state_dict": {}}, path)
    return f"whisper:{path}"


def folder(path: Path, size: str) -> str:
    """A folder of the transformers library, with its configuration alone."""
    encoder, decoder, width, tokens = DIMS[size]
    path.mkdir(parents=True)
    content = {
        "model_type": "whisper", "encoder_layers": encoder, "decoder_layers": decoder, "d_model": width,
        "vocab_size": tokens,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(content))
    return f"whisper:{path}"


@pytest.mark.parametrize("size", DIMS)
def test_the_size_of_a_whisper_is_in_its_file(tmp_path: Path, size: str) -> None:
    # Called so that letters would say the opposite.
    other = "large-v3.pt" if "tiny" in size or "base" in size else "tiny-base.pt"
    assert whisper_size(checkpoint(tmp_path / "database" / other, size)) == size
    assert whisper_size(folder(tmp_path / "whisper-base", size)) == size
    beams = f"whisper(model={tmp_path / 'database' / other}, beams=5)"
    assert whisper_size(beams) == size


def test_the_weight_of_a_large_model_in_a_database(tmp_path: Path) -> None:
    large = checkpoint(tmp_path / "database" / "large-v3.pt", "large")
    small = checkpoint(tmp_path / "large" / "mine.pt", "base.en")
    assert (regularisation(large), regularisation(small)) == (1.0, 0.25)
    for model, weight in ((large, 1.0), (small, 0.25)):
        plan = plans_of("O7", Ask(scale="full", model=model, data="librispeech:x"))["targeted"]
        assert plan.attacks[0].settings["c"] == weight
    assert (row_of(large), row_of(small)) == ("large", "base.en")
    assert strange("O8", checkpoint(tmp_path / "x.pt", "medium"), "librispeech:medium") == ["data"]
    assert strange("O8", checkpoint(tmp_path / "medium" / "medium.pt", "tiny"), "x") == ["model", "data"]


def test_names_that_are_sizes() -> None:
    assert [whisper_size(f"whisper:{name}") for name in ("tiny.en", "openai/whisper-base", "large-v3")] == [
        "tiny.en", "base", "large-v3",
    ]  # fmt: skip
    # A file that is not here counts by the name that OpenAI gave it, and by no other.
    names = ("/x/tiny.pt", "whisper-medium.en.pt", "/mnt/database/large-v3.pt")
    assert [whisper_size(f"whisper:{name}") for name in names] == ["tiny", "medium.en", "large-v3"]
    names = ("/mnt/tiny/mine.pt", "my-tiny.pt", "/mnt/database/mine", "someone/whisper-tiny-fast")
    assert [whisper_size(f"whisper:{name}") for name in names] == [None] * 4
    assert [regularisation(f"whisper:{name}") for name in names] == [1.0] * 4
    assert whisper_size("huggingface:tiny") is None and whisper_size("recogniser") is None


def test_a_file_that_is_no_whisper(tmp_path: Path) -> None:
    (tmp_path / "tiny.pt").write_bytes(b"no checkpoint")
    with pytest.raises(InputError, match="expected a Whisper checkpoint in OpenAI's form"):
        whisper_size(f"whisper:{tmp_path / 'tiny.pt'}")
    checkpoint(tmp_path / "odd.pt", "tiny")
    dims = torch.load(tmp_path / "odd.pt", weights_only=True)
    dims["dims"]["n_audio_state"] = 400
    torch.save(dims, tmp_path / "odd.pt")
    assert whisper_size(f"whisper:{tmp_path / 'odd.pt'}") is None


def test_whisper_tiny_itself(whisper_tiny: Path) -> None:
    assert whisper_size(f"whisper:{whisper_tiny}") == "tiny"


def clips(labels: dict[str, str], **facts: str) -> list[Clip]:
    return [
        Clip(name, torch.zeros(160), 16000, label, facts={"speaker": facts.get("speaker", label)})
        for name, label in labels.items()
    ]


def test_a_pack_has_speakers_where_it_says_so(tmp_path: Path) -> None:
    save_pack(tmp_path / "people.npz", clips({"a": "01", "b": "03"}))
    save_pack(tmp_path / "audiomnist.npz", clips({"a": "yes", "b": "no"}))
    # Labels that look like speakers, of clips by somebody else.
    save_pack(tmp_path / "numbers.npz", clips({"a": "01", "b": "03"}, speaker="anna"))
    known = [has_speakers(f"pack:{tmp_path / name}.npz") for name in ("people", "audiomnist", "numbers")]
    assert known == [True, False, False]
    assert has_speakers("audiomnist:anywhere") and not has_speakers("pack:nowhere.npz")
    found = plans_of("O15", Ask(scale="mini", model="speaker", data=f"pack:{tmp_path / 'audiomnist.npz'}"))
    assert list(found) == ["sound-plain", "sound-gaussian", "sound-mad", "recogniser"]
    found = plans_of("O15", Ask(scale="mini", model="speaker", data=f"pack:{tmp_path / 'people.npz'}"))
    assert "speaker-plain" in found


def test_strings_are_known_by_their_clips(tmp_path: Path) -> None:
    rows = [f"{entry.id},{entry.path},{entry.label}" for entry in strings()]
    (tmp_path / "copied.csv").write_text("\n".join(["id,path,label", *rows[:3]]))
    others = [f"other,{strings().entries[0].path},something else"]
    (tmp_path / "strings.csv").write_text("\n".join(["id,path,label", *others]))
    assert is_strings("strings", "whisper:tiny")
    assert is_strings("embedded", "recogniser") and is_strings("embedded", "deepspeech2:x")
    assert is_strings(f"csv:{tmp_path / 'copied.csv'}", "recogniser")
    assert is_strings(str(tmp_path / "copied.csv"), "recogniser")
    for data in (f"csv:{tmp_path / 'strings.csv'}", str(tmp_path / "strings.csv"), "librispeech:/strings"):
        assert not is_strings(data, "recogniser")
    assert not is_strings("embedded", "keyword") and not is_strings("/nowhere/strings", "recogniser")


def sigmas_of(data: str) -> set[str]:
    plan = plans_of("O13", Ask(scale="full", model="recogniser", data=data))["pgd"]
    return {defense.partition("+")[0] for defense in plan.defenses if defense != "none"}


def test_deviations_follow_the_clips(tmp_path: Path) -> None:
    assert sigmas_of("embedded") == {"gaussian(sigma=0.045)", "gaussian(sigma=0.063)"}
    assert sigmas_of("librispeech:/data/strings") == {"gaussian(sigma=0.01)", "gaussian(sigma=0.02)"}


def test_frames_are_those_of_the_model() -> None:
    assert [has_frames(model) for model in ("recogniser", "deepspeech2:x", "whisper:x", "keyword")] == [
        True, True, False, False,
    ]  # fmt: skip
    # What cannot be opened is taken at its word; its run will tell.
    assert has_frames("huggingface:/nowhere/whisper")


def test_kinds_of_models(tmp_path: Path) -> None:
    (tmp_path / "whisper").mkdir()
    (tmp_path / "whisper" / "config.json").write_text(json.dumps({"model_type": "wav2vec2"}))
    assert family_of(f"huggingface:{tmp_path / 'whisper'}") == "wav2vec2"
    assert strange("O5", f"huggingface:{tmp_path / 'whisper'}", "librispeech:x") == []
    assert family_of("huggingface:facebook/wav2vec2-base-960h") == "wav2vec2"
    assert family_of("huggingface:/nowhere/wav2vec2") == ""
    assert family_of("python:deepspeech2:make") == "python"
    assert strange("O5", "python:deepspeech2:make", "librispeech:x") == ["model"]


def test_weights_of_ones_own_are_no_shipped_variant() -> None:
    assert hardened("recogniser", "noisy") == "recogniser(variant=noisy)"
    assert hardened("recogniser(weights=mine.safetensors)", "noisy") is None
    assert hardened("python:recogniser:make", "noisy") is None
