"""Running a study by its id."""

from __future__ import annotations

from pathlib import Path

from sottovoce import registry
from sottovoce.studies.bench import Bench, open_bench
from sottovoce.studies.page import write
from sottovoce.studies.study import Result, Setting, Study, Tell


def find_study(name: str) -> Study:
    """A study by its id; v2 is as good as V2."""
    study: Study = registry.find("study", name.upper() if name.upper() in registry.names("study") else name)
    return study


def run_study(
    study: Study,
    setting: Setting,
    out: Path | None = None,
    *,
    device: str = "auto",
    tell: Tell = lambda done, note: None,
) -> tuple[Bench, Result, Path]:
    """Run a study and write its page; what the folder holds already is not fitted again."""
    bench = open_bench(setting, out or setting.folder, device=device, tell=tell)
    result = study.run(bench)
    return bench, result, write(study, bench, result)
