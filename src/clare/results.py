"""Finished and unfinished runs as one table for pandas: one row per run and task."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clare.errors import RunError
from clare.identity import flat
from clare.position import RECORD
from clare.report.record import RunRecord, read_run

if TYPE_CHECKING:
    from pandas import DataFrame

NOT_SETTINGS = ("name", "description", "seed", "overrides")
COSTS = (
    *("capacity_used", "num_stored", "passes_per_image", "num_pictures", "picture_bytes"),
    *("learn_seconds", "evaluate_seconds", "peak_memory"),
)
"""What is taken over from the record of a task as it is."""
RECORDED = ("clare", "commit", "torch", "device", "precision")


def load(*folders: str | Path) -> "DataFrame":
    """Read all runs at or below folders into a pandas table, one row per run and task."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise RunError(
            "clare.results.load needs the package pandas, which is missing; run pip install 'clare[pandas]'"
        ) from None
    return DataFrame([row for folder in _runs_below(folders) for row in rows_of(read_run(folder))])


def rows_of(run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield what was measured after each task of a run, with what the run is and its settings under dotted names."""
    of_run = {
        "run": str(run.folder),
        "preset": run.preset["name"],
        "method": run.method,
        "head": run.head,
        "seed": run.preset["seed"],
        "finished": run.finished,
        "num_tasks": len(run.start.task_sizes),
        "started": datetime.fromtimestamp(run.start.time, UTC),
        "backbone_hash": run.start.backbone_hash,
        **{name: run.environment.get(name) for name in RECORDED},
    }
    settings = {key: value for key, value in run.preset.items() if key not in NOT_SETTINGS}
    for task, num_classes in zip(run.tasks, run.num_classes_seen, strict=True):
        yield {
            **of_run,
            "task": task.task + 1,
            "num_classes": num_classes,
            "seen_accuracy": task.seen,
            "new_accuracy": task.new,
            "first_accuracy": task.first,
            "per_task": list(task.per_task),
            "given_accuracy": task.given,
            "task_right": task.task_right,
            **{name: getattr(task, name) for name in COSTS},
            # A table without settings has nothing to say, and pandas could not group by it.
            **{key: value for key, value in flat(settings) if value != {}},
        }


def _runs_below(folders: tuple[str | Path, ...]) -> list[Path]:
    """Return the folders of runs at or below folders, each once."""
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        records = sorted(folder.rglob(RECORD))
        if not records:
            raise RunError(f"there is no run in {folder}; give a folder below which `clare train` or `compare` wrote")
        found |= dict.fromkeys(record.parent.resolve() for record in records)
    return list(found)
