"""Ray: clusters on loopback, of one and of two nodes, whose workers and nodes are killed."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import torch

from sottovoce.auditing.engines import ray_engine as cluster
from sottovoce.auditing.engines import ray_worker as station
from sottovoce.auditing.engines.ray_address import check_address, split
from sottovoce.auditing.engines.ray_engine import RayEngine
from sottovoce.auditing.engines.ray_worker import check_version, own_device, pack, unpack
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.record import Record, read_records
from sottovoce.core.target import Target
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.open_target import open_target

# Ray reads these when it is imported. Its nodes listen everywhere: a token keeps others out.
for _name, _value in {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}.items():
    os.environ.setdefault(_name, _value)

STORE_BYTES = 80 * 2**20
START_SECONDS = 90.0
# Says what the model of `conftest` says, takes its time, and leaves the number of its process behind.
SLOW_MODEL = """
import os
import time
from pathlib import Path

import torch
from sottovoce.targets.families.classifier import ModuleClassifier

PLACE = Path(__file__).parent / "pids"


class SlowMean(torch.nn.Module):
    def forward(self, waveforms):
        PLACE.mkdir(exist_ok=True)
        (PLACE / str(os.getpid())).touch()
        time.sleep(0.2)
        mean = waveforms.mean(dim=1, keepdim=True)
        return 50.0 * torch.cat([mean, -mean], dim=1)


