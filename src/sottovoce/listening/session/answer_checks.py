"""Whether an answer is one that its screen can have; what any screen can have, the protocol says."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from sottovoce.listening.session import protocol
from sottovoce.listening.session.protocol import Answer, Question, Screen, Slot


def find_fault(screen: Screen, answer: Answer) -> str | None:
    """What is wrong with an answer to this screen, in one sentence; None where nothing is."""
    given = answer.given
    if given.kind != screen.kind:
        return f"expected an answer to a screen of kind {screen.kind}, got one of kind {given.kind}."
    labels = {slot.label for slot in slots_of(screen)}
    if not set(answer.plays) <= labels:
        return f"expected plays of the slots {sorted(labels)} only, got another slot."
    match screen, given:
        case (protocol.AttentionScreen(choices=choices), protocol.Word(choice=choice)) | (
            protocol.Naming(choices=choices),
            protocol.Named(choice=choice),
        ):
            if choice not in choices:
                return "expected one of the choices of the screen, got another."
        case protocol.Mushra(clips=clips), protocol.Rated(ratings=ratings):
            if set(ratings) != {slot.label for slot in clips}:
                return f"expected a rating for each of {[slot.label for slot in clips]} and no other."
        case protocol.Questionnaire(questions=questions), protocol.Filled(answers=answers):
            return _find_gap(questions, answers)
    return None


def slots_of(screen: Screen) -> Iterator[Slot]:
    """All places with a clip on a screen, in the order of its fields."""
    for name in type(screen).model_fields:
        value = getattr(screen, name)
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Slot))


def _find_gap(questions: list[Question], answers: dict[str, str | float]) -> str | None:
    known = {question.name: question for question in questions}
    if not set(answers) <= set(known):
        return f"expected answers to {sorted(known)} only."
    for name, question in known.items():
        answer = answers.get(name, "")
        if isinstance(answer, str) and not answer.strip():
            if question.required:
                return f"expected an answer to {name!r}, got none."
            continue
        fault = _find_misfit(question, answer)
        if fault is not None:
            return f"expected {fault} for {name!r}."
    return None


def _find_misfit(question: Question, answer: str | float) -> str | None:
    match question.kind:
        case "number":
            return None if isinstance(answer, float) and isfinite(answer) else "a number"
        case "choice":
            return None if answer in question.choices else "one of the choices"
        case "text":
            return None if isinstance(answer, str) else "a text"
