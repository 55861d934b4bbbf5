"""What the records say in words: the verdict on top, and the doubts about it."""

from __future__ import annotations

from dataclasses import dataclass

from sottovoce.audit.defense import NO_DEFENSE
from sottovoce.audit.plan import Plan
from sottovoce.audit.summary import CellSummary, Summary
from sottovoce.core.metric import Estimate
from sottovoce.report.reading import WORDS, Reading
from sottovoce.report.tables import Panel, has_value, snr_of
from sottovoce.report.trials import NOISE, Trials
from sottovoce.report.words import (
    GAP,
    Figure,
    attack_title,
    cell_title,
    plural,
    show,
)

HALF = 0.5
FEW_CLIPS = 30
"""Below this a 95 % interval of a rate can be wider than a third of the scale."""
MOST_LISTED = 50


@dataclass(frozen=True)
class Tile:
    """One key figure."""

    label: str
    figure: Figure
    kind: str


@dataclass(frozen=True)
class Verdict:
    headline: list[str | Figure]
    """Words and figures in turn."""
    details: list[str]
    tiles: list[Tile]


def judge(plan: Plan, trials: Trials, panels: list[Panel], reading: Reading) -> Verdict:
    """The verdict on the undefended model, or on the first defense where there is no other."""
    first = panels[0]
    metric, title = next(iter(reading.clean.items()))
    clean = trials.clean(metric, first.defense)
    subject = f"{plan.model} on {plural(len(trials.clips), 'clip')}"
    words: list[str | Figure] = [subject]
    if clean is not None:
        words = [f"{subject}: ", *_before(show(clean, "%"), reading), " before any attack"]
    tiles = [Tile(title, show(clean, "%"), "clean")] if clean else []
    chosen = choose(first)
    if chosen is None:
        return Verdict([*words, "."], ["No attack of this run has a success rate."], tiles)
    attack, budget = attack_title(chosen.cell.attack), chosen.cell.budget_title
    words += [f"; {attack} at {budget} ", *_deed(first, chosen, reading)]
    noise = first.noise(budget) if chosen.cell.attack.name != NOISE else None
    if noise is not None:
        to = "to " if first.lead == "wer" else ""
        words += [f", white noise at the same level {to}", show(noise.estimates[first.lead], "%")]
    words += _changed(first, chosen)
    details = [_rank(first, chosen), *_loudness(chosen), *_defended(panels, chosen)]
    return Verdict([*words, "."], details, tiles + _tiles(first, chosen, noise))


def _before(clean: Figure, reading: Reading) -> list[str | Figure]:
    return ["WER ", clean] if reading is WORDS else [clean, " heard right"]


def _tiles(panel: Panel, chosen: CellSummary, noise: CellSummary | None) -> list[Tile]:
    at = chosen.cell.budget_title.replace(" ", GAP)
    what = "WER, " if panel.lead == "wer" else ""
    attack = attack_title(chosen.cell.attack)
    tiles = [Tile(f"{what}{attack}, {at}", show(chosen.estimates[panel.lead], "%"), "attack")]
    if noise is not None:
        tiles.append(Tile(f"{what}white noise, {at}", show(noise.estimates[panel.lead], "%"), "noise"))
    if panel.lead == "wer" and has_value(chosen, "success"):
        changed = show(chosen.estimates["success"], "%")
        tiles.append(Tile(f"of the transcripts changed by {attack}", changed, "attack"))
    if (below := chosen.estimates.get("below-32db")) is not None:
        tiles.append(Tile(f"of these files peak below −32{GAP}dB", show(below, "%"), "level"))
    return tiles


def choose(panel: Panel) -> CellSummary | None:
    """The quietest budget at which some attack turns half of the decisions, or makes half of the words
    errors that were none; else the strongest attack."""
    best = [item for budget in panel.budgets if (item := panel.strongest(budget)) is not None]
    best = best or [item for item in panel.cells if panel.led(item)]
    turning = [item for item in best if panel.gain(item) >= HALF]
    if turning:
        return max(turning, key=_quietness)
    return max(best, key=lambda item: (item.estimates[panel.lead].value, snr_of(item)), default=None)


