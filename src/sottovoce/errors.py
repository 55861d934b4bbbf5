"""What can go wrong, by who can mend it. Every message says what was expected, what came, and what to do."""

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
    "SottovoceError",
    "Stopped",
    "StoreError",
    "UnknownName",
]

Place = tuple[str | int, ...]
"""Where an entry stands in a file of entries: `("attacks", 0)` is the first item of `attacks`."""


class SottovoceError(Exception):
    """Base of every error that sottovoce raises on purpose; the command line prints it as one line."""


class InputError(SottovoceError, ValueError):
    """Audio, a label, a setting or a plan that cannot be used. place: the entry that it is about, if any."""

    place: Place = ()


class UnknownName(InputError):
    """A name that is not on the list it was looked up in."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}."
        super().__init__(f"unknown {kind} {name!r}: {hint}")


class MissingCapability(SottovoceError, TypeError):
    """An attack or a vote needs something of a target that this target does not offer."""


class MissingExtra(SottovoceError, ImportError):
    """An optional dependency is not installed."""


class GradientError(SottovoceError, ArithmeticError):
    """A target's loss or gradient is not finite, so that no step can be taken."""


class ScoreError(SottovoceError, ArithmeticError):
    """A target's scores are no numbers to choose by, so that it has no answer."""


class BudgetError(SottovoceError, ArithmeticError):
    """A finished example is not inside its budget."""


class PartExit(SottovoceError):
    """Someone's own model, attack or metric tried to end the program."""


class StoreError(SottovoceError, OSError):
    """A run folder cannot be read or written."""


class DamagedFile(StoreError, InputError):
    """A file of a run does not hold what it should: somebody changed it, or a disk did."""


class Stopped(SottovoceError):
    """A run that was asked to stop did so; what is recorded stays, and the message says how to go on."""


@contextmanager
def exits_are_errors() -> Iterator[None]:
    """Around the work of someone's own parts: an exit that one asks for is an error like any other.

    Whatever is no `Exception` counts as one: `SystemExit`, say, and the panics of libraries written in Rust.
    Ctrl-C and the closing of a generator do not: they are meant for whoever runs the parts.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PartExit(
            f"expected an answer or an error from the model, attack or metric, got {told}, which ends the "
            "program; take it out of its code (sys.exit, say), or raise an error instead."
        ) from error
