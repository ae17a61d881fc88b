"""A grid of settings as a table, as files for other programs, and as a curve over the number that was swept."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from clare.files import write_json, write_text
from clare.metrics.bootstrap import STATISTICS, Statistic
from clare.metrics.summary import summarise
from clare.report.charts import Chart, Curve
from clare.report.figure_files import write_figure
from clare.report.groups import Spread, spread
from clare.report.plots import chart_figure
from clare.report.record import RunRecord
from clare.report.standings import Failure, spread_percent
from clare.report.styles import COLOURS, DASHES, NUM_MARKERS, Style
from clare.report.tables import NONE, Sheet, to_csv, to_markdown

DEFINITIONS = (
    "Average: the mean of the accuracies over all seen classes after each task. "
    "Final: the accuracy over all classes after the last task. "
    "Forgetting: how far a task has fallen from its best accuracy by the end, averaged over all tasks but the last. "
    "±, and the band around a line: the standard deviation over seeds. The best final accuracy comes first."
)
MAX_LINES = 2 * len(COLOURS)
MAX_TICKS = 7
LOGARITHMIC_FROM = 50
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@dataclass(frozen=True)
class SweepRow:
    """One setting of a grid with its finished runs, one for each seed, and how many were wanted."""

    method: str
    values: Mapping[str, Any]
    runs: tuple[RunRecord, ...]
    num_wanted: int

    @cached_property
    def figures(self) -> dict[Statistic, Spread]:
        """Mean and deviation of each figure over the seeds."""
        summaries = [summarise(run) for run in self.runs]
        return {name: spread([summary[name] for summary in summaries]) for name in STATISTICS}


@dataclass(frozen=True)
class Sweep:
    """All rows of a grid, the settings of which several values were tried, and what failed."""

    title: str
    swept: Mapping[str, Sequence[Any]]
    rows: tuple[SweepRow, ...]
    failures: tuple[Failure, ...]

    @cached_property
    def ranked(self) -> list[SweepRow]:
        """The rows by final accuracy, the best first and those without a finished run last."""
        return sorted(self.rows, key=_order)

    @property
    def methods(self) -> list[str]:
        """The methods of the grid, each once."""
        return list(dict.fromkeys(row.method for row in self.rows))


def _order(row: SweepRow) -> float:
    """Sort by final accuracy, the best first."""
    final = row.figures["final_accuracy"].mean
    return math.inf if final is None else -final


def sweep_sheet(sweep: Sweep) -> Sheet:
    """The settings of a grid with their figures over seeds, the best first."""
    has_methods = len(sweep.methods) > 1 or not sweep.swept
    header = (
        *(["Method"] if has_methods else []),
        *_columns(list(sweep.swept)),
        "Seeds",
        "Average",
        "Final",
        "Forgetting",
    )
    rows = []
    for row in sweep.ranked:
        values = [_shown(row.values[key]) if key in row.values else NONE for key in sweep.swept]
        num_runs = len(row.runs)
        seeds = str(num_runs) if num_runs == row.num_wanted else f"{num_runs} of {row.num_wanted}"
        figures = [spread_percent(row.figures[name]) for name in STATISTICS] if row.runs else ["failed", NONE, NONE]
        rows.append((*([row.method] if has_methods else []), *values, seeds, *figures))
    marked = frozenset([0] if sweep.ranked and sweep.ranked[0].runs else [])
    return Sheet(f"{sweep.title}, in percent", header, tuple(rows), marked)


def _columns(keys: Sequence[str]) -> list[str]:
    """Name each setting by the last part of its key, for which a terminal has room, unless another ends the same."""
    ends = Counter(key.rpartition(".")[2] for key in keys)
    return [end if ends[end := key.rpartition(".")[2]] == 1 else _short(key) for key in keys]


def write_sweep(sweep: Sweep, facts: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write sweep.json, sweep.csv, sweep.md and, where a number was swept, sweep.png and sweep.svg."""
    write_json(folder / "sweep.json", {**facts, "swept": _plain(sweep.swept), **_as_json(sweep)})
    write_text(folder / "sweep.csv", to_csv([_line(sweep, row) for row in sweep.ranked]))
    paths = [folder / "sweep.json", folder / "sweep.csv", folder / "sweep.md"]
    parts = [f"# {sweep.title}", to_markdown(sweep_sheet(sweep)).rstrip()]
    parts += ["\n".join(f"- {each.label} failed: {each.reason}" for each in sweep.failures)] if sweep.failures else []
    figure = sweep_figure(sweep)
    if figure is not None:
        parts.append("![Final accuracy over the swept setting](sweep.png)")
        paths += write_figure(figure, folder, "sweep")
    write_text(folder / "sweep.md", "\n\n".join([*parts, DEFINITIONS]) + "\n")
    return paths


