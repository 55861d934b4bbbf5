"""What a study leaves: `study.html` (one file that needs no network), its figures, and `results.json`."""

from __future__ import annotations

import base64
import io
import json
import math
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment
from markupsafe import Markup

from sottovoce import __version__
from sottovoce.core.statistics import Interval
from sottovoce.errors import StoreError
from sottovoce.studies.quoted_values import read_out
from sottovoce.studies.study import Result, Stage, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ study.id }}: {{ study.title }}</title>
<style>
{{ style }}
body { display: block; max-width: 64rem; }
h2 { margin-top: 2.6rem; }
table { width: auto; }
.paper { color: var(--mark); }
.scope { border-left: 3px solid var(--mark); background: var(--sunk); padding: .7rem 1rem; margin: 1.2rem 0; }
figure { margin: 2rem 0; }
img { max-width: 100%; background: #fff; border-radius: 8px; }
</style>
</head>
<body>
<main>
<h1>{{ study.id }}: {{ study.title }}</h1>
<p class="eyebrow">After {{ study.paper }}. The paper: {{ study.reports }}.</p>
<div class="scope">{% for line in scope %}<div>{{ line }}</div>{% endfor %}</div>
{% for line in readings %}
<p>{{ line }}</p>
{% endfor %}
{% for sheet in result.sheets %}
<h2>{{ sheet.title }}</h2>
<div class="scroll"><table>
<thead><tr>
{% for name in sheet.columns %}
<th class="{{ 'num' if not sheet.prose(loop.index0) }}{{ ' paper' if name == 'paper' }}">{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in sheet.rows %}
<tr>
{% for cell in row %}
{% set kind = 'num' if not sheet.prose(loop.index0) %}
<td class="{{ kind }}{{ ' paper' if sheet.columns[loop.index0] == 'paper' }}">{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
{% if sheet.note %}
<p class="note">{{ sheet.note }}</p>
{% endif %}
{% endfor %}
{% for title, source, lines in pictures %}
<figure><img src="data:image/svg+xml;base64,{{ source }}" alt="{{ title }}">
<figcaption class="note">{{ title }}.{% for line in lines %} {{ line }}{% endfor %}</figcaption></figure>
{% endfor %}
{% for note in notes %}
<p class="note">{{ note }}</p>
{% endfor %}
</main>
</body>
</html>
"""


def scope_of(study: Study[Any], bench: Stage) -> list[str]:
    """What produced the numbers, and how that differs from the paper: shown on every page and table."""
    return bench.scope(study)


def notes_of(bench: Stage, result: Result) -> list[str]:
    notes = list(result.notes)
    if bench.unused:
        name, reason = next(iter(bench.unused.items()))
        notes.append(f"{len(bench.unused)} clips could not be used, such as {name}: {reason}")
    return notes


def write(
    study: Study[Any],
    bench: Stage,
    result: Result,
    *,
    scale: str | None = None,
    seconds: float | None = None,
) -> Path:
    """Write the study's own folder inside the bench's; returns the page.

    scale: None: as the bench says. seconds: what the run took; None: not known.
    """
    folder = bench.folder / study.id
    page = folder / "study.html"
    facts = _facts(study, bench, result, scale, seconds)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in result.drawings:
            one.figure.savefig(folder / f"{one.name}.png", dpi=130)
        (folder / "results.json").write_text(
            json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        page.write_text(_render(study, bench, result, facts["values"]), encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --out."
        ) from None
    return page


def _render(study: Study[Any], bench: Stage, result: Result, values: dict[str, Any]) -> str:
    template = Environment(autoescape=True, trim_blocks=True).from_string(PAGE)
    pictures = [
        (one.title, _svg(one.figure), list(read_out(study.readings, values, one.name)))
        for one in result.drawings
    ]
    return template.render(
        study=study,
        result=result,
        scope=scope_of(study, bench),
        notes=notes_of(bench, result),
        readings=list(read_out(study.readings, values)),
        pictures=pictures,
        style=Markup((files("sottovoce.report") / "style.css").read_text(encoding="utf-8")),
    )


def _svg(figure: Figure) -> str:
    import matplotlib

    target = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "sottovoce"}):
        figure.savefig(target, format="svg", metadata={"Date": None})
    return base64.b64encode(target.getvalue()).decode()


def _facts(
    study: Study[Any], bench: Stage, result: Result, scale: str | None, seconds: float | None
) -> dict[str, Any]:
    setting = bench.facts()
    took = seconds if result.seconds is None else result.seconds
    facts: dict[str, Any] = _finite(
        {
            "study": study.id,
            "title": study.title,
            "paper": study.paper,
            "reports": study.reports,
            "scale": scale or _scale_of(setting),
            "version": __version__,
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": None if took is None else round(took),
            "setting": setting,
            "scope": scope_of(study, bench),
            "notes": notes_of(bench, result),
            "tables": [
                {
                    "title": one.title,
                    "columns": one.columns,
                    "rows": one.rows,
                    "prose": [one.prose(place) for place in range(len(one.columns))],
                    "note": one.note,
                    "claims": one.claims,
                }
                for one in result.sheets
            ],
            "figures": [{"name": one.name, "title": one.title} for one in result.drawings],
            "values": result.values,
        }
    )
    return facts


def _scale_of(setting: dict[str, Any]) -> str | None:
    """What a bench says of its scale: its name, or an object that has it; None where it says nothing."""
    said = setting.get("scale")
    name = said.get("name") if isinstance(said, dict) else said
    return None if name is None else str(name)


def _finite(value: Any) -> Any:
    """JSON has no NaN: what is not known is null. Intervals become objects with names."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, Interval):
        return _finite(value._asdict())
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
