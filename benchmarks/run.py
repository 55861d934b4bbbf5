"""Sottovoce beside other toolboxes, and beside the bare passes of its own attacks.

    python benchmarks/run.py            # writes benchmarks/README.md

Every figure is a ratio of two times taken in turns in one process, or of two peaks of memory. Nothing here
is a test: machines differ, ratios less so.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from sottovoce.targets.zoo.keyword_target import keyword

from sottovoce.attacks.carlini_wagner import CarliniWagner
from sottovoce.attacks.deepfool import DeepFool
from sottovoce.attacks.pgd import Fgsm, Pgd
from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Budget, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.data.embedded import embedded
from sottovoce.data.load import collate
from sottovoce.targets.zoo.keyword_cnn import CLIP_SAMPLES

HERE = Path(__file__).parent
STEPS, STEP = 40, 0.1
# Neither always nor never enough on the shipped clips.
L2_RADIUS, LINF_RADIUS = 0.02, 0.0001

OURS: dict[str, tuple[Attack, Budget]] = {
    "fgsm linf": (Fgsm(), LInf(LINF_RADIUS)),
    "pgd linf": (Pgd(steps=STEPS, step=STEP), LInf(LINF_RADIUS)),
    "pgd l2": (Pgd(steps=STEPS, step=STEP), L2(L2_RADIUS)),
    "deepfool l2": (DeepFool(steps=50, overshoot=0.1, bits=None), L2(1e3)),
    "cw l2": (CarliniWagner(steps=60, binary_search=3, bits=None), L2(1e3)),
}


@dataclass(frozen=True)
class Row:
    """One attack in one toolbox: median seconds, median of their ratio to sottovoce's in the same turn,
    success, and the median size of a success in the attack's norm."""

    attack: str
    toolbox: str
    seconds: float
    ratio: float
    success: float
    size: float


@cache
def clips() -> AudioBatch:
    """The shipped clips that the model hears right, each of them one second long.

    Shorter ones get zeros at the end that count as part of the clip: the other toolboxes know no lengths and
    would perturb the padding, which sottovoce does not.
    """
    corpus, target = embedded(), keyword()
    loaded = [corpus.load(entry, target.sample_rate) for entry in corpus]
    heard = target.decode(collate(loaded), draws=Draws(0))
    right = collate([clip for clip, text in zip(loaded, heard, strict=True) if text == clip.label])
    full = torch.nn.functional.pad(right.waveforms, (0, CLIP_SAMPLES - right.waveforms.shape[1]))
    return AudioBatch(full, torch.full((len(right),), CLIP_SAMPLES), target.sample_rate, right.ids)


def some_clips(attack: str) -> AudioBatch:
    """Every other clip, or a few for the attack that takes minutes in other toolboxes."""
    return clips().select(range(0, len(clips()), 5 if attack.startswith("cw") else 2))


