"""Errors that sottovoce raises. Each message says what is wrong, what was expected and what to do.

All are subclasses of `SottovoceError`; most are `InputError`, which is a `ValueError` too.

>>> try:
...     sv.attack("keyword", "embedded", "pgdd")
... except sv.errors.SottovoceError as error:
...     print(error)
unknown attack 'pgdd': did you mean 'pgd'?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

__all__ = [
    "BudgetError",
    "DamagedFile",
    "GradientError",
    "InputError",
    "MissingCapability",
    "MissingExtra",
    "PartExit",
    "ScoreError",
    "ServiceError",
    "SottovoceError",
    "Stopped",
    "StoreError",
    "UnknownName",
]

Place = tuple[str | int, ...]
"""The position of an entry in a file: `("attacks", 0)` is the first item of `attacks`."""


class SottovoceError(Exception):
    """Base of all errors that sottovoce raises on purpose; the command line prints them as one line.

    >>> issubclass(sv.errors.InputError, sv.errors.SottovoceError)
    True
    """


class InputError(SottovoceError, ValueError):
    """Audio, a label, a setting or a plan that cannot be used.

    place: the entry of a plan that it is about, if any.

    >>> sv.attacks.Pgd(steps=0)
    Traceback (most recent call last):
    sottovoce.errors.InputError: Pgd(steps=0): expected a number of at least 1; the default is 40.
    """

    place: Place = ()


class UnknownName(InputError):
    """A name that does not exist; the message has the nearest one that does.

    >>> sv.attack("keyword", "embedded", "deepfol")
    Traceback (most recent call last):
    sottovoce.errors.UnknownName: unknown attack 'deepfol': did you mean 'deepfool'?
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}."
        super().__init__(f"unknown {kind} {name!r}: {hint}")


class MissingCapability(SottovoceError, TypeError):
    """A part needs a capability that the model does not have, such as class scores.

    >>> model = sv.testing.ToyCtc()
    >>> sv.attack(model, sv.testing.clips_for(model), "deepfool")
    Traceback (most recent call last):
    sottovoce.errors.MissingCapability: deepfool needs class scores, but the model is a speech recogniser
    (ToyCtc). Use pgd, apgd or fgsm.
    """


class MissingExtra(SottovoceError, ImportError):
    """An optional package is not installed; the message has the command to install it.

    >>> raise sv.errors.MissingExtra("this metric needs pesq; run: pip install 'sottovoce[quality]'")
    Traceback (most recent call last):
    sottovoce.errors.MissingExtra: this metric needs pesq; run: pip install 'sottovoce[quality]'
    """


class GradientError(SottovoceError, ArithmeticError):
    """The gradient of a model is NaN or infinite, so that no step can be taken.

    An audit records the clip as failed and goes on.

    >>> issubclass(sv.errors.GradientError, ArithmeticError)
    True
    """


class ScoreError(SottovoceError, ArithmeticError):
    """The scores of a model are NaN or infinite, so that it has no answer.

    An audit records the clip as failed and goes on.

    >>> issubclass(sv.errors.ScoreError, ArithmeticError)
    True
    """


class ServiceError(SottovoceError, ConnectionError):
    """A model behind an address gave no answer to a clip, however often it was asked.

    An audit records the clip as failed and goes on.

    >>> issubclass(sv.errors.ServiceError, ConnectionError)
    True
    """


class BudgetError(SottovoceError, ArithmeticError):
    """A finished example is not inside its budget: a bug of an attack or a budget of your own.

    >>> issubclass(sv.errors.BudgetError, ArithmeticError)
    True
    """


class PartExit(SottovoceError):
    """A model, attack or metric of your own tried to end the program, for example with `sys.exit`.

    >>> issubclass(sv.errors.PartExit, sv.errors.SottovoceError)
    True
    """


class StoreError(SottovoceError, OSError):
    """The folder of a run cannot be read or written; also an `OSError`.

    >>> issubclass(sv.errors.StoreError, OSError)
    True
    """


class DamagedFile(StoreError, InputError):
    """A file of a run is damaged: it was edited, or the disk failed. The message has the file and the line.

    >>> issubclass(sv.errors.DamagedFile, sv.errors.StoreError)
    True
    """


class Stopped(SottovoceError):
    """A run was stopped by Ctrl-C, by a signal, by its limit of requests or by a service that refuses it.

    The records are safe, and the message says how to go on.

    >>> issubclass(sv.errors.Stopped, sv.errors.SottovoceError)
    True
    """


@contextmanager
def exits_are_errors() -> Iterator[None]:
    """Turn an exit from a user's own part into an error.

    That is anything that is not an `Exception`, such as `SystemExit` or the panic of a library written in
    Rust; but not Ctrl-C or the closing of a generator, which are meant for the caller.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PartExit(
            f"expected an answer or an error from the model, attack or metric, got {raised}, which ends the "
            "program; remove sys.exit or the like from its code, or raise an error instead."
        ) from error
