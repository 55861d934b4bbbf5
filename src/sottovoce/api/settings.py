"""From the options of an audit to a grid: the entries of a plan file, overridden by the options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce.errors import InputError, UnknownName

if TYPE_CHECKING:
    from sottovoce.auditing.engines.engine import Engine
    from sottovoce.auditing.plan.plan_file import Plan
    from sottovoce.auditing.plan.plan_grid import Grid

ENGINES = ("local", "ray")
LISTS = ("attacks", "goals", "defenses", "metrics", "attackers")


@dataclass(frozen=True)
class Way:
    """How a plan is run; this does not change the results."""

    device: str = "auto"
    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    retry_failed: bool = False
    as_json: bool = False
    max_requests: int | None = None

    def check(self) -> None:
        """Raise if the options contradict each other."""
        if self.engine not in ENGINES:
            raise UnknownName("engine", self.engine, ENGINES)
        if self.address is not None and self.engine != "ray":
            raise InputError(
                f"--address needs --engine ray, got --engine {self.engine}; add it, or leave the address out."
            )
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers must be at least 1, got {self.workers}.")
        if self.max_requests is not None and self.max_requests < 1:
            raise InputError(f"--max-requests must be at least 1, got {self.max_requests}.")
        if self.engine == "local" and self.device not in ("auto", "cpu"):
            from sottovoce.targets.open_target import find_device

            find_device(self.device)

    @property
    def inline(self) -> bool:
        """Whether everything runs in this process."""
        return self.engine == "local" and self.count == 1

    @property
    def count(self) -> int:
        """The number of workers on this machine."""
        from sottovoce.targets.open_target import find_devices

        return self.workers or (len(find_devices()) if self.device == "auto" else 1)

    def open(self) -> Engine:
        """The engine that does the work."""
        from sottovoce.auditing.engines.engine import InlineEngine
        from sottovoce.auditing.engines.pool_engine import PoolEngine
        from sottovoce.auditing.engines.ray_engine import RayEngine

        if self.engine == "ray":
            return RayEngine(self.address, self.workers, device=self.device)
        if self.inline:
            return InlineEngine(self.device)
        return PoolEngine(self.workers, None if self.device == "auto" else [self.device])

    def home(self) -> str:
        """The device on which this process opens the model: the CPU if workers run it elsewhere."""
        from sottovoce.targets.open_target import find_device

        return find_device(self.device) if self.inline else "cpu"


def lay_over(file: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a plan file, overridden by the options that were given.

    An option applies to every target, also where the file has another value for one of them.
    """
    from sottovoce.core.files.yaml_reader import Entries
    from sottovoce.registry.part_text import split_list

    given = {key: value for key, value in options.items() if value is not None or key == "bits"}
    given |= {key: split_list(given[key]) for key in LISTS if isinstance(given.get(key), str)}
    replaced = set(given)
    if "model" in given:
        model = given.pop("model")
        given["targets"] = split_list(model) if isinstance(model, str) else model
        replaced |= {"targets"}
    if replaced & {"seed", "seeds"}:
        replaced |= {"seed", "seeds"}
    entries = {key: value for key, value in file.items() if key not in replaced}
    if isinstance(targets := entries.get("targets"), list):
        entries["targets"] = [
            {key: value for key, value in target.items() if key not in replaced}
            if isinstance(target, dict)
            else target
            for target in targets
        ]
    over = {**entries, **given}
    if not isinstance(file, Entries):
        return over
    return Entries(over, file.path, {place: file.lines[place] for place in file.lines if place[0] in entries})


def plan_settings(settings: dict[str, Any], aims: list[str], *, audible: bool) -> dict[str, Any]:
    """Settings with the defaults that follow from them.

    aims: the options for goals and budgets that were given. audible: whether there is a budget of audibility.
    """
    if settings.get("attacks") == ["none"] and aims:
        raise InputError(
            f"expected no goals and no budgets with --attacks none, got {', '.join(aims)}; leave that out, "
            "or name an attack."
        )
    if audible:
        # Attacks that need a norm, such as deepfool, cannot search such a budget.
        settings.setdefault("attacks", ["noise", "fgsm", "pgd"])
    return settings