def _quietness(item: CellSummary) -> float:
    """The SNR that the budget asks for, or the measured one where it asks for something else."""
    budget = item.cell.budget
    return float(budget.settings["db"]) if budget.name == "snr" else snr_of(item)


def _deed(panel: Panel, item: CellSummary, reading: Reading) -> list[str | Figure]:
    goal, figure = item.cell.goal, show(item.estimates[panel.lead], "%")
    if panel.lead == "wer":
        return ["brings it to " if "clean-wer" in item.estimates else "brings the WER to ", figure]
    words = reading is WORDS
    if goal.name == "evade":
        return ["changes ", figure, " of the transcripts" if words else " of the decisions that were right"]
    clips = " of the clips" if words else " of the clips it heard right"
    if goal.name == "force":
        verb = "transcribe" if words else "hear"
        return [f"makes it {verb} “{goal.settings.get('text', '')}” in ", figure, clips]
    return [f"reaches its goal ({goal}) on ", figure, clips]


def _changed(panel: Panel, item: CellSummary) -> list[str | Figure]:
    """An error rate says how much changes, not in how many clips."""
    if panel.lead != "wer" or not has_value(item, "success"):
        return []
    return ["; ", show(item.estimates["success"], "%"), " of the transcripts change under the attack"]


def _rank(panel: Panel, chosen: CellSummary) -> str:
    if chosen.cell.attack.name == NOISE:
        return "Only white noise was tried: nothing is known of attacks."
    enough, some = {
        "success": ("succeeds on at least half of the clips", "succeeds on half of the clips"),
        "wer": ("adds at least 50 points to the WER", "adds 50 points to the WER"),
    }[panel.lead]
    if panel.gain(chosen) >= HALF:
        return f"This is the quietest budget tried at which an attack {enough}."
    return f"No attack tried {some} at any budget; this is the strongest of them."


def _loudness(chosen: CellSummary) -> list[str]:
    snr = chosen.estimates.get("snr")
    if snr is None or snr.n == 0:
        return []
    return [f"What it adds lies {show(snr, 'dB')} under the clip, as measured in the saved files (mean SNR)."]


def _defended(panels: list[Panel], chosen: CellSummary) -> list[str]:
    """The same attack and budget behind each defense."""
    cell = chosen.cell
    found = []
    for panel in panels[1:]:
        for item in panel.at(cell.budget_title):
            same = item.cell.attack == cell.attack and item.cell.goal == cell.goal
            if same and panel.led(item) and panel.defense != NO_DEFENSE:
                found.append(f"Behind {panel.defense} it is {show(item.estimates[panel.lead], '%')}.")
    return found


@dataclass(frozen=True)
class Check:
    """One question asked of the records, and the answer."""

    title: str
    passed: bool
    text: str
    items: list[str]


def find_doubts(plan: Plan, trials: Trials, summary: Summary, panels: list[Panel]) -> list[Check]:
    checks = [
        _unfinished(plan, summary),
        _failures(summary),
        _rounding(plan, summary),
        _noise(panels),
        _sizes(summary),
    ]
    return [check for check in checks if check is not None]


def _unfinished(plan: Plan, summary: Summary) -> Check | None:
    done = {item.cell.id for item in summary.cells}
    missing = [cell_title(cell) for cell in plan.cells() if cell.id not in done]
    if not missing:
        return None
    text = f"{len(missing)} of {plural(len(plan.cells()), 'cell')} of the plan have no record yet."
    return Check("The run is not finished", False, text, missing)


def _failures(summary: Summary) -> Check:
    count = len(summary.failures)
    if not count:
        return Check("No clip failed", True, "Every clip that was tried has its figures.", [])
    return Check(
        f"{plural(count, 'failure')}",
        False,
        "These clips are in no rate and no mean; a failed clip never counts as a zero.",
        [],
    )


