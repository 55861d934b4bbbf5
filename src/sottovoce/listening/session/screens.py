"""From a step to what the page shows: words and opaque names of clips, and nothing that tells the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from sottovoce.errors import InputError
from sottovoce.listening.session import protocol
from sottovoce.listening.session.protocol import Feedback, Given, Screen, Slot
from sottovoce.listening.session.steps import LABELS, Step
from sottovoce.listening.study.blocks import Block, NamingBlock, SameDifferentBlock
from sottovoce.listening.study.study_file import Completion, ListeningStudy

RECOGNISED = 90
"""A hidden reference that is rated below it was not recognised (ITU-R BS.1534, post-screening)."""
QUESTIONS: Mapping[str, str] = {
    "naming": "Which word do you hear?",
    "abx": "Is X the same recording as A or as B?",
    "same-different": "Are the two recordings the same or different?",
    "mushra": "Rate each clip against the reference: 100 where you hear no difference.",
    "preference": "Which of the two clips sounds better?",
    "closer": "Which of the two clips is closer to the reference?",
}
TITLES: Mapping[str, str] = {
    "naming": "Name the word",
    "abx": "Which one is X?",
    "same-different": "Same or different?",
    "mushra": "Rate the clips",
    "preference": "Which is better?",
    "closer": "Which is closer?",
}
EXPLAINED: Mapping[str, str] = {
    "naming": "You will hear one clip at a time. Choose the word you hear, and say how natural it sounds.",
    "abx": "You will hear three clips. A and B differ; X is the same as one of them. Say which one, and how "
    "sure you are. You may play each clip as often as you like.",
    "same-different": "You will hear two clips, one after the other. Say whether they are exactly the same "
    "recording or differ in any way. Some differences are very small.",
    "mushra": "You will hear a reference and several versions of it. Rate how close each version is to the "
    "reference, from 0 to 100. One of them is the reference itself: it should get 100.",
    "preference": "You will hear two versions of a clip. Choose the one that sounds better to you.",
    "closer": "You will hear a reference and two other clips. Choose the one that is closer to it.",
}
SCREENS: Mapping[
    str,
    type[protocol.Naming | protocol.Abx | protocol.SameDifferent | protocol.Preference | protocol.Closer],
] = {
    "naming": protocol.Naming,
    "abx": protocol.Abx,
    "same-different": protocol.SameDifferent,
    "preference": protocol.Preference,
    "closer": protocol.Closer,
}
VOLUME = (
    "A noise plays, loud and soft in turn. Set the volume so that the soft part is easy to hear and the loud "
    "part is comfortable. Please do not change the volume afterwards."
)
QUIETEST = "Put on headphones. Which of the three tones is the quietest?"
ENDINGS: Mapping[str, tuple[str, str]] = {
    "finished": ("Done", "Thank you. Your answers are saved."),
    "refused": ("Good bye", "You did not agree to take part, so nothing was asked. You can close this page."),
    "headphones": (
        "Thank you",
        "This study needs headphones, and the check did not hear any. You can close this page.",
    ),
    "attention": (
        "Thank you",
        "This study ends here for you, as a word in a sentence was not heard. You can close this page.",
    ),
}


def screen(
    step: Step,
    names: Mapping[str, str],
    study: ListeningStudy,
    progress: float = 0.0,
    *,
    id: str,
    arrived_with: Mapping[str, str] | None = None,
) -> Screen:
    """What the page shows of a step.

    names: the opaque name of the clip in each slot, by its label. id: the opaque name of the screen.
    arrived_with: what the recruiting site said of the listener, for the link back.
    """
    missing = [label for label in step.roles if label not in names]
    if missing:
        raise InputError(f"expected a name for every slot, got none for {missing[0]!r}; name it.")
    slots = {label: Slot(label=label, audio=names[label]) for label in step.roles}
    shown: dict[str, Any] = {"id": id, "progress": progress}
    if step.planned is not None:
        return _trial_screen(step, slots, study.blocks[step.planned.block], shown)
    match step.kind:
        case "consent":
            return protocol.Consent(**shown, title=study.title, text=study.consent or "")
        case "notice":
            return _notice(step, study, shown)
        case "volume":
            return protocol.Volume(**shown, text=VOLUME, clip=slots[LABELS["noise"]])
        case "headphones":
            return protocol.Headphones(**shown, question=QUIETEST, clips=list(slots.values()))
        case "attention":
            test = study.attention[int(step.facts["test"])]
            clip = slots[LABELS["clip"]]
            return protocol.AttentionScreen(**shown, question=test.question, clip=clip, choices=test.choices)
        case "questionnaire":
            title = "A few questions"
            return protocol.Questionnaire(**shown, title=title, questions=study.questionnaire)
        case "done":
            return _done(step, study, shown, arrived_with or {})
    raise InputError(f"expected a step of a known kind, got {step.kind!r}; the stored session is damaged.")


def _trial_screen(step: Step, slots: Mapping[str, Slot], block: Block, shown: dict[str, Any]) -> Screen:
    shown |= {"question": block.question or QUESTIONS[step.kind], "teaching": step.teaching}
    if step.kind == "mushra":
        reference = slots[LABELS["reference"]]
        clips = [slot for slot in slots.values() if slot is not reference]
        return protocol.Mushra(**shown, reference=reference, clips=clips)
    shown |= {role: slots[label] for role, label in LABELS.items() if label in slots}
    if isinstance(block, NamingBlock):
        shown |= {"choices": block.choices, "scale_question": block.scale_question, "scale": block.scale}
    if isinstance(block, SameDifferentBlock):
        shown |= {"gap_seconds": block.gap_seconds}
    return SCREENS[step.kind](**shown)


def _notice(step: Step, study: ListeningStudy, shown: dict[str, Any]) -> Screen:
    if step.facts["about"] == "instructions":
        return protocol.Notice(**shown, title=study.title, text=study.instructions)
    block = study.blocks[int(step.facts["block"])]
    if step.facts["about"] == "break":
        text = "Take a short rest. Go on when you are ready."
        return protocol.Notice(**shown, title="Break", text=text, rest_seconds=block.rest_seconds)
    title = block.title or TITLES[block.test]
    return protocol.Notice(**shown, title=title, text=block.instructions or EXPLAINED[block.test])


def _done(
    step: Step, study: ListeningStudy, shown: dict[str, Any], arrived_with: Mapping[str, str]
) -> Screen:
    outcome = step.facts["outcome"]
    title, text = ENDINGS[outcome]
    completion = study.completion
    if completion is None:
        return protocol.Done(**shown, title=title, text=text)
    if outcome == "finished":
        text = completion.text
    code = step.facts.get("code")
    link = None if code is None else fill_link(completion, code, arrived_with)
    return protocol.Done(**shown, title=title, text=text, code=code, link=link)


def fill_link(completion: Completion, code: str, arrived_with: Mapping[str, str]) -> str | None:
    """The link back, with what the listener came with; a name that they did not bring is left empty."""
    if completion.link is None:
        return None
    values = {"code": code, **{name: value for name, value in arrived_with.items() if name != "code"}}
    return completion.link.format_map(_Quoted(values))


class _Quoted(dict[str, str]):
    def __getitem__(self, name: str) -> str:
        return quote(self.get(name, ""), safe="")

    def __missing__(self, name: str) -> str:
        return ""


def teach(step: Step, given: Given) -> Feedback:
    """What is said after a teaching trial."""
    truth, told = step.truth, given.model_dump()
    match step.kind:
        case "naming" | "closer" | "preference" | "abx" if "choice" in truth:
            right = told["choice"] == truth["choice"]
            what = truth["choice"] if step.kind == "naming" else truth["choice"].upper()
            what = f"X is {what}" if step.kind == "abx" else f"the answer is {what}"
        case "same-different":
            right = told["different"] == truth["different"]
            what = "the two are different" if truth["different"] else "the two are the same recording"
        case "mushra":
            right = told["ratings"].get(truth["hidden"], 0) >= RECOGNISED
            what = f"clip {truth['hidden']} is the reference itself"
        case _:
            return Feedback(right=True, text="Thank you. There is no right or wrong here.")
    return Feedback(right=right, text=f"Right: {what}." if right else f"Not quite: {what}.")