def make():
    return ModuleClassifier(SlowMean(), ["up", "down"], 8000)
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def end_with_parent() -> None:
    """Have Linux end this process when the one that began it ends, however that came."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Node:
    """`ray start --block` in a session of its own, so that it can be ended with all that it began."""

    def __init__(self, folder: str, *options: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        command += ["--object-store-memory", str(STORE_BYTES), "--num-cpus", "1", *options]
        self.log = Path(folder, f"{len(os.listdir(folder))}.log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, preexec_fn=end_with_parent
            )

    def end(self) -> None:
        # Asked kindly, a node waits for half a minute first.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)

    def owns(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, Callable[..., Node]]]:
    """The address of a cluster of two nodes, one CPU each, and a way to add one. The second claims a GPU."""
    pytest.importorskip("ray")
    # A short name: those of Ray's sockets may not be longer than 107 letters in all.
    folder = tempfile.mkdtemp(prefix="sv", dir="/tmp")
    port, made = free_port(), list[Node]()

    def add(*options: str) -> Node:
        # Each on an address of its own, all of them loopback. Ray would replace the first one, 127.0.0.1.
        place = f"127.0.0.{len(made) + 2}"
        made.append(Node(folder, "--address", f"127.0.0.2:{port}", "--node-ip-address", place, *options))
        # Two that start at once on one machine may take each other's ports.
        wait_for(lambda: "Ray runtime started" in made[-1].log.read_text(), "second node", made[-1])
        return made[-1]

    head = ["--head", "--port", str(port), "--node-ip-address", "127.0.0.2", "--temp-dir", f"{folder}/r"]
    try:
        made.append(Node(folder, *head, "--include-dashboard=false"))
        wait_for(lambda: answers(port), "a head node", made[0])
        add("--num-gpus", "1")
        yield f"127.0.0.2:{port}", add
    finally:
        for node in reversed(made):
            node.end()
        shutil.rmtree(folder, ignore_errors=True)


def answers(port: int) -> bool:
    try:
        check_address(f"127.0.0.2:{port}")
    except InputError:
        return False
    return True


def wait_for(ready: Callable[[], bool], what: str, node: Node) -> None:
    end = time.monotonic() + START_SECONDS
    while not ready():
        if node.process.poll() is not None or time.monotonic() > end:
            pytest.skip(f"Ray starts no {what} here: {node.log.read_text()[-500:]}")
        time.sleep(0.2)


def join(address: str, count: int = 2, **settings: Any) -> RayEngine:
    """An engine on a cluster, once it has so many nodes."""
    engine = RayEngine(address, **{"device": "cpu", **settings})
    end = time.monotonic() + START_SECONDS
    while sum(node["Alive"] for node in engine._ray.nodes()) < count:
        if time.monotonic() > end:
            engine.close()
            pytest.skip(f"Ray starts no {count} nodes here")
        time.sleep(0.2)
    return engine


@pytest.fixture
def slow_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"slow_model_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SLOW_MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return f"python:{name}:make"


def small_plan(model: str, data: str, **settings: Any) -> Plan:
    base = {"attacks": ["fgsm"], "budgets": ["snr(db=3)", "snr(db=-3)"], "metrics": ["success", "snr"]}
    return make_plan({"model": model, "data": data, "batch": 2, "probe": 0, **base, **settings})


def rows(folder: RunFolder) -> dict[tuple[str, str], Record]:
    return {record.key: record for record in folder.records()}


def check_same(found: RunFolder, wanted: RunFolder) -> None:
    """Decisions equal, numbers to 1e-4, sounds equal, every line once."""
    one, two = rows(found), rows(wanted)
    assert one.keys() == two.keys()
    assert len(list(read_records(found.records_path))) == len(one)
    for key, record in one.items():
        twin = two[key]
        for name in ("status", "reason", "label", "clean_text", "adversarial_text", "achieved", "audio"):
            assert getattr(record, name) == getattr(twin, name), (key, name)
        assert record.parts.keys() == twin.parts.keys()
        for name, parts in record.parts.items():
            assert parts == pytest.approx(twin.parts[name], abs=1e-4, nan_ok=True), (key, name)
        for place in record.audio.values():
            assert (found.path / place).is_file()


def kill_one(pids: Path, wanted: Callable[[int], bool], kill: Callable[[int], None]) -> threading.Thread:
    """Kills once the number of a process that is wanted lies in the folder."""

    def watch() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for pid in [int(file.name) for file in pids.glob("*")]:
                if pid != os.getpid() and wanted(pid):
                    kill(pid)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_local_cluster_gives_the_records_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    plan = small_plan("keyword", "embedded", limit=6, audio="none")
    wanted = run_audit(plan, tmp_path / "here", device="cpu")
    with RayEngine(workers=2, device="cpu", store_bytes=STORE_BYTES) as engine:
        assert engine.workers == 2
        found = run_audit(plan, tmp_path / "ray", engine=engine)
    check_same(found, wanted)
    assert len(rows(found)) == 12


@pytest.mark.slow
def test_two_nodes_give_the_records_of_one_process(
    nodes: tuple[str, Callable[..., Node]], tmp_path: Path
) -> None:
    """Per-clip and universal attacks, a defense, sounds, probes."""
    settings = {"attacks": ["fgsm", "uap(epochs=1)"], "budgets": ["snr(db=20)"], "limit": 12, "probe": 2}
    plan = small_plan(
        "keyword",
        "embedded",
        defenses=["none", "gaussian(sigma=0.01)"],
        average=2,
        attackers=["adaptive"],
        **settings,
    )
    wanted = run_audit(plan, tmp_path / "here", device="cpu")
    with join(nodes[0]) as engine:
        assert engine._room(0.0) == 2
        found = run_audit(plan, tmp_path / "ray", engine=engine)
    check_same(found, wanted)
    probes = [{record.key: record for record in folder.probes()} for folder in (found, wanted)]
    assert probes[0].keys() == probes[1].keys() and probes[0]


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_but_time(
    nodes: tuple[str, Callable[..., Node]], slow_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = small_plan(slow_model, str(mean_clips))
    wanted = run_audit(plan, tmp_path / "here", device="cpu")
    shutil.rmtree(tmp_path / "pids")
    with join(nodes[0]) as engine:
        killer = kill_one(tmp_path / "pids", lambda pid: True, lambda pid: os.kill(pid, signal.SIGKILL))
        found = run_audit(plan, tmp_path / "ray", engine=engine)
    killer.join(1)
    assert not killer.is_alive()
    check_same(found, wanted)


@pytest.mark.slow
def test_a_node_that_leaves_costs_nothing_but_time(
    nodes: tuple[str, Callable[..., Node]], slow_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = small_plan(slow_model, str(mean_clips))
    wanted = run_audit(plan, tmp_path / "here", device="cpu")
    shutil.rmtree(tmp_path / "pids")
    leaving = nodes[1]()
    with join(nodes[0], 3) as engine:
        assert engine._room(0.0) == 3
        killer = kill_one(
            tmp_path / "pids", leaving.owns, lambda pid: os.killpg(leaving.process.pid, signal.SIGKILL)
        )
        found = run_audit(plan, tmp_path / "ray", engine=engine)
    killer.join(1)
    assert not killer.is_alive()
    leaving.process.wait(10)
    check_same(found, wanted)


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_lost_and_told(
    nodes: tuple[str, Callable[..., Node]], mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that dies over the clips of one class, which are found and recorded; the others are done."""
    text = SLOW_MODEL.replace("time.sleep(0.2)", "os._exit(9) if (waveforms.mean() < -0.05) else None")
    (tmp_path / "deadly_model.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(cluster, "CRASHES", 0)
    plan = small_plan("python:deadly_model:make", str(mean_clips), budgets=["snr(db=3)"])
    with join(nodes[0]) as engine:
        found = run_audit(plan, tmp_path / "ray", engine=engine)
    status = {clip: record.status for (_, clip), record in rows(found).items()}
    # Clips are at +-1000 to 3000 of 32768: only down/1 (-2000) and down/2 (-3000) are below -0.05.
    failed = {clip for clip, how in status.items() if how == "failed"}
    assert failed == {"down/1", "down/2"}
    assert set(status) == {"up/0", "up/1", "up/2", "down/0", "down/1", "down/2"}


@pytest.mark.slow
def test_mistakes_on_a_worker_come_back_as_they_are(
    nodes: tuple[str, Callable[..., Node]],
    mean_model: str,
    mean_clips: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with join(nodes[0]) as engine:
        # Data that the driver sees and the workers do not.
        plan = small_plan(mean_model, str(mean_clips))
        monkeypatch.setattr(cluster.RayEngine, "_order", hidden(cluster.RayEngine._order, mean_clips))
        with pytest.raises(InputError, match=r"-elsewhere: expected a folder"):
            run_audit(plan, tmp_path / "hidden", engine=engine)
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cluster, "_version", lambda: "0.0.0")
        with pytest.raises(InputError, match=r"got 0\.0\.0 here and \d+\.\d+\.\d+(\.dev\d+)? on "):
            run_audit(plan, tmp_path / "version", engine=engine)


def hidden(order: Any, clips: Path) -> Any:
    """Orders whose plans name another place than the driver's."""

    def changed(self: RayEngine, task: Any) -> Any:
        made = order(self, task)
        plan = task.plan.model_copy(update={"data": f"{clips}-elsewhere"})
        return replace(made, task=replace(task, plan=plan))

    return changed


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use_is_named(nodes: tuple[str, Callable[..., Node]], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("has a real one")
    with join(nodes[0], device="auto") as engine:
        # Of the two nodes one claims a GPU: room for one worker, however small its share.
        assert (engine.device, engine._room(0.25)) == ("cuda", 1)
        plan = small_plan("keyword", "embedded", limit=2, gpu_share=0.25)
        with pytest.raises(InputError, match=r"expected GPU 0 on .*, got 0 that torch can use"):
            run_audit(plan, tmp_path / "run", engine=engine)


@pytest.mark.slow
def test_a_target_that_cannot_be_sent_is_opened_by_name(
    nodes: tuple[str, Callable[..., Node]],
    mean_model: str,
    mean_clips: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = open_target(mean_model, "cpu")
    target.lock = threading.Lock()  # type: ignore[attr-defined]
    plan = small_plan(mean_model, str(mean_clips))
    with join(nodes[0]) as engine:
        found = run_audit(plan, tmp_path / "ray", engine=engine, target=target)
    assert "each opens it by its name" in caplog.text
    check_same(found, run_audit(plan, tmp_path / "here", device="cpu"))


def test_an_address_where_nothing_answers() -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"expected a Ray cluster at 127\.0\.0\.1:\d+, got no answer"):
        RayEngine(f"127.0.0.1:{free_port()}")
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_address_where_something_else_answers(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(64)
                link.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(InputError, match="got another kind of server"):
            RayEngine(f"ray://127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["", "somewhere", "host:", "host:port", ":6379", "host:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"expected an --address such as 10\.0\.0\.1:6379"):
        RayEngine(address)


def test_addresses_are_taken_apart() -> None:
    assert split("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert split("ray://head.lan:10001") == ("head.lan", 10001)
    assert split("[::1]:6379") == ("::1", 6379)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(cluster, "import_module", fail)
    with pytest.raises(MissingExtra, match=r'pip install "sottovoce\[ray\]"'):
        RayEngine()


@pytest.mark.parametrize("setting", ["workers", "cpus"])
def test_no_workers_are_refused(setting: str) -> None:
    with pytest.raises(InputError, match=f"expected {setting} of 1 or more, got 0"):
        RayEngine(**{setting: 0})


@pytest.mark.parametrize(
    ("asked", "given", "visible", "count", "device"),
    [
        ("cpu", [], None, 0, "cpu"),
        ("cuda", [], None, 4, "cpu"),
        ("cuda", ["3"], None, 4, "cuda:3"),
        # Ray counts as the node does, torch counts those that the node lets it see.
        ("cuda", ["6"], "4,6", 2, "cuda:1"),
        ("cuda", ["1"], "", 2, "cuda:1"),
    ],
)
def test_a_worker_finds_its_gpu(
    asked: str,
    given: list[str],
    visible: str | None,
    count: int,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert own_device(asked, given, visible) == device


def test_another_version_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(station, "__version__", "1.2.3")
    check_version("1.2.3")
    with pytest.raises(InputError, match=r"got 1\.2\.4 here and 1\.2\.3 on "):
        check_version("1.2.4")


def check_copy(target: Target, labels: list[str], *, decode: bool = True) -> None:
    """A target that went to a worker and one that stayed hear the same, to the last bit."""
    pytest.importorskip("ray")
    twin = unpack(pack(target), "cpu")
    assert type(twin) is type(target)
    samples = torch.rand(2, target.sample_rate, generator=torch.Generator().manual_seed(1)) - 0.5
    batch = AudioBatch.of([row.numpy() for row in samples], target.sample_rate, ["a", "b"])
    if decode:
        assert twin.decode(batch, draws=Draws(0)) == target.decode(batch, draws=Draws(0))
    assert torch.equal(twin.loss(batch, labels, draws=Draws(0)), target.loss(batch, labels, draws=Draws(0)))


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        ("keyword", ["yes", "no"]),
        ("speaker", ["01", "02"]),
        ("sound", ["siren", "rain"]),
        ("recogniser", ["yes", "stop go"]),
    ],
)
def test_the_shipped_models_can_be_sent(model: str, labels: list[str]) -> None:
    target = open_target(model, "cpu")
    known = getattr(target, "classes", tuple(labels))
    check_copy(target, [label if label in known else known[place] for place, label in enumerate(labels)])


@pytest.mark.slow
def test_whisper_can_be_sent(whisper_tiny: Path) -> None:
    # What it reads into noise would take a minute to write down.
    check_copy(open_target(f"whisper:{whisper_tiny}", "cpu"), ["good day", "no"], decode=False)


def test_a_model_of_the_hub_can_be_sent(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", "A", "B"]
    (tmp_path / "vocab.json").write_text(
        str({one: place for place, one in enumerate(letters)}).replace("'", '"')
    )
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    transformers.Wav2Vec2Processor(extractor, tokenizer).save_pretrained(tmp_path)
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        conv_dim=(8, 8, 8), conv_stride=(8, 8, 5), conv_kernel=(10, 8, 5), num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, vocab_size=len(letters), pad_token_id=0,
    )  # fmt: skip
    transformers.AutoModelForCTC.from_config(config).save_pretrained(tmp_path)
    check_copy(open_target(f"huggingface:{tmp_path}", "cpu"), ["A", "B A"])
