"""The study file: what listeners hear and are asked, all of it checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from sottovoce.core.files.expected_values import expected
from sottovoce.core.files.yaml_reader import Entries, StrictLoader, parse_entries, read_yaml
from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.session.protocol import Long, Question, Text
from sottovoce.listening.study.blocks import TESTS, Block, Key, Strict

PRESETS = ("v6", *TESTS)
FORM = ("a study", "title: My study")
"""What a file is, and an entry that it may have, for messages."""


class StudyClip(Strict):
    """One file. Paths count from the study file.

    reference: the clip that this one was made from. condition: what was done to it, such as "clean" or
    "adversarial". level: the tranche it is reported in, such as an intensity or an SNR. label: what is said.
    """

    path: Annotated[str, Field(min_length=1)]
    reference: Key | None = None
    condition: str = ""
    level: str = ""
    label: str = ""
    facts: dict[str, str] = Field(default_factory=dict)


class HeadphoneCheck(Strict):
    """The antiphase check (Woods et al. 2017): which of three tones is the quietest.

    trials: in a row; need: right ones to pass; retries: rows more for those who do not.
    fail: whether the study ends for those who fail, or continues with a note.
    """

    trials: Annotated[int, Field(ge=1, le=24)] = 6
    need: Annotated[int, Field(ge=1)] = 5
    retries: Annotated[int, Field(ge=0, le=3)] = 1
    fail: Literal["end", "note"] = "end"

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.need > self.trials:
            raise InputError(f"expected need of at most {self.trials} trials, got {self.need}; lower it")
        return self


class AttentionCheck(Strict):
    """A word to be heard in a sentence. answer: the right one of the choices."""

    clip: Key
    choices: Annotated[list[Text], Field(min_length=2, max_length=40)]
    answer: str
    question: Text = "Which of these words do you hear in the sentence?"
    fail: Literal["end", "note"] = "end"

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if self.answer not in self.choices:
            raise InputError(
                f"expected the answer among the choices, got {self.answer!r} and {', '.join(self.choices)}; "
                "add it"
            )
        return self


class Completion(Strict):
    """The text and code that a listener gets at the end.

    code: one for all; a code of their own where it is left out. screened_code: for those who fail a check.
    link: where to go back to. `{code}` and what the listener came with, such as `{PROLIFIC_PID}` or
    `{assignmentId}`, are filled in.
    """

    text: Long = "Thank you. Your answers are saved."
    code: Text | None = None
    screened_code: Text | None = None
    link: Text | None = None

    @field_validator("link")
    @classmethod
    def _safe(cls, link: str | None) -> str | None:
        if link is None:
            return None
        try:
            parts = urlsplit(link)
            fields = [
                (name, spec or turned)
                for _, name, spec, turned in Formatter().parse(link)
                if name is not None
            ]
        except ValueError as error:
            raise InputError(
                f"expected a link such as https://example.org/?cc={{code}}, got {link!r} ({error})"
            ) from None
        # What is filled in comes from the listener's address bar: it must not choose where they are sent.
        if parts.scheme not in ("https", "http") or not parts.netloc or "{" in parts.netloc:
            raise InputError(
                f"expected a link that starts with https:// and a host name without braces, got {link!r}; "
                "put {names} after the host"
            )
        if not all(name.isidentifier() and not more for name, more in fields):
            raise InputError(f"expected names such as {{PROLIFIC_PID}} in the link, got {link!r}")
        return link


class ListeningStudy(Strict):
    """A whole study.

    seed: of all orders and draws. seats: number of listeners that the design is balanced for.
    level: clips as they are, or all made equally loud; loudness: by RMS, or by LUFS (ITU-R BS.1770).
    volume: begin with setting the volume. dither: noise of one 16-bit step, of its own in each slot.
    wrong_sentinels: how many a listener may have and still count.
    preset: the published design that the study follows, which is checked.
    """

    title: Annotated[str, Field(min_length=1, max_length=200)]
    seed: int = 0
    seats: Annotated[int, Field(ge=1, le=100_000)] = 18
    level: Literal["as-is", "matched"] = "as-is"
    loudness: Literal["rms", "lufs"] = "rms"
    consent: Long | None = None
    instructions: Long = ""
    volume: bool = True
    dither: bool = False
    headphones: HeadphoneCheck | None = None
    attention: list[AttentionCheck] = Field(default_factory=list)
    questionnaire: list[Question] = Field(default_factory=list, max_length=40)
    completion: Completion | None = None
    wrong_sentinels: Annotated[int, Field(ge=0)] = 0
    preset: str | None = None
    clips: dict[Key, StudyClip]
    blocks: Annotated[list[Block], Field(min_length=1)]
    _sounds: dict[str, str] = PrivateAttr(default_factory=dict)
    """SHA-256 of the files that are played, by clip; of a study that was read from a file alone."""

    @field_validator("preset")
    @classmethod
    def _know_preset(cls, preset: str | None) -> str | None:
        if preset is not None and preset not in PRESETS:
            raise UnknownName("preset", preset, PRESETS)
        return preset

    @field_validator("blocks", mode="before")
    @classmethod
    def _know_tests(cls, blocks: Any) -> Any:
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                if "test" not in block:
                    raise InputError(
                        f"expected `test: NAME` in every block, got one without; known: {', '.join(TESTS)}"
                    )
                if block["test"] not in TESTS:
                    raise UnknownName("test", str(block["test"]), TESTS)
        return blocks

    @property
    def digest(self) -> str:
        """A hash of the study and the sound of its clips, wherever these are stored: 64 hex digits."""
        names = {
            key: clip.model_copy(update={"path": Path(clip.path).name}) for key, clip in self.clips.items()
        }
        # As it was before there was dither, where there is none: answers to older studies stay theirs.
        text = self.model_copy(update={"clips": names}).model_dump_json(
            exclude=None if self.dither else {"dither"}
        )
        sounds = "".join(f"\n{key}: {value}" for key, value in sorted(self._sounds.items()))
        return sha256(f"{text}{sounds}".encode()).hexdigest()


def read_study(path: str | Path) -> ListeningStudy:
    """A study from YAML, with the paths of its clips made absolute, and nothing in it left to find out."""
    from sottovoce.listening.study.study_checks import check_study, played_keys

    place = expand(path, "study")
    study = make_study(load(place), str(place))
    here = place.resolve().parent
    clips = {
        key: clip.model_copy(update={"path": str(here / expand(clip.path, f"clip {key!r}"))})
        for key, clip in study.clips.items()
    }
    study = study.model_copy(update={"clips": clips})
    check_study(study)
    study._sounds = {key: _hash_file(Path(clips[key].path)) for key in played_keys(study)}
    return study


def expand(path: str | Path, place: str) -> Path:
    """A path with its ~ filled in. place: where it was given, for the error."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(
            f"{place}: expected a path, got {str(path)!r} of an unknown user; write the full path."
        ) from None


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def make_study(content: Mapping[str, Any], place: str = "study") -> ListeningStudy:
    """A study from plain data; mistakes become one clear sentence. Clips are not looked at.

    place: what the study is called, for messages; of a file they name the line too.
    """
    try:
        return ListeningStudy.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        # Where an error of ours names an entry, it is one below.
        below = getattr(first.get("ctx", {}).get("error"), "place", ())
        parts = tuple(part for part in (*first["loc"], *below) if part not in TESTS)
        where = ".".join(map(str, parts))
        line = content.line_of(parts) if isinstance(content, Entries) else None
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] != "value_error":
            what = f"{expected(first)}, got {_short(first['input'])}"
        at = f" (line {line})" if line is not None else ""
        end = "" if what.endswith("?") and not at else "."
        raise InputError(f"{place}{', ' if where else ''}{where}: {what.rstrip('.')}{at}{end}") from None


class Loader(StrictLoader):
    """Keys may be numbers, which are the ids of clips and strengths."""

    words_alone = False
    named = ("name", "id", "rename one of them")


def load(path: Path) -> Entries:
    """What a study file holds, not yet looked at."""
    return read_yaml(path, *FORM, Loader)


def parse(text: str, path: Path) -> Entries:
    """The entries of a text that is to be a study file."""
    return parse_entries(text, path, *FORM, Loader)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
