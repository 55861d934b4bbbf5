"""A whole audit: `audit`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sottovoce.api.finished_run import Run
from sottovoce.api.object_texts import defense_texts, metric_names, numbers, text_of, texts_of
from sottovoce.api.open_parts import device_of, model_text
from sottovoce.api.progress import shown
from sottovoce.api.running import OnePlan, resolve, run_plan, run_plans
from sottovoce.api.settings import (
    Way,
    lay_over,
    opened,
    parse_budgets,
    parse_seeds,
    plan_settings,
    refuse_plan_changes,
    replay_entries,
)
from sottovoce.auditing.plan.plan_file import Plan, read_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.run_grid import is_grid
from sottovoce.core.attack import Attack
from sottovoce.core.budget import Budget
from sottovoce.core.goal import Goal
from sottovoce.core.metric import Metric
from sottovoce.core.target import Target
from sottovoce.core.transform import Transform
from sottovoce.core.universal_attack import UniversalAttack
from sottovoce.core.vote import Vote
from sottovoce.errors import InputError
from sottovoce.registry.part_text import split_list
from sottovoce.targets.open_target import is_object

AnyAttack = str | Attack | UniversalAttack
AnyDefense = str | Transform | Vote | Sequence[Transform | Vote]
Numbers = str | float | Iterable[float]
StrPath = str | os.PathLike[str]
BITS = 16


def audit(
    model: str | Target | Sequence[str | Target] | None = None,
    data: str | Sequence[str] | None = None,
    *,
    plan: StrPath | Mapping[str, Any] | None = None,
    preset: str | None = None,
    attacks: AnyAttack | Iterable[AnyAttack] | None = None,
    snr: Numbers | None = None,
    audible: Numbers | None = None,
    budgets: str | Budget | Iterable[str | Budget] | None = None,
    goals: str | Goal | Iterable[str | Goal] | None = None,
    defenses: AnyDefense | Iterable[AnyDefense] | None = None,
    average: int | None = None,
    attackers: str | Iterable[str] | None = None,
    black_box: str | Attack | None = None,
    probe: int | None = None,
    fit: str | None = None,
    limit: int | None = None,
    labels: str | None = None,
    longest: float | None = None,
    metrics: str | Metric | Iterable[str | Metric | type[Metric]] | None = None,
    seed: int | None = None,
    seeds: str | Iterable[int] | None = None,
    bits: int | None = BITS,
    batch: int | None = None,
    audio: str | None = None,
    exclude: Sequence[Mapping[str, Any]] | None = None,
    include: Sequence[Mapping[str, Any]] | None = None,
    gpu_share: float | None = None,
    examples: StrPath | None = None,
    out: StrPath | None = None,
    resume: StrPath | None = None,
    retry_failed: bool = False,
    max_requests: int | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    device: str = "auto",
    progress: bool = False,
) -> Run:
    """Audit a model: run attacks on clips, measure what was added, and write a report. Returns a `Run`.

    The same as `sottovoce audit`, with its options as arguments; None means the default. Every attack runs at
    every budget, for every goal and defense. Parts are texts such as "pgd(steps=100)" or objects such as
    `sv.attacks.Pgd(steps=100)`. An interrupted run continues when the same call is made again. The defaults
    take a while on long clips: start with `limit=12` and two attacks.

    What to attack
        model: a text as for `open_model`, what it returned, or several of them to compare. Default "keyword".
            A module of your own runs in this process only, and is needed again to resume the run.
        data: the clips, as for `open_data`. Default: those shipped for the kind of model.
        limit: at most so many clips, spread evenly over classes or speakers.
        labels: "refuse" or "skip" clips whose label is no class of the model.
        longest: seconds of the longest clip allowed; longer ones are recorded as failed.

    What to run
        attacks: "noise,pgd" or a list. Default: noise, fgsm, pgd, and deepfool for classifiers. "none"
            measures clean accuracy or word error rate only.
        snr: budgets in dB, such as [20, 40] or "20:60:10". audible: budgets as probabilities that a listener
            notices. budgets: any others, such as "linf(eps=0.01)". Default: snr 20 to 60.
        goals: "evade" (the default), "force(text=stop)" ...
        defenses: such as "none,gaussian(sigma=0.02)+majority(passes=8)". Default "none".
        attackers, black_box, average: who attacks a defended model, and how, as the options of these names.
        preset: where the other arguments are left out: "quick", "standard" or "paper".
        plan: a plan file, or its entries as a dict; other arguments take precedence.
        exclude, include: rules for combinations, as in a plan file.
        fit: the clips to fit universal attacks on.
        probe: clips on which the strongest attack is repeated with twice the steps; 0 for none.
        seed, seeds: of all random numbers; several seeds make a run each.

        examples: the folder of a run, whose saved examples are tried again on this model instead.

    What to record
        metrics: names or objects. Default: all but the slow ones.
        bits: resolution that examples are rounded to; None keeps floats.
        audio: "all" saves the clips, "none" does not.
        out: the folder of the results. Default: runs/<model>-<id of the plan>.

    How to run it
        device, workers, batch, gpu_share: where, in how many processes, and how many clips at once.
        engine, address: "local", or "ray" for a cluster.
        resume: the folder of an earlier run, to finish it. retry_failed: run failed clips again.
        max_requests: the most requests sent to models behind an address, those of earlier times included.
        progress: show a progress bar.

    Clips that failed do not stop the run; they are in `run.trials()` with the reason.

    >>> import sottovoce as sv
    >>> run = sv.audit("keyword", "embedded", attacks="noise,pgd(steps=5)", snr=[30], limit=2, probe=0,
    ...                metrics=["success"], out="runs/first")
    >>> [(row["attack"], row["clips"]) for row in run.summary() if row["metric"] == "success"]
    [('noise', 2), ('pgd(steps=5)', 2)]
    """
    way = Way(device, engine, address, workers, retry_failed, max_requests=max_requests)
    way.check()
    models = _models(model)
    known = {text: target for text, target in models if target is not None}
    options: dict[str, Any] = {
        "model": [text for text, _ in models] or None, "data": _listed(data), "preset": preset,
        "attacks": texts_of(attacks, "attack", "universal"), "goals": texts_of(goals, "goal"),
        "defenses": defense_texts(defenses), "metrics": metric_names(metrics),
        "attackers": texts_of(attackers, "attack"), "average": average, "fit": fit, "limit": limit,
        "labels": labels, "longest": longest, "seed": seed, "seeds": _seeds(seeds),
        "batch": batch, "audio": audio, "probe": probe,
        "black_box": None if black_box is None else text_of(black_box, "attack"),
        "budgets": parse_budgets(numbers(snr), numbers(audible), texts_of(budgets, "budget")),
        "exclude": exclude, "include": include, "gpu_share": gpu_share,
    }  # fmt: skip
    if bits != BITS:
        options["bits"] = bits
    if resume is not None:
        others = {**options, "out": out, "plan": plan, "examples": examples}
        if all(is_object(text) for text in known):
            others.pop("model")
        refuse_plan_changes([name for name, value in others.items() if value is not None])
        return _go_on(os.fspath(resume), way, known, progress)
    aims = {"snr": snr, "audible": audible, "budgets": budgets, "goals": goals}
    given = [name for name, value in aims.items() if value is not None and attacks is not None]
    settings = plan_settings(lay_over(_entries(plan), options), given, audible=audible is not None)
    if examples is not None:
        settings = replay_entries(os.fspath(examples), settings)
    return _begin(settings, None if out is None else os.fspath(out), _near(way, known), known, progress)


def _begin(
    settings: dict[str, Any], out: str | None, way: Way, known: Mapping[str, Target], progress: bool
) -> Run:
    found = resolve(settings, way, known)
    with opened(out or str(found.folder)) as folder, shown(progress) as (begin, advance):
        if isinstance(found, OnePlan):
            run_plan(found.plan, folder, found.target, way, begin, advance)
        else:
            _refuse_objects(known)
            run_plans(found.grid, folder, found.openings, way, begin, advance)
    return Run(folder)


def _go_on(resume: str, way: Way, known: Mapping[str, Target], progress: bool) -> Run:
    """Run what is left of the plan that a folder holds."""
    with opened(resume) as folder, shown(progress) as (begin, advance):
        if is_grid(folder):
            run_plans(make_grid(read_plan(folder / "plan.yaml")), folder, None, way, begin, advance)
        else:
            plan = RunFolder(folder).plan()
            target = _handed_in(plan, known)
            run_plan(plan, folder, target, _near(way, known), begin, advance)
    return Run(folder)


def _handed_in(plan: Plan, known: Mapping[str, Target]) -> Target | None:
    if known and plan.model not in known:
        raise InputError(
            f"resume expected the model of its plan, {plan.model}, got {', '.join(known)}; give that one."
        )
    return known.get(plan.model)


def _models(model: Any) -> list[tuple[str, Target | None]]:
    """Each model as a plan writes it, and itself where it is open."""
    if model is None:
        return []
    if isinstance(model, str):
        return [(text, None) for text in split_list(model)]
    return [_model(each) for each in (model if isinstance(model, list | tuple) else [model])]


def _model(model: Any) -> tuple[str, Target | None]:
    if isinstance(model, str):
        return model, None
    if isinstance(model, Target):
        return model_text(model), model
    raise InputError(
        "audit expected a text such as 'keyword' or a model from open_model, got "
        f"{type(model).__name__}; for a torch.nn.Module write audit(open_model(module, "
        "classes=[...], sample_rate=16000), ...)."
    )


def _near(way: Way, known: Mapping[str, Target]) -> Way:
    """The same, on the device of the model that was given."""
    if not known:
        return way
    if any(map(is_object, known)) and not way.inline:
        raise InputError(
            "audit expected workers=1 and engine='local' with a model that is an object, because other "
            "processes cannot open it."
        )
    devices = {device_of(target) for target in known.values()}
    return replace(way, device=devices.pop()) if way.device == "auto" and len(devices) == 1 else way


def _refuse_objects(known: Mapping[str, Target]) -> None:
    for text in filter(is_object, known):
        raise InputError(f"audit expected several models to be texts, got the object {text}; audit it alone.")


def _entries(plan: StrPath | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if plan is None or isinstance(plan, Mapping):
        return plan or {}
    return read_plan(Path(plan))


def _seeds(seeds: str | Iterable[int] | None) -> list[int] | None:
    return parse_seeds(seeds) if seeds is None or isinstance(seeds, str) else list(seeds)


def _listed(data: str | Sequence[str] | None) -> str | list[str] | None:
    return data if data is None or isinstance(data, str) else list(data)
