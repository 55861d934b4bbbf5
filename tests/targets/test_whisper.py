"""Whisper: tiny random models from a folder and from a checkpoint in OpenAI's form, and the real tiny one."""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Language, detect_languages
from sottovoce.core.target import Languages, Target, check_clips
from sottovoce.errors import InputError, MissingCapability, MissingExtra, UnknownName
from sottovoce.targets.adapters import whisper, whisper_checkpoint
from sottovoce.targets.adapters.whisper import Whisper, load_whisper
from sottovoce.testing import check_target, example_clips

transformers = pytest.importorskip("transformers")

DRAWS = Draws(3)
WIDTH, HEADS, CONTEXT, FRAMES = 16, 2, 16, 50
PAIRS = [b"th", b"he", b"in", b"er", b"an", b"re", b"nd", b"at", b"on", b"nt", b" -", b" '", b" \xe2"]
ENGLISH_TOKENS = 256 + len(PAIRS)
"""Every byte, pairs of common letters, and a space before marks, so that a space alone is never barred."""
MULTILINGUAL_TOKENS = 50_257
CONTROLS = 2 + 6 + 1501


def byte_letters() -> list[str]:
    """GPT-2's letter for each byte, as the library has it."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = bytes_to_unicode()
    return [table[byte] for byte in range(256)]


def byte_pairs(count: int) -> list[bytes]:
    """Tokens of a made-up vocabulary: single bytes, then pairs."""
    singles = [bytes([byte]) for byte in range(256)]
    more = (bytes([one, two]) for one in range(256) for two in range(256))
    return [*singles, *PAIRS, *(pair for pair in more if pair not in PAIRS)][:count]


def dims(multilingual: bool) -> dict[str, int]:
    tokens, languages = (MULTILINGUAL_TOKENS, 99) if multilingual else (ENGLISH_TOKENS, 2)
    return {
        "n_mels": 80,
        "n_audio_ctx": FRAMES,
        "n_audio_state": WIDTH,
        "n_audio_head": HEADS,
        "n_audio_layer": 2,
        "n_vocab": tokens + CONTROLS + languages,
        "n_text_ctx": CONTEXT,
        "n_text_state": WIDTH,
        "n_text_head": HEADS,
        "n_text_layer": 1,
    }


def weights(size: dict[str, int]) -> dict[str, Tensor]:
    """Random weights under OpenAI's names."""
    width, source = size["n_audio_state"], torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}

    def put(name: str, *shape: int, scale: float = 1.5) -> None:
        found[name] = torch.randn(*shape, generator=source) * scale / math.prod(shape[1:]) ** 0.5

    def norm(name: str) -> None:
        found[f"{name}.weight"] = 1.0 + 0.1 * torch.randn(width, generator=source)
        put(f"{name}.bias", width, scale=0.1)

    def attention(name: str) -> None:
        for part in ("query", "key", "value", "out"):
            put(f"{name}.{part}.weight", width, width)
            if part != "key":
                put(f"{name}.{part}.bias", width, scale=0.1)
        if name.endswith("cross_attn"):
            found[f"{name}.out.weight"] *= 3.0  # what is heard counts for more than what was written
        norm(f"{name}_ln")

    def block(name: str, *attentions: str) -> None:
        for part in attentions:
            attention(f"{name}.{part}")
        put(f"{name}.mlp.0.weight", 4 * width, width)
        put(f"{name}.mlp.0.bias", 4 * width, scale=0.1)
        put(f"{name}.mlp.2.weight", width, 4 * width)
        put(f"{name}.mlp.2.bias", width, scale=0.1)
        norm(f"{name}.mlp_ln")

    put("encoder.conv1.weight", width, size["n_mels"], 3)
    put("encoder.conv1.bias", width, scale=0.1)
    put("encoder.conv2.weight", width, width, 3)
    put("encoder.conv2.bias", width, scale=0.1)
    put("encoder.positional_embedding", size["n_audio_ctx"], width)
    for layer in range(size["n_audio_layer"]):
        block(f"encoder.blocks.{layer}", "attn")
    norm("encoder.ln_post")
    # Letters and pairs of them score high, so that texts are readable and come to an end now and then.
    put("decoder.token_embedding.weight", size["n_vocab"], width, scale=0.5)
    tokens = MULTILINGUAL_TOKENS if size["n_vocab"] > 50_000 else ENGLISH_TOKENS
    likely = [*range(ord("a"), ord("z") + 1), *range(256, ENGLISH_TOKENS), tokens]
    found["decoder.token_embedding.weight"][likely] *= 10.0
    found["decoder.token_embedding.weight"][tokens + 1 : -CONTROLS + 2] *= 4.0  # the start and the languages
    put("decoder.positional_embedding", size["n_text_ctx"], width, scale=12.0)
    for layer in range(size["n_text_layer"]):
        block(f"decoder.blocks.{layer}", "attn", "cross_attn")
    norm("decoder.ln")
    return found


