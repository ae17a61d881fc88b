"""A finished run as one small JSON, and back to the record that intervals and comparisons are made of."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from study import settings_hash, telling

from clare.errors import RunError
from clare.files import write_text
from clare.identity import flatten
from clare.metrics.bootstrap import Evaluations
from clare.metrics.summary import summarise
from clare.record import PhaseEvent, StartEvent, TaskEvent
from clare.report.record import RunRecord

PATH_KEYS = ("data.root", "data.cache", "backbone.weights", "method.name")
PATH = re.compile(r"(^|[\s'\"=:,\[(])(?:~|\.{1,2})?(?:/[^/\s'\",]+)*/(?=[^/\s])")
"""The folders of a path that starts at a root, at home or above, anywhere in a text."""


@dataclass(frozen=True)
class StoredRun(RunRecord):
    """A run as its JSON tells it: figures after every task, and which test images were right after the last."""

    result: Mapping[str, Any] = field(kw_only=True)

    @property
    def num_test_images(self) -> int | None:
        """How many images the last accuracy is over, where that is known."""
        answers = self.result["final_answers"]
        return None if answers is None else sum(answers["num_images"])

    @property
    def seed(self) -> int:
        """The seed of the class order and of every draw."""
        return int(self.preset["seed"])

    @cached_property
    def evaluations(self) -> Evaluations:
        """The answers after the last task; those before are empty, for final accuracies need no others."""
        answers = self.result["final_answers"]
        if answers is None:
            raise RunError(f"{self.folder.name} holds no answers; collect the run again with its predictions")
        num_images = np.array(answers["num_images"])
        packed = np.frombuffer(base64.b64decode(answers["right"]), dtype=np.uint8)
        right = np.unpackbits(packed, count=int(num_images.sum())).astype(bool)
        target = np.repeat(np.arange(len(num_images)), num_images)
        earlier: list[Any] = [np.empty(0, dtype=np.int64)] * (len(self.tasks) - 1)
        return Evaluations(
            predicted=[*earlier, np.where(right, target, -1)],
            target=[*earlier, target],
            task_of_class=np.repeat(np.arange(len(self.start.task_sizes)), self.start.task_sizes),
        )


def result_of(run: RunRecord, stream: str, row: str, command: str) -> dict[str, Any]:
    """Return all that is kept of a finished run, free of the paths of the machine it ran on."""
    if not run.finished:
        raise RunError(
            f"the run in {run.folder} ended after {len(run.tasks)} of {len(run.start.task_sizes)} tasks; "
            "finish it with the command that started it, then collect it"
        )
    run = replace(run, preset=without_paths(run.preset))
    settings = {key: value for key, value in run.preset.items() if key not in ("name", "description", "seed")}
    figures = summarise(run)
    names = ("average_accuracy", "final_accuracy", "forgetting", "backward_transfer", "new_task_accuracy")
    result: dict[str, Any] = {
        "stream": stream,
        "row": row,
        "seed": run.preset["seed"],
        "preset": run.preset["name"],
        "method": run.method,
        "head": run.head,
        "evaluate_on": run.preset.get("stream", {}).get("evaluate_on", "test"),
        "num_tasks": len(run.tasks),
        **{name: figures[name] for name in names},  # type: ignore[literal-required]
        "seen_accuracy": [_rounded(task.seen, 6) for task in run.tasks],
        "accuracy_matrix": [[_rounded(value, 4) for value in task.per_task] for task in run.tasks],
        "capacity_used": [_rounded(task.capacity_used, 6) for task in run.tasks],
        "num_coordinates": run.start.num_coordinates,
        "num_trained": run.num_trained,
        "num_stored": [task.num_stored for task in run.tasks],
        "passes_per_image": run.tasks[-1].passes_per_image,
        "peak_memory": [task.peak_memory for task in run.tasks],
        "seconds": {
            "learn": [round(task.learn_seconds, 2) for task in run.tasks],
            "evaluate": [round(task.evaluate_seconds, 2) for task in run.tasks],
        },
        "command": command,
        "started": datetime.fromtimestamp(run.start.time, UTC).isoformat(timespec="seconds"),
        "environment": dict(run.environment),
        "backbone_hash": run.start.backbone_hash,
        # Runs from before the commit was recorded have none.
        "commit": run.environment.get("commit"),
        "settings_hash": settings_hash(settings),
        "settings": settings,
        "task_sizes": list(run.start.task_sizes),
        "classes": list(run.start.classes),
        "final_answers": _answers(run),
    }
    refuse_paths(result, run.folder)
    return result


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON with each list of numbers on one line."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    write_text(path, re.sub(r"\[[^\[\]{}]+\]", lambda found: re.sub(r"\n\s*", "", found[0]), text) + "\n")


def read_result(path: Path) -> StoredRun:
    """Read a result as a record, as far as tables and plots need it."""
    try:
        result = json.loads(path.read_bytes())
        return _record(path, result)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise RunError(f"{path} is no result of a run ({error!r}); collect the run again") from None


def without_paths(preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset in which every path is reduced to its last part."""
    return {key: _clean(value, key) for key, value in preset.items()}


