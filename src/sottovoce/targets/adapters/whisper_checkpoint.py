"""OpenAI's own Whisper files: a `.pt` checkpoint and a `.tiktoken` vocabulary, as transformers has them."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.adapters.huggingface_hub import import_transformers

# In the order of the training data's size, which is the order of their tokens (Radford et al. 2022).
_CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg "
    "lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so "
    "af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
)
_TIMESTAMPS = 1501
_DIMS = (
    *("n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_vocab", "n_text_ctx", "n_text_state", "n_text_head", "n_text_layer"),
)
_TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
FIRST_MULTILINGUAL = 51_865
"""The fewest tokens of a multilingual model; those of English alone have one fewer."""
# Marks that are not spoken. Notes are barred by the first of their bytes, the others where one token
# spells them.
_NOTES = "♩♪♫♬♭♮♯"
_MARKS = (
    '" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ '
    "(' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
)
_LAYERS = (
    (r"\.blocks\.", ".layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.attn\.", ".self_attn."),
    (r"_attn\.query\.", "_attn.q_proj."),
    (r"_attn\.key\.", "_attn.k_proj."),
    (r"_attn\.value\.", "_attn.v_proj."),
    (r"_attn\.out\.", "_attn.out_proj."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.ln_post\.", ".layer_norm."),
    (r"^decoder\.ln\.", "decoder.layer_norm."),
    (r"\.token_embedding\.", ".embed_tokens."),
    (r"\.positional_embedding$", ".embed_positions.weight"),
)


def load_checkpoint(path: Path, vocabulary: str | None) -> tuple[Any, Any]:
    """A `WhisperForConditionalGeneration` in single precision, and its `tokenizers.Tokenizer`.

    vocabulary: a `.tiktoken` file; None: one in the checkpoint's folder, or the package openai-whisper's.
    """
    library = import_transformers()
    dims, weights = _read(path)
    multilingual = dims["n_vocab"] >= FIRST_MULTILINGUAL
    file = find_vocabulary(path.parent, vocabulary, multilingual=multilingual)
    tokenizer = read_vocabulary(file, dims["n_vocab"])
    renamed = {f"model.{rename(name)}": weight.float() for name, weight in weights.items()}
    # Weights share the checkpoint's memory: nothing is filled with random numbers first.
    with torch.device("meta"):
        module = library.WhisperForConditionalGeneration(_config(library, dims, tokenizer))
    try:
        renamed["proj_out.weight"] = renamed["model.decoder.embed_tokens.weight"]
        module.load_state_dict(renamed, assign=True)
    except (RuntimeError, KeyError) as error:
        raise _broken(path, " ".join(str(error).split()[:20])) from error
    module.tie_weights()
    module.generation_config = library.GenerationConfig(
        is_multilingual=multilingual,
        suppress_tokens=barred_tokens(tokenizer),
        begin_suppress_tokens=[*_ids(tokenizer, " "), tokenizer.token_to_id("<|endoftext|>")],
    )
    return module, tokenizer


def rename(name: str) -> str:
    """The name that transformers has for a weight of OpenAI's."""
    for theirs, ours in _LAYERS:
        name = re.sub(theirs, ours, name)
    return name


def find_vocabulary(folder: Path, given: str | None, *, multilingual: bool) -> Path:
    """The `.tiktoken` file of a checkpoint in this folder."""
    kind = "multilingual" if multilingual else "gpt2"
    if given is not None:
        file = Path(given).expanduser()
        if not file.is_file():
            raise InputError(f"vocabulary: expected a .tiktoken file, got {given!r}; check the path.")
        return file
    # Finding a package does not import it: its own imports are heavy and not needed here.
    package = find_spec("whisper")
    places = [folder / f"{kind}.tiktoken", folder / f"whisper-{kind}.tiktoken"]
    for root in package.submodule_search_locations or () if package else ():
        places.append(Path(root) / "assets" / f"{kind}.tiktoken")
    for file in places:
        if file.is_file():
            return file
    raise MissingExtra(
        f"vocabulary: {kind}.tiktoken is neither beside the checkpoint nor in the package openai-whisper; "
        "pip install --no-deps openai-whisper, or name the file with vocabulary=FILE."
    )


