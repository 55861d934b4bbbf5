"""All parts by name. Entries are "module:attribute" strings, imported on first use.

A third-party package adds its own through the entry point group `sottovoce.plugins`: an entry point names a
function that is called with `add`, and calls `add("attack", "mine", "my_package.attacks:Mine")`.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from sottovoce.errors import InputError, UnknownName, exits_are_errors

_PARTS: dict[str, dict[str, str]] = {
    "target": {
        "keyword": "sottovoce.targets.zoo.keyword_cnn:keyword",
        "recogniser": "sottovoce.targets.zoo.recogniser_targets:recogniser",
        "speaker": "sottovoce.targets.zoo.classifier_targets:speaker",
        "sound": "sottovoce.targets.zoo.classifier_targets:sound",
        "detector": "sottovoce.targets.zoo.detector_targets:detector",
        "deepspeech2": "sottovoce.targets.zoo.recogniser_targets:deepspeech2",
        "whisper": "sottovoce.targets.adapters.whisper:load_whisper",
        "huggingface": "sottovoce.targets.adapters.huggingface_classifier:load_huggingface",
        "speechbrain": "sottovoce.targets.adapters.speechbrain:load_speechbrain",
        "api": "sottovoce.targets.adapters.endpoint:api",
        "python": "sottovoce.targets.adapters.python_code:load_target",
        "dropout": "sottovoce.targets.adapters.kept_dropout:dropout",
        "several": "sottovoce.defenses.transfer_target:several",
        "transfer": "sottovoce.defenses.transfer_target:transfer",
    },
    "attack": {
        "none": "sottovoce.attacks.white_noise:Nothing",
        "noise": "sottovoce.attacks.white_noise:WhiteNoise",
        "fgsm": "sottovoce.attacks.pgd:Fgsm",
        "pgd": "sottovoce.attacks.pgd:Pgd",
        "apgd": "sottovoce.attacks.apgd:Apgd",
        "apgd-dlr": "sottovoce.attacks.apgd:ApgdDlr",
        "deepfool": "sottovoce.attacks.deepfool:DeepFool",
        "cw": "sottovoce.attacks.carlini_wagner:CarliniWagner",
        "cw-asr": "sottovoce.attacks.carlini_wagner_asr:CarliniWagnerAsr",
        "imperceptible": "sottovoce.attacks.imperceptible:Imperceptible",
        "genetic": "sottovoce.attacks.genetic:Genetic",
        "taori": "sottovoce.attacks.taori:Taori",
        "kenansville": "sottovoce.attacks.kenansville:Kenansville",
        "kenansville-ssa": "sottovoce.attacks.kenansville:KenansvilleSsa",
        "yeehaw": "sottovoce.attacks.yeehaw:Yeehaw",
        "replay": "sottovoce.attacks.replay:Replay",
        "replay-noise": "sottovoce.attacks.replay:ReplayNoise",
    },
    "universal": {
        "universal-gradient": "sottovoce.attacks.universal_gradient:UniversalGradient",
        "uap": "sottovoce.attacks.universal_deepfool:Uap",
        "uap-hc": "sottovoce.attacks.universal_deepfool:UapHc",
    },
    "goal": {
        "evade": "sottovoce.core.goal:Evade",
        "force": "sottovoce.core.goal:Force",
        "force-nearest": "sottovoce.core.goal:ForceNearest",
        "prefix": "sottovoce.core.goal:Prefix",
        "language": "sottovoce.core.goal:Language",
    },
    "budget": {
        "linf": "sottovoce.core.budget:LInf",
        "l2": "sottovoce.core.budget:L2",
        "snr": "sottovoce.core.budget:Snr",
        "dbmax": "sottovoce.core.budget:DbMax",
        "audible": "sottovoce.perception.audible_budget:Audible",
    },
    "transform": {
        "gaussian": "sottovoce.defenses.randomised_smoothing:Gaussian",
        "mad": "sottovoce.defenses.randomised_smoothing:MadNoise",
        "asnr": "sottovoce.defenses.enhancement:Asnr",
        "omlsa": "sottovoce.defenses.omlsa:Omlsa",
        "denoise": "sottovoce.defenses.denoiser:Denoise",
        "lowpass": "sottovoce.defenses.filters:IdealLowPass",
        "biquad": "sottovoce.defenses.filters:BiquadLowPass",
        "median": "sottovoce.defenses.filters:MedianSmoothing",
        "resample": "sottovoce.defenses.filters:Resample",
        "mp3": "sottovoce.defenses.codecs:Mp3",
        "mulaw": "sottovoce.defenses.codecs:MuLaw",
        "quantise": "sottovoce.defenses.quantise:Quantise",
        "noise": "sottovoce.perception.degradations.added_noise:Noise",
        "reverb": "sottovoce.perception.degradations.reverberation:ReverbRatio",
        "reverb-time": "sottovoce.perception.degradations.reverberation:ReverbTime",
        "eq": "sottovoce.perception.degradations.equaliser:Equaliser",
        "pops": "sottovoce.perception.degradations.lost_samples:Pops",
        "dropouts": "sottovoce.perception.degradations.lost_samples:Dropouts",
        "griffin-lim": "sottovoce.perception.degradations.griffin_lim:GriffinLim",
    },
    "vote": {
        "one": "sottovoce.defenses.votes:OneSentence",
        "majority": "sottovoce.defenses.votes:Majority",
        "average": "sottovoce.defenses.votes:Average",
        "rover": "sottovoce.defenses.rover:Rover",
    },
    "metric": {
        "success": "sottovoce.metrics.decisions:Success",
        "fooling-ratio": "sottovoce.metrics.decisions:FoolingRatio",
        "accuracy": "sottovoce.metrics.decisions:Accuracy",
        "clean-accuracy": "sottovoce.metrics.decisions:CleanAccuracy",
        "chance": "sottovoce.metrics.decisions:ChanceOfRight",
        "clean-chance": "sottovoce.metrics.decisions:CleanChanceOfRight",
        "wer": "sottovoce.metrics.text_errors:Wer",
        "clean-wer": "sottovoce.metrics.text_errors:CleanWer",
        "wer-clips": "sottovoce.metrics.text_errors:WerClips",
        "cer": "sottovoce.metrics.text_errors:Cer",
        "clean-cer": "sottovoce.metrics.text_errors:CleanCer",
        "transcript-change": "sottovoce.metrics.text_errors:TranscriptChange",
        "substitutions": "sottovoce.metrics.text_errors:Substitutions",
        "deletions": "sottovoce.metrics.text_errors:Deletions",
        "insertions": "sottovoce.metrics.text_errors:Insertions",
        "sentence-error": "sottovoce.metrics.text_errors:SentenceError",
        "uasr-word": "sottovoce.metrics.text_errors:UasrWord",
        "uasr-char": "sottovoce.metrics.text_errors:UasrChar",
        "tasr-word": "sottovoce.metrics.text_errors:TasrWord",
        "tasr-char": "sottovoce.metrics.text_errors:TasrChar",
        "language-confusion": "sottovoce.metrics.text_errors:LanguageConfusion",
        "masking-share": "sottovoce.metrics.masking_excess:MaskingShare",
        "masking-excess": "sottovoce.metrics.masking_excess:MaskingExcess",
        "masking-max": "sottovoce.metrics.masking_excess:MaskingMax",
        "p-heard": "sottovoce.metrics.audibility:PHeard",
        "p-heard-masking": "sottovoce.metrics.audibility:PHeardMasking",
        "heard-distance": "sottovoce.metrics.audibility:HeardDistance",
        "pesq": "sottovoce.metrics.quality:Pesq",
        "pesq-nb": "sottovoce.metrics.quality:PesqNb",
        "stoi": "sottovoce.metrics.quality:Stoi",
        "estoi": "sottovoce.metrics.quality:Estoi",
        "fwssnr": "sottovoce.metrics.quality:Fwssnr",
        "cd": "sottovoce.metrics.quality:CepstralDistance",
        "llr": "sottovoce.metrics.quality:LogLikelihoodRatio",
        "loudness-change": "sottovoce.metrics.quality:LoudnessChange",
        "level-change": "sottovoce.metrics.quality:LevelChange",
        "shift": "sottovoce.metrics.quality:Shift",
        "visqol": "sottovoce.metrics.quality_extras:Visqol",
        "zimtohrli": "sottovoce.metrics.quality_extras:Zimtohrli",
        "cdpam": "sottovoce.metrics.quality_extras:Cdpam",
        "dnsmos": "sottovoce.metrics.quality_extras:Dnsmos",
        "dnsmos-change": "sottovoce.metrics.quality_extras:DnsmosChange",
        "snr": "sottovoce.metrics.distortion:Snr",
        "segmental-snr": "sottovoce.metrics.distortion:SegmentalSnrDb",
        "linf": "sottovoce.metrics.distortion:LInfNorm",
        "l2": "sottovoce.metrics.distortion:L2Norm",
        "db-max": "sottovoce.metrics.distortion:DbMax",
        "db-max-vocal": "sottovoce.metrics.distortion:DbMaxVocal",
        "db-max-background": "sottovoce.metrics.distortion:DbMaxBackground",
        "db-mean": "sottovoce.metrics.distortion:DbMean",
        "db-mean-vocal": "sottovoce.metrics.distortion:DbMeanVocal",
        "db-mean-background": "sottovoce.metrics.distortion:DbMeanBackground",
        "below-32db": "sottovoce.metrics.distortion:BelowAccepted",
    },
    "ear": {
        "learned": "sottovoce.perception.ears.learned:Learned",
        "auditory": "sottovoce.perception.ears.auditory:Auditory",
        "masking": "sottovoce.perception.ears.masking_ear:MaskingEar",
        "dpam": "sottovoce.perception.ears.dpam:Dpam",
    },
    "corpus": {
        "embedded": "sottovoce.data.embedded:embedded",
        "prompts": "sottovoce.data.embedded:prompts",
        "strings": "sottovoce.data.embedded:strings",
        "sounds": "sottovoce.data.synthetic_sounds:sounds",
        "pack": "sottovoce.data.pack:pack",
        "audiomnist": "sottovoce.data.sound_corpora:audiomnist",
        "urbansound8k": "sottovoce.data.sound_corpora:urbansound8k",
        "esc50": "sottovoce.data.sound_corpora:esc50",
        "librispeech": "sottovoce.data.librispeech:librispeech",
        "pcgita": "sottovoce.data.clinical_corpora:pcgita",
        "torgo": "sottovoce.data.clinical_corpora:torgo",
        "proxy": "sottovoce.data.clinical_proxy:proxy",
        "run": "sottovoce.data.corpora:run",
        "folder": "sottovoce.data.corpora:folder",
        "csv": "sottovoce.data.corpora:table",
        "speechcommands": "sottovoce.data.speech_commands:speech_commands",
    },
    "study": {
        "V1": "sottovoce.studies.vadillo2022.keyword_classifier:STUDY",
        "V2": "sottovoce.studies.vadillo2022.fooling_ratio:STUDY",
        "V3": "sottovoce.studies.vadillo2022.fooling_by_distortion:STUDY",
        "V4": "sottovoce.studies.vadillo2022.standard_distortion:STUDY",
        "V5": "sottovoce.studies.vadillo2022.distortion_by_part:STUDY",
        "M1": "sottovoce.studies.manocha2020.perturbations:STUDY",
        "M2": "sottovoce.studies.manocha2020.jnd_search:STUDY",
        "M3": "sottovoce.studies.manocha2020.learned_metric:STUDY",
        "M4": "sottovoce.studies.manocha2020.human_ratings:STUDY",
        "M5": "sottovoce.studies.manocha2020.metric_as_loss:STUDY",
        "A": "sottovoce.studies.amiri2024.detection:STUDY",
        "A3": "sottovoce.studies.amiri2024.attack_quality:STUDY",
        "O1": "sottovoce.studies.olivier2023.accidental.accidental_robustness_rxor:STUDY",
        "O2": "sottovoce.studies.olivier2023.accidental.accidental_robustness_images:STUDY",
        "O3": "sottovoce.studies.olivier2023.pruned_networks.pruned_robustness:STUDY",
        "O4": "sottovoce.studies.olivier2023.sparsity.sparsity_study:STUDY",
        "O5": "sottovoce.studies.olivier2023.whitebox_attacks:STUDY",
        "O6": "sottovoce.studies.olivier2023.imperceptible_attack:STUDY",
        "O7": "sottovoce.studies.olivier2023.whisper_attacks:STUDY",
        "O8": "sottovoce.studies.olivier2023.language_confusion:STUDY",
        "O12": "sottovoce.studies.olivier2023.attacks_without_gradient:STUDY",
        "O13": "sottovoce.studies.olivier2023.smoothing:STUDY",
        "O14": "sottovoce.studies.olivier2023.smoothing_any_recogniser:STUDY",
        "O15": "sottovoce.studies.olivier2023.high_frequency_smoothing:STUDY",
        "O16": "sottovoce.studies.olivier2023.certificates:STUDY",
        "O18": "sottovoce.studies.olivier2023.adversarial_training:STUDY",
    },
}

_NAMED_ERRORS = frozenset({"attack", "universal", "budget", "goal", "transform", "vote"})
"""Kinds whose errors about settings do not name the part themselves."""
_OWN = {kind: frozenset(parts) for kind, parts in _PARTS.items()}


def add(kind: str, name: str, where: str) -> None:
    """Register a part: `where` is "module:attribute"."""
    parts = _kind(kind)
    if parts.get(name, where) != where:
        raise InputError(f"the {kind} {name!r} exists already, as {parts[name]!r}; choose another name.")
    parts[name] = where


def kinds() -> list[str]:
    """The kinds of parts, such as "attack"."""
    return list(_PARTS)


def names(kind: str) -> list[str]:
    """All names of a kind, plugins included."""
    _load_plugins()
    return sorted(_kind(kind))


def is_own(kind: str, name: str) -> bool:
    """Whether a part comes with sottovoce, not with a plugin."""
    _kind(kind)
    return name in _OWN[kind]


def classes(kind: str) -> dict[str, str]:
    """The classes of a kind that come with sottovoce: from the class name to "module:attribute"."""
    places = [place for name, place in _kind(kind).items() if is_own(kind, name)]
    found = {place.partition(":")[2]: place for place in places}
    return {name: place for name, place in found.items() if name[0].isupper()}


def name_of(kind: str, made: type) -> str | None:
    """The name under which a class is registered; None if it is not."""
    where = f"{made.__module__}:{made.__qualname__}"
    _load_plugins()
    for name, place in _kind(kind).items():
        module = sys.modules.get(place.partition(":")[0])
        if place == where or getattr(module, place.partition(":")[2], None) is made:
            return name
    return None


def find(kind: str, name: str) -> Any:
    """The class or function behind a name, imported now."""
    _load_plugins()
    parts = _kind(kind)
    if name not in parts:
        raise UnknownName(kind, name, parts)
    module, _, attribute = parts[name].partition(":")
    # Importing a module again would take as long as building a part.
    return getattr(sys.modules.get(module) or import_module(module), attribute)


def build(kind: str, name: str, settings: Mapping[str, Any] | None = None) -> Any:
    """A part with its settings, which are checked by name, type and value."""
    maker = find(kind, name)
    settings = dict(settings or {})
    hints, required = _settings_of(maker)
    for key, value in settings.items():
        if key not in hints:
            raise UnknownName(f"setting of {name}", key, hints)
        settings[key] = _checked(f"{name}({key}={_shown(value)})", hints[key], value)
    missing = required - set(settings)
    if missing:
        example = ", ".join(f"{key}=..." for key in sorted(missing))
        raise InputError(
            f"{name} needs the setting {' and '.join(sorted(missing))}; write {name}({example})."
        )
    return _made(kind, name, maker, settings)


def _made(kind: str, name: str, maker: Any, settings: Mapping[str, Any]) -> Any:
    """The part. An error about a setting says the name of the part, not that of its class."""
    try:
        return maker(**settings)
    except InputError as error:
        own = f"{getattr(maker, '__name__', '')}("
        if str(error).startswith(own):
            raise InputError(f"{name}({str(error).removeprefix(own)}") from None
        if kind not in _NAMED_ERRORS or type(error) is not InputError or str(error).startswith(name):
            raise
        raise InputError(f"{name}: {error}") from None


def _kind(kind: str) -> dict[str, str]:
    if kind not in _PARTS:
        raise UnknownName("kind of part", kind, _PARTS)
    return _PARTS[kind]


def defaults(kind: str, name: str) -> dict[str, Any]:
    """The settings of a part in order, each with its default, or `dataclasses.MISSING` if it has none."""
    return _defaults_of(find(kind, name))


def types(kind: str, name: str) -> dict[str, Any]:
    """The settings of a part in order, each with its type."""
    return dict(_settings_of(find(kind, name))[0])


@lru_cache(maxsize=512)
def _settings_of(maker: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The names and types of a maker's settings, and which of them are required."""
    known = _defaults_of(maker)
    function = maker.__init__ if inspect.isclass(maker) and not is_dataclass(maker) else maker
    hints = get_type_hints(function)
    required = frozenset(key for key in known if known[key] is MISSING)
    return {key: hints.get(key, Any) for key in known}, required


