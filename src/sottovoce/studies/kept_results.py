"""The results that published pages are made from: `results/ID-SCALE.json` and `figures/ID-SCALE-NAME.png` in
the folder of the pages. They are copies of what a run leaves, without the paths of its machine."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.core.files.private_paths import hide_all
from sottovoce.errors import DamagedFile, InputError, StoreError
from sottovoce.studies.study import Study

RESULTS, FIGURES = "results", "figures"
INNERMOST = re.compile(r"\[[^\[\]{}]*\]|\{[^\[\]{}]*\}")
SCALES = ("full", "mini")
"""In the order in which a page shows them."""
COLOURS = 128
"""Of a kept figure: lines and text need no more, and the file is a third as large."""


class KeptTable(BaseModel):
    model_config = ConfigDict(frozen=True)

    title: str
    columns: list[str]
    rows: list[list[str]]
    prose: list[bool]
    note: str
    claims: bool


class KeptFigure(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    title: str


class KeptResults(BaseModel):
    """What `results.json` of a study holds."""

    model_config = ConfigDict(frozen=True)

    study: str
    title: str
    paper: str
    reports: str
    scale: str | None
    version: str
    date: str
    seconds: int | None
    setting: dict[str, Any]
    scope: list[str]
    notes: list[str]
    tables: list[KeptTable]
    figures: list[KeptFigure]
    values: dict[str, Any]

    @property
    def stem(self) -> str:
        return f"{self.study}-{self.scale}"


def read_kept(path: Path) -> KeptResults:
    try:
        return KeptResults.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StoreError(f"expected a study's results at {path}, got: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DamagedFile(
            f"expected a study's results in {path}, got at {place}: {first['msg']}; earlier versions wrote "
            "less: run the study again, or sottovoce study table, in the same folder."
        ) from None


def kept_results(study: str, pages: Path) -> list[KeptResults]:
    """The kept results of a study, full before mini."""
    paths = [pages / RESULTS / f"{study}-{scale}.json" for scale in SCALES]
    return [read_kept(path) for path in paths if path.exists()]


def find_results(study: str, given: Path) -> Path:
    """The results file in what a user names: the file, the study's own folder, or that of its bench."""
    places = [given] if given.is_file() else [given / "results.json", given / study / "results.json"]
    for place in places:
        if place.is_file():
            return place
    raise InputError(
        f"expected results.json or {study}/results.json in {given}, got neither; name the folder that "
        f"sottovoce study run {study} --out named."
    )


def keep(study: Study[Any], given: Path, pages: Path, scale: str | None = None) -> KeptResults:
    """Copy the results of a run, and its figures, to where pages are made from.

    scale: of results that do not say.
    """
    path = find_results(study.id, given)
    found = read_kept(path)
    if found.study != study.id:
        raise InputError(f"expected results of {study.id} in {path}, got those of {found.study}.")
    found = _without_paths(found, scale)
    try:
        for one in found.figures:
            _write(pages / FIGURES / f"{found.stem}-{one.name}.png", _small(path.parent / f"{one.name}.png"))
        _write(pages / RESULTS / f"{found.stem}.json", _compact(found.model_dump()).encode())
    except OSError as error:
        raise StoreError(
            f"expected to copy {path} and its figures to {pages}, got: {error}; run the study again in its "
            "folder where a figure is missing, or choose another --out."
        ) from None
    return found


def _without_paths(found: KeptResults, scale: str | None) -> KeptResults:
    scale = found.scale or scale
    if scale not in SCALES:
        raise InputError(
            f"expected results that say at which scale they were made, got {scale}; give --scale mini or "
            "--scale full."
        )
    return KeptResults.model_validate({**hide_all(found.model_dump()), "scale": scale})


def _compact(content: Any) -> str:
    """JSON whose innermost lists and objects are one line each, with numbers to seven digits."""
    text = json.dumps(_rounded(content), indent=1, allow_nan=False, ensure_ascii=False)
    # A line never ends inside a text: JSON writes those ends as \\n.
    return INNERMOST.sub(lambda found: re.sub(r"\n *", " ", found[0]), text) + "\n"


def _rounded(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _rounded(one) for key, one in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(one) for one in content]
    return float(f"{content:.7g}") if isinstance(content, float) else content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _small(path: Path) -> bytes:
    """A figure with few colours. Pillow comes with matplotlib, which drew it."""
    from PIL import Image

    target = io.BytesIO()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return target.getvalue()
