"""The folder of a run of sparsity, with sparsity.yaml and sparsity.jsonl; and what its records amount to."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from sottovoce.auditing.run.clip_folder import ClipFolder
from sottovoce.core.budget import NormName
from sottovoce.core.files.field_ranges import Count, NotNegative, Positive, Share
from sottovoce.core.files.strict_json import STRICT, parse_json
from sottovoce.core.statistics import Interval, clopper_pearson, ratio_bootstrap

FOLDER = "sparsity"
"""Inside the folder of an audit, whose report then shows it."""


@final
@dataclass(frozen=True, kw_only=True)
class SparseClip:
    """One clip behind one defense at one radius. `failed` and `skipped` carry a reason and no figures.

    said: what the model says to the clean clip. right: whether that is the label, or for a recogniser near
        enough to it; null where there is no label. Of what is wrong already, nothing is looked for.
    fooled: whether any perturbation of this length was found that works. Without one there is no sparsity.
    sparsity: the mean of `sizes`, one a direction: angles in radians for L2, free samples for L-infinity.
    at_once: directions that fool by themselves, with a size of 0.
    dimensions: samples of the clip. eps: the radius, in the norm.
    clipped: the share of samples that were cut to [-1, 1]; reach: what the heard perturbations have of the
        radius, after that and after rounding. Both are means over the nearest perturbations.
    held: of a random model, the share of fresh passes over these that are fooled.
    passes, hearings: passes over the clip with a gradient, and without.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    cell: str
    clip: str
    status: Literal["ok", "failed", "skipped"]
    reason: str = ""
    label: str = ""
    said: str = ""
    right: bool | None = None
    fooled: bool | None = None
    sparsity: NotNegative | None = None
    sizes: tuple[NotNegative, ...] = ()
    at_once: Count | None = None
    dimensions: Count | None = None
    norm: Literal["", "l2", "linf"] = ""
    eps: Positive | None = None
    clipped: Share | None = None
    reach: NotNegative | None = None
    held: Share | None = None
    passes: Count | None = None
    hearings: Count | None = None
    seconds: Positive | None = None
    loaded: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.cell, self.clip

    @property
    def most(self) -> float:
        """What a clip that nothing fools counts as, where it counts."""
        return math.pi if self.norm == "l2" else float(self.dimensions or 0)

    def to_line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str | bytes) -> SparseClip:
        """Raises `sottovoce.core.files.strict_json.Mistake`."""
        return parse_json(line.encode() if isinstance(line, str) else line, _CHECKED)


_CHECKED = TypeAdapter(SparseClip)


@final
@dataclass(frozen=True)
class SparsityFolder(ClipFolder[SparseClip]):
    """Where the sparsity of one plan lives."""

    plan_name: ClassVar[str] = "sparsity.yaml"
    records_name: ClassVar[str] = "sparsity.jsonl"
    called: ClassVar[str] = "record of sparsity"

    @staticmethod
    def read(line: str | bytes) -> SparseClip:
        return SparseClip.from_line(line)


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """One defense at one radius, as a plan has them. title: of the radius, such as "SNR 30 dB"."""

    cell: str
    defense: str
    budget: str
    title: str
    norm: NormName


@final
@dataclass(frozen=True, kw_only=True)
class SparsityRow:
    """What the clips of a setting amount to. Intervals are of 95 %, over clips.

    clips: those that were right to begin with, of which all else tells. wrong: those that were not.
    success: the share fooled. robust: clips that nothing fooled, without a value.
    residual: the mean sparsity of the fooled clips; counted: of all, where robust clips count as pi or as all
        samples. share: the residual as a share of the samples, in L-infinity; else of pi.
    spread: the deviation over the directions of a clip, averaged over clips.
    clipped: clips of whose nearest perturbations some samples were cut. held: as of `SparseClip`, the mean.
    """

    setting: Setting
    clips: int
    wrong: int
    failed: int
    skipped: int
    robust: int
    success: Interval
    residual: Interval
    counted: Interval
    share: float
    spread: float
    at_once: int
    clipped: int
    held: float
    passes: float

    def to_json(self) -> dict[str, Any]:
        flat = {name: value for name, value in vars(self).items() if name != "setting"}
        return {**asdict(self.setting), **{name: _plain(value) for name, value in flat.items()}}


def tabulate(settings: Sequence[Setting], records: Iterable[SparseClip]) -> list[SparsityRow]:
    """A row a setting, in their order."""
    by_cell: defaultdict[str, list[SparseClip]] = defaultdict(list)
    unused: list[SparseClip] = []
    for record in records:
        by_cell[record.cell].append(record)
        if not record.cell:
            unused.append(record)
    return [_row(setting, by_cell[setting.cell] + unused) for setting in settings]


def _row(setting: Setting, records: Sequence[SparseClip]) -> SparsityRow:
    tried = [record for record in records if record.status == "ok" and record.right is not False]
    found = [record for record in tried if record.sparsity is not None]
    held = [record.held for record in found if record.held is not None]
    return SparsityRow(
        setting=setting,
        clips=len(tried),
        wrong=sum(record.right is False for record in records),
        failed=sum(record.status == "failed" for record in records),
        skipped=sum(record.status == "skipped" for record in records),
        robust=len(tried) - len(found),
        success=clopper_pearson(len(found), len(tried)),
        residual=mean([record.sparsity for record in found if record.sparsity is not None]),
        counted=mean([record.most if record.sparsity is None else record.sparsity for record in tried]),
        share=_average([(record.sparsity or 0.0) / record.most for record in found if record.most]),
        spread=_average([float(np.std(record.sizes, ddof=1)) for record in found if len(record.sizes) > 1]),
        at_once=sum(record.at_once or 0 for record in found),
        clipped=sum((record.clipped or 0.0) > 0 for record in found),
        held=_average(held),
        passes=_average([float(record.passes or 0) for record in tried]),
    )


def mean(values: Sequence[float]) -> Interval:
    """With a bootstrap interval over clips; of none, nothing is known."""
    if not values:
        return Interval(math.nan, math.nan, math.nan, 0)
    return ratio_bootstrap([[value, 1.0] for value in values])


def _average(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return {name: _plain(one) for name, one in value._asdict().items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