def _defaults_of(maker: Any) -> dict[str, Any]:
    if is_dataclass(maker):
        # Fields that a goal gets when it is bound to clips are not settings.
        taken = [item for item in fields(maker) if item.init and not item.metadata.get("bound")]
        return {
            item.name: item.default if item.default_factory is MISSING else item.default_factory()
            for item in taken
        }
    parameters = inspect.signature(maker).parameters
    empty = inspect.Parameter.empty
    return {
        key: MISSING if value.default is empty else value.default
        for key, value in parameters.items()
        if key != "self"
    }


def _checked(what: str, hint: Any, value: Any) -> Any:
    """The value converted to a type. Unlike in Python, true is not 1, and nan is not a number."""
    try:
        found = _adapter(hint).validate_python(value)
    except ValidationError:
        raise InputError(f"{what}: expected {_described(hint)}.") from None
    if isinstance(value, bool) and not isinstance(found, bool):
        raise InputError(f"{what}: expected {_described(hint)}.")
    for item in found if isinstance(found, list | tuple) else (found,):
        if isinstance(item, float) and not math.isfinite(item):
            raise InputError(f"{what}: expected a finite number.")
    return found


@lru_cache(maxsize=512)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def _shown(value: Any) -> str:
    """A value as it is written in the text of a part."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)


def _described(hint: Any) -> str:
    """A type in words: `int | None` is "an integer or null"."""
    named = {int: "an integer", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
    if hint in named:
        return named[hint]
    inner = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_described, inner))
    if get_origin(hint) is Literal:
        return " or ".join(map(str, inner))
    if get_origin(hint) in (tuple, list) and inner:
        return f"a list such as [...], each {_described(inner[0])}"
    return str(hint)


@cache
def _load_plugins() -> None:
    for point in entry_points(group="sottovoce.plugins"):
        try:
            with exits_are_errors():
                point.load()(add)
        except Exception as error:
            raise InputError(
                f"the plugin {point.name!r} ({point.value}) failed to register its parts: {error}; repair "
                "or uninstall it."
            ) from error
