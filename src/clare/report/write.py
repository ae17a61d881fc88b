"""A report of some runs in a folder: page, figures, tables and numbers."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from clare.errors import RunError
from clare.files import write_bytes, write_json, write_text
from clare.report.charts import accuracy_grids, claims_grid, make_charts, movement_histograms
from clare.report.choosing import choices_of, choosing_figure
from clare.report.groups import Standing, compare, group_runs
from clare.report.page import build_page
from clare.report.plots import chart_figure, grid_figure, histogram_figure, styles_of, to_png, to_svg
from clare.report.record import RunRecord
from clare.report.standings import DEFINITIONS, Failure, standing_sheets, summary_of, task_sheets, to_page
from clare.sealed import read_object


def write_report(
    runs: Sequence[RunRecord],
    folder: Path,
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure] = (),
) -> Path:
    """Write plots, summary.json, comparison.md and the page, which needs nothing but itself, and return its path."""
    comparisons, page = compare(runs), folder / "report.html"
    write_plots(runs, folder / "plots")
    write_json(folder / "summary.json", summary_of(comparisons, ranking, failures))
    sheets = [*standing_sheets(ranking, failures), *task_sheets(ranking)]
    tables = to_page(title, sheets, failures, DEFINITIONS)
    write_text(folder / "comparison.md", tables)
    write_text(page, build_page(comparisons, title, ranking, failures))
    return page


def write_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as a PNG and an SVG file."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path, content in zip(paths, (to_png(figure), to_svg(figure, name)), strict=True):
        write_bytes(path, content)
    return paths


def write_plots(runs: Sequence[RunRecord], folder: Path) -> list[Path]:
    """Write every figure in place of those of an earlier report; matrices are means over seeds."""
    paths = [path for name, figure in draw_figures(runs).items() for path in write_figure(figure, folder, name)]
    # Of an earlier report's figures, as of ours, there is both a PNG and an SVG file.
    for drawing in set(folder.glob("*.svg")) - set(paths):
        picture = drawing.with_suffix(".png")
        if picture.exists():
            drawing.unlink()
            picture.unlink()
    return paths


def draw_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """All figures by the names of their files, as far as the runs have something to show."""
    groups = group_runs(runs)
    styles = styles_of(groups)
    figures = {chart.name: chart_figure(chart, styles) for chart in make_charts(groups)}
    if len(choices := choices_of(groups)) > 1:
        figures["choosing"] = choosing_figure(choices, styles, training_bytes=groups[0].counted[0].start.training_bytes)
    names = _file_names([group.label for group in groups])
    for name, group in zip(names, groups, strict=True):
        matrices, claims = accuracy_grids(group), claims_grid(group) if group.counted[0].tasks else None
        if matrices:
            figures[f"matrix-{name}"] = grid_figure(matrices[None], "accuracy (%)")
        if claims is not None:
            figures[f"claims-{name}"] = grid_figure(claims, "share of the layer (%)")
        for each in movement_histograms(group):
            figures[f"updates-task-{each.task + 1}-{name}"] = histogram_figure(each)
    return figures


def _file_names(labels: Sequence[str]) -> list[str]:
    """Labels as parts of file names, each another."""
    names: list[str] = []
    for index, label in enumerate(labels):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", label)
        names.append(f"{name}-{index}" if name in names else name)
    return names


FILE = "comparison.json"
SUMMARY = "summary.json"
REMOVE = "choose another folder, or remove it"


def describe_comparison(
    preset: str, methods: Sequence[str], overrides: Sequence[str], seeds: Sequence[int]
) -> dict[str, Any]:
    """Return what tells a comparison from others; the order of methods and seeds does not."""
    return {"preset": preset, "methods": sorted(methods), "overrides": list(overrides), "seeds": sorted(seeds)}


def holder_of(folder: Path) -> dict[str, Any] | None:
    """Return the comparison that a folder holds, if any; of one that an older version wrote, what can be told."""
    path, summary = folder / FILE, folder / SUMMARY
    if path.is_file():
        return read_object(path, RunError, REMOVE)
    if summary.is_file():
        found = read_object(summary, RunError, REMOVE).values()
        # Of a run that failed it kept a label, which need not be the method's name.
        is_whole = all(isinstance(each, dict) and "method" in each for each in found)
        return {"methods": sorted({each["method"] for each in found})} if is_whole else {}
    return None


def take_folder(out: Path | None, default: Path, comparison: Mapping[str, Any]) -> Path:
    """Return the folder of a comparison: the given one, which no other may hold, or the first that is free or its."""
    if out is not None:
        holder = holder_of(out) or {}
        for key in _differing(holder, comparison):
            found = (holder[key], comparison[key])
            there, here = (each if isinstance(each, str) else ",".join(map(str, each)) or "none" for each in found)
            raise RunError(
                f"{out} holds another comparison, with the {key} {there} and not {here}; give another --out, or leave "
                "it out"
            )
        return out
    folders = (default if number == 1 else default.with_name(f"{default.name}-{number}") for number in count(1))
    return next(folder for folder in folders if not _differing(holder_of(folder) or {}, comparison))


def _differing(holder: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[str]:
    """Return in what two comparisons are known to differ; of a free folder nothing is known."""
    return [key for key in comparison if holder.get(key, comparison[key]) != comparison[key]]
