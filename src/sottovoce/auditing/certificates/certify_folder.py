"""The folder of certificates, with certify.yaml, certificates.jsonl and progress.json; and their curve."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, final

from pydantic import ConfigDict, TypeAdapter

from sottovoce.auditing.run.clip_folder import ClipFolder
from sottovoce.core.files.field_ranges import Count, Finite, NotNegative, Positive, Share
from sottovoce.core.files.strict_json import STRICT, parse_json
from sottovoce.core.statistics import Interval, clopper_pearson, ratio_bootstrap
from sottovoce.errors import StoreError

MOST_ROWS = 12
PROGRESS = {"clip": str, "elected": str, "successes": int, "passes": int, "lower": int | float}
"""What is known of a clip in progress."""


@final
@dataclass(frozen=True, kw_only=True)
class CertifiedClip:
    """One clip. `failed` and `skipped` carry a reason and no figures.

    elected: what was certified. right: whether it is the label; for a recogniser, whether its WER against the
        label is under k too. errors, words: of the elected transcript against the label.
    radius: L2; null where the procedure abstains. snr_db: of the loudest perturbation inside the radius; null
        for a clip of zeros too.

    A line is checked against the types, and the ranges that they name, that the fields have here.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    clip: str
    status: Literal["ok", "failed", "skipped"]
    reason: str = ""
    label: str = ""
    elected: str = ""
    right: bool | None = None
    errors: Count | None = None
    words: Count | None = None
    radius: NotNegative | None = None
    snr_db: Finite | None = None
    lower: Share | None = None
    successes: Count | None = None
    passes: Count | None = None
    stop: str = ""
    seconds: Positive | None = None
    length_l2: NotNegative | None = None
    loaded: str = ""

    @property
    def key(self) -> str:
        return self.clip

    def to_line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str | bytes) -> CertifiedClip:
        """Raises `sottovoce.core.files.strict_json.Mistake`."""
        return parse_json(line.encode() if isinstance(line, str) else line, _CHECKED)


_CHECKED = TypeAdapter(CertifiedClip)


@final
@dataclass(frozen=True)
class CertifyFolder(ClipFolder[CertifiedClip]):
    """Where the certificates of one plan live."""

    plan_name: ClassVar[str] = "certify.yaml"
    records_name: ClassVar[str] = "certificates.jsonl"
    called: ClassVar[str] = "certificate"

    @staticmethod
    def read(line: str | bytes) -> CertifiedClip:
        return CertifiedClip.from_line(line)

    def save_progress(self, content: dict[str, Any]) -> None:
        """Replace the saved progress of the clip in progress."""
        path = self.path / "progress.json"
        torn = path.with_name("progress.json.part")
        try:
            with torn.open("w", encoding="utf-8") as file:
                file.write(json.dumps(content) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(torn, path)
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; what was recorded before is safe: free some space "
                "and run the same command again to continue."
            ) from None

    def clear_progress(self) -> None:
        (self.path / "progress.json").unlink(missing_ok=True)

    def progress(self) -> dict[str, Any]:
        """The progress of the clip in progress; None without a readable file: the clip then starts over."""
        try:
            content = json.loads((self.path / "progress.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        whole = isinstance(content, dict) and all(
            isinstance(content.get(name), kind) for name, kind in PROGRESS.items()
        )
        return content if whole else {}


@final
@dataclass(frozen=True)
class CurvePoint:
    """At a radius (L2) or an SNR (dB): the share of clips certified there, and of those also right."""

    level: float
    certified: Interval
    right: Interval


@final
@dataclass(frozen=True)
class CertifiedCurve:
    """Certificates over clips. Shares are of all clips that did not fail; abstentions count as not certified.

    elected: accuracy of the elected classes, or WER of the elected transcripts against the labels.
    """

    clips: int
    failed: tuple[CertifiedClip, ...]
    abstained: Interval
    elected: Interval
    radii: tuple[CurvePoint, ...]
    snrs: tuple[CurvePoint, ...]
    passes: int
    skipped: tuple[CertifiedClip, ...] = ()

    def to_json(self) -> dict[str, Any]:
        def points(rows: Sequence[CurvePoint], level: str) -> list[dict[str, Any]]:
            return [
                {level: row.level, "certified": _plain(row.certified), "right": _plain(row.right)}
                for row in rows
            ]

        return {
            "clips": self.clips,
            "failed": {record.clip: record.reason for record in self.failed},
            "skipped": {record.clip: record.reason for record in self.skipped},
            "abstained": _plain(self.abstained),
            "elected": _plain(self.elected),
            "passes": self.passes,
            "radii": points(self.radii, "radius"),
            "snrs": points(self.snrs, "snr_db"),
        }


def read_curve(
    records: Sequence[CertifiedClip],
    *,
    sigma: float,
    radii: Sequence[float] | None = None,
    snrs: Sequence[float] | None = None,
) -> CertifiedCurve:
    """What certificates amount to, at the levels given or at round ones that span what was found."""
    sound = [record for record in records if record.status == "ok"]
    reached = [record.radius for record in sound if record.radius is not None]
    heard = [record.snr_db for record in sound if record.snr_db is not None]
    radii = _steps(0.0, max(reached, default=0.0), sigma / 2) if radii is None else radii
    snrs = _steps(min(heard), max(heard), 5.0) if snrs is None and heard else snrs or ()
    return CertifiedCurve(
        clips=len(sound),
        failed=tuple(record for record in records if record.status == "failed"),
        abstained=clopper_pearson(len(sound) - len(reached), len(sound)),
        elected=_elected(sound),
        radii=tuple(_point(sound, level, _beyond(level)) for level in radii),
        snrs=tuple(_point(sound, level, _quieter(level)) for level in snrs),
        passes=sum(record.passes or 0 for record in sound),
        skipped=tuple(record for record in records if record.status == "skipped"),
    )


def _beyond(level: float) -> Callable[[CertifiedClip], bool]:
    return lambda record: record.radius is not None and record.radius >= level


def _quieter(level: float) -> Callable[[CertifiedClip], bool]:
    """Perturbations of that SNR lie inside the radius."""
    return lambda record: record.snr_db is not None and record.snr_db <= level


def _point(
    sound: Sequence[CertifiedClip], level: float, holds: Callable[[CertifiedClip], bool]
) -> CurvePoint:
    certified = [record for record in sound if holds(record)]
    right = sum(record.right is True for record in certified)
    return CurvePoint(level, clopper_pearson(len(certified), len(sound)), clopper_pearson(right, len(sound)))


def _elected(sound: Sequence[CertifiedClip]) -> Interval:
    if sound and all(record.words is not None for record in sound):
        return ratio_bootstrap([[record.errors or 0, record.words or 0] for record in sound])
    return clopper_pearson(sum(record.right is True for record in sound), len(sound))


def _steps(low: float, high: float, step: float) -> list[float]:
    """Multiples of a step, doubled until they are few, from the last up to `low` to the first from `high`."""
    while (high - low) / step > MOST_ROWS:
        step *= 2
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * place for place in range(first, last + 1)]


def _plain(interval: Interval) -> dict[str, float | int | None]:
    return {name: value if math.isfinite(value) else None for name, value in interval._asdict().items()}
