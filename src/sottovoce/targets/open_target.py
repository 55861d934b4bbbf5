"""From the name of a model to a target, on the fastest device there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import isclass, signature
from pathlib import Path
from typing import Literal, final, get_args, get_type_hints

import torch

from sottovoce import registry
from sottovoce.core.files.weight_files import noting_files
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.target import Says, Target
from sottovoce.errors import InputError, SottovoceError, exits_are_errors
from sottovoce.registry.part_text import Part

WEIGHT_FILES = "_weight_files"
"""Where a target keeps which files it was read from."""
KEPT = 2
"""Models that are kept open until they are run: more may not fit into memory, and are opened again."""
OBJECT = "object"
"""How a plan names a model that a program handed in: `object(NAME, sha256)`. Only that program has it."""
Kind = Literal["class", "words", "class, no gradient", "words, no gradient"]
"""What a model says and whether attacks can follow its gradient: what the defaults of a plan depend on."""
Kinds = Callable[[str], Kind]
"""The kind of a model, by its name in a plan."""


@exits_are_errors()
def open_target(spec: str, device: str) -> Target:
    """A target from `name`, `name:argument` such as `huggingface:FOLDER`, or `name(setting=value, ...)`."""
    with noting_files() as files:
        target = _opened(spec, device)
    # Of a class that keeps nothing of its own, nobody knows; its files are not sottovoce's either.
    with suppress(AttributeError, TypeError):
        object.__setattr__(target, WEIGHT_FILES, frozenset(files))
    return target


def files_of(target: Target) -> frozenset[Path]:
    """The files of weights that sottovoce read as it opened a target, or the one that a wrapper holds."""
    inside: object = target
    while inside is not None and not hasattr(inside, WEIGHT_FILES):
        inside = getattr(inside, "target", None)
    found: frozenset[Path] = getattr(inside, WEIGHT_FILES, frozenset())
    return found


def _opened(spec: str, device: str) -> Target:
    if is_object(spec):
        raise InputError(
            f"{spec} is a model object of a Python program, which cannot be opened from its text; pass the "
            "object to sottovoce.audit(...) again."
        )
    if spec.endswith(")"):
        part = Part.parse(spec)
        made: Target = registry.build("target", part.name, {**part.settings, "device": device})
        return made
    name, _, argument = spec.partition(":")
    maker = registry.find("target", name)
    words = [argument] if argument else []
    try:
        signature(maker).bind(*words, device=device)
    except TypeError:
        wanted = [word for word in signature(maker).parameters if word != "device"]
        usage = ":".join([name, *(word.upper() for word in wanted[:1])])
        raise InputError(f"expected a model like {usage}, got {spec!r}.") from None
    target: Target = maker(*words, device=device)
    return target


def is_object(model: str) -> bool:
    """Whether a plan's model is an object of a program, and no text that opens one."""
    return model.startswith(f"{OBJECT}(")


def kind_of(model: str) -> Kind:
    """The kind of a model; it is opened where its name does not say.

    A model that cannot be opened counts as a classifier, and its cells will fail.
    """
    return Openings("cpu").kind(model)


@final
class Openings:
    """Opens models to see whether they name classes or write words, once each, and keeps a few open.

    device: where they are opened.
    known: models that are open already.
    """

    def __init__(self, device: str, known: Mapping[str, Target] | None = None) -> None:
        self.device = device
        self._open = dict(known or {})
        self._kinds = {model: look_at(target) for model, target in self._open.items()}

    def kind(self, model: str) -> Kind:
        """The kind of a model."""
        if model not in self._kinds:
            self._kinds[model] = declared_kind(model) or self._look(model)
        return self._kinds[model]

    def take(self, model: str) -> Target | None:
        """The model where it is still open; it is kept no longer."""
        return self._open.pop(model, None)

    def _look(self, model: str) -> Kind:
        try:
            target = self._opened(model)
        except Exception:  # the code of a user's model may raise anything
            return "class"
        if len(self._open) < KEPT:
            self._open[model] = target
        return look_at(target)

    def _opened(self, model: str) -> Target:
        try:
            return open_target(model, self.device)
        except Exception as error:
            if not self._open or not out_of_memory(error):
                raise
        # The models that are kept may leave too little memory.
        self._open.clear()
        return open_target(model, self.device)


def look_at(target: Target) -> Kind:
    """The kind of an open model."""
    return _kind(target.says, target.shows == "gradient")


def _kind(says: Says, gradient: bool) -> Kind:
    if gradient:
        return says
    return "words, no gradient" if says == "words" else "class, no gradient"


def guess(model: str) -> Kind:
    """The kind of a model, by its name alone; nothing is opened."""
    return declared_kind(model) or "class"


def declared_kind(model: str) -> Kind | None:
    """The kind that models of this name always are; None where they differ."""
    classes = declared_classes(model)
    kinds = {(each.says, each.loss is not Target.loss) for each in classes}
    says, gradient = kinds.pop() if len(kinds) == 1 else (None, True)
    # For some it is a property, which only an opened model answers.
    return _kind(says, gradient) if isinstance(says, str) else None


def declared_classes(model: str) -> tuple[type[Target], ...]:
    """The classes of targets that this name opens, as the function behind it declares them.

    None where it does not declare them, or where one is not sottovoce's: others' annotations may be wrong.
    """
    try:
        name = Part.parse(model).name if model.endswith(")") else model.partition(":")[0]
        made = get_type_hints(registry.find("target", name)).get("return")
    except (SottovoceError, NameError, TypeError):
        return ()
    found = get_args(made) or (made,)
    own = all(isclass(each) and each.__module__.startswith("sottovoce.") for each in found)
    return found if own and all(issubclass(each, Target) and each is not Target for each in found) else ()


def find_device(name: str = "auto") -> str:
    """The device to run on, if this machine has it; with "auto" the fastest there is."""
    if name != "auto":
        _check_device(name)
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _check_device(name: str) -> None:
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (colon and not number.isdecimal()):
        raise InputError(f"--device {name}: expected auto, cpu, cuda or mps.")
    gpus = torch.cuda.device_count() if kind == "cuda" and torch.cuda.is_available() else 0
    if kind == "cpu" or (kind == "mps" and torch.backends.mps.is_available()) or int(number or 0) < gpus:
        return
    has = f"{gpus} GPU{'s' if gpus > 1 else ''}, cuda:0 to cuda:{gpus - 1}" if gpus else "no GPU"
    raise InputError(f"--device {name}: torch sees {has} here; use --device {'cuda' if gpus else 'cpu'}.")


def find_devices() -> tuple[str, ...]:
    """Every GPU; without one, the fastest device there is."""
    if torch.cuda.is_available():
        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    return (find_device(),)
