"""Running a grid: one plan after the other, each in a folder of its own, by one engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from sottovoce.auditing.engines.engine import Engine, InlineEngine
from sottovoce.auditing.plan.plan_file import Plan, read_plan
from sottovoce.auditing.plan.plan_grid import Grid, make_grid
from sottovoce.auditing.run.driver import Advance, run_audit
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.auditing.run.run_cell import tell
from sottovoce.auditing.run.run_folder import RunFolder, describe, prepare_folder
from sottovoce.auditing.run.stop_signal import ASKED
from sottovoce.core.files.answer_store import ANSWERS
from sottovoce.core.files.yaml_reader import parse_yaml
from sottovoce.errors import InputError, SottovoceError, Stopped, StoreError
from sottovoce.targets.open_target import Openings, guess

RUNS = "runs"
"""Where the folders of the runs are, in the folder of their grid."""
PLAN = "plan.yaml"
Started = Callable[[str, Plan], None]
Finished = Callable[[str, RunFolder], None]
Refused = Callable[[str, str], None]
"""Called with the name of a run and the reason why none of it could be run."""


def run_grid(
    grid: Grid,
    out: Path,
    *,
    engine: Engine | None = None,
    device: str = "auto",
    retry_failed: bool = False,
    max_requests: int | None = None,
    openings: Openings | None = None,
    begin: Callable[[int], None] = lambda trials: None,
    advance: Advance = lambda done, note: None,
    started: Started = lambda name, plan: None,
    finished: Finished = lambda name, folder: None,
    refused: Refused = lambda name, reason: None,
) -> list[RunFolder]:
    """Run what is not yet recorded of every plan; the folders of those that could be run, in order.

    A model that cannot be opened and a cell that cannot be put together are recorded as failed; a run that is
    refused whole, because its clips changed say or it began with a model that is gone, is passed over. The
    rest runs.

    engine: who does the work; None: this process, on `device`.
    openings: models that were opened to see what they say, for what the grid leaves open.
    max_requests: the most requests that models behind an address are sent, all of them together.
    started, finished: called for each run as it starts and as it ends.
    """
    if engine is None:
        with InlineEngine(device) as own:
            return run_grid(
                grid, out, engine=own, device=device, retry_failed=retry_failed, max_requests=max_requests,
                openings=openings, begin=begin, advance=advance, started=started, finished=finished,
                refused=refused,
            )  # fmt: skip
    # One for all runs: seeds of a model find it open.
    bench = Executor("cpu") if engine.bench is None else engine.bench
    openings = openings or Openings(bench.device)
    whole = grid.resolved(openings.kind)
    found: list[RunFolder] = []
    asked = False

    def told(done: int, note: str) -> None:
        nonlocal asked
        asked = asked or note == ASKED
        advance(done, note)

    with hold(out):
        about = describe(whole.run_id, engine.device, workers=engine.workers)
        prepare_folder(out, PLAN, whole.to_yaml(), about, lambda text: _holds(text, whole))
        for name, plan in whole.plans().items():
            if asked:
                # The signal came as the last run had nothing left to do.
                raise Stopped(f"stopped as requested; finished trials are in {out}.")
            started(name, plan)
            try:
                folder = run_audit(
                    plan, out / RUNS / name, engine=engine, bench=bench, target=openings.take(plan.model),
                    retry_failed=retry_failed, keep_going=True, answers=out / ANSWERS,
                    max_requests=max_requests, begin=begin, advance=told,
                )  # fmt: skip
            except (Stopped, StoreError):
                raise
            # One run of many: whatever ends it, the others are not to blame.
            except Exception as error:
                refused(name, tell(error))
                continue
            found.append(folder)
            finished(name, folder)
    return found


def _holds(text: str, grid: Grid) -> bool:
    """Whether a plan file is this grid: the very text, or one from before plans had as many entries."""
    try:
        return text == grid.to_yaml() or make_grid(parse_yaml(text)).plans(guess) == grid.plans(guess)
    except (SottovoceError, yaml.YAMLError, TypeError, ValueError):
        return False


def is_grid(path: Path) -> bool:
    """Whether a folder holds the runs of a grid."""
    return (path / PLAN).exists() and "targets" in read_plan(path / PLAN)


def run_folders(path: Path) -> list[Path]:
    """The folders of runs: a grid's, or the folder itself where it is one run."""
    if not (path / PLAN).exists():
        lacks = f"it has no {PLAN}" if path.exists() else "it does not exist"
        raise InputError(f"{str(path)!r} is not the folder of a run or of a grid: {lacks}; check the path.")
    if not is_grid(path):
        return [path]
    names = make_grid(read_plan(path / PLAN)).plans(guess)
    return [folder for name in names if (folder := path / RUNS / name).is_dir()]
