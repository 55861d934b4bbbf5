"""What the records say in words: the verdict on top."""

from __future__ import annotations

from dataclasses import dataclass, field

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.summary import CellSummary
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.report.model_reading import WORDS, ModelReading
from sottovoce.report.report_tables import Panel
from sottovoce.report.shown_words import GAP, ShownNumber, defense_title, form_title, goal_title, plural, show
from sottovoce.report.trial_columns import Trials

HALF = 0.5
WER = (
    "WER is all errors over all words of the references, in texts without case, punctuation and variants of "
    "spelling (Whisper's normaliser)"
)
KNOWING = {
    "adaptive": "an attacker who knows the defense",
    "transfer": "one who knows only the bare model",
    "black-box": "one who sees only answers",
}


@dataclass(frozen=True)
class Tile:
    """One key figure."""

    label: str
    figure: ShownNumber
    kind: str


@dataclass(frozen=True)
class ReportVerdict:
    headline: list[str | ShownNumber]
    """Words and figures in turn."""
    details: list[str]
    tiles: list[Tile]
    defended: list[str] = field(default_factory=list)
    """A paragraph a defense, at the budget of the headline."""


def judge(plan: Plan, trials: Trials, panels: list[Panel], reading: ModelReading) -> ReportVerdict | None:
    """The verdict on the undefended model, or on the first defense where there is no other; None where
    there is nothing to judge."""
    if plan.clean:
        return _judge_clean(plan, trials, reading)
    if not panels:
        return None
    first = panels[0]
    metric, title = next(iter(reading.clean.items()))
    clean = trials.clean(metric, first.defense)
    behind = f" behind {first.defense}" if first.defended else ""
    subject = f"{plan.model}{behind} on {plural(len(trials.clips), 'clip')}"
    words: list[str | ShownNumber] = [subject]
    if clean is not None:
        words = [f"{subject}: ", *_before(show(clean, "%"), reading), " before any attack"]
    tiles = [Tile(title, show(clean, "%"), "clean")] if clean else []
    chosen = choose(first)
    if chosen is None:
        return ReportVerdict([*words, "."], ["No attack of this run has a success rate."], tiles)
    attack, budget = form_title(chosen.cell), chosen.cell.budget_title
    words += [f"; {attack} at {budget} ", *_deed(first, chosen, reading)]
    noise = first.noise(budget) if chosen.attacks else None
    if noise is not None:
        to = "to " if first.lead == "wer" else ""
        words += [f", white noise at the same level {to}", show(noise.estimates[first.lead], "%")]
    words += _worse(first, chosen)
    details = [_rank(first, chosen), *_loudness(chosen)]
    defended = [_stand(plan, panel, budget) for panel in panels if panel.defended and budget in panel.found]
    return ReportVerdict([*words, "."], details, tiles + _tiles(first, chosen, noise), defended)


def _judge_clean(plan: Plan, trials: Trials, reading: ModelReading) -> ReportVerdict | None:
    """The first clean figure behind each defense; None where no clip was judged."""
    metric, title = next(iter(reading.clean.items()))
    found = {name: trials.clean(metric, name) for name in plan.every_defense}
    known = {name: show(each, "%") for name, each in found.items() if each is not None}
    if not known:
        return None
    words: list[str | ShownNumber] = [f"{plan.model} on {plural(len(trials.clips), 'clip')}: "]
    for place, (name, figure) in enumerate(known.items()):
        behind = f" behind {name}" if name != NO_DEFENSE else ""
        words += ["; " if place else "", *_before(figure, reading), behind]
    tiles = [
        Tile(title if len(known) == 1 else f"{title}, {defense_title(name)}", figure, "clean")
        for name, figure in known.items()
    ]
    return ReportVerdict([*words, "."], ["Nothing was attacked."], tiles)


def say_wer(panels: list[Panel]) -> list[str]:
    """The first line of a recogniser's audit: its word error rate before and after, behind each defense."""
    lines = []
    for panel in panels:
        chosen = choose(panel)
        if panel.lead != "wer" or chosen is None or not chosen.has("clean-wer"):
            continue
        before, after = (show(chosen.estimates[name], "%") for name in ("clean-wer", "wer"))
        where = f" ({panel.title})" if panel.title else ""
        attack, budget = form_title(chosen.cell), chosen.cell.budget_title
        lines.append(f"WER{where}: {before} before, {after} under {attack} at {budget}.")
    return lines


def _before(clean: ShownNumber, reading: ModelReading) -> list[str | ShownNumber]:
    return ["WER ", clean] if reading is WORDS else [clean, " classified correctly"]


def _tiles(panel: Panel, chosen: CellSummary, noise: CellSummary | None) -> list[Tile]:
    at = chosen.cell.budget_title.replace(" ", GAP)
    what = "WER, " if panel.lead == "wer" else ""
    attack = form_title(chosen.cell)
    tiles = [Tile(f"{what}{attack}, {at}", show(chosen.estimates[panel.lead], "%"), "attack")]
    if noise is not None:
        tiles.append(Tile(f"{what}white noise, {at}", show(noise.estimates[panel.lead], "%"), "noise"))
    if panel.lead == "wer" and chosen.has("success"):
        worse = show(chosen.estimates["success"], "%")
        tiles.append(Tile(f"of the clips with more word errors than before, {attack}", worse, "attack"))
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
    return max(best, key=lambda item: (item.estimates[panel.lead].value, item.snr_db), default=None)


