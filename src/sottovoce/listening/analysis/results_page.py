"""What results leave: `report.html` (one file that needs no network), figures, and CSV: one row an answer,
one row a session, and one file a table. All of it says whose answers it holds."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure

from sottovoce import __version__
from sottovoce.errors import StoreError
from sottovoce.listening.analysis.answer_rows import TITLES, VISIT_COLUMNS, AnswerRow, Visit, Who
from sottovoce.listening.analysis.ear_calibration import Known
from sottovoce.listening.analysis.jnd_searches import Sounds
from sottovoce.listening.analysis.result_tables import ResultFigure, ResultTable, write_csv
from sottovoce.listening.analysis.results import Results, analyse
from sottovoce.listening.study.study_file import ListeningStudy

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ mark }}{{ results.title }}: results</title>
<style>
{{ style }}
body { display: block; max-width: 64rem; }
h2 { margin-top: 2.6rem; }
table { width: auto; }
td + td, th + th { padding-left: 1.1rem; }
.marked { border: 2px solid var(--alarm); color: var(--alarm); padding: .7rem 1rem; font-weight: 600; }
figure { margin: 2rem 0; }
img { max-width: 100%; background: #fff; border-radius: 8px; }
</style>
</head>
<body>
<main>
<h1>{{ results.title }}</h1>
<p class="{{ 'eyebrow' if results.who == 'people' else 'marked' }}">Answers of {{ whose }}.</p>
{% for one in parts %}
{% if one.kind == "table" %}
<h2>{{ one.table.title }}{{ tail }}</h2>
<div class="scroll"><table>
<thead><tr>
{% for column in one.table.columns %}
<th{% if column.kind != "text" %} class="num"{% endif %}>{{ column.name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in one.table.texts() %}
<tr>
{% for cell in row %}
<td{% if one.table.columns[loop.index0].kind != "text" %} class="num"{% endif %}>{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
{% if one.table.note %}
<p class="note">{{ one.table.note }}</p>
{% endif %}
{% elif one.kind == "figure" %}
<figure><img src="data:image/svg+xml;base64,{{ one.source }}" alt="{{ one.title }}{{ tail }}">
<figcaption class="note">{{ one.title }}{{ tail }}.</figcaption></figure>
{% else %}
<p class="note">{{ one.text }}</p>
{% endif %}
{% endfor %}
<p class="note">sottovoce {{ version }}</p>
</main>
</body>
</html>
"""
ANSWER_COLUMNS = (
    "listeners", "session", "seat", "simulated", "accepted", "reason", "notes", "place", "kind", "block",
    "teaching", "sentinel", "clip", "condition", "level", "right", "seconds", "given", "truth", "roles",
    "facts", "plays", "dither",
)  # fmt: skip


def render(results: Results) -> str:
    """The page, as one piece of HTML without a script."""
    template = Environment(autoescape=True, trim_blocks=True).from_string(PAGE)
    return template.render(
        results=results,
        parts=[_part(one) for one in results.found],
        whose=TITLES[results.who],
        mark="" if results.who == "people" else f"{results.who.upper()}: ",
        tail="" if results.who == "people" else f" ({TITLES[results.who]})",
        version=__version__,
        style=Markup((files("sottovoce.report") / "style.css").read_text(encoding="utf-8")),
    )


def render_so_far(
    study: ListeningStudy, rows: Sequence[AnswerRow], sounds: Sounds | None = None, known: Known | None = None
) -> str:
    """The page of a study in progress: of people; of simulated listeners while there is nobody else.

    sounds, known: as of `results.analyse`.
    """
    who: Who = "people" if any(not row.simulated for row in rows) else "simulated"
    if not rows:
        empty = Results(title=study.title, who="people", rows=(), found=("No answers yet.",))
        return render(empty)
    return render(analyse(study, rows, who=who, sounds=sounds, known=known))


def write(results: Results, folder: Path, visits: Sequence[Visit] = ()) -> Path:
    """Write everything into a folder; returns the page. Names begin with "simulated-" where that is due.

    visits: sessions, of which those are written that the results are about.
    """
    page = folder / file_name(results.who, "report.html")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in [*results.tables, *([] if results.exposure is None else [results.exposure])]:
            name = file_name(results.who, f"{table.name}.csv")
            (folder / name).write_text(table.to_csv(results.who), encoding="utf-8")
        for one in results.drawings:
            one.figure.savefig(folder / file_name(results.who, f"{one.name}.png"), dpi=130)
        answers = folder / file_name(results.who, "answers.csv")
        answers.write_text(answers_csv(results.rows), encoding="utf-8")
        if visits:
            wanted = [one for one in visits if results.who in ("mixed", _whose(one))]
            sessions = folder / file_name(results.who, "sessions.csv")
            sessions.write_text(write_csv(VISIT_COLUMNS, [one.line() for one in wanted]), encoding="utf-8")
        page.write_text(render(results), encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --out."
        ) from None
    return page


def file_name(who: Who, name: str) -> str:
    return name if who == "people" else f"{who}-{name}"


def _whose(one: AnswerRow | Visit) -> Who:
    return "simulated" if one.simulated else "people"


def answers_csv(rows: Sequence[AnswerRow]) -> str:
    """One row an answer; what has parts is JSON."""
    return write_csv(ANSWER_COLUMNS, [_answer_line(row) for row in rows])


def _answer_line(row: AnswerRow) -> list[Any]:
    known: dict[str, Any] = {
        "listeners": TITLES[_whose(row)],
        "clip": row.fact("clip"),
        "condition": row.fact("condition"),
        "level": row.fact("level"),
    }
    return [_cell(known[name] if name in known else getattr(row, name)) for name in ANSWER_COLUMNS]


def _cell(value: Any) -> Any:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True) if isinstance(value, dict) else value


def _part(one: ResultTable | ResultFigure | str) -> dict[str, Any]:
    match one:
        case ResultTable():
            return {"kind": "table", "table": one}
        case ResultFigure():
            return {"kind": "figure", "title": one.title, "source": _svg(one.figure)}
        case _:
            return {"kind": "note", "text": one}


def _svg(figure: Figure) -> str:
    target = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "sottovoce"}):
        figure.savefig(target, format="svg", metadata={"Date": None})
    return base64.b64encode(target.getvalue()).decode()
