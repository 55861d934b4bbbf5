"""`report.html`: one page with everything in it, made from the plan, the records and nothing else."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.plan.plan_file import PASSES, Plan
from sottovoce.auditing.results.summary import CellSummary, Summary, summarise
from sottovoce.auditing.run.about_run import NOTHING
from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.auditing.run.repeatability import JUDGED
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.files.private_paths import hide_all, hide_paths
from sottovoce.core.metric import Estimate
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError, StoreError
from sottovoce.registry.part_text import Part
from sottovoce.report import charts as figures
from sottovoce.report import report_tables as tables
from sottovoce.report import verdict
from sottovoce.report.attackers_table import make_attacker_tables
from sottovoce.report.doubts import word_checks
from sottovoce.report.examples import RANGE_DB, colour_ramp, make_examples
from sottovoce.report.heard_section import judge_audibility
from sottovoce.report.model_reading import WORDS, ModelReading, read_as
from sottovoce.report.shown_words import (
    FORMS,
    ShownNumber,
    attack_title,
    defense_title,
    describe_part,
    goal_title,
    plural,
    show,
)
from sottovoce.report.sparsity_section import make_sparsity
from sottovoce.report.speaker_table import NO_SCORES, VOTED, as_summary, tell_speakers
from sottovoce.report.trial_columns import Trials
from sottovoce.report.vega import VERSION

MOST_LISTED = 50
METHODS = {
    "Clopper-Pearson": "exact binomial interval of a rate, after Clopper and Pearson; it has a width even at "
    "0 % and 100 %",
    "bootstrap over speakers": "the same bootstrap over speakers, all clips of one together",
    "bootstrap": "bootstrap over clips (BCa, after Efron, 2000 resamples, fixed seed) of a mean",
}


def write_report(folder: RunFolder) -> Path:
    """Read plan, records and the audio of a few examples; write `report.html` whole or not at all."""
    summarise_and_write(folder)
    return folder.report_path


def summarise_and_write(folder: RunFolder) -> Summary:
    """The same for whoever wants the figures too: adding up a large run takes a while."""
    plan = folder.plan()
    trials = Trials(plan)
    summary = summarise(plan, trials.watch(folder.records()))
    if not summary.cells and not summary.failures:
        raise InputError(f"{str(folder.path)!r} has no records yet; run the audit first.")
    page = render(folder, plan, trials, summary)
    torn = folder.report_path.with_suffix(".part")
    try:
        torn.write_text(page, encoding="utf-8")
        os.replace(torn, folder.report_path)
    except OSError as error:
        raise StoreError(
            f"cannot write {folder.report_path}: {error.strerror}; free some space or check its permissions."
        ) from None
    return summary


def render(folder: RunFolder, plan: Plan, trials: Trials, summary: Summary) -> str:
    reading = read_as(name for item in summary.cells for name in item.estimates)
    panels = tables.make_panels(plan, summary)
    series = figures.make_series(panels)
    curves = make_curves(panels, series, trials)
    distortion = make_distortion(panels, trials, series)
    audibility = judge_audibility(summary, panels, series) if panels else None
    charts = [chart for curve in curves for chart in curve.charts]
    charts += [chart for _, chart in distortion.charts] if distortion else []
    charts += [chart for _, chart, _ in audibility.charts] if audibility else []
    script = bundle() if charts else ""
    quiet, loud = make_examples(folder, trials, reading)
    level_columns = tables.measured(summary, reading.levels)
    strongest = [(panel, panel.strongest(budget)) for panel in panels for budget in panel.budgets]
    chosen = [(panel, verdict.choose(panel)) for panel in panels]
    columns = tables.measured(summary, reading.main)
    groups = [found for panel in panels for found in tables.group_tables(panel, trials, reading)]
    groups += tables.clean_groups(plan, trials, reading) if plan.clean else []
    repeated = folder.repeated()
    steady = repeated is None or repeated.steady
    roots = roots_of(plan.data, plan.fit)
    page: str = template(roots).render(
        plan=plan,
        about=NOTHING | folder.about(),
        title=plan.model,
        reading=reading,
        leads=name_leads(panels),
        verdict=verdict.judge(plan, trials, panels, reading),
        claims=verdict.claims(plan, reading, audibility.ear if audibility else ""),
        audibility=audibility,
        setup=make_setup(plan, trials, summary, reading, folder.about(), steady),
        repeats=steady,
        cut=hide_paths(plan.to_yaml(), roots) != plan.to_yaml(),
        series=series,
        curves=curves,
        sparsity=make_sparsity(folder.path),
        attacker_tables=make_attacker_tables(panels),
        columns=columns,
        cells=[(panel.title, tables.cell_rows(panel, columns, reading)) for panel in panels],
        others=(others := tables.other_metrics(summary, reading)),
        other_cells=[(panel.title, tables.cell_rows(panel, others, reading)) for panel in panels],
        speakers=make_speakers(folder, plan, summary, reading),
        distortion=distortion,
        groups=groups,
        levels=make_levels(chosen, trials, level_columns),
        all_levels=make_levels(strongest, trials, level_columns),
        level_columns=level_columns,
        level_notes=tables.LEVELS,
        quiet=quiet,
        loud=loud,
        ramp=Markup(colour_ramp()),
        range_db=f"{RANGE_DB:g}",
        ranked_by="mean level in the background" if trials.by_background.loudest else "SNR",
        checks=word_checks(plan, summary, examine(plan, summary, folder.probes(), repeated)),
        failures=summary.failures[:MOST_LISTED],
        failures_left=max(0, len(summary.failures) - MOST_LISTED),
        methods=list_methods(summary),
        style=Markup(read("style.css")),
        script=Markup(script),
        policy=policy(script),
    )
    return page


@dataclass(frozen=True)
class ChartSection:
    title: str
    charts: list[figures.Chart]
    series: list[figures.Series]


def make_curves(
    panels: list[tables.Panel], series: list[figures.Series], trials: Trials
) -> list[ChartSection]:
    found = []
    for place, panel in enumerate(panels):
        clean = trials.clean("clean-wer", panel.defense)
        rate = figures.RateAxis.of(panel, clean.value if clean else None)
        charts = [
            figures.budget_chart(panel, series, rate, f"{panel.lead}-{place}"),
            figures.measured_chart(panel, series, rate, f"measured-{place}"),
        ]
        if drawn := [chart for chart in charts if chart is not None]:
            found.append(ChartSection(panel.title, drawn, figures.shown_in(panel, series)))
    return found


def make_speakers(
    folder: RunFolder, plan: Plan, summary: Summary, reading: ModelReading
) -> dict[str, Any] | None:
    """Accuracy by speaker, by the votes of their clips; None where that does not apply."""
    told = tell_speakers(summary, folder.records())
    if told is None or plan.clean:
        return None
    known = {metric for found in told.values() for metric in found}
    columns = [
        tables.TableColumn(name, f"speakers, {word}", "%") for name, word in VOTED.items() if name in known
    ]
    panels = tables.make_panels(plan, as_summary(summary, told))
    cells = [(panel.title, tables.cell_rows(panel, columns, reading)) for panel in panels]
    return {"columns": columns, "cells": cells, "missing": NO_SCORES}


def make_distortion(
    panels: list[tables.Panel], trials: Trials, series: list[figures.Series]
) -> figures.DistortionCharts | None:
    """Opens on the cells of the verdict."""
    chosen = verdict.choose(panels[0]) if panels else None
    if chosen is None:
        return figures.distortion_charts(panels, trials, series, "")
    words = [panels[0].title, chosen.cell.budget_title]
    return figures.distortion_charts(panels, trials, series, " · ".join(word for word in words if word))


def make_levels(
    cells: list[tuple[tables.Panel, CellSummary | None]], trials: Trials, columns: list[tables.TableColumn]
) -> list[tables.LevelGroup]:
    found = (tables.level_group(panel, item, trials, columns) for panel, item in cells)
    return [group for group in found if group is not None]


def name_leads(panels: list[tables.Panel]) -> dict[str, str]:
    """The figures by which attacks are ranked in this run, and their names in headings."""
    names = {"wer": "WER", "success": "success"}
    found = {panel.lead for panel in panels} or {"success"}
    return {lead: name for lead, name in names.items() if lead in found}


def list_clean(plan: Plan, trials: Trials, reading: ModelReading) -> list[tuple[str, ShownNumber, str]]:
    """What is known of the model before any attack, behind each defense."""
    rows = []
    for metric, title in reading.clean.items():
        found = {name: trials.clean(metric, name) for name in plan.every_defense}
        known = {name: estimate for name, estimate in found.items() if estimate is not None}
        for name, estimate in known.items():
            words = f"{title}, {defense_title(name)}" if len(known) > 1 else title
            of = f"of {plural(estimate.n, 'clip')}" if reading is WORDS else f"of {estimate.n}"
            rows.append((words, show(estimate, "%"), of))
    return rows


def make_setup(
    plan: Plan,
    trials: Trials,
    summary: Summary,
    reading: ModelReading,
    about: dict[str, Any],
    steady: bool = True,
) -> dict[str, Any]:
    """What was attacked, with which parts and settings."""
    data_note, requests = about.get("data_note", ""), about.get("requests", 0)
    grid = f"{plan.bits}-bit samples" if plan.bits else "floats, not rounded"
    rates = ", ".join(f"{rate / 1000:g} kHz" for rate in sorted(trials.sample_rates))
    facts = [
        ("model", plan.model),
        ("data", plan.data),
        ("clips", plural(len(trials.clips), "clip") + (f" at {rates}" if rates else "")),
        ("budgets", ", ".join(dict.fromkeys(cell.budget_title for cell in plan.cells()))),
        ("skipped", _skipped(summary)),
        ("seed", str(plan.seed)),
        ("heard as" if plan.clean else "saved as", grid),
    ]
    facts = [(name, text) for name, text in facts if text]
    if requests:
        facts.append(("requests", f"{requests} sent; no sound that had an answer was sent again"))
    if data_note:
        facts.append(("about the clips", data_note))
    if plan.fit:
        facts.append(("universal attacks fitted on", plan.fit))
    elif any(cell.universal for cell in plan.cells()):
        kept = "every other clip" if reading is WORDS else "every other clip of each class"
        facts.append(("universal attacks fitted on", f"{kept}, left out of their rates"))
    if not plan.clean and any(name != NO_DEFENSE for name in plan.every_defense):
        facts.append(("attackers of a defense", ", ".join(FORMS[name] for name in plan.attackers)))
    if not steady:
        judged = f"the majority of {JUDGED} passes: the model answers the same clip in different ways"
        facts.append(("judged by", judged))
    if not plan.clean and (not steady or any(name != NO_DEFENSE for name in plan.every_defense)):
        facts.append(("gradients averaged over", _averaged(plan)))
    return {
        "facts": facts,
        "clean": list_clean(plan, trials, reading),
        "attacks": [describe_part(part, "attack", attack_title(part)) for part in _attacks(plan)],
        "goals": [describe_part(part, "goal", goal_title(part)) for part in plan.every_goal],
        "defenses": [
            (name, [repr(part) for part in Defense.parse(name).parts])
            for name in plan.every_defense
            if name != NO_DEFENSE
        ],
    }


def _skipped(summary: Summary) -> str:
    """Clips that were tried in no cell, and why."""
    reasons = [f"{plural(count, 'clip')}: {reason}" for reason, count in summary.skipped.items()]
    left = len(reasons) - MOST_LISTED
    return "; ".join(reasons[:MOST_LISTED]) + (f"; and {left} more reasons" if left > 0 else "")


def _averaged(plan: Plan) -> str:
    if plan.average == 1:
        return "1 pass"
    passes = f"{plan.average or PASSES} passes"
    return passes if plan.average else f"{passes} of a random target"


def _attacks(plan: Plan) -> list[Part]:
    """Those of the list, and the black box that joined them."""
    parts = {str(cell.attack): cell.attack for cell in plan.cells() if not cell.clean}
    return list(parts.values())


def list_methods(summary: Summary) -> list[tuple[str, str]]:
    """How the intervals of this run were made."""
    estimates: Iterable[Estimate] = (each for item in summary.cells for each in item.estimates.values())
    names = dict.fromkeys(each.method for each in estimates if each.n)
    return [(name, METHODS.get(name.rpartition(" ")[0], "")) for name in names]


@cache
def bundle() -> str:
    """Vega, Vega-Lite and the page's own lines in one script, from the copies that vl-convert carries."""
    script: str = vl_convert.javascript_bundle(read("charts.js"), vl_version=VERSION)
    # A script element ends at the first "</script", wherever it occurs.
    return script.replace("</script", "<\\/script")


def policy(script: str) -> str:
    """A content security policy under which the browser itself refuses to load anything from outside."""
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )


def template(roots: tuple[str, ...] = ()) -> Any:
    """The page to be filled in. roots: paths of this machine count from there, wherever they come from."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: hide_paths(value, roots) if type(value) is str else value,
    )
    environment.filters["data"] = lambda content: to_data(hide_all(content, roots))
    environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    return environment.from_string(read("template.html"))


def to_data(content: Any) -> Markup:
    """JSON that cannot end the script element around it."""
    return Markup(json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"))


def read(name: str) -> str:
    return (files("sottovoce.report") / name).read_text(encoding="utf-8")
