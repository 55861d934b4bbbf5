"""The folder of a run: plan, about, corpus, trials, probes, tables, audio/, perturbations/, report.html."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import torch

from sottovoce import __version__
from sottovoce.auditing.plan.plan_file import Plan, make_plan, read_plan
from sottovoce.auditing.run.about_run import ABOUT, CORPUS, read_about, read_corpus
from sottovoce.auditing.run.corpus_manifest import Manifest, hash_manifest, refuse, tell_changes
from sottovoce.auditing.run.folder_lock import NAME as LOCK
from sottovoce.auditing.run.repeatability import Repeated
from sottovoce.auditing.run.tasks import Sound
from sottovoce.core.files.answer_store import ANSWERS
from sottovoce.core.record import (
    TRIALS,
    Key,
    Record,
    RecordWriter,
    Status,
    latest,
    read_keys,
    read_records,
)
from sottovoce.data.load import Corpus
from sottovoce.errors import InputError, SottovoceError, StoreError
from sottovoce.perception.ears.learned import OWN
from sottovoce.targets.open_target import guess

WEIGHTS = "weights"
"""What `about.json` calls the digests of the files of weights that a run uses."""
PART = ".part"
"""The end of the name of a file that is being written."""
UNKNOWN_CORPUS = "this run has no list of its clips, so it is not known whether they are still the same"


class RunFolder:
    """The folder of one plan's results. Opening it again with the same plan continues the run; another plan,
    or another version of sottovoce, is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def records_path(self) -> Path:
        return self.path / TRIALS

    @property
    def probes_path(self) -> Path:
        return self.path / "probes.jsonl"

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    def check(self, plan: Plan) -> None:
        """Refuse a folder that holds another plan, or other things."""
        check_folder(self.path, "plan.yaml", self._holds(plan))

    def prepare(self, plan: Plan, about: dict[str, Any]) -> None:
        """Make the folder, or check that it holds this plan."""
        prepare_folder(self.path, "plan.yaml", plan.to_yaml(), about, self._holds(plan))

    def _holds(self, plan: Plan) -> Callable[[str], bool]:
        """Whether a text is this plan: the very text, or one from before plans had as many entries."""

        def same(text: str) -> bool:
            try:
                return text == plan.to_yaml() or self.plan() == plan
            except SottovoceError:
                return False

        return same

    def plan(self) -> Plan:
        if not (self.path / "plan.yaml").exists():
            lacks = "it has no plan.yaml" if self.path.exists() else "it does not exist"
            raise InputError(f"{str(self.path)!r} is not the folder of a run: {lacks}; check the path.")
        entries = read_plan(self.path / "plan.yaml")
        try:
            # What a folder holds is filled in already: nothing of it is opened to be read.
            return make_plan(dict(entries), guess)
        except SottovoceError as error:
            raise InputError(f"{self.path / 'plan.yaml'}: {error}") from None

    def about(self) -> dict[str, Any]:
        return read_about(self.path)

    def repeated(self) -> Repeated | None:
        """Whether the model answers the same clips alike, as it was when the run began; None: not asked."""
        found = self.about().get("repeated") if (self.path / ABOUT).exists() else None
        return None if found is None else Repeated(**found)

    def keep_repeated(self, found: Repeated) -> None:
        """Record it, so that the model is treated in the same way when the run continues."""
        if found != Repeated() and found != self.repeated():
            _write(self.path / ABOUT, _pretty({**self.about(), "repeated": found.to_json()}))

    def keep_requests(self, sent: int) -> None:
        """Record how many requests the run has sent to its model."""
        _write(self.path / ABOUT, _pretty({**self.about(), "requests": sent}))

    def check_corpus(
        self, corpus: Corpus, now: Manifest, *, began: bool, unread: Collection[str] = ()
    ) -> str:
        """Refuse to continue with other clips than the run started with; a remark where that is not known.

        now: the manifest of the corpus, which is kept for the next time. began: whether clips are on record.
        unread: clips that could not be loaded and may have been repaired since.
        """
        about = self.about() if (self.path / ABOUT).exists() else {}
        known, kept = about.get("corpus"), self.path / CORPUS
        if known is None:
            _write(kept, orjson.dumps(now))
            remark = UNKNOWN_CORPUS if began else ""
            if about:
                notes = {"corpus_note": remark} if remark else {}
                _write(self.path / ABOUT, _pretty({**about, "corpus": hash_manifest(now), **notes}))
            return remark
        if known != hash_manifest(now):
            before: Manifest = read_corpus(self.path) if kept.exists() else {}
            repaired = {**before, **{clip: now[clip] for clip in unread if clip in before and clip in now}}
            if not before or repaired != now:
                raise refuse(corpus, tell_changes(repaired, now) if before else "")
            _write(kept, orjson.dumps(now))
            _write(self.path / ABOUT, _pretty({**about, "corpus": hash_manifest(now)}))
        return ""

    def records(self) -> Iterator[Record]:
        """Each clip of each cell once, as it ended the last time."""
        return latest(read_records(self.records_path))

    def keys(self) -> dict[Key, Status]:
        """What is on record, without the figures."""
        return read_keys(self.records_path) if self.records_path.exists() else {}

    def writer(self) -> RecordWriter:
        return RecordWriter(self.records_path)

    def probes(self) -> Iterator[Record]:
        """Attacks that were tried again on a few clips with other settings; see `auditing.probe`."""
        return latest(read_records(self.probes_path))

    def probe_keys(self) -> dict[Key, Status]:
        return read_keys(self.probes_path)

    def probe_writer(self) -> RecordWriter:
        return RecordWriter(self.probes_path)

    def perturbation_path(self, cell: str) -> Path:
        return self.path / "perturbations" / f"{cell}.safetensors"

    def save_perturbation(self, content: bytes, path: Path) -> None:
        _write(path, content)

    def save_sound(self, sound: Sound) -> None:
        """Write an audio file. A clean clip that is there already is left as it is."""
        place, content = sound
        if not (place.startswith("audio/clean/") and (self.path / place).exists()):
            _write(self.path / place, content)