def write_checkpoint(folder: Path, *, multilingual: bool) -> Path:
    """A `.pt` of OpenAI's form with its `.tiktoken` beside it."""
    folder.mkdir(exist_ok=True)
    size = dims(multilingual)
    file = folder / "made-up.pt"
    torch.save({"dims": size, "model_state_dict": weights(size)}, file)
    tokens = byte_pairs(MULTILINGUAL_TOKENS if multilingual else ENGLISH_TOKENS)
    lines = [f"{b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    name = "multilingual" if multilingual else "gpt2"
    (folder / f"{name}.tiktoken").write_text("\n".join(lines) + "\n")
    return file


def write_folder(folder: Path, checkpoint: Path, *, multilingual: bool) -> Path:
    """The same weights under transformers' names, with a processor made by the library's own classes."""
    size, stored = dims(multilingual), torch.load(checkpoint, weights_only=True)["model_state_dict"]
    letters = byte_letters()
    tokens = byte_pairs(MULTILINGUAL_TOKENS if multilingual else ENGLISH_TOKENS)
    words = ["".join(letters[byte] for byte in token) for token in tokens]
    names = [token for token in transformers_specials(99 if multilingual else 2)]
    tokenizer = transformers.WhisperTokenizer(
        vocab={word: place for place, word in enumerate(words)},
        merges=[(word[0], word[1]) for word in words[256:]],
    )
    tokenizer.add_special_tokens({"additional_special_tokens": names[1:]})
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == len(tokens)
    tokenizer.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(chunk_length=1).save_pretrained(folder)
    config = transformers.WhisperConfig(
        vocab_size=size["n_vocab"],
        num_mel_bins=80,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_source_positions=FRAMES,
        max_target_positions=CONTEXT,
        pad_token_id=len(tokens),
        bos_token_id=len(tokens),
        eos_token_id=len(tokens),
        decoder_start_token_id=len(tokens) + 1,
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    copy_weights(stored, model)
    model.generation_config.is_multilingual = multilingual
    model.generation_config.suppress_tokens = barred(words, len(tokens), 99 if multilingual else 2)
    model.generation_config.begin_suppress_tokens = [32, len(tokens)]
    model.save_pretrained(folder)
    return folder


def barred(words: list[str], end: int, languages: int) -> list[int]:
    """What OpenAI's decoding leaves out, looked up in the made-up vocabulary."""
    places = {word: place for place, word in enumerate(words)}
    marks = [*'"#()*+/:;<=>@[\\]^_`{|}~', "<<", ">>", "--", "-(", "-[", "('", '("', "((", "))", "[[", "]]"]
    marks += ["{{", "}}"]
    spelt = [*marks, *(f"Ġ{mark}" for mark in marks)]
    # A dash or an apostrophe after a space, and the start of a note, which has three bytes.
    letters = byte_letters()
    note = "".join(letters[byte] for byte in "♪".encode()[:2])
    first = ["Ġ-", "Ġ'", f"Ġ{note[0]}", note if note in places else note[0]]
    controls = [end + 1, *(end + 1 + languages + place for place in range(1, 6))]
    return sorted({places[mark] for mark in [*spelt, *first] if mark in places} | set(controls))


def transformers_specials(languages: int) -> list[str]:
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    names = ["endoftext", "startoftranscript", *list(LANGUAGES)[:languages]]
    names += ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    return [f"<|{name}|>" for name in names] + [f"<|{0.02 * place:.2f}|>" for place in range(1501)]


def copy_weights(stored: dict[str, Tensor], model: Any) -> None:
    """Module by module, without a table of names."""
    inner = model.model

    def attention(name: str, part: Any) -> None:
        linears = (part.q_proj, part.k_proj, part.v_proj, part.out_proj)
        for theirs, linear in zip(("query", "key", "value", "out"), linears, strict=True):
            copy(f"{name}.{theirs}", linear)

    def copy(name: str, part: Any) -> None:
        with torch.no_grad():
            part.weight.copy_(stored[f"{name}.weight"])
            if part.bias is not None:
                part.bias.copy_(stored[f"{name}.bias"])

    def place(name: str, part: Any) -> None:
        with torch.no_grad():
            part.weight.copy_(stored[name])

    copy("encoder.conv1", inner.encoder.conv1)
    copy("encoder.conv2", inner.encoder.conv2)
    copy("encoder.ln_post", inner.encoder.layer_norm)
    copy("decoder.ln", inner.decoder.layer_norm)
    place("encoder.positional_embedding", inner.encoder.embed_positions)
    place("decoder.positional_embedding", inner.decoder.embed_positions)
    place("decoder.token_embedding.weight", inner.decoder.embed_tokens)
    for side, layers in (("encoder", inner.encoder.layers), ("decoder", inner.decoder.layers)):
        for number, layer in enumerate(layers):
            name = f"{side}.blocks.{number}"
            attention(f"{name}.attn", layer.self_attn)
            copy(f"{name}.attn_ln", layer.self_attn_layer_norm)
            if side == "decoder":
                attention(f"{name}.cross_attn", layer.encoder_attn)
                copy(f"{name}.cross_attn_ln", layer.encoder_attn_layer_norm)
            copy(f"{name}.mlp.0", layer.fc1)
            copy(f"{name}.mlp.2", layer.fc2)
            copy(f"{name}.mlp_ln", layer.final_layer_norm)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A model by name: "english.pt", "english", "multilingual.pt", "multilingual"; made once."""
    root = tmp_path_factory.mktemp("whisper")
    done: dict[str, str] = {}

    def make(name: str) -> str:
        kind = name.partition(".")[0]
        multilingual = kind == "multilingual"
        if kind not in done:
            file = write_checkpoint(root / f"{kind}-pt", multilingual=multilingual)
            done[f"{kind}.pt"] = str(file)
            done[kind] = str(write_folder(root / kind, file, multilingual=multilingual))
        return done[name]

    return make


Made = Callable[[str], str]


def quick_clips() -> AudioBatch:
    return example_clips(seconds=(0.4, 0.25, 0.55))


@pytest.mark.parametrize("name", ["english", "english.pt"])
def test_english_keeps_the_laws(made: Made, name: str) -> None:
    check_target(load_whisper(made(name), beams=2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multilingual", "multilingual.pt"])
def test_multilingual_keeps_the_laws(made: Made, name: str) -> None:
    check_target(load_whisper(made(name)), quick_clips())


@pytest.mark.parametrize(("kind", "beams"), [("english", 1), ("english", 3), ("multilingual", 1)])
def test_scores_of_nan_are_no_answer(
    made: Made, check_nan: Callable[[Target, AudioBatch], None], kind: str, beams: int
) -> None:
    check_nan(load_whisper(made(kind), beams=beams), quick_clips())


@pytest.mark.parametrize("kind", ["english", "multilingual"])
def test_checkpoint_and_folder_are_the_same_model(made: Made, kind: str) -> None:
    folder, checkpoint = load_whisper(made(kind), beams=2), load_whisper(made(f"{kind}.pt"), beams=2)
    clips, labels = quick_clips(), ["then", "hand on", ""]
    assert folder.languages == checkpoint.languages
    assert folder.barred == checkpoint.barred
    assert folder.barred_first == checkpoint.barred_first
    assert folder.tokens_of("Then, hand!") == checkpoint.tokens_of("Then, hand!")
    one, two = (target.loss(clips, labels, draws=DRAWS) for target in (folder, checkpoint))
    torch.testing.assert_close(one, two)
    texts = folder.decode(clips, draws=DRAWS)
    assert texts == checkpoint.decode(clips, draws=DRAWS)
    assert len(set(texts)) > 1


def test_loss_is_that_of_the_library(made: Made) -> None:
    target = load_whisper(made("english"))
    clips, label = quick_clips(), "then"
    # <|startoftranscript|>, <|notimestamps|>, then space, th, e, n and <|endoftext|>.
    end = ENGLISH_TOKENS
    tokens = [32, 256, ord("e"), ord("n"), end]
    assert target.tokens_of(label) == tokens
    extractor = transformers.WhisperFeatureExtractor(chunk_length=1)
    sounds = [clips.clip(row).numpy() for row in range(len(clips))]
    features = extractor(sounds, sampling_rate=16_000, return_tensors="pt").input_features
    prefix = [end + 1, end + 1 + 2 + 6]
    inputs = torch.tensor([[*prefix, *tokens[:-1]]] * len(clips))
    with torch.no_grad():
        logits = target.module(input_features=features, decoder_input_ids=inputs).logits[:, 1:]
    expected = [float(torch.nn.functional.cross_entropy(row, torch.tensor(tokens))) for row in logits]
    assert target.loss(clips, [label] * 3, draws=DRAWS).tolist() == pytest.approx(expected, rel=1e-4)


def test_greedy_text_is_that_of_the_library(made: Made) -> None:
    target = load_whisper(made("english"))
    clips = quick_clips()
    extractor = transformers.WhisperFeatureExtractor(chunk_length=1)
    for row, text in enumerate(target.decode(clips, draws=DRAWS)):
        sound = clips.clip(row).numpy()
        features = extractor(sound, sampling_rate=16_000, return_tensors="pt").input_features
        ids = greedy(target, features)
        assert text == b"".join(byte_pairs(ENGLISH_TOKENS)[token] for token in ids).decode().strip()


def greedy(target: Whisper, features: Tensor) -> list[int]:
    """Token after token without a cache, barred ones left out."""
    end = ENGLISH_TOKENS
    ids = [end + 1, end + 1 + 2 + 6]
    for step in range(CONTEXT // 2):
        with torch.no_grad():
            logits = target.module(input_features=features, decoder_input_ids=torch.tensor([ids])).logits[
                0, -1
            ]
        logits[list(target.barred)] = -torch.inf
        if step == 0:
            logits[[32, end]] = -torch.inf
        ids.append(int(logits.argmax()))
        if ids[-1] == end:
            break
    return [token for token in ids if token < end]


def test_languages_are_scored_after_the_start(made: Made) -> None:
    target = load_whisper(made("multilingual"))
    assert target.languages[:4] == ("en", "zh", "de", "es")
    assert len(target.languages) == 99
    clips = quick_clips()
    extractor = transformers.WhisperFeatureExtractor(chunk_length=1)
    sounds = [clips.clip(row).numpy() for row in range(len(clips))]
    features = extractor(sounds, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        logits = target.module(input_features=features, decoder_input_ids=torch.tensor([[50_258]] * 3)).logits
    scores = target.capability(Languages).language_scores(clips, draws=DRAWS)
    torch.testing.assert_close(scores, logits[:, 0, 50_259:50_358], rtol=1e-4, atol=1e-4)


def test_loss_hears_the_language_that_is_set_or_detected(made: Made) -> None:
    clips, labels = quick_clips(), ["then"] * 3
    free = load_whisper(made("multilingual"))
    heard = detect_languages(free, clips, draws=DRAWS)
    loss = free.loss(clips, labels, draws=DRAWS)
    for row, code in enumerate(heard):
        told = Whisper(free.module, free.front, free.spelling, language=code)
        assert float(told.loss(clips, labels, draws=DRAWS)[row]) == pytest.approx(float(loss[row]), rel=1e-4)
        assert told.decode(clips, draws=DRAWS)[row] == free.decode(clips, draws=DRAWS)[row]
        other = Whisper(free.module, free.front, free.spelling, language="fr" if code != "fr" else "de")
        assert abs(float(other.loss(clips, labels, draws=DRAWS)[row]) - float(loss[row])) > 1e-3


def test_english_alone_knows_no_languages(made: Made) -> None:
    target = load_whisper(made("english"), language="en")
    assert not target.offers(Languages)
    with pytest.raises(MissingCapability, match="multilingual"):
        target.capability(Languages)
    with pytest.raises(InputError, match="English only"):
        load_whisper(made("english"), language="fr")


def test_unknown_language_is_refused(made: Made) -> None:
    with pytest.raises(UnknownName, match="'de'"):
        load_whisper(made("multilingual"), language="dee")
    with pytest.raises(UnknownName, match="klingon"):
        Language("klingon").check(load_whisper(made("multilingual")))


def test_autocast_stays_near_single_precision(made: Made) -> None:
    clips, labels = quick_clips(), ["then", "hand", ""]
    exact, fast = (load_whisper(made("english"), autocast=cast) for cast in (False, True))
    leaf = clips.waveforms.clone().requires_grad_()
    loss = fast.loss(clips.with_waveforms(leaf), labels, draws=DRAWS)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact.loss(clips, labels, draws=DRAWS), rtol=0.1, atol=0.1)
    assert not torch.equal(loss, exact.loss(clips, labels, draws=DRAWS))
    (slope,) = torch.autograd.grad(loss.sum(), leaf)
    assert slope.isfinite().all() and slope.any()
    assert all(isinstance(text, str) for text in fast.decode(clips, draws=DRAWS))


def test_clips_and_labels_have_limits(made: Made) -> None:
    target = load_whisper(made("english"))
    assert target.longest == 16_000
    with pytest.raises(InputError, match="at most 16000 samples"):
        check_clips(target, AudioBatch.of([np.zeros(16_001)], 16_000))
    # Sixteen places: two control tokens, fourteen letters, and the end, which takes no place. A space counts.
    with pytest.raises(InputError, match="at most 15 tokens"):
        target.check_labels(["x" * 14])
    # Decoding writes half of the places: eight letters, the space among them.
    target.check_labels(["", "x" * 7])
    with pytest.raises(InputError, match="at most 8 tokens, the most that this model writes, got 9"):
        target.check_labels(["x" * 8])
    with pytest.raises(InputError, match="a control token"):
        target.check_labels(["then <|endoftext|>"])
    with pytest.raises(InputError, match="never writes"):
        target.check_labels(["(then)"])


def test_sizes_are_names_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(model: str, what: str, kind: Any, source: str, **options: Any) -> Any:
        asked.append(source)
        raise InputError("expected a network, got none; connect it.")

    monkeypatch.setattr(whisper, "fetch", refuse)
    for name in ("tiny.en", "large-v3", "someone/whisper-mine"):
        with pytest.raises(InputError, match="network"):
            load_whisper(name)
    assert asked == ["openai/whisper-tiny.en", "openai/whisper-large-v3", "someone/whisper-mine"]


def test_beams_are_checked(made: Made) -> None:
    with pytest.raises(InputError, match="beams: expected 1 or more"):
        load_whisper(made("english"), beams=0)


def test_vocabulary_can_be_named(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Path(made("english.pt"))
    alone = tmp_path / "model.pt"
    alone.write_bytes(checkpoint.read_bytes())
    monkeypatch.setattr(whisper_checkpoint, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install --no-deps openai-whisper"):
        load_whisper(str(alone))
    given = str(checkpoint.parent / "gpt2.tiktoken")
    assert load_whisper(str(alone), vocabulary=given).tokens_of("the")[:2] == [32, 256]
    with pytest.raises(InputError, match=r"expected a \.tiktoken file"):
        load_whisper(str(alone), vocabulary=str(tmp_path / "none.tiktoken"))
    with pytest.raises(InputError, match="leave it out"):
        load_whisper(made("english"), vocabulary=given)


def test_vocabulary_comes_from_the_package_without_importing_it(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Path(made("english.pt"))
    package = tmp_path / "site" / "whisper"
    (package / "assets").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "assets" / "gpt2.tiktoken").write_bytes((checkpoint.parent / "gpt2.tiktoken").read_bytes())
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "whisper", raising=False)
    alone = tmp_path / "model.pt"
    alone.write_bytes(checkpoint.read_bytes())
    assert load_whisper(str(alone)).tokens_of("the")[:2] == [32, 256]


def test_wrong_vocabulary_is_refused(made: Made, tmp_path: Path) -> None:
    wrong = str(Path(made("multilingual.pt")).parent / "multilingual.tiktoken")
    with pytest.raises(InputError, match=r"multilingual\.tiktoken, or gpt2\.tiktoken"):
        load_whisper(made("english.pt"), vocabulary=wrong)
    broken = tmp_path / "broken.tiktoken"
    for text in ("IQ== 0\n", "what is this\n", "IQ== zero\n", "\u00e9 0\n"):
        broken.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=r"\.tiktoken file"):
            load_whisper(made("english.pt"), vocabulary=str(broken))


def test_broken_checkpoint_is_refused(made: Made, tmp_path: Path) -> None:
    stored = torch.load(made("english.pt"), weights_only=True)
    vocabulary = str(Path(made("english.pt")).parent / "gpt2.tiktoken")
    file = tmp_path / "broken.pt"

    def refused(reason: str) -> None:
        with pytest.raises(InputError, match=f"OpenAI's form.*{reason}"):
            load_whisper(str(file), vocabulary=vocabulary)

    refused("No such file")
    file.write_bytes(b"not a checkpoint")
    refused("")
    torch.save({"weights": torch.zeros(3)}, file)
    refused("dims")
    torch.save({**stored, "dims": {**stored["dims"], "n_audio_layer": 3}}, file)
    refused("Missing key")
    torch.save({**stored, "dims": {"n_mels": 80}}, file)
    refused("n_vocab")
    lacking = {name: value for name, value in stored["model_state_dict"].items() if "token_emb" not in name}
    torch.save({**stored, "model_state_dict": lacking}, file)
    refused("embed_tokens")


def test_incomplete_or_wrong_folder_is_refused(made: Made, tmp_path: Path) -> None:
    source = Path(made("english"))

    def copied(name: str, *without: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for file in source.iterdir():
            if not file.name.startswith(without):
                (folder / file.name).write_bytes(file.read_bytes())
        return str(folder)

    with pytest.raises(InputError, match="tokenizer"):
        load_whisper(copied("mute", "tokenizer", "vocab", "merges", "added", "special"))
    with pytest.raises(InputError, match="feature extractor"):
        load_whisper(copied("deaf", "preprocessor"))
    with pytest.raises(InputError, match=r"config\.json"):
        load_whisper(copied("empty", "config"))
    other = copied("other")
    settings = json.loads((Path(other) / "config.json").read_text())
    (Path(other) / "config.json").write_text(json.dumps({**settings, "model_type": "wav2vec2"}))
    with pytest.raises(InputError, match="kind wav2vec2"):
        load_whisper(other)
    longer = copied("longer", "preprocessor")
    transformers.WhisperFeatureExtractor(chunk_length=2).save_pretrained(longer)
    with pytest.raises(InputError, match="100 frames"):
        load_whisper(longer)


def test_real_vocabulary_spells_as_published(whisper_tiny: Path) -> None:
    file = whisper_tiny.with_name("whisper-multilingual.tiktoken")
    tokenizer = whisper_checkpoint.read_vocabulary(file, 51_865)
    # From the tiktoken package with Whisper's pattern and ranks.
    known = {
        " hello": [7751],
        " Hello, world!": [2425, 11, 1002, 0],
        " OK Google, browse to evil.com": [2264, 3329, 11, 31442, 281, 6724, 13, 1112],
    }
    for text, ids in known.items():
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids
        assert tokenizer.decode(ids) == text
    places = {"endoftext": 50257, "startoftranscript": 50258, "en": 50259, "su": 50357, "transcribe": 50359}
    places |= {"notimestamps": 50363, "0.00": 50364, "30.00": 51864}
    assert {name: tokenizer.token_to_id(f"<|{name}|>") for name in places} == places
    from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS_MULTI

    # The library's older list lets <|translate|> and <|transcribe|> pass.
    assert whisper_checkpoint.barred_tokens(tokenizer) == sorted([*NON_SPEECH_TOKENS_MULTI, 50358, 50359])
    # The third large model has a hundredth language.
    later = whisper_checkpoint.read_vocabulary(file, 51_866)
    assert (later.token_to_id("<|yue|>"), later.token_to_id("<|transcribe|>")) == (50358, 50360)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 5])
def test_real_weights_write_what_was_said(whisper_tiny: Path, librispeech: Path, beams: int) -> None:
    wanted = {
        "332/332-128985-0009.flac": "this story however i regard it with a great deal of doubt",
        "332/332-128985-0088.flac": "and after that he entirely dropped rock from his chronicles",
    }
    clips = AudioBatch.of([soundfile.read(librispeech / name)[0] for name in wanted], 16_000, list(wanted))
    target = load_whisper(str(whisper_tiny), beams=beams)
    assert detect_languages(target, clips, draws=DRAWS) == ["en", "en"]
    texts = target.decode(clips, draws=DRAWS)
    assert [target.canonical(text) for text in texts] == list(wanted.values())
    loss, match = target.loss_and_match(clips, texts, draws=DRAWS)
    assert match.all()
    # A mean of less than .5 nat a token: an untrained model is at ln 51865 = 10.9.
    assert (loss < 0.5).all()