def refuse_paths(result: Mapping[str, Any], folder: Path) -> None:
    """Refuse what still names a folder of the machine."""
    told = {key: value for key, value in result.items() if key not in ("classes", "final_answers")}
    for key, value in flatten(told).items():
        if PATH.search(value):
            raise RunError(f"{folder} names a path in '{key}' ({value}); repeat it without that path")


def _clean(value: Any, key: str) -> Any:
    """Return a value with the last part of what is a path in it."""
    if isinstance(value, dict):
        return {name: _clean(inner, f"{key}.{name}") for name, inner in value.items()}
    if key == "overrides":
        return [_clean_override(str(each)) for each in value]
    if isinstance(value, list):
        return [_clean(each, key) for each in value]
    return _clean_text(value, key) if isinstance(value, str) else value


def _clean_text(text: str, key: str) -> str:
    """Return a text with the last part of each path in it."""
    is_absolute = PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()
    if key in PATH_KEYS or is_absolute:
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    return PATH.sub(r"\1", text)


def _clean_override(override: str) -> str:
    """Return an override whose value is no path."""
    key, _, value = override.partition("=")
    bare = value.strip().strip("\"'")
    clean = _clean_text(bare, key.strip())
    return override if clean == bare else f"{key}={clean}"


def _answers(run: RunRecord) -> dict[str, Any] | None:
    """Return which test images were right after the last task, class by class, or nothing without predictions."""
    try:
        last = replace(run, tasks=run.tasks[-1:]).evaluations
    except RunError:
        return None
    target, predicted = last.target[0], last.predicted[0]
    order = np.argsort(target, kind="stable")
    return {
        "num_images": np.bincount(target, minlength=len(run.start.classes)).tolist(),
        "right": base64.b64encode(np.packbits((predicted == target)[order]).tobytes()).decode(),
    }


def _record(path: Path, result: Mapping[str, Any]) -> StoredRun:
    """Build the record of a run from its result."""
    seconds = result["seconds"]
    tasks = [
        TaskEvent(
            task=index,
            seen=result["seen_accuracy"][index],
            new=per_task[-1],
            first=per_task[0],
            per_task=tuple(per_task),
            capacity_used=result["capacity_used"][index],
            learn_seconds=seconds["learn"][index],
            evaluate_seconds=seconds["evaluate"][index],
            num_stored=result["num_stored"][index],
            passes_per_image=result["passes_per_image"],
            peak_memory=result["peak_memory"][index],
        )
        for index, per_task in enumerate(result["accuracy_matrix"])
    ]
    start = StartEvent(
        time=datetime.fromisoformat(result["started"]).timestamp(),
        method=str(result["method"]),
        classes=tuple(result["classes"]),
        task_sizes=tuple(result["task_sizes"]),
        num_coordinates=result["num_coordinates"],
        backbone_hash=result["backbone_hash"],
    )
    return StoredRun(
        folder=path,
        preset={
            "name": str(result["preset"]),
            "seed": int(result["seed"]),
            "method": result["settings"]["method"],
            "backbone": result["settings"].get("backbone"),
            **telling(result["settings"]),
        },
        environment=result["environment"],
        start=start,
        phases=(PhaseEvent(task=0, phase="all", num_trained=result["num_trained"], loss=(), seconds=0),),
        tasks=tuple(tasks),
        finished=True,
        result=result,
    )


def _rounded(value: float | None, digits: int) -> float | None:
    """A number with so many digits, and null for what is none."""
    return None if value is None or np.isnan(value) else round(float(value), digits)
