"""How far one row is ahead of another in final accuracy, over the seeds that both have.

Intervals are those of `clare compare`. They take a while, so they are kept in intervals.csv and computed anew when a
run behind them changes.
"""

import csv
import hashlib
import io
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from collect_results import PLACES
from result_files import StoredRun, read_result
from result_table import Entry, Line, Table

from clare.files import write_text
from clare.metrics.bootstrap import Pair
from clare.report.groups import FINAL, intervals_of

KEPT = "intervals.csv"
COLUMNS = ("stream", "row", "other", "runs", "low", "high")
NORMAL_QUANTILE = 1.959964
"""Half the width of a 95 % interval in standard deviations."""


@dataclass(frozen=True)
class Difference:
    """How far one row is ahead of another, with both accuracies over the same seeds and a 95 % interval over images."""

    ours: float
    theirs: float
    by_seed: tuple[float, ...]
    interval: tuple[float, float] | None
    """Nothing where the number of test images is unknown."""
    is_paired: bool = True
    """Whether both answered the same drawn images; otherwise they are taken as independent."""

    @property
    def mean(self) -> float:
        """The mean over the seeds that both have."""
        return round(self.ours - self.theirs, 6)

    @property
    def deviation(self) -> float | None:
        """The standard deviation that belongs to the interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2 / NORMAL_QUANTILE

    def __str__(self) -> str:
        bounds = f" [{100 * self.interval[0]:+.1f}, {100 * self.interval[1]:+.1f}]" if self.interval else ""
        mark = "" if self.is_paired or self.interval is None else " unpaired"
        return f"{100 * self.mean:+.1f}{bounds}{mark}"


@dataclass
class Differences:
    """The differences between the rows of a table; intervals that are known are not computed again."""

    home: Path
    table: Table
    known: dict[tuple[str, str, str, str], tuple[float, float]] = field(default_factory=dict)
    used: set[tuple[str, str, str, str]] = field(default_factory=set)

    def between(self, entry: Entry, other: Entry) -> Difference | None:
        """Return how far an entry is ahead of another, or nothing when they share no seed."""
        pairs = [(mine, each) for mine in entry.lines for each in other.lines if mine.seed == each.seed]
        if not pairs:
            return None
        finals = [[float(line["final_accuracy"]) for line in pair] for pair in pairs]
        ours, theirs = (statistics.fmean(column) for column in zip(*finals, strict=True))
        is_paired = all(line["num_test_images"] for pair in pairs for line in pair)
        interval = self._paired(entry, other, pairs) if is_paired else self._unpaired(pairs, ours - theirs)
        return Difference(ours, theirs, tuple(round(a - b, 6) for a, b in finals), interval, is_paired)

    def _paired(self, entry: Entry, other: Entry, pairs: list[tuple[Line, Line]]) -> tuple[float, float]:
        """Return the interval when test images are drawn again, for both rows and all seeds at once."""
        key = (entry.stream, entry.row, other.row, _digest(pairs))
        if key not in self.known:
            runs = [(self._read(mine), self._read(each)) for mine, each in pairs]
            answers = [Pair(run.evaluations, other.evaluations, run.start.classes) for run, other in runs]
            found = intervals_of(answers, FINAL)["final_accuracy"]
            self.known[key] = (round(found.low, 6), round(found.high, 6))
        self.used.add(key)
        return self.known[key]

    def _read(self, line: Line) -> StoredRun:
        """Read the answers of a run."""
        return read_result(self.home / PLACES[line["images"]] / line["stream"] / line["row"] / f"{line.seed}.json")

    def _unpaired(self, pairs: list[tuple[Line, Line]], mean: float) -> tuple[float, float] | None:
        """Return the interval of runs of which only the accuracies are known.

        Both runs answer the same images, mostly alike, so that this is rather too wide; so is taking seeds as one draw.
        """
        stream = pairs[0][0]["stream"]
        # A run whose answers were not kept met the same test images as the others on its stream.
        numbers = [line["num_test_images"] for entry in self.table.entries("test", stream) for line in entry.lines]
        number = next((int(each) for each in numbers if each), None)
        if number is None:
            return None
        accuracies = [[float(line["final_accuracy"]) for line in pair] for pair in pairs]
        deviation = statistics.fmean(math.sqrt(sum(a * (1 - a) / number for a in pair)) for pair in accuracies)
        return round(mean - NORMAL_QUANTILE * deviation, 6), round(mean + NORMAL_QUANTILE * deviation, 6)

    def kept(self) -> str:
        """The intervals that were asked for, as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*key, *self.known[key]] for key in sorted(self.used))
        return text.getvalue()

    def write(self) -> None:
        """Keep the intervals that were asked for."""
        write_text(self.home / KEPT, self.kept())


def open_differences(home: Path, table: Table) -> Differences:
    """Return the differences of a table with the intervals that were kept."""
    path = home / KEPT
    lines = csv.DictReader(io.StringIO(path.read_text() if path.is_file() else ""))
    known = {
        (line["stream"], line["row"], line["other"], line["runs"]): (float(line["low"]), float(line["high"]))
        for line in lines
    }
    return Differences(home, table, known)


def _digest(pairs: list[tuple[Line, Line]]) -> str:
    """Name the runs behind an interval."""
    told = [[line[name] for name in ("row", "seed", "started", "final_accuracy")] for pair in pairs for line in pair]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]
