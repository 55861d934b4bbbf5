"""`sottovoce leaderboard`: a static site from runs and claims. It opens from a file, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.files.private_paths import hide_paths
from sottovoce.core.processes import count_cores, in_order, workers
from sottovoce.errors import InputError, StoreError
from sottovoce.leaderboard.board_page import GENERATOR, render
from sottovoce.leaderboard.certificate_rows import attach, read_certificates
from sottovoce.leaderboard.claims.claim import Claim, read_claim
from sottovoce.leaderboard.claims.make_claims import claims_and_clips, merge_seeds, without_paths
from sottovoce.leaderboard.merged_rows import ClaimEntry, Clips, Link, Trusted, clips_of
from sottovoce.leaderboard.named_folders import RUNS, NamedFolders
from sottovoce.leaderboard.run_reading import read_run

LARGE_BYTES = 200_000_000
"""Records beyond which two processes read them: below, a process takes longer to start than to read."""


@dataclass
class SiteContents:
    """The claims, where each comes from, and notes for the reader.

    runs: the folders of a claim's runs, seed by seed; none for one that was submitted.
    clips: the outcome of every clip of a claim, by seed; nothing where only a sample is known.
    """

    claims: list[Claim] = field(default_factory=list)
    runs: dict[str, list[RunFolder]] = field(default_factory=dict)
    clips: dict[str, dict[int, Clips]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trials: int = 0
    submitted: dict[str, Claim] = field(default_factory=dict)
    """Claims as they were read."""


def write_site(
    runs: Sequence[Path],
    out: Path,
    *,
    trust: bool = False,
    tell: Callable[[str], None] = lambda note: None,
) -> Path:
    """Write the site of these runs, grids, certificates and claims; returns its index.html.

    A run that lies below `out` is linked where it is; of any other the report and the plan are copied.
    trust: allow parts of plugins in claims. tell: called with what is in progress and what was left out.
    """
    board = gather_board(NamedFolders.of(runs), tell, trust=trust)
    if not board.claims:
        why = f" ({'; '.join(board.notes)})" if board.notes else ""
        raise InputError(f"expected a run with records, or a claim, found none{why}; run an audit first.")
    index = out / "index.html"
    _check_place(index)
    try:
        (out / "claims").mkdir(parents=True, exist_ok=True)
        entries = [_write_entry(without_paths(claim), board, out) for claim in board.claims]
        _write(index, render(entries, [hide_paths(note) for note in board.notes], board.trials))
    except OSError as error:
        raise StoreError(
            f"cannot write {out}: {error.strerror}; free some space or choose another --out."
        ) from None
    for note in board.notes:
        tell(note)
    return index


def gather_board(
    sources: NamedFolders, tell: Callable[[str], None] = lambda note: None, *, trust: bool = False
) -> SiteContents:
    """All claims: those of runs, seeds merged, then those that were submitted."""
    board = SiteContents()
    found: dict[str, list[tuple[Claim, RunFolder]]] = {}
    for folder, claims, trials in _read_all(sources.runs, tell):
        board.trials += trials
        if not claims:
            clean = folder.plan().clean
            why = "attacked nothing" if clean else "has no attack with a value yet"
            board.notes.append(f"{folder.path} {why} and is left out")
        for claim, clips in claims:
            found.setdefault(claim.id, []).append((claim, folder))
            board.clips.setdefault(claim.id, {}).setdefault(claim.seeds[0], clips)
    for name, members in found.items():
        merged, notes = merge_seeds([claim for claim, _ in members])
        board.claims.append(merged)
        board.notes += notes
        seeds = {claim.seeds[0]: folder for claim, folder in reversed(members)}
        board.runs[name] = [seeds[seed] for seed in merged.seeds]
    _add_claims(board, sources.claims, trust)
    certificates = [each for path in sources.certificates if (each := read_certificates(path)) is not None]
    board.claims, notes = attach(board.claims, certificates)
    board.notes += notes
    return board


def _add_claims(board: SiteContents, paths: Sequence[Path], trust: bool) -> None:
    """Those that were submitted. One that says of itself what a run here says is that run's."""
    known = {claim.id: claim for claim in board.claims}
    for path in paths:
        claim = read_claim(path, trust=trust)
        twin = known.get(claim.id)
        if twin is not None:
            if twin.seeds != claim.seeds or claim.worst not in (twin.worst, without_paths(twin).worst):
                board.notes.append(
                    f"{path}: {claim.id} is already listed with other figures; this one is left out"
                )
            continue
        known[claim.id] = claim
        board.claims.append(claim)
        board.clips[claim.id] = clips_of(claim)
        board.submitted[claim.id] = claim


