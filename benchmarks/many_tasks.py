"""What one more task costs after thousands: heads, the ledger of claims and a run's folder, on synthetic features.

Usage: OMP_NUM_THREADS=1 python benchmarks/many_tasks.py [--tasks 100,1000,10000] [--out results/FILE.json]
Every task is one class of a few random features; no backbone and no training. What so many tasks leave behind is made
at once; seconds are those of the processor, medians over the tasks that come after.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from machine import device_name, find_device, versions, write_json
from torch import nn

from clare.engine.commit import source_commit
from clare.engine.folder import RunFolder
from clare.heads.head import Head
from clare.methods.base import MethodSettings
from clare.methods.state import Snapshot
from clare.position import predictions_file
from clare.record import TaskEvent
from clare.settings import build_settings
from clare.sparse.allocator import Allocator
from clare.sparse.ledger import Ledger
from clare.steps import Collect, Pass, Result, found_in

Task = Callable[[int], None]
"""What is done in a task, from its number after those of before."""
HEADS: dict[str, dict[str, Any]] = {
    "prototype": {},
    "discriminant": {},
    "quadratic": {"num_directions": 4},
    "ridge": {"num_projected": 256},
}


@dataclass(frozen=True)
class Conditions:
    """What is measured."""

    num_features: int = 64
    per_class: int = 8
    num_coordinates: int = 20_000
    share: float = 0.05
    """What a task claims of what is free where pools expand; one pool gives every task one coordinate."""
    num_asked: int = 200
    seed: int = 0
    window: int = 50
    """Tasks whose median counts."""


def finish(head: Head, features: torch.Tensor, num_classes: int) -> None:
    """Finish a task of classes with these features, one class after another, as the engine would."""
    labels, answer = torch.arange(num_classes).repeat_interleave(len(features) // num_classes), None
    steps = head.finish(num_classes)
    while True:
        try:
            step = next(steps) if answer is None else steps.send(answer)
        except StopIteration:
            return
        answer: Result = found_in(step, features, labels) if isinstance(step, Pass | Collect) else step.function()


def head_task(kind: str, num_before: int, conditions: Conditions) -> Task:
    """Return what a head does in a task."""
    settings = build_settings(MethodSettings, {"head": {"kind": kind, **HEADS[kind]}}, "method")
    head = settings.head.make(conditions.num_features, conditions.seed)
    generator = torch.Generator().manual_seed(conditions.seed)

    def features(num_classes: int) -> torch.Tensor:
        centres = torch.randn(num_classes, 1, conditions.num_features, generator=generator)
        shape = (num_classes, conditions.per_class, conditions.num_features)
        return (centres + torch.randn(shape, generator=generator)).flatten(0, 1)

    finish(head, features(num_before), num_before)
    return lambda _: finish(head, features(1), 1)


def ledger_task(expands: bool, num_before: int, conditions: Conditions) -> Task:
    """Return what choosing and claiming does in a task: in one pool, or in the last of several."""
    # Between a full pool and half of one is claimed at the end of each.
    per_pool = math.ceil(math.log(0.5) / math.log(1 - conditions.share)) if expands else num_before
    num_claimed = round(0.5 * conditions.num_coordinates / per_pool) if expands else 1
    num_pools = num_before // per_pool + 1 if expands else 1
    total = num_pools * conditions.num_coordinates
    ledger = Ledger(total)
    ledger.resize([num_claimed] * num_before, total)
    ledger.coordinates = torch.arange(num_claimed * num_before, dtype=torch.int32) % total
    ledger.free[: total - conditions.num_coordinates] = False
    if not expands:
        ledger.free[:num_before] = False
    pool = Allocator({"values": nn.Parameter(torch.zeros(total))}, torch.zeros(total), ledger)
    generator = torch.Generator().manual_seed(conditions.seed)

    def task(_: int) -> None:
        scores = torch.rand(total, generator=generator)
        pool.claim(pool.choose(scores, pool.ledger.free, num_claimed / max(1, pool.num_free)))

    return task


def folder_task(folder: Path, num_before: int, conditions: Conditions) -> Task:
    """Return what a run's folder writes in a task: a step, what was predicted, an event, and the state after it."""
    run, state = RunFolder(folder, writes=True), {"values": torch.zeros(conditions.num_coordinates)}
    run.begin({}, {})
    asked = torch.zeros(conditions.num_asked, dtype=torch.long)
    run.predictions(0, asked, asked)
    run.advance(Snapshot({"tasks": 1}, state))
    first = predictions_file(0)
    for index in range(1, num_before):
        (folder / predictions_file(index)).write_bytes((folder / first).read_bytes())
        run.position.finished.files[predictions_file(index)] = run.position.digests[first]

    def task(index: int) -> None:
        run.finish(0, {})
        run.predictions(num_before + index, asked, asked)
        run.notice("a task was learnt")
        run.advance(Snapshot({"tasks": index + 1}, state))

    return task


def accuracies_task(folder: Path, num_before: int) -> Task:
    """Return what the record keeps of a task's evaluation: a row of accuracies, one for each task so far."""
    run = RunFolder(folder, writes=True)
    run.begin({}, {})
    others = {"seen": 0.5, "new": 0.5, "first": 0.5, "learn_seconds": 0.0, "evaluate_seconds": 0.0, "num_stored": 0}

    def task(index: int) -> None:
        row = (0.5,) * (num_before + index + 1)
        run.tell(TaskEvent(task=num_before + index, per_task=row, passes_per_image=1, peak_memory=None, **others))

    return task


def parts(folder: Path, num_before: int, conditions: Conditions) -> dict[str, Callable[[], Task]]:
    """Return by name what makes each part as so many tasks leave it."""
    return {
        "ledger of one pool": lambda: ledger_task(False, num_before, conditions),
        "ledger with fresh pools": lambda: ledger_task(True, num_before, conditions),
        "folder of a run": lambda: folder_task(folder / f"run-{num_before}", num_before, conditions),
        "row of accuracies": lambda: accuracies_task(folder / f"record-{num_before}", num_before),
        **{f"{kind} head": partial(head_task, kind, num_before, conditions) for kind in HEADS},
    }


def seconds_of(task: Task, window: int) -> float:
    """Do some tasks, and return the median processor seconds of one."""
    seconds = []
    for index in range(window):
        started = time.process_time()
        task(index)
        seconds.append(time.process_time() - started)
    return round(median(seconds), 6)


def main() -> None:
    """Measure every part, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="100,1000,10000")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    conditions, commit = Conditions(), source_commit()
    seconds: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for num_before in map(int, arguments.tasks.split(",")):
            for name, make in parts(Path(folder), num_before, conditions).items():
                seconds.setdefault(name, {})[str(num_before)] = seconds_of(make(), conditions.window)
                print(num_before, name, seconds[name][str(num_before)], flush=True)
    result = {
        "what": "processor seconds of one more task after so many, by part",
        "command": f"python benchmarks/many_tasks.py --tasks {arguments.tasks}",
        "commit": commit,
        "conditions": asdict(conditions),
        "heads": HEADS,
        "device": device_name(find_device()),
        "versions": versions(),
        "seconds": seconds,
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