def read_vocabulary(file: Path, size: int) -> Any:
    """A `tokenizers.Tokenizer` from the ranks of byte pairs, for a model of `size` tokens."""
    tokenizers = import_transformers_tokenizers()
    ranks = _ranks(file)
    codes, languages = _CODES.split(), size - len(ranks) - 2 - len(_TASKS) - _TIMESTAMPS
    if not 0 < languages <= len(codes):
        raise InputError(
            f"vocabulary: the model has {size} tokens, got {len(ranks)} in {str(file)!r}; use "
            "multilingual.tiktoken, or gpt2.tiktoken for an English-only model."
        )
    letters = _letters()
    words = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = [
        (words[token[:cut]], words[token[cut:]])
        for token in ranks
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={words[token]: rank for token, rank in ranks.items()}, merges=merges)
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    names = ["endoftext", "startoftranscript", *codes[:languages], *_TASKS]
    names += [f"{0.02 * place:.2f}" for place in range(_TIMESTAMPS)]
    tokenizer.add_special_tokens([f"<|{name}|>" for name in names])
    return tokenizer


def barred_tokens(tokenizer: Any) -> list[int]:
    """Tokens that OpenAI's decoding never writes: marks that are not speech, and control tokens."""
    found = {_ids(tokenizer, text)[0] for text in (" -", " '")}
    for mark in (*_MARKS.split(), *_NOTES):
        for spelt in (_ids(tokenizer, mark), _ids(tokenizer, f" {mark}")):
            if len(spelt) == 1 or mark in _NOTES:
                found.add(spelt[0])
    controls = ("startoftranscript", *(task for task in _TASKS if task != "notimestamps"))
    return sorted(found | {tokenizer.token_to_id(f"<|{name}|>") for name in controls})


def import_transformers_tokenizers() -> Any:
    """The library that transformers spells with; it comes along with it."""
    import_transformers()
    import tokenizers

    return tokenizers


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def read_dims(path: Path) -> dict[str, int]:
    """The sizes of a checkpoint, without its weights."""
    return _read(path, mapped=True)[0]


def _read(path: Path, *, mapped: bool = False) -> tuple[dict[str, int], dict[str, Tensor]]:
    """mapped: whether weights stay on the disk until they are asked for."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (OSError, RuntimeError, UnpicklingError, EOFError, ValueError, KeyError) as error:
        raise _broken(path, str(error).strip().partition("\n")[0]) from error
    if not isinstance(stored, Mapping) or not {"dims", "model_state_dict"} <= set(stored):
        raise _broken(path, "it has no dims and model_state_dict")
    if not set(_DIMS) <= set(stored["dims"]):
        raise _broken(path, f"its dims are not {', '.join(_DIMS)}")
    return dict(stored["dims"]), dict(stored["model_state_dict"])


def _broken(path: Path, reason: str) -> InputError:
    return InputError(
        f"expected a Whisper checkpoint in OpenAI's form, got {str(path)!r} ({reason}); download it again, "
        "or give the folder of a Hugging Face model."
    )


def _config(library: Any, dims: Mapping[str, int], tokenizer: Any) -> Any:
    end = tokenizer.token_to_id("<|endoftext|>")
    return library.WhisperConfig(
        vocab_size=dims["n_vocab"],
        num_mel_bins=dims["n_mels"],
        d_model=dims["n_audio_state"],
        encoder_layers=dims["n_audio_layer"],
        encoder_attention_heads=dims["n_audio_head"],
        encoder_ffn_dim=4 * dims["n_audio_state"],
        decoder_layers=dims["n_text_layer"],
        decoder_attention_heads=dims["n_text_head"],
        decoder_ffn_dim=4 * dims["n_text_state"],
        max_source_positions=dims["n_audio_ctx"],
        max_target_positions=dims["n_text_ctx"],
        decoder_start_token_id=tokenizer.token_to_id("<|startoftranscript|>"),
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )


def _ranks(file: Path) -> dict[bytes, int]:
    """Lines of a token in base 64 and its rank, from 0 on. OpenAI's last one is "=", which has no bytes."""
    try:
        pairs = [line.split() for line in file.read_text(encoding="ascii").splitlines() if line]
        ranks = {b64decode(token): int(rank) for token, rank in pairs}
    except (ValueError, Base64Error, OSError) as error:
        raise InputError(
            f"expected a .tiktoken file of tokens and ranks, got {str(file)!r} ({error}); download it again."
        ) from error
    if list(ranks.values()) != list(range(len(pairs))) or not {bytes([byte]) for byte in range(256)} <= set(
        ranks
    ):
        raise InputError(
            f"expected every byte and ranks from 0 on in a .tiktoken file, got others in {str(file)!r}; "
            "download it again."
        )
    return ranks


def _letters() -> list[str]:
    """A visible letter for each byte, as GPT-2 has them.

    Those that Latin-1 prints are themselves, and the others get letters from 256 on.
    """
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printed]
    places = {byte: byte for byte in printed} | {byte: 256 + rank for rank, byte in enumerate(hidden)}
    return [chr(places[byte]) for byte in range(256)]
