"""Runs kept in a bucket: a server of S3 on loopback."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.remote import remote_folder as remote
from sottovoce.auditing.remote import remote_lock
from sottovoce.auditing.remote.folder_mirror import Mirror
from sottovoce.auditing.remote.remote_folder import opened, settle
from sottovoce.auditing.remote.remote_lock import RemoteLock
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record
from sottovoce.errors import InputError, StoreError

server = pytest.importorskip("moto.server", reason="needs moto")
s3fs = pytest.importorskip("s3fs")

URL = "s3://runs/one"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def far(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The filesystem of the server, with an empty bucket named "runs"."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("SOTTOVOCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_lock, "PAUSE_SECONDS", 0.0)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
    system.mkdir("runs")
    yield system
    system.rm("runs", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


def names(far: Any) -> set[str]:
    return {path.removeprefix("runs/one/") for path in far.find("runs/one")}


def line(clip: str, **more: Any) -> bytes:
    return json.dumps({"cell": "c", "clip": clip, "status": "ok", **more}).encode() + b"\n"


def append(stage: Path, *lines: bytes, log: str = "trials") -> None:
    path = stage / f"{log}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(lines))


def mean_plan(model: str, clips: Path) -> Plan:
    budgets, metrics = ["snr(db=3)", "snr(db=-3)"], ["success", "snr"]
    settings = {"attacks": ["fgsm"], "budgets": budgets, "metrics": metrics, "batch": 2, "probe": 0}
    return make_plan({"model": model, "data": str(clips), **settings})


def rows(folder: Path) -> dict[tuple[str, str], Record]:
    return {record.key: record for record in RunFolder(folder).records()}


def check_same(found: Path, wanted: Path) -> None:
    """Decisions equal, numbers to 1e-4: batches of other sizes round differently."""
    one, two = rows(found), rows(wanted)
    assert one.keys() == two.keys()
    for key, record in one.items():
        twin = two[key]
        for name in ("status", "reason", "label", "clean_text", "adversarial_text", "achieved", "audio"):
            assert getattr(record, name) == getattr(twin, name), (key, name)
        assert record.parts.keys() == twin.parts.keys()
        for name, parts in record.parts.items():
            assert parts == pytest.approx(twin.parts[name], abs=1e-4, nan_ok=True), (key, name)


def test_a_run_in_a_bucket_is_the_run_in_a_folder(
    far: Any, mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = mean_plan(mean_model, mean_clips)
    here = run_audit(plan, tmp_path / "here").path
    with opened(URL, stage=tmp_path / "stage") as place:
        run_audit(plan, place)
    files = {file.relative_to(here).as_posix() for file in here.rglob("*") if file.is_file()}
    assert names(far) == files | {"mirror.id"}
    assert far.cat_file("runs/one/plan.yaml") == (here / "plan.yaml").read_bytes()
    audio = next(name for name in sorted(files) if name.startswith("audio/fgsm"))
    assert far.cat_file(f"runs/one/{audio}") == (here / audio).read_bytes()
    with opened(URL, write=False) as place:
        check_same(place, here)


def test_going_on_elsewhere_from_what_was_sent(
    far: Any, mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = mean_plan(mean_model, mean_clips)
    run_audit(plan, tmp_path / "here")
    lines = (tmp_path / "here" / "trials.jsonl").read_bytes().splitlines(keepends=True)
    # A machine that is lost after five trials of twelve: the rest of its folder never left it.
    first = Mirror(URL, tmp_path / "lost", lambda: None)
    run_audit(plan, tmp_path / "lost")
    (tmp_path / "lost" / "trials.jsonl").write_bytes(b"".join(lines[:3]))
    first.sync()
    append(tmp_path / "lost", *lines[3:5])
    first.sync()
    assert sum(name.startswith("trials/") for name in names(far)) == 2
    done: list[int] = []
    with opened(URL, stage=tmp_path / "other") as place:
        assert (place / "trials.jsonl").read_bytes() == b"".join(lines[:5])
        run_audit(plan, place, advance=lambda count, note: done.append(count))
        check_same(place, tmp_path / "here")
    assert sum(done) == 12
    assert far.cat_file("runs/one/trials.jsonl").count(b"\n") == 12
    assert not any(name.startswith("trials/") for name in names(far))


def test_lines_go_there_after_their_sounds_and_each_once(far: Any, tmp_path: Path) -> None:
    with opened(URL, stage=tmp_path / "stage") as place:
        (place / "audio").mkdir()
        (place / "audio" / "a.flac").write_bytes(b"sound")
        (place / "audio" / "unnamed.flac").write_bytes(b"not yet")
        append(place, line("a", audio={"clean": "audio/a.flac"}), b'{"cell": "c", "cl')
        settle(place)
        there = names(far)
        assert "audio/a.flac" in there and "audio/unnamed.flac" not in there
        (part,) = (name for name in there if name.startswith("trials/"))
        assert part.startswith("trials/000001-")
        assert far.cat_file(f"runs/one/{part}") == line("a", audio={"clean": "audio/a.flac"})
        settle(place)
        assert sum(name.startswith("trials/") for name in names(far)) == 1
    assert "audio/unnamed.flac" in names(far)


def test_the_runs_of_a_grid_keep_their_own_lines(far: Any, tmp_path: Path) -> None:
    with opened(URL, stage=tmp_path / "stage") as place:
        append(place, line("a"), log="runs/first/trials")
        append(place, line("b"), log="runs/second/probes")
        settle(place / "runs" / "first")
    assert far.cat_file("runs/one/runs/first/trials.jsonl") == line("a")
    assert far.cat_file("runs/one/runs/second/probes.jsonl") == line("b")


def test_a_torn_part_keeps_its_whole_lines(far: Any, tmp_path: Path) -> None:
    far.pipe_file("runs/one/trials/000001-aa.jsonl", line("a") + line("b")[:10])
    far.pipe_file("runs/one/trials/000002-bb.jsonl", line("b"))
    with opened(URL, stage=tmp_path / "stage") as place:
        assert (place / "trials.jsonl").read_bytes() == line("a") + line("b")
    assert far.cat_file("runs/one/trials.jsonl") == line("a") + line("b")


def test_a_kill_between_the_whole_and_the_removal_of_parts(far: Any, tmp_path: Path) -> None:
    far.pipe_file("runs/one/trials.jsonl", line("a") + line("b"))
    far.pipe_file("runs/one/trials/000001-aa.jsonl", line("a"))
    far.pipe_file("runs/one/trials/000002-bb.jsonl", line("b"))
    far.pipe_file("runs/one/trials/000003-cc.jsonl", line("c"))
    with opened(URL, stage=tmp_path / "stage") as place:
        assert (place / "trials.jsonl").read_bytes() == line("a") + line("b") + line("c")


def test_lines_that_only_the_stage_has_are_sent(far: Any, tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    with opened(URL, stage=stage) as place:
        append(place, line("a"))
    # A kill after the line was written here, in the middle of the next, and before anything was sent.
    append(stage, line("b"), line("c")[:12])
    far.pipe_file("runs/one/trials/000009-dd.jsonl", line("d"))
    with opened(URL, stage=stage) as place:
        assert (place / "trials.jsonl").read_bytes() == line("a") + line("b") + line("d")
        (part,) = (name for name in names(far) if name.startswith("trials/000010-"))
        assert far.cat_file(f"runs/one/{part}") == line("b")
    assert sorted(far.cat_file("runs/one/trials.jsonl").splitlines(keepends=True)) == [
        line("a"),
        line("b"),
        line("d"),
    ]


def test_two_at_once_never_write_over_each_other(far: Any, tmp_path: Path) -> None:
    one, two = (Mirror(URL, tmp_path / name, lambda: None) for name in ("one", "two"))
    for mirror, clip in ((one, "a"), (two, "b")):
        append(mirror.stage, line(clip))
        mirror.sync()
    assert len([name for name in names(far) if name.startswith("trials/000001-")]) == 2


def test_a_stage_of_a_run_that_was_deleted_is_put_aside(far: Any, tmp_path: Path) -> None:
    with opened(URL) as stage:
        append(stage, line("a"))
    far.rm("runs/one", recursive=True)
    with opened(URL) as place:
        assert place == stage
        assert list(place.iterdir()) == []
    (aside,) = stage.parent.glob("*-aside-*")
    assert (aside / "trials.jsonl").read_bytes() == line("a")


def test_reading_writes_nothing(far: Any, tmp_path: Path) -> None:
    far.pipe_file("runs/one/trials/000001-aa.jsonl", line("a"))
    far.pipe_file("runs/one/plan.yaml", b"model: keyword\n")
    for _ in range(2):
        with opened(URL, write=False) as place:
            assert (place / "trials.jsonl").read_bytes() == line("a")
            assert (place / "plan.yaml").read_bytes() == b"model: keyword\n"
    assert names(far) == {"trials/000001-aa.jsonl", "plan.yaml"}
    with pytest.raises(InputError, match="got nothing there"), opened("s3://runs/none", write=False):
        pass


def holder(**changes: Any) -> bytes:
    content = {"host": "elsewhere", "pid": 7, "since": "2026-01-01T00:00:00+00:00", "token": "theirs"}
    return json.dumps({**content, "beat": time.time(), **changes}).encode()


def test_a_place_where_another_run_is_at_work_is_refused(far: Any, tmp_path: Path) -> None:
    far.pipe_file("runs/one/lock.json", holder())
    with (
        pytest.raises(StoreError, match=r"process 7 on elsewhere since 2026-01-01T00:00:00"),
        opened(URL, stage=tmp_path / "stage"),
    ):
        pass
    # Theirs stays.
    assert json.loads(far.cat_file("runs/one/lock.json"))["token"] == "theirs"


@pytest.mark.parametrize(
    "changes",
    [
        {"beat": time.time() - 301},
        # No process has a number that high.
        {"host": socket.gethostname(), "pid": 2**22 + 1},
    ],
)
def test_a_lock_that_was_left_behind_counts_for_nothing(
    far: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    far.pipe_file("runs/one/lock.json", holder(**changes))
    with opened(URL, stage=tmp_path / "stage"):
        lock = json.loads(far.cat_file("runs/one/lock.json"))
        assert (lock["host"], lock["pid"]) == (socket.gethostname(), os.getpid())
    assert "lock.json" not in names(far)


def test_of_two_that_write_their_names_the_later_one_holds(far: Any) -> None:
    first, second = RemoteLock(f"{URL}/lock.json"), RemoteLock(f"{URL}/lock.json")
    first.renew()
    second.renew()
    second.check()
    with pytest.raises(StoreError, match="nothing more is written there"):
        first.check()
    first.release()
    assert "lock.json" in names(far)


def test_a_run_that_lost_its_place_writes_no_more(far: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match="process 7 on elsewhere: it took the place"),
        opened(URL, stage=tmp_path / "stage") as place,
    ):
        far.pipe_file("runs/one/lock.json", holder())
        append(place, line("a"))
        settle(place)
    assert not any(name.startswith("trials") for name in names(far))
    assert (tmp_path / "stage" / "trials.jsonl").read_bytes() == line("a")


def test_a_bucket_that_goes_away_stops_the_run_and_loses_nothing(far: Any, tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    with (
        pytest.raises(StoreError, match=f"what was recorded is safe in {stage}"),
        opened(URL, stage=stage) as place,
    ):
        append(place, line("a"))
        mirror = remote._open[place.resolve()]
        mirror._may_write = lambda: None
        mirror._root = "gone/one"
        settle(place)
    with opened(URL, stage=stage):
        pass
    assert far.cat_file("runs/one/trials.jsonl") == line("a")


def test_a_local_folder_is_itself(tmp_path: Path) -> None:
    with opened(str(tmp_path / "run")) as place:
        assert place == tmp_path / "run"
        settle(place)
    assert not place.exists()


def test_a_folder_by_url_works_as_a_bucket_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setattr(remote_lock, "PAUSE_SECONDS", 0.0)
    with opened(f"file://{tmp_path}/far", stage=tmp_path / "stage") as place:
        append(place, line("a"))
        (place / "audio").mkdir()
        (place / "audio" / "a.flac").write_bytes(b"sound")
    there = {file.relative_to(tmp_path / "far").as_posix() for file in (tmp_path / "far").rglob("*.*")}
    assert there == {"trials.jsonl", "audio/a.flac", "mirror.id"}
