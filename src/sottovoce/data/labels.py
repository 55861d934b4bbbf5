"""Labels against what a model can say: clips with a label that it has no class for are found first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from sottovoce.core.target import Scores, Target
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, UnknownName

Unlabelled = Literal["refuse", "skip"]
"""What happens to clips with a label that the model has no class for: nothing runs, or they are left out."""
OWN = "embedded"
"""The clips that come with sottovoce for the kind of model that is asked."""
MOST_LISTED = 40
LONGEST_LABEL = 60


class Settled(NamedTuple):
    """A corpus whose labels the model knows, and the clips that were left out of it."""

    corpus: Corpus
    skipped: tuple[Entry, ...] = ()

    def reasons(self) -> dict[str, str]:
        """Why each clip was left out, by its id."""
        return {entry.id: f"the model has no class {_short(entry.label)!r}" for entry in self.skipped}


def open_clips(data: str, target: Target) -> Corpus:
    """A corpus by name; `OWN` are the clips that come with sottovoce for the kind of model under audit."""
    return open_corpus(target.clips if data == OWN else data)


def open_settled(data: str, target: Target, labels: str) -> Settled:
    """The same with labels that the model has a class for; clips with others are refused or left out."""
    return settle_labels(open_clips(data, target), target, labels)


def settle_labels(
    corpus: Corpus, target: Target, unlabelled: str = "refuse", *, spelled: bool = False
) -> Settled:
    """The corpus in the model's own names of classes. unlabelled: one of `Unlabelled`.

    A label such as `_unknown_`, as Google's archives have it, is taken for the class `unknown` where the
    model has that and not the other.

    spelled: whether texts that a recogniser cannot write matter as well. Training asks for them; an audit
        compares with them and never asks, so that it takes any.
    """
    if unlabelled not in get_args(Unlabelled):
        raise UnknownName("choice of labels", unlabelled, get_args(Unlabelled))
    if target.says != "class" and not spelled:
        return Settled(corpus)
    unknown = _unknown(corpus, target)
    if not unknown:
        return Settled(corpus)
    bare = {label: label.strip("_") for label in sorted(unknown)}
    taken = {label: name for label, name in bare.items() if name != label and _is_known(target, name)}
    notes = [f"{label} is taken for {name} ({unknown.pop(label)} clips)" for label, name in taken.items()]
    kept = tuple(
        replace(entry, label=taken.get(entry.label, entry.label))
        for entry in corpus
        if entry.label not in unknown
    )
    if unknown and (unlabelled == "refuse" or not kept):
        raise _refuse(corpus, target, unknown)
    if unknown:
        total = f"{unknown.total()} of {len(corpus)} clips"
        notes.append(f"skipped {total} whose label the model does not know: {_listed(unknown)}")
    note = "; ".join(filter(None, [corpus.note, *notes]))
    skipped = tuple(entry for entry in corpus if entry.label in unknown)
    return Settled(replace(corpus, entries=kept, note=note), skipped)


def _unknown(corpus: Corpus, target: Target) -> Counter[str]:
    """How many clips have each label that the model cannot say."""
    counts = Counter(entry.label for entry in corpus)
    return Counter({label: count for label, count in counts.items() if not _is_known(target, label)})


def _is_known(target: Target, label: str) -> bool:
    try:
        target.check_labels([label])
    except InputError:
        return False
    # Any other error that a user's target raises over a label counts as a failure of its clips.
    except Exception:
        return True
    return True


def _refuse(corpus: Corpus, target: Target, unknown: Counter[str]) -> InputError:
    classes = target.says == "class"
    wanted = "labels that the model has a class for" if classes else "texts that the model can write"
    known = f" Its classes: {_some(target.capability(Scores).classes)}." if target.offers(Scores) else ""
    left = len(corpus) - unknown.total()
    way = '--labels skip (in Python labels="skip")'
    skip = f"Add {way} to run the other {left}, or give" if left else "Give"
    return InputError(
        f"corpus {corpus.name!r}: expected {wanted}, got others for {unknown.total()} of {len(corpus)} "
        f"clips: {_listed(unknown)}.{known} {skip} other labels in a CSV with the columns path and label."
    )


def _listed(counts: Counter[str]) -> str:
    """Labels with how many clips they have, the commonest first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{_short(label)} ({count})" for label, count in ranked[:MOST_LISTED]]
    rest = ranked[MOST_LISTED:]
    more = f" and {len(rest)} more labels ({sum(count for _, count in rest)})" if rest else ""
    return ", ".join(words) + more


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_LISTED} more" if len(ordered) > MOST_LISTED else ""
    return ", ".join(map(_short, ordered[:MOST_LISTED])) + more


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 3]}..."