def _write(path: Path, content: bytes) -> None:
    """All of a file or, after a kill, nothing."""
    torn = path.with_name(f"{path.name}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn.write_bytes(content)
        torn.replace(path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}; what was recorded before is safe: free some space and "
            "run the same command again to continue."
        ) from None


def check_folder(path: Path, name: str, same: Callable[[str], bool]) -> None:
    """Refuse a folder with another plan in the file `name`, or of another version, or with other things.

    A kill while the folder was made leaves files without a plan; those are no reason.
    """
    kept = path / name
    try:
        if kept.exists():
            if not same(kept.read_text(encoding="utf-8")):
                raise InputError(
                    f"{path} holds a run of another plan; choose another folder with --out, or delete this "
                    "one."
                )
            _check_version(path)
        elif path.exists() and (not path.is_dir() or any(not _ours(item.name) for item in path.iterdir())):
            raise InputError(
                f"{path} is not the folder of a run and is not empty; choose another folder with --out."
            )
    except StoreError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from None


def _check_version(path: Path) -> None:
    """Refuse to add to what another version recorded: its figures may mean something else."""
    about = read_about(path) if (path / ABOUT).exists() else {}
    began = about.get("versions", {}).get("sottovoce", __version__)
    if began != __version__:
        raise InputError(
            f"{path} was started with sottovoce {began}, and this is {__version__}, whose figures may "
            "differ; "
            f"finish it with {began}, or start a new run in another folder with --out."
        )


def _check_weights(path: Path, now: Mapping[str, str] | None) -> None:
    """Refuse to add to what other weights made, whether of the model, of a defense or of an ear."""
    about = read_about(path) if (path / ABOUT).exists() else {}
    before = about.get(WEIGHTS)
    if now is None or before == now:
        return
    if before is None:
        # The run was begun before its model could be opened.
        _write(path / ABOUT, _pretty({**about, WEIGHTS: dict(now)}))
        return
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    raise InputError(
        f"the weights of {', '.join(changed)} changed since {path} was started; put the old files back to "
        "finish it, or start a new run in another folder with --out."
    )


def prepare_folder(
    path: Path,
    name: str,
    plan: str,
    about: dict[str, Any],
    same: Callable[[str], bool] | None = None,
) -> None:
    """Make a folder with a plan's text in the file `name`, or check that it holds that very plan, begun with
    the same weights."""
    check_folder(path, name, same or plan.__eq__)
    if (path / name).exists():
        _check_weights(path, about.get(WEIGHTS))
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from None
    _write(path / ABOUT, _pretty(about))
    _write(path / name, plan.encode())


def _ours(name: str) -> bool:
    return name in (LOCK, ABOUT, CORPUS) or name.startswith(ANSWERS) or name.endswith(PART)


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write to {path} ({error.strerror}); choose another folder with --out.")


def _pretty(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def describe(run_id: str, device: str, data_note: str = "", **more: Any) -> dict[str, Any]:
    """What is needed to repeat a run, beyond its plan. more: other entries."""
    return {
        "run": run_id,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "data_note": data_note,
        "ear_weights": os.environ.get(OWN) or "shipped",
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {
            "sottovoce": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "soundfile", "soxr")},
        },
        **more,
    }