def replay_entries(run: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a plan that tries the examples of a run again, each cell beside noise as loud as them.

    settings: what else was said, which must leave clips, attacks, goals and budgets to the run.
    """
    from sottovoce.attacks.replay import saved_examples
    from sottovoce.auditing.run.run_folder import RunFolder
    from sottovoce.registry.part_text import Part

    taken = [name for name in ("data", "attacks", "goals", "budgets", "include") if settings.get(name)]
    if taken:
        raise InputError(
            f"examples come with their clips, attacks, goals and budgets, got {', '.join(taken)} beside "
            "them; leave that out."
        )
    folder = RunFolder(Path(run).expanduser())
    rules, trouble = list[dict[str, str]](), None
    for cell in folder.plan().cells():
        if cell.clean or cell.sees == "nothing":
            continue
        try:
            saved_examples(folder.path, cell.id)
        except InputError as error:
            trouble = error
            continue
        for name in ("replay-noise", "replay"):
            part = Part(name, {"run": run, "cell": cell.id})
            rules.append({"attack": str(part), "goal": str(cell.goal), "budget": str(cell.budget)})
    if not rules:
        raise trouble or InputError(f"{run}: expected saved examples of an attack, got a run without any.")
    nothing = {name: list[str]() for name in ("attacks", "goals", "budgets")}
    return {**settings, **nothing, "data": f"run:{run}", "include": rules, "probe": 0}


def refuse_plan_changes(named: list[str]) -> None:
    """Raise if options would change the plan of a run that is resumed."""
    if named:
        raise InputError(
            f"--resume takes the plan of the folder, got options that would change it: {', '.join(named)}; "
            "leave them out."
        )


def parse_budgets(snr: str | None, audible: str | None, budgets: str | list[str] | None) -> list[str] | None:
    """All budgets of the three options; None if none was given."""
    from sottovoce.registry.part_text import split_list

    if snr is None and audible is None and budgets is None:
        return None
    others = split_list(budgets or "") if budgets is None or isinstance(budgets, str) else budgets
    return parse_snr(snr or "") + parse_audible(audible or "") + others


def parse_snr(text: str) -> list[str]:
    """`20,40` or `20:60:10` (ends included) as budgets."""
    try:
        levels = [level for item in text.split(",") if item for level in _levels(item)]
    except ValueError:
        raise InputError(
            f"--snr expected decibels such as 20,40, or low:high:step such as 20:60:10, got {text!r}."
        ) from None
    return [f"snr(db={level:g})" for level in levels]


def parse_audible(text: str) -> list[str]:
    """`0.1,0.25` as budgets."""
    try:
        return [f"audible(p={float(item):g})" for item in text.split(",") if item]
    except ValueError:
        raise InputError(f"--audible expected probabilities such as 0.1,0.25, got {text!r}.") from None


def parse_seeds(text: str | None) -> list[int] | None:
    """`0,1,2` as numbers."""
    if text is None:
        return None
    try:
        return [int(item) for item in text.split(",") if item.strip()]
    except ValueError:
        raise InputError(
            f"--seeds expected integers separated by commas, such as 0,1,2, got {text!r}."
        ) from None


def _levels(item: str) -> list[float]:
    numbers = [float(word) for word in item.split(":")]
    if len(numbers) == 1:
        return numbers
    first, last, step = numbers
    if step <= 0 or last < first:
        raise ValueError(item)
    return [first + k * step for k in range(int((last - first) / step + 1e-9) + 1)]


def default_folder(plan: Plan) -> Path:
    """The default folder of a run."""
    return Path("runs") / f"{re.split('[:(]', plan.model)[0]}-{plan.run_id}"


def grid_folder(grid: Grid) -> Path:
    """The default folder of several runs."""
    return Path("runs") / f"grid-{grid.run_id}"


def opened(out: str) -> AbstractContextManager[Path]:
    """The folder of a run: a path, or for a URL such as s3://BUCKET/RUN a local folder in sync with it."""
    if "://" not in out:
        return nullcontext(Path(out).expanduser())
    from sottovoce.auditing.remote.remote_folder import opened as opened_remotely

    return opened_remotely(out)