def _rounding(plan: Plan, summary: Summary) -> Check | None:
    if plan.bits is None:
        return Check(
            "Examples are floats",
            False,
            "Nothing was rounded: whether the examples survive in a 16-bit file is not known.",
            [],
        )
    lost = [item for item in summary.cells if item.lost_by_rounding]
    total = sum(item.lost_by_rounding for item in lost)
    if not total:
        text = f"Every success in floats is a success in the {plan.bits}-bit file too."
        return Check("No success was lost by rounding", True, text, [])
    return Check(
        f"{plural(total, 'success').replace('successs', 'successes')} lost by rounding",
        False,
        f"They held as floats and do not hold in a {plan.bits}-bit file; the rates count the files.",
        [f"{cell_title(item.cell)}: {item.lost_by_rounding} of {item.clips}" for item in lost],
    )


def _noise(panels: list[Panel]) -> Check | None:
    pairs = [
        (item, panel.lead, noise)
        for panel in panels
        for item in panel.cells
        if item.cell.attack.name != NOISE and panel.led(item)
        if (noise := panel.noise(item.cell.budget_title)) is not None
    ]
    attacked = any(item.cell.attack.name != NOISE for panel in panels for item in panel.cells)
    if not pairs:
        text = "Add noise to the attacks: without it an attack cannot be told from any noise of its level."
        return Check("No white noise to compare with", False, text, []) if attacked else None
    close = [
        f"{cell_title(item.cell)}: {'WER ' if lead == 'wer' else ''}{show(item.estimates[lead], '%')}, "
        f"noise {show(noise.estimates[lead], '%')}"
        for item, lead, noise in pairs
        if _overlap(item.estimates[lead], noise.estimates[lead])
    ]
    if not close:
        text = (
            f"In all {plural(len(pairs), 'comparison')} the attack's interval lies above that of the noise."
        )
        return Check("Every attack beats white noise", True, text, [])
    return Check(
        f"Not told apart from white noise in {len(close)} of {plural(len(pairs), 'comparison')}",
        False,
        "There the intervals overlap: on these clips the attack may do little more than noise of its level.",
        close,
    )


def _sizes(summary: Summary) -> Check | None:
    counts = [item.estimates["success"].n for item in summary.cells if "success" in item.estimates]
    if not counts or min(counts) >= FEW_CLIPS:
        return None
    text = f"Some rates rest on {plural(min(counts), 'clip')}; read the intervals, not the values."
    return Check("Few clips", False, text, [])


def _overlap(attack: Estimate, noise: Estimate) -> bool:
    """Also where one of them has no interval."""
    return not attack.low > noise.high


def claims(plan: Plan, reading: Reading) -> tuple[list[str], list[str]]:
    """What the report claims, and what it does not."""
    saved = f"the saved {plan.bits}-bit files" if plan.bits else "the float waveforms, not rounded to files"
    return (
        [
            *_counted(saved, reading),
            "SNR and dB compare what was added with the clip, sample by sample.",
        ],
        [
            "No listener was asked. SNR and dB are measures of the signal: whether a person would notice "
            "is not known from them.",
            "−32 dB is a habit of the literature, not a threshold of hearing.",
            "A low rate does not prove safety: another attack, or more steps, may do better.",
            "Nothing was played through a loudspeaker and a microphone.",
        ],
    )


def _counted(saved: str, reading: Reading) -> list[str]:
    if reading is WORDS:
        return [
            f"The transcripts are those of this model on {saved}.",
            "WER is all errors over all words of the references, in texts without case, punctuation and "
            "variants of spelling (Whisper's normaliser); each rate has a 95 % interval.",
            "Success counts all clips, whether or not the model transcribed them right before.",
        ]
    return [
        f"The decisions are those of this model on {saved}.",
        "Success counts the clips that the model heard right before; each rate has a 95 % interval "
        "over clips.",
    ]