def _quietness(item: CellSummary) -> float:
    """The SNR that the budget asks for, or the measured one where it asks for something else."""
    budget = item.cell.budget
    return float(budget.settings["db"]) if budget.name == "snr" else item.snr_db


def _deed(panel: Panel, item: CellSummary, reading: ModelReading) -> list[str | ShownNumber]:
    goal, figure = item.cell.goal, show(item.estimates[panel.lead], "%")
    if panel.lead == "wer":
        return ["brings it to " if "clean-wer" in item.estimates else "brings the WER to ", figure]
    words = reading is WORDS
    if goal.name == "evade":
        return ["changes ", figure, " of the transcripts" if words else " of the decisions that were right"]
    clips = " of the clips" if words else " of the clips that were right before"
    if goal.name == "force":
        verb = "transcribe" if words else "hear"
        return [f"makes it {verb} “{goal.settings.get('text', '')}” in ", figure, clips]
    return [f"reaches its goal ({goal}) on ", figure, clips]


def _worse(panel: Panel, item: CellSummary) -> list[str | ShownNumber]:
    """An error rate says how many words are wrong, not in how many clips."""
    if panel.lead != "wer" or not item.has("success"):
        return []
    return ["; ", show(item.estimates["success"], "%"), " of the clips have more word errors than before"]


def _rank(panel: Panel, chosen: CellSummary) -> str:
    if not chosen.attacks:
        return "Only white noise was tried, no attack."
    enough, some = {
        "success": ("succeeds on at least half of the clips", "succeeds on half of the clips"),
        "wer": ("adds at least 50 points to the WER", "adds 50 points to the WER"),
    }[panel.lead]
    if panel.gain(chosen) >= HALF:
        return f"This is the quietest of the budgets tried at which an attack {enough}."
    return f"No attack {some} at any budget tried; this is the strongest result."


def _loudness(chosen: CellSummary) -> list[str]:
    snr = chosen.estimates.get("snr")
    if snr is None or snr.n == 0:
        return []
    return [f"The perturbation is {show(snr, 'dB')} below the clip (mean SNR, measured in the saved files)."]


def _stand(plan: Plan, panel: Panel, budget: str) -> str:
    """A defense at a budget: the strongest attack on it, and what each attacker reaches."""
    lines = [_strongest(plan, panel, budget), _apart(panel, budget), _clip_by_clip(panel, budget)]
    return " ".join(line for line in lines if line)


def _strongest(plan: Plan, panel: Panel, budget: str) -> str:
    item, what = panel.found[budget].item, "WER " if panel.lead == "wer" else ""
    reached = show(item.estimates[panel.lead], "%")
    goal = f", {goal_title(panel.goal)}" if len(plan.every_goal) > 1 else ""
    behind = f"Behind {panel.defense} at {budget}{goal}"
    return f"{behind}: {what}{reached} under the strongest attack, {form_title(item.cell)}."


def _apart(panel: Panel, budget: str) -> str:
    found = [
        f"{who} reaches {show(best.estimates[panel.lead], '%')}"
        for attacker, who in KNOWING.items()
        if (best := panel.best(budget, attacker)) is not None
    ]
    text = ", ".join(found)
    return f"{text[:1].upper()}{text[1:]}." if len(found) > 1 else ""


def _clip_by_clip(panel: Panel, budget: str) -> str:
    found = panel.found[budget]
    if found.attacks < 2 or panel.lead not in found.per_clip:
        return ""
    worst = show(found.per_clip[panel.lead], "%")
    return f"With the worst of these {found.attacks} attacks for each clip, it is {worst}."


def claims(plan: Plan, reading: ModelReading, ear: str = "") -> tuple[list[str], list[str]]:
    """What the report claims, and what it does not. ear: whose P(heard) it shows, "" for none."""
    if plan.clean:
        return (
            [_decided(f"the clips, {_saved(plan)}", reading), *_clean_counted(reading)],
            ["Nothing was attacked: these figures do not show how robust the model is."],
        )
    heard = f"P(heard) is a prediction by a model of hearing ({ear}), not the answer of a person."
    saved = f"the saved {plan.bits}-bit files" if plan.bits else "the float waveforms, not rounded to files"
    return (
        [
            _decided(saved, reading),
            *_counted(reading),
            "SNR and dB compare the perturbation with the clip, sample by sample.",
        ],
        [
            "No listening test was made. SNR and dB are measures of the signal: they do not say whether a "
            "person would notice.",
            *([heard] if ear else []),
            "−32 dB is a convention of the literature, not a threshold of hearing.",
            "A low rate does not prove robustness: another attack, or more steps, may do better.",
            "Nothing was played through a loudspeaker and a microphone.",
        ],
    )


def _saved(plan: Plan) -> str:
    return f"rounded to {plan.bits} bits" if plan.bits else "as floats"


def _decided(what: str, reading: ModelReading) -> str:
    return f"The {'transcripts' if reading is WORDS else 'decisions'} are those of this model on {what}."


def _clean_counted(reading: ModelReading) -> list[str]:
    rate = WER if reading is WORDS else "The rate is measured on all clips that were decoded"
    return [f"{rate}; each rate has a 95 % interval."]


def _counted(reading: ModelReading) -> list[str]:
    if reading is WORDS:
        return [
            f"{WER}; each rate has a 95 % interval.",
            "Success counts all clips, whether or not they were transcribed correctly before the attack. To "
            "evade means more word errors than before, or, without a reference, a different transcript.",
        ]
    return [
        "Success counts the clips that the model classified correctly before the attack; each rate has a "
        "95 % interval over clips.",
    ]
