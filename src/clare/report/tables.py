"""Figures for people: one sheet of strings, shown as a rich table or Markdown."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from clare.metrics.bootstrap import STATISTICS, Interval, Statistic
from clare.metrics.summary import summarise
from clare.plain import plain
from clare.report.groups import Standing, compare
from clare.report.record import RunRecord

NONE = "-"


@dataclass(frozen=True)
class Sheet:
    """A titled table of strings; the first column names the row, the others are figures; marked rows stand out."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    values: tuple[tuple[float | None, ...], ...] = ()
    """The numbers behind the figures, cell by cell, by which a reader may sort the rows; none where not known."""


def percent(value: float | None) -> str:
    """A fraction as percent with one decimal."""
    return NONE if value is None or math.isnan(value) else f"{100 * value:.1f}"


def points(interval: Interval) -> str:
    """A difference in percentage points with its interval."""
    return f"{100 * interval.difference:+.1f} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"


def count(number: int | None) -> str:
    """A count with two or three digits."""
    if number is None:
        return NONE
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= 10 * size:
            return f"{number / size:.0f} {letter}"
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return str(number)


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def amount(num_bytes: float | None) -> str:
    """Memory with two or three digits."""
    if num_bytes is None:
        return NONE
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= 10 * size:
            return f"{num_bytes / size:.0f} {unit}"
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def state(run: RunRecord) -> str:
    """How far a run came, and nothing when it is finished."""
    return "" if run.finished else f"{len(run.tasks)} of {len(run.start.task_sizes)} tasks"


def task_sheet(run: RunRecord) -> Sheet:
    """What was measured after each task of a run."""
    rows = tuple(
        (
            str(task.task + 1),
            str(num_classes),
            percent(task.seen),
            percent(task.new),
            percent(task.first),
            percent(task.capacity_used),
            duration(task.seconds),
        )
        for task, num_classes in zip(run.tasks, run.num_classes_seen, strict=True)
    )
    remark = state(run)
    title = f"{run.method} ({remark}), in percent" if remark else f"{run.method}, in percent"
    header = ("Task", "Classes", "Seen", "New", "First", "Adapter used", "Time")
    return Sheet(title, header, rows)


def comparison_sheet(comparisons: Sequence[Standing], differences: Sequence[Statistic] = tuple(STATISTICS)) -> Sheet:
    """The figures of each run in percent, and those differences to the reference that are asked for, in points."""
    rows, values = [], []
    for each in comparisons:
        remark, summary = state(each.run), summarise(each.run)
        cells = [f"{each.group.label} ({remark})" if remark else each.group.label]
        cells += [percent(summary[name]) for name in STATISTICS]
        cells += [points(each.intervals[name]) if each.intervals else NONE for name in differences]
        if each.note:
            cells[1 + len(STATISTICS)] = each.note
        rows.append(tuple(cells))
        bounds = [each.intervals[name].difference if each.intervals else None for name in differences]
        values.append((None, *(summary[name] for name in STATISTICS), *bounds))
    names = {"average_accuracy": "Average", "final_accuracy": "Final", "forgetting": "Forgetting"}
    header = ("Method", *(names[name] for name in STATISTICS), *(f"Δ {names[name].lower()}" for name in differences))
    marked = frozenset(index for index, each in enumerate(comparisons) if each.note == "reference")
    return Sheet("Comparison in percent, differences in points", header, tuple(rows), marked, tuple(values))


def phase_sheet(run: RunRecord) -> Sheet:
    """Each training phase of a run over all its tasks."""
    names = dict.fromkeys(phase.phase for phase in run.phases)
    rows = []
    for name in names:
        phases = [phase for phase in run.phases if phase.phase == name]
        trained = [phase for phase in phases if phase.loss]
        first = sum(phase.loss[0] for phase in trained) / len(trained) if trained else None
        last = sum(phase.loss[-1] for phase in trained) / len(trained) if trained else None
        losses = tuple(NONE if loss is None else f"{loss:.3f}" for loss in (first, last))
        rows.append((name, str(len(phases)), *losses, duration(sum(phase.seconds for phase in phases))))
    return Sheet("Phases", ("Phase", "Tasks", "First loss", "Last loss", "Time"), tuple(rows))


def task_table(run: RunRecord) -> Table:
    """What was measured after each task of a run, for the terminal."""
    return to_rich(task_sheet(run))


def comparison_table(runs: Sequence[RunRecord], reference: str | None = None, seed: int = 0) -> Table:
    """Runs side by side with their differences in accuracy to the reference method, for the terminal."""
    comparisons = compare(runs, reference, seed)
    # A third interval would not fit into eighty columns.
    return to_rich(comparison_sheet(comparisons, ("average_accuracy", "final_accuracy")))


def to_rich(sheet: Sheet) -> Table:
    """Show a sheet as a rich table."""
    table = Table(title=Text(sheet.title), box=box.SIMPLE_HEAD, pad_edge=False)
    for column, name in enumerate(sheet.header):
        justify: Literal["left", "right"] = "right" if column else "left"
        table.add_column(Text(name), justify=justify, no_wrap=column > 0)
    for index, row in enumerate(sheet.rows):
        # Text, not str: rich would take brackets in a name for markup.
        cells = [Text(cell.replace(" [", "\n[").replace(" ±", "\n±")) for cell in row]
        table.add_row(*cells, style="bold" if index in sheet.marked else None)
    return table


def to_markdown(sheet: Sheet) -> str:
    """Show a sheet as a Markdown table."""
    rule = "|".join(["", ":---", *["---:"] * (len(sheet.header) - 1), ""])
    lines = [[_escape_markdown(cell) for cell in line] for line in (sheet.header, *sheet.rows)]
    for index in sheet.marked:
        lines[1 + index][0] = f"**{lines[1 + index][0]}**"
    shown = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"**{_escape_markdown(sheet.title)}**", "", shown[0], rule, *shown[1:]]) + "\n"


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as CSV; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _escape_markdown(cell: str) -> str:
    """Keep a cell in its column and free of markup."""
    for character in "\\|*`<":
        cell = cell.replace(character, f"\\{character}")
    # Figures have brackets too; only what follows them makes a link.
    cell = plain(cell).replace("](", "]\\(")
    return " ".join(cell.split())
