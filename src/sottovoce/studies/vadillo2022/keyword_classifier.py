"""V1: the keyword classifier (section 3.1)."""

from __future__ import annotations

import numpy as np
from torch import nn

from sottovoce.core.statistics import clopper_pearson
from sottovoce.core.target import Scores, Target
from sottovoce.studies.draw import heat_map
from sottovoce.studies.shown_numbers import percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.vadillo2022.evaluate import decisions
from sottovoce.studies.vadillo2022.fitting_split import open_test
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup, open_choice
from sottovoce.studies.vadillo2022.vadillo_tables import ARCHITECTURE
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.zoo.mfcc import Mfcc


def run(bench: UniversalSetup) -> Result:
    classes = list(bench.target.capability(Scores).classes)
    pools, note = open_test(bench.setting, classes, bench.folder / "silence")
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    for place, (label, pool) in enumerate(pools.items()):
        bench.tell(place / len(pools), f"listening to {label}")
        for said in decisions(bench, bench.load(pool)):
            counts[classes.index(label), classes.index(said)] += 1
    right, total = counts.diagonal(), counts.sum(axis=1)
    each = {
        label: clopper_pearson(int(right[row]), int(total[row]))
        for row, label in enumerate(classes)
        if total[row]
    }
    whole = clopper_pearson(int(right.sum()), int(total.sum()))
    rows = [(label, str(found.n), percent_interval(found)) for label, found in each.items()]
    accuracy = StudyTable(
        title="Accuracy, % with 95 % interval",
        columns=("class", "clips", "accuracy"),
        rows=[*rows, ("all", str(whole.n), percent_interval(whole))],
        note="The paper's text gives no accuracy of its classifier.",
    )
    facts = _architecture(bench.target, f"{100 * whole.value:.1f} % on {whole.n} clips")
    design = StudyTable(
        title="Architecture",
        columns=("", "paper", "here"),
        rows=[(name, ARCHITECTURE[name], facts[name]) for name in ARCHITECTURE],
    )
    figure = heat_map(counts, classes)
    return Result(
        sheets=[accuracy, design],
        drawings=[
            StudyFigure(name="confusion", title="Clips of each class (rows) by decision", figure=figure)
        ],
        values={
            "accuracy": whole._asdict(),
            "by_class": {label: found._asdict() for label, found in each.items()},
            "confusion": {"classes": classes, "counts": counts.tolist()},
            "architecture": facts,
        },
        notes=[f"Accuracy is on {note}, at either scale."],
    )


def _architecture(target: Target, accuracy: str) -> dict[str, str]:
    facts = dict.fromkeys(ARCHITECTURE, "not known of this kind of target")
    facts["accuracy"] = accuracy
    facts["output"] = f"{len(target.capability(Scores).classes)} classes"
    if isinstance(target, ModuleClassifier):
        parts = list(target.module.modules())
        convolutions = [part for part in parts if isinstance(part, nn.Conv1d | nn.Conv2d)]
        length = f", {target.clip_samples / target.sample_rate:g} s" if target.clip_samples else ""
        facts["input"] = f"audio waveform, {target.sample_rate / 1000:g} kHz{length}"
        facts["features"] = "MFCC image" if any(isinstance(part, Mfcc) for part in parts) else "its own"
        facts["convolutional layers"] = ", ".join(
            [
                str(len(convolutions)),
                *(f"{c.out_channels} maps {'x'.join(map(str, c.kernel_size))}" for c in convolutions),
            ]
        )
        facts["fully connected layers"] = str(sum(isinstance(part, nn.Linear) for part in parts))
        facts["parameters"] = f"{sum(weight.numel() for weight in target.module.parameters()):,}"
    return facts


STUDY = Study(
    id="V1",
    title="Keyword classifier",
    paper="Vadillo and Santana, section 3.1",
    reports="MFCC image, 2 convolutional layers with ReLU, 1 fully connected, 12 classes; no accuracy given",
    open=open_choice,
    run=run,
    fits=False,
)