Found = tuple[RunFolder, Sequence[tuple[Claim, Clips]], int]


def _read_all(folders: Sequence[RunFolder], tell: Callable[[str], None]) -> list[Found]:
    size = sum(folder.records_path.stat().st_size for folder in folders if folder.records_path.exists())
    processes = min(count_cores(), len(folders), 8)
    if size < LARGE_BYTES or processes < 2:
        found = []
        for folder in folders:
            tell(f"reading {folder.path}")
            found.append(_read_one(folder))
        return found
    tell(f"reading {len(folders)} runs in {processes} processes")
    with workers(processes) as submit:
        jobs = ((None, partial(_read_one, folder)) for folder in folders)
        return [found for _, found in in_order(submit, jobs, len(folders))]


def _read_one(folder: RunFolder) -> Found:
    reading = read_run(folder)
    return folder, claims_and_clips(reading), reading.trials


def _write_entry(claim: Claim, board: SiteContents, out: Path) -> ClaimEntry:
    folders, clips = board.runs.get(claim.id, []), board.clips[claim.id]
    own = Link("claim", f"claims/{claim.id}.json")
    _write(out / "claims" / f"{claim.id}.json", claim.to_json())
    if not folders:
        _write(out / "plans" / f"{claim.id}.yaml", claim.plan_yaml())
        return ClaimEntry(claim, [own, Link("plan", f"plans/{claim.id}.yaml")], _trusted(claim, board), clips)
    reports, plans = [], []
    for seed, folder in zip(claim.seeds, folders, strict=True):
        place = _place(folder, out)
        words = f" (seed {seed})" if len(folders) > 1 else ""
        if (out / place / "report.html").is_file():
            reports.append(Link(f"report{words}", f"{place}/report.html"))
        if (out / place / "plan.yaml").is_file():
            plans.append(Link(f"plan{words}", f"{place}/plan.yaml"))
    return ClaimEntry(claim, [*reports, own, *plans], clips=clips)


def _trusted(claim: Claim, board: SiteContents) -> frozenset[Trusted]:
    """What of a submitted claim nothing here bears out; certificates of one's own do."""
    own = claim.certified != without_paths(board.submitted[claim.id]).certified
    return frozenset(("unheard", "doubts") if own else ("unheard", "doubts", "certified"))


def _place(folder: RunFolder, out: Path) -> str:
    """Where a run lies in the site, as a relative path; it is copied there if need be."""
    here, root = folder.path.resolve(), out.resolve()
    if here.is_relative_to(root):
        return here.relative_to(root).as_posix()
    name = f"{RUNS}/{here.name}-{folder.plan().run_id}"
    (out / name).mkdir(parents=True, exist_ok=True)
    plan = folder.plan()
    _write(out / name / "plan.yaml", hide_paths(plan.to_yaml(), roots_of(plan.data, plan.fit)))
    report = here / "report.html"
    # A link that leads out of the folder would publish something else.
    if report.is_file() and report.resolve().is_relative_to(here):
        shutil.copyfile(report, out / name / "report.html")
    return name


def _check_place(index: Path) -> None:
    """A page of someone else's is not written over."""
    if index.is_file():
        with index.open("rb") as file:
            ours = GENERATOR.encode() in file.read(4000)
        if not ours:
            raise InputError(
                f"{index.parent} has an index.html that is not a leaderboard; choose another folder with "
                "--out."
            )


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.with_name(f"{path.name}.part")
    torn.write_text(text, encoding="utf-8")
    os.replace(torn, path)
