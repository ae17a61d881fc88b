"""Figures for people: one sheet of strings, shown as a rich table or Markdown."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from clare.metrics.bootstrap import Interval
from clare.plain import plain
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
    return NONE if number is None else _in_thousands(number, ("", " k", " M", " G"))


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def amount(num_bytes: float | None) -> str:
    """Memory with two or three digits."""
    return NONE if num_bytes is None else _in_thousands(num_bytes, (" B", " kB", " MB", " GB"))


def _in_thousands(number: float, units: Sequence[str]) -> str:
    """A number in the largest of these units, each a thousand times the one before, that it fills."""
    power = max((power for power in range(1, len(units)) if number >= 1000**power), default=0)
    return f"{number / 1000**power:.{int(power > 0 and number < 10 * 1000**power)}f}{units[power]}"


def is_number(value: Any) -> bool:
    """Whether a value has an order and a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def state(run: RunRecord) -> str:
    """How far a run came, and nothing when it is finished."""
    return "" if run.finished else f"{len(run.tasks)} of {len(run.start.task_sizes)} tasks"


def kept(run: RunRecord) -> str:
    """What a run keeps of training pictures, in words, and nothing where it keeps none."""
    last = run.tasks[-1] if run.tasks else None
    return f"keeps {last.num_pictures:,} pictures, {amount(last.picture_bytes)}" if last and last.num_pictures else ""


def task_sheet(run: RunRecord) -> Sheet:
    """What was measured after each task of a run."""
    rows = []
    for task, num_classes in zip(run.tasks, run.num_classes_seen, strict=True):
        shares = map(percent, (task.seen, task.new, task.first, task.given, task.task_right, task.capacity_used))
        rows.append((str(task.task + 1), str(num_classes), *shares, duration(task.seconds)))
    remark = ", ".join(filter(None, [state(run), kept(run)]))
    title = f"{run.method} ({remark}), in percent" if remark else f"{run.method}, in percent"
    header = ("Task", "Classes", "Seen", "New", "First", "Given", "Task right", "Adapter used", "Time")
    return Sheet(title, header, tuple(rows))


def phase_sheet(run: RunRecord) -> Sheet:
    """Each training phase of a run over all its tasks."""
    names = dict.fromkeys(phase.phase for phase in run.phases)
    rows = []
    for name in names:
        phases = [phase for phase in run.phases if phase.phase == name]
        ends = ([phase.loss[end] for phase in phases if phase.loss] for end in (0, -1))
        losses = [f"{sum(found) / len(found):.3f}" if found else NONE for found in ends]
        rows.append((name, str(len(phases)), *losses, duration(sum(phase.seconds for phase in phases))))
    return Sheet("Phases", ("Phase", "Tasks", "First loss", "Last loss", "Time"), tuple(rows))


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
    return csv_text([list(rows[0]), *([row[key] for key in rows[0]] for row in rows)])


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    """Lines of cells as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _escape_markdown(cell: str) -> str:
    """Keep a cell in its column and free of markup."""
    for character in "\\|*`<":
        cell = cell.replace(character, f"\\{character}")
    # Figures have brackets too; only what follows them makes a link.
    cell = plain(cell).replace("](", "]\\(")
    return " ".join(cell.split())