def take_turns(sides: dict[str, Callable[[], object]], turns: int) -> dict[str, np.ndarray]:
    """Seconds of each side in each turn, `(turns,)`, the sides one after the other in every turn."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(found) for name, found in seconds.items()}


def overhead(repeats: int) -> tuple[float, float]:
    """Seconds of a whole PGD, and of the forward and backward passes in it; the run with the median ratio.

    Both come from one run: two runs on a shared machine differ by more than what is to be measured.
    """
    target, batch = keyword(), clips().select(range(32))
    spent = 0.0

    def timed(function: Callable[..., object]) -> Callable[..., object]:
        def run(*words: object, **names: object) -> object:
            nonlocal spent
            start = time.perf_counter()
            found = function(*words, **names)
            spent += time.perf_counter() - start
            return found

        return run

    forward, backward = target.module.forward, torch.autograd.grad
    runs = []
    try:
        target.module.forward, torch.autograd.grad = timed(forward), timed(backward)
        for _ in range(repeats + 1):
            spent, start = 0.0, time.perf_counter()
            Pgd(steps=STEPS)(target, batch, Evade(), Snr(40), draws=Draws(0))
            runs.append((time.perf_counter() - start, spent))
    finally:
        target.module.forward, torch.autograd.grad = forward, backward
    return sorted(runs[1:], key=lambda run: run[0] / run[1])[repeats // 2]


def our_side(name: str) -> Callable[[], np.ndarray]:
    attack, budget = OURS[name]
    target, batch = keyword(), some_clips(name)
    return lambda: attack(target, batch, Evade(), budget, draws=Draws(0), bits=None).delta.numpy()


def foolbox_side(name: str) -> Callable[[], np.ndarray]:
    import foolbox

    module, waveforms = keyword().module, some_clips(name).waveforms
    model = foolbox.PyTorchModel(module, bounds=(-1, 1), device="cpu")
    attacks = foolbox.attacks
    made, radius = {
        "pgd l2": (attacks.L2PGD(rel_stepsize=STEP, steps=STEPS, random_start=False), L2_RADIUS),
        "pgd linf": (attacks.LinfPGD(rel_stepsize=STEP, steps=STEPS, random_start=False), LINF_RADIUS),
        "fgsm linf": (attacks.LinfFastGradientAttack(random_start=False), LINF_RADIUS),
        "deepfool l2": (attacks.L2DeepFoolAttack(steps=50, candidates=None, overshoot=0.1), None),
        "cw l2": (
            attacks.L2CarliniWagnerAttack(binary_search_steps=3, steps=60, stepsize=1e-4, abort_early=False),
            None,
        ),
    }[name]

    def run() -> np.ndarray:
        # What the model says to the clean clips is part of the work of all three.
        labels = model(waveforms).argmax(dim=1)
        _, clipped, _ = made(model, waveforms, labels, epsilons=radius)
        return (clipped - waveforms).detach().numpy()

    return run


def art_side(name: str) -> Callable[[], np.ndarray]:
    from art.attacks import evasion
    from art.estimators.classification import PyTorchClassifier

    module, waveforms = keyword().module, some_clips(name).waveforms
    classifier = PyTorchClassifier(
        module,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=(CLIP_SAMPLES,),
        nb_classes=12,
        clip_values=(-1.0, 1.0),
        device_type="cpu",
    )
    shared = {"batch_size": len(waveforms)}
    quiet = {**shared, "verbose": False}
    pgd = partial(
        evasion.ProjectedGradientDescentPyTorch, classifier, max_iter=STEPS, num_random_init=0, **quiet
    )
    made = {
        "pgd l2": lambda: pgd(norm=2, eps=L2_RADIUS, eps_step=STEP * L2_RADIUS),
        "pgd linf": lambda: pgd(norm=np.inf, eps=LINF_RADIUS, eps_step=STEP * LINF_RADIUS),
        "fgsm linf": lambda: evasion.FastGradientMethod(classifier, norm=np.inf, eps=LINF_RADIUS, **shared),
        "deepfool l2": lambda: evasion.DeepFool(classifier, max_iter=50, epsilon=0.1, nb_grads=12, **quiet),
        "cw l2": lambda: evasion.CarliniL2Method(
            classifier, binary_search_steps=3, max_iter=60, learning_rate=1e-4, initial_const=1.0, **quiet
        ),
    }[name]()
    samples = waveforms.numpy()

    def run() -> np.ndarray:
        found = made.generate(samples)
        # The other two say which examples succeed; here that is one call more.
        classifier.predict(found, batch_size=len(found))
        return found - samples

    return run


def judge(attack: str, toolbox: str, times: dict[str, np.ndarray], delta: np.ndarray) -> Row:
    """Success in float, judged by one function for all, and how large the successes are."""
    module, waveforms = keyword().module, some_clips(attack).waveforms
    with torch.no_grad():
        fooled = module(waveforms + torch.from_numpy(delta)).argmax(1) != module(waveforms).argmax(1)
    sizes = np.abs(delta).max(axis=1) if "linf" in attack else np.linalg.norm(delta, axis=1)
    won = sizes[fooled.numpy()]
    size = float(np.median(won)) if len(won) else np.nan
    seconds, ratio = np.median(times[toolbox]), np.median(times[toolbox] / times["sottovoce"])
    return Row(attack, toolbox, float(seconds), float(ratio), float(fooled.float().mean()), size)


def compare(repeats: int) -> list[Row]:
    rows = []
    for name in OURS:
        deltas: dict[str, np.ndarray] = {}

        def keep(side: str, run: Callable[[], np.ndarray], into: dict[str, np.ndarray] = deltas) -> None:
            into[side] = np.asarray(run(), dtype=np.float32)

        sides = {"sottovoce": our_side(name), "foolbox": foolbox_side(name), "ART": art_side(name)}
        # Those whose cost differs by whole factors need no more than one turn.
        turns = 1 if name in ("cw l2", "deepfool l2") else repeats
        times = take_turns({side: partial(keep, side, run) for side, run in sides.items()}, turns)
        rows += [judge(name, side, times, deltas[side]) for side in sides]
        print(*rows[-3:], sep="\n", flush=True)
    return rows


def peak_mib(count: int, size: int) -> float:
    """Peak memory in MiB of an audit of `count` clips, `size` at once, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(entry.path) for entry in embedded()]
        lines = [f"clip-{number},{files[number % len(files)]},yes" for number in range(count)]
        Path(folder, "clips.csv").write_text("id,path,label\n" + "\n".join(lines) + "\n")
        command = [sys.executable, __file__, "--audit", folder, str(size)]
        return float(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def audit(folder: str, size: int) -> None:
    from sottovoce.auditing.plan.plan_file import make_plan
    from sottovoce.auditing.results.summary import summarise
    from sottovoce.auditing.run.driver import run_audit

    settings = {"data": f"{folder}/clips.csv", "attacks": ["noise"], "budgets": ["snr(db=30)"], "batch": size}
    plan = make_plan(settings | {"audio": "none", "metrics": ["success", "snr"]})
    done = run_audit(plan, Path(folder, "run"), device="cpu")
    summarise(plan, done.records())
    print(json.dumps(own_peak_mib()))


def own_peak_mib() -> float:
    """Peak memory of this process; on Linux ru_maxrss would begin with the parent's at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


PAGE = """# Benchmarks

Made by `make benchmark` (`python benchmarks/run.py`), which writes this page. All sides of a row ran in turns
in one process on one machine; times and ratios are medians over turns (DeepFool, Carlini-Wagner: one).
On a shared machine a ratio wavers by a tenth from run to run.
Recognisers have [a page of their own](recognisers.md), and so have [defenses](defenses.md), attacks that
look for [the smallest perturbation](smallest.md) and the search for [sparsity](sparsity.md).

Machine: {machine}. {versions}.
The shipped keyword model on {count} of the shipped clips that it hears right, one batch, goal: evade.

## What PGD costs beyond its passes

{steps} steps at 40 dB SNR on 32 clips, with rounding and judging: {whole:.2f} s, of which the forward and
backward passes take {passes:.2f} s. **Ratio {ratio:.3f}.**

## Beside other toolboxes

Same model, clips, norm, radius, number of steps and step length; from clean clips to examples of which it is
known whether they succeed. The success shown is judged in float by one function.
For DeepFool (50 steps at most) and Carlini-Wagner (3 rounds of 60 steps, {few} clips), which look for the
smallest perturbation, the median size of a success counts: smaller is better. Only sottovoce keeps the best
iterate, keeps out of the padding and rounds to 16 bits; here clips have no padding and nothing is rounded,
so that all do the same.

| attack | toolbox | seconds | times sottovoce's | success | median size of a success |
|---|---|---:|---:|---:|---:|
{rows}

## Memory

Peak memory of an audit (noise at 30 dB, no audio saved): it follows the batch, not the number of clips.

| clips | batch | peak MiB |
|---:|---:|---:|
{memory}
"""


def write(
    page: Path, over: tuple[float, float], rows: list[Row], memory: dict[tuple[int, int], float]
) -> None:
    packages = ("torch", "foolbox", "adversarial-robustness-toolbox")
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)]
    content = PAGE.format(
        machine=f"{platform.machine()}, {torch.get_num_threads()} threads, {platform.system()}, no GPU",
        versions=", ".join(versions),
        count=len(some_clips("pgd")),
        few=len(some_clips("cw")),
        steps=STEPS,
        whole=over[0],
        passes=over[1],
        ratio=over[0] / over[1],
        rows="\n".join(
            f"| {row.attack} | {row.toolbox} | {row.seconds:.2f} | {row.ratio:.2f} | "
            f"{100 * row.success:.1f} % | {row.size:.3g} |"
            for row in rows
        ),
        memory="\n".join(f"| {count:,} | {size} | {peak:.0f} |" for (count, size), peak in memory.items()),
    )
    page.write_text(content, encoding="utf-8")


def main() -> None:
    warnings.filterwarnings("ignore")
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=HERE / "README.md")
    parser.add_argument("--audit", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.audit:
        return audit(options.audit[0], int(options.audit[1]))
    over = overhead(options.repeats)
    print(over, flush=True)
    rows = compare(options.repeats)
    memory = {pair: peak_mib(*pair) for pair in ((100, 32), (1_000, 32), (10_000, 32), (1_000, 128))}
    write(options.out, over, rows, memory)
    print(options.out.read_text())


if __name__ == "__main__":
    main()
