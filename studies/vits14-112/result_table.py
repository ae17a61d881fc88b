"""All results as one table, results.csv, which the pages are made of: one line per run."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from collect_results import PLACES
from result_files import StoredRun, read_result
from study import Study, settings_hash

from clare.errors import RunError
from clare.files import write_text
from clare.report.groups import Spread, spread

TABLE = "results.csv"
FIGURES = ("average_accuracy", "final_accuracy", "forgetting", "backward_transfer", "new_task_accuracy")
COSTS = ("num_trained", "num_stored", "passes_per_image", "num_coordinates", "peak_memory", "seconds")
LISTS = ("seen_accuracy", "learn_seconds", "task_memory")
"""Columns with one number per task, separated by spaces; empty where one is not known."""
COLUMNS = (
    *("stream", "row", "images", "seed", "method", "head", "num_tasks"),
    *FIGURES,
    *COSTS,
    *("capacity_used", "num_test_images", "shared_device", "device", "precision", "clare", "torch", "started"),
    *("commit", "settings_hash"),
    *LISTS,
)


@dataclass(frozen=True)
class Line:
    """One run as the table tells it."""

    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]

    def number(self, column: str) -> float | None:
        """A figure, or nothing where it is not known."""
        return float(self.values[column]) if self.values[column] else None

    def numbers(self, column: str) -> list[float]:
        """The figures of all tasks."""
        return [float(word) for word in self.values[column].split()]

    @property
    def seed(self) -> int:
        """The seed of the class order and of every draw."""
        return int(self.values["seed"])


@dataclass(frozen=True)
class Entry:
    """A row on a stream: its runs, one for each seed."""

    stream: str
    row: str
    lines: tuple[Line, ...]

    def __getitem__(self, column: str) -> str:
        return self.lines[0][column]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were run."""
        return tuple(line.seed for line in self.lines)

    def spread(self, column: str, seeds: Sequence[int] | None = None) -> Spread:
        """Mean and deviation of a figure over all seeds, or over some."""
        return spread([line.number(column) for line in self.lines if seeds is None or line.seed in seeds])

    @cached_property
    def final(self) -> float:
        """The mean of the final accuracies over all seeds."""
        return statistics.fmean(float(line["final_accuracy"]) for line in self.lines)


@dataclass(frozen=True)
class Table:
    """All runs on test images and on validation images."""

    lines: tuple[Line, ...]

    def entries(self, images: str = "test", stream: str | None = None) -> list[Entry]:
        """The rows that were run on some images, on one stream or on all."""
        together: dict[tuple[str, str], list[Line]] = {}
        for line in self.lines:
            if line["images"] == images and stream in (None, line["stream"]):
                together.setdefault((line["stream"], line["row"]), []).append(line)
        return [Entry(*key, tuple(lines)) for key, lines in together.items()]

    def find(self, stream: str, row: str) -> Entry | None:
        """Return what was measured of a row on the test images of a stream."""
        return next((entry for entry in self.entries("test", stream) if entry.row == row), None)


def line_of(run: StoredRun, images: str) -> dict[str, str]:
    """Return the line of one run."""
    result = run.result
    memory = [value for value in result["peak_memory"] if value is not None]
    learn, evaluate = result["seconds"]["learn"], result["seconds"]["evaluate"]
    environment = result["environment"]
    whole: dict[str, Any] = {
        **{name: result[name] for name in ("stream", "row", "seed", "method", "num_tasks", *FIGURES)},
        # Records of before name their heads as they were called then.
        "head": run.head,
        "images": images,
        "num_trained": result["num_trained"],
        "num_stored": result["num_stored"][-1],
        "passes_per_image": result["passes_per_image"],
        "num_coordinates": result["num_coordinates"],
        "peak_memory": max(memory, default=None),
        "seconds": round(sum(learn) + sum(evaluate), 2),
        "capacity_used": result["capacity_used"][-1],
        "num_test_images": run.num_test_images,
        "shared_device": str(bool(result.get("shared_device"))).lower(),
        **{name: environment.get(name) for name in ("device", "precision", "clare", "torch")},
        **{name: result[name] for name in ("started", "commit", "settings_hash")},
        "seen_accuracy": " ".join(map(str, result["seen_accuracy"])),
        "learn_seconds": " ".join(map(str, learn)),
        "task_memory": " ".join(map(str, memory)) if len(memory) == len(learn) else "",
    }
    return {name: "" if whole[name] is None else str(whole[name]) for name in COLUMNS}


def make_table(home: Path, study: Study) -> str:
    """Return the table of all results below a folder as CSV, in the order of the study's streams and rows."""
    order = {name: place for place, name in enumerate([*study.titles, *study.rows])}
    lines = []
    for images, place in PLACES.items():
        for path in sorted((home / place).glob("*/*/*.json")):
            run = read_result(path)
            _check(path, run, study)
            lines.append(line_of(run, images))
    lines.sort(key=lambda line: (line["images"], order[line["stream"]], order[line["row"]], int(line["seed"])))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _check(path: Path, run: StoredRun, study: Study) -> None:
    """Refuse a result that is not what its place and its hash say."""
    result = run.result
    study.row(result["row"])
    told = (result["stream"], result["row"], f"{result['seed']}.json")
    if path.parts[-3:] != told or result["stream"] not in study.titles:
        raise RunError(f"{path} says that it is {'/'.join(told)}; put it where it belongs")
    if result["settings_hash"] != settings_hash(result["settings"]):
        raise RunError(f"the settings in {path} are not those of its settings_hash; restore the file")


def write_table(home: Path, study: Study) -> None:
    """Write the table beside the results."""
    write_text(home / TABLE, make_table(home, study))


def read_table(text: str) -> Table:
    """Read the table."""
    return Table(tuple(Line(values) for values in csv.DictReader(io.StringIO(text))))
