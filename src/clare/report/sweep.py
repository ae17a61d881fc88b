"""A grid of settings as a table, as files for other programs, and as a curve over the number that was swept."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from clare.files import write_json, write_text
from clare.metrics.bootstrap import STATISTICS
from clare.metrics.summary import summarise
from clare.report.charts import Chart, Curve
from clare.report.groups import Group, Spread
from clare.report.plots import COLOURS, DASHES, MARKERS, Style, chart_figure
from clare.report.standings import ACCURACIES, NAMES, Failure, rounded, spread_percent, to_page
from clare.report.tables import NONE, Sheet, is_number, to_csv
from clare.report.write import write_figure

DEFINITIONS = ACCURACIES + (
    "±, and the band around a line: the standard deviation over seeds. The best final accuracy comes first."
)
MAX_LINES = 2 * len(COLOURS)
MAX_TICKS = 7
LOGARITHMIC_FROM = 50
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@dataclass(frozen=True)
class SweepRow(Group):
    """One setting of the grid of a method, its label, with its finished runs: one for each seed of those wanted."""

    values: Mapping[str, Any]
    num_wanted: int


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
        return sorted(self.rows, key=lambda row: row.order)

    @property
    def methods(self) -> list[str]:
        """The methods of the grid, each once."""
        return list(dict.fromkeys(row.label for row in self.rows))


def sweep_sheet(sweep: Sweep) -> Sheet:
    """The settings of a grid with their figures over seeds, the best first."""
    has_methods = len(sweep.methods) > 1 or not sweep.swept
    # The last part of a key names a setting, for which a terminal has room, unless another ends the same.
    ends = Counter(key.rpartition(".")[2] for key in sweep.swept)
    columns = [end if ends[end := key.rpartition(".")[2]] == 1 else short_key(key) for key in sweep.swept]
    header = (*(["Method"] if has_methods else []), *columns, "Seeds", *NAMES.values())
    rows = []
    for row in sweep.ranked:
        values = [_shown(row.values[key]) if key in row.values else NONE for key in sweep.swept]
        num_runs = len(row.runs)
        seeds = str(num_runs) if num_runs == row.num_wanted else f"{num_runs} of {row.num_wanted}"
        figures = [spread_percent(row.figures[name]) for name in STATISTICS] if row.runs else ["failed", NONE, NONE]
        rows.append((*([row.label] if has_methods else []), *values, seeds, *figures))
    marked = frozenset([0] if sweep.ranked and sweep.ranked[0].runs else [])
    return Sheet(f"{sweep.title}, in percent", header, tuple(rows), marked)


def write_sweep(sweep: Sweep, facts: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write sweep.json, sweep.csv, sweep.md and, where a number was swept, sweep.png and sweep.svg."""
    failures = [{"run": each.label, "reason": each.reason} for each in sweep.failures]
    settings = list(map(_as_json, sweep.ranked))
    contents = {**facts, "swept": _plain(sweep.swept), "settings": settings, "failures": failures}
    write_json(folder / "sweep.json", contents)
    write_text(folder / "sweep.csv", to_csv([_line(sweep, row) for row in sweep.ranked]))
    paths, pictures = [folder / "sweep.json", folder / "sweep.csv", folder / "sweep.md"], []
    figure = sweep_figure(sweep)
    if figure is not None:
        pictures.append("![Final accuracy over the swept setting](sweep.png)")
        paths += write_figure(figure, folder, "sweep")
    write_text(folder / "sweep.md", to_page(sweep.title, [sweep_sheet(sweep)], sweep.failures, *pictures, DEFINITIONS))
    return paths


def sweep_figure(sweep: Sweep) -> Figure | None:
    """Final accuracy against the number with the most values; every other choice is a line of its own."""
    numbers = [key for key, values in sweep.swept.items() if all(map(is_number, values))]
    if not 1 <= len(numbers) <= 2:
        return None
    across = max(numbers, key=lambda key: len(sweep.swept[key]))
    lines: dict[str, list[SweepRow]] = {}
    for row in sweep.rows:
        if row.runs:
            # A line is named by what its rows have in common: their method, where there are several, and other values.
            others = [key for key in sweep.swept if key != across and key in row.values]
            words = [f"{short_key(key)} {_shown(row.values[key])}" for key in others]
            label = ", ".join([row.label, *words] if len(sweep.methods) > 1 or not words else words)
            lines.setdefault(label, []).append(row)
    if not 1 <= len(lines) <= MAX_LINES or all(across not in row.values for rows in lines.values() for row in rows):
        return None
    places = sorted(float(value) for value in sweep.swept[across])
    curves = tuple(_curve(label, rows, across, places) for label, rows in lines.items())
    chart = Chart("sweep", "", "", short_key(across), "final accuracy (%)", "percent", curves)
    # Lines are told apart by colour and marker, and those beyond the colours by their dashes too.
    turns = [(index, *divmod(index, len(COLOURS))) for index in range(len(curves))]
    styles = [Style(colour, index % len(MARKERS), turn % len(DASHES), False) for index, turn, colour in turns]
    figure = chart_figure(chart, {curve.label: style for curve, style in zip(curves, styles, strict=True)})
    axes = figure.axes[0]
    # The values that were tried stand below the axis, which is logarithmic where they lie far apart.
    if places[0] > 0 and places[-1] >= LOGARITHMIC_FROM * places[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    if len(places) <= MAX_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    elif axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(MAX_TICKS))
    return figure


def _curve(label: str, rows: Sequence[SweepRow], across: str, places: Sequence[float]) -> Curve:
    """The means of one line; a method without the setting keeps its level over all places."""
    finals = dict.fromkeys(places, Spread(rows[0].figures["final_accuracy"].mean, None))
    if across in rows[0].values:
        ordered = sorted(rows, key=lambda row: float(row.values[across]))
        finals = {float(row.values[across]): row.figures["final_accuracy"] for row in ordered}
    means = tuple(100 * (final.mean or 0.0) for final in finals.values())
    deviations = tuple(100 * (final.deviation or 0.0) for final in finals.values())
    return Curve(label, tuple(finals), means, deviations if any(deviations) else None)


def _as_json(row: SweepRow) -> dict[str, Any]:
    """A setting with its figures and those of its runs."""
    found: list[Mapping[str, Any]] = [*map(summarise, row.runs)]
    return {
        "method": row.label,
        "settings": _plain(row.values),
        "seeds": row.seeds,
        **{name: _pair(figure) for name, figure in row.figures.items()},
        "runs": [
            {"folder": run.folder.name, "seed": seed, **{name: each[name] for name in (*STATISTICS, "seconds")}}
            for run, seed, each in zip(row.runs, row.seeds, found, strict=True)
        ],
    }


def _line(sweep: Sweep, row: SweepRow) -> dict[str, Any]:
    """One setting of the CSV file, figures as fractions."""
    values = {key: _shown(row.values[key]) if key in row.values else "" for key in sweep.swept}
    figures = {f"{name}_{part}": value for name in STATISTICS for part, value in _pair(row.figures[name]).items()}
    return {"method": row.label, **values, "num_seeds": len(row.runs), **figures}


def _pair(figure: Spread) -> dict[str, float | None]:
    """A mean and its deviation, rounded to six digits."""
    return {name: rounded(value) for name, value in figure._asdict().items()}


def _plain(values: Mapping[str, Any]) -> Any:
    """Values as JSON has them."""
    return json.loads(json.dumps(dict(values), default=str))


def _shown(value: Any) -> str:
    """A value as people write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def short_key(key: str) -> str:
    """A key as tables and folders show it, without the section that most have."""
    return key.removeprefix("method.")