def sweep_figure(sweep: Sweep) -> Figure | None:
    """Final accuracy against the number with the most values; every other choice is a line of its own."""
    numbers = [key for key, values in sweep.swept.items() if all(map(_is_number, values))]
    if not 1 <= len(numbers) <= 2:
        return None
    across = max(numbers, key=lambda key: len(sweep.swept[key]))
    lines: dict[str, list[SweepRow]] = {}
    for row in sweep.rows:
        if row.runs:
            lines.setdefault(_line_label(sweep, row, across), []).append(row)
    if not 1 <= len(lines) <= MAX_LINES or all(across not in row.values for rows in lines.values() for row in rows):
        return None
    places = sorted(float(value) for value in sweep.swept[across])
    curves = tuple(_curve(label, rows, across, places) for label, rows in lines.items())
    chart = Chart("sweep", "", "", _short(across), "final accuracy (%)", "percent", curves)
    figure = chart_figure(chart, {curve.label: _look(index) for index, curve in enumerate(curves)})
    _mark_places(figure.axes[0], places)
    return figure


def _line_label(sweep: Sweep, row: SweepRow, across: str) -> str:
    """Name what a line has in common: its method, where there are several, and its other values."""
    words = [row.method] if len(sweep.methods) > 1 else []
    others = [key for key in sweep.swept if key != across and key in row.values]
    return ", ".join([*words, *(f"{_short(key)} {_shown(row.values[key])}" for key in others)]) or row.method


def _curve(label: str, rows: Sequence[SweepRow], across: str, places: Sequence[float]) -> Curve:
    """The means of one line; a method without the setting keeps its level over all places."""
    if across not in rows[0].values:
        level = 100 * (rows[0].figures["final_accuracy"].mean or 0.0)
        return Curve(label, tuple(places), (level,) * len(places), None)
    ordered = sorted(rows, key=lambda row: float(row.values[across]))
    finals = [row.figures["final_accuracy"] for row in ordered]
    deviations = tuple(100 * (final.deviation or 0.0) for final in finals)
    return Curve(
        label,
        tuple(float(row.values[across]) for row in ordered),
        tuple(100 * (final.mean or 0.0) for final in finals),
        deviations if any(deviations) else None,
    )


def _look(index: int) -> Style:
    """Tell lines apart by colour and marker, and those beyond the colours by their dashes too."""
    turn, colour = divmod(index, len(COLOURS))
    return Style(colour, index % NUM_MARKERS, turn % len(DASHES), is_strong=False)


def _mark_places(axes: Axes, places: Sequence[float]) -> None:
    """Write the values that were tried below the axis, which is logarithmic where they lie far apart."""
    if places[0] > 0 and places[-1] >= LOGARITHMIC_FROM * places[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    if len(places) <= MAX_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    elif axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(MAX_TICKS))


def _as_json(sweep: Sweep) -> dict[str, Any]:
    """All settings with their figures and runs, and what failed."""
    settings = [
        {
            "method": row.method,
            "settings": _plain(row.values),
            "seeds": [int(run.preset["seed"]) for run in row.runs],
            **{name: _pair(figure) for name, figure in row.figures.items()},
            "runs": [_run(run) for run in row.runs],
        }
        for row in sweep.ranked
    ]
    return {"settings": settings, "failures": [{"run": each.label, "reason": each.reason} for each in sweep.failures]}


def _run(run: RunRecord) -> dict[str, Any]:
    """The figures of one run."""
    summary = summarise(run)
    figures: dict[str, Any] = {name: summary[name] for name in STATISTICS}
    return {"folder": run.folder.name, "seed": int(run.preset["seed"]), **figures, "seconds": summary["seconds"]}


def _line(sweep: Sweep, row: SweepRow) -> dict[str, Any]:
    """One setting of the CSV file, figures as fractions."""
    values = {key: _shown(row.values[key]) if key in row.values else "" for key in sweep.swept}
    figures = {f"{name}_{part}": value for name in STATISTICS for part, value in _pair(row.figures[name]).items()}
    return {"method": row.method, **values, "num_seeds": len(row.runs), **figures}


def _pair(figure: Spread) -> dict[str, float | None]:
    """A mean and its deviation, rounded to six digits."""
    return {
        "mean": None if figure.mean is None else round(figure.mean, 6),
        "deviation": None if figure.deviation is None else round(figure.deviation, 6),
    }


def _plain(values: Mapping[str, Any]) -> Any:
    """Values as JSON has them."""
    return json.loads(json.dumps(dict(values), default=str))


def _shown(value: Any) -> str:
    """A value as people write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _short(key: str) -> str:
    """A key without the section that most have."""
    return key.removeprefix("method.")


def _is_number(value: Any) -> bool:
    """Whether a value has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
