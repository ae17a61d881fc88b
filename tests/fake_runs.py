"""Small run folders as the engine writes them, with answers drawn from a chosen accuracy, and reports of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from clare.report.groups import compare, rank
from clare.report.record import RunRecord
from clare.report.standings import Failure, summary_of

NUM_IMAGES_PER_CLASS = 20


def write_run(
    folder: Path,
    method: str = "clare",
    task_sizes: Sequence[int] = (2, 2, 2),
    skill: float = 0.9,
    decay: float = 0.05,
    num_tasks: int | None = None,
    seed: int = 0,
    with_capacity: bool = True,
    classes: Sequence[str] | None = None,
    preset: dict[str, Any] | None = None,
    given: float | None = None,
    is_told: bool = False,
    num_pictures: int | None = None,
    training_bytes: int | None = None,
) -> Path:
    """Write a run whose accuracy on a task is `skill` at first and falls by `decay` with each later task.

    With the task given it is `given` on every task, if that is recorded; a run that is told the task has nothing else.
    """
    random = np.random.RandomState(seed)
    num_tasks = len(task_sizes) if num_tasks is None else num_tasks
    classes = [f"class {index}" for index in range(sum(task_sizes))] if classes is None else list(classes)
    task_of_class = np.repeat(np.arange(len(task_sizes)), task_sizes)
    folder.mkdir(parents=True)
    (folder / "predictions").mkdir()
    write_json(folder / "preset.json", base_preset(method) | (preset or {}))
    write_json(folder / "environment.json", {"clare": "0.1.0", "torch": "2.15.0", "device": "cpu", "threads": 2})
    events: list[dict[str, Any]] = [
        {
            "event": "start",
            "time": 1.0e9,
            "classes": classes,
            "task_sizes": list(task_sizes),
            "num_coordinates": 1000,
            "method": method,
            "backbone_hash": "abc",
            **({"told_task": True} if is_told else {}),
            **({"training_bytes": training_bytes} if training_bytes else {}),
        }
    ]
    all_targets = np.repeat(np.arange(len(classes)), NUM_IMAGES_PER_CLASS)
    for task in range(num_tasks):
        target = all_targets[task_of_class[all_targets] <= task].astype(np.int32)
        age = task - task_of_class[target]
        right = random.rand(len(target)) < np.clip(skill - decay * age, 0, 1)
        predicted = np.where(right, target, (target + 1) % len(classes)).astype(np.int32)
        save_file({"predicted": predicted, "target": target}, folder / "predictions" / f"task-{task:04d}.safetensors")
        per_task = [float(right[task_of_class[target] == earlier].mean()) for earlier in range(task + 1)]
        events += task_events(task, float(right.mean()), per_task, with_capacity)
        if num_pictures is not None:
            events[-1]["pictures"] = {"kept": num_pictures, "bytes": 784 * num_pictures}
        if given is not None:
            own = {"task_given": given, "per_task_given": [given] * (task + 1), "task_right": None if is_told else 0.5}
            untold = {"seen": None, "new": None, "first": None, "per_task": [None] * (task + 1)} if is_told else {}
            events[-1]["accuracy"] |= own | untold
    if num_tasks == len(task_sizes):
        events.append({"event": "end", "time": 1.0e9 + 60})
    (folder / "record.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def task_events(task: int, seen: float, per_task: list[float], with_capacity: bool) -> list[dict[str, Any]]:
    """Return what the engine records of one task."""
    used = 1 - 0.95 ** (task + 1)
    return [
        {
            "event": "phase",
            "task": task,
            "phase": "probe",
            "epochs": 2,
            "trained": 1200,
            "loss": [1.0, 0.5],
            "seconds": 1.5,
        },
        {
            "event": "phase",
            "task": task,
            "phase": "train",
            "epochs": 3,
            "trained": 300 + task,
            "loss": [0.9, 0.4, 0.2],
            "seconds": 3.0,
        },
        {
            "event": "task",
            "task": task,
            "accuracy": {"seen": seen, "new": per_task[-1], "first": per_task[0], "per_task": per_task},
            "capacity": {"used": used, "claimed": 50, "free": int(1000 * (1 - used))} if with_capacity else None,
            "seconds": {"learn": 10.0, "evaluate": 1.0},
            "parameters": {"stored": 3400 + 100 * task, "passes_per_image": 2},
        },
    ]


def diagnose(folder: Path, num_blocks: int = 4, seed: int = 0) -> Path:
    """Add to a run what newer engines record: claims in each block, sizes of updates, memory."""
    random = np.random.RandomState(seed)
    edges = np.geomspace(1e-9, 0.1, 41)
    counts = (4000 * np.exp(-((np.log10(edges[1:]) + 3.5) ** 2))).astype(int)
    events = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    for event in events:
        if event["event"] == "task":
            event["memory"] = {"peak": 1_200_000_000 + 10_000_000 * event["task"]}
            event["diagnosis"] = {
                "movement": {
                    "edges": edges.tolist(),
                    "counts": counts.tolist(),
                    "num_unmoved": 9000,
                    "threshold": 2e-3,
                },
                "claimed_per_block": random.randint(0, 20, num_blocks).tolist(),
                "coordinates_per_block": 250,
            }
    (folder / "record.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def base_preset(method: str) -> dict[str, Any]:
    """A preset as the engine resolves it."""
    return {
        "name": "quickdraw",
        "description": "drawings",
        "seed": 1993,
        "method": {"name": method, "epochs": 20},
        "stream": {"num_tasks": 3},
        "data": {"name": "quickdraw"},
    }


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON."""
    path.write_text(json.dumps(value))


def write_page(
    runs: Sequence[RunRecord], target: Path, title: str = "Continual learning report", failures: Sequence[Failure] = ()
) -> Path:
    """Write the page about some runs."""
    # It brings matplotlib.
    from clare.report.page import build_page

    target.write_text(build_page(compare(runs), title, rank(runs), failures))
    return target


def summary_of_runs(runs: Sequence[RunRecord], failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """Return the summary of some runs as JSON has it."""
    summary: dict[str, Any] = json.loads(json.dumps(summary_of(compare(runs), rank(runs), failures)))
    return summary
