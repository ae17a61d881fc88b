"""The figures of the page: curves with their legends and numbers, heat maps, histograms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

import numpy as np

from clare.report.charts import (
    LARGE,
    Chart,
    Curve,
    Grid,
    accuracy_grids,
    claims_grid,
    leave_out_bounds,
    make_charts,
    movement_histograms,
    shown,
)
from clare.report.groups import Group, Standing, group_runs
from clare.report.pieces import folded, table
from clare.report.plots import (
    PAGE,
    PAGE_BARS,
    PAGE_GRID,
    chart_figure,
    grid_figure,
    histogram_figure,
    shade,
    swatch_figure,
)
from clare.report.record import RunRecord
from clare.report.standings import NO_HEAD
from clare.report.styles import Style, styles_of
from clare.report.svg import as_data, page_svg, places_in
from clare.report.tables import NONE, Sheet, count

STRONG = ' class="strong"'
LEGENDS = {"last": "after the last task", "mean": "mean over tasks", "most": "at most"}


@dataclass(frozen=True)
class Figures:
    """Everything that the figures of a page share."""

    heads: Mapping[str, Sequence[Standing]]
    groups: Sequence[Group]
    styles: Mapping[str, Style]
    charts: Mapping[str, Chart]

    @property
    def keys(self) -> dict[str, int]:
        """What the script knows methods by."""
        return {label: index for index, label in enumerate(self.styles)}

    @property
    def seeds(self) -> list[int]:
        """The seeds among which a reader can choose: all, or none where no method has several."""
        several = any(len(group.counted) > 1 for group in self.groups)
        return sorted({seed for group in self.groups for seed in group.seeds}) if several else []

    @classmethod
    def of(cls, runs: Sequence[RunRecord], ranking: Mapping[str, Sequence[Standing]]) -> "Figures":
        """Draw up all charts; a method looks the same in each, and groups stand as they rank."""
        styles = styles_of(group_runs(runs))
        groups = [each.group for standings in ranking.values() for each in standings]
        charts = {chart.name: chart for chart in make_charts(groups)}
        return cls(ranking, groups, styles, charts)


def chart_cards(figures: Figures, names: Sequence[str], more: Sequence[str] = ()) -> str:
    """Some charts side by side, as far as there are any, and more cards."""
    drawn = [*(_chart(figures, figures.charts[name]) for name in names if name in figures.charts), *more]
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


def capacity_figures(figures: Figures) -> str:
    """How the adapter fills up, where, and how its coordinates were chosen."""
    claims = [_claims(figures, grid) for group in figures.groups if (grid := claims_grid(group))]
    return chart_cards(figures, ["capacity"], claims) + _histograms(figures)


def _chart(figures: Figures, chart: Chart) -> str:
    """A figure with its caption, its legend and its numbers."""
    # The section's heading is the large figure's title, and its caption explains the bands of all.
    is_large = chart.name == LARGE
    title = "" if is_large else f"<h3>{escape(chart.title)}</h3>"
    has_bands = is_large and any(curve.deviations for curve in chart.curves)
    band = " Bands, here and below, are one standard deviation over seeds." if has_bands else ""
    caption = f"<figcaption>{title}<p>{escape(chart.note)}{band}</p></figcaption>"
    return (
        f'<figure class="chart{" large" if is_large else ""}" id="figure-{chart.name}">{caption}'
        f'<div class="plot">{_curves(figures, chart)}</div>'
        f"{_legend(figures, chart)}{folded('Numbers', table(_numbers(chart)), kind='numbers')}</figure>"
    )


def _curves(figures: Figures, chart: Chart) -> str:
    """A chart whose curves the script can light and ask for their values."""
    # The strong one is drawn last, over the others; what stands beside a curve is told by its style and its data.
    drawn, groups = chart_figure(chart, figures.styles, PAGE), {}
    where = "{} classes seen" if chart.across == "classes seen" else f"{chart.across} {{}}"
    for curve in chart.curves:
        kind = 'class="series strong"' if figures.styles[curve.label].is_strong else 'class="series"'
        key = as_data(key=str(figures.keys[curve.label]))
        known = [index for index, value in enumerate(curve.values) if not np.isnan(value)]
        places = places_in(drawn, [(curve.places[index], curve.values[index]) for index in known])
        points = [
            [*place, where.format(f"{curve.places[index]:g}"), _value_text(chart, curve, index)]
            for place, index in zip(places, known, strict=True)
        ]
        groups[curve.label] = f"{kind}{key}{as_data(label=curve.label, points=points)}"
        groups[f"{curve.label} band"] = f"{kind}{key}"
    return page_svg(drawn, "curves", f"{chart.title}: {chart.upward} against {chart.across}", groups)


def _value_text(chart: Chart, curve: Curve, index: int) -> str:
    """The value of a curve at one of its places, with its deviation."""
    value = shown(curve.values[index], chart.unit)
    return f"{value} ± {shown(curve.deviations[index], chart.unit)}" if curve.deviations else value


@lru_cache(maxsize=256)
def _swatch(style: Style) -> str:
    """A piece of a method's line."""
    return page_svg(swatch_figure(style), "swatch", "", is_decoration=True)


def _grid(grid: Grid) -> str:
    """A heat map that the script can ask for its values."""
    drawn = grid_figure(grid, "", PAGE_GRID)
    left, right, below, above = PAGE_GRID.margins or (0, 0, 0, 0)
    box = [left, above, PAGE_GRID.width - left - right, PAGE_GRID.height - below - above]
    values = [[None if np.isnan(value) else round(value, 1) for value in row] for row in grid.values.tolist()]
    data = as_data(across=grid.across, downward=grid.downward, box=box, values=values)
    return page_svg(drawn, "grid", f"{grid.label}: {grid.downward} downward, {grid.across} across", data=data)


def _scale(top: float) -> str:
    """The colours of a heat map and what they mean."""
    stops = ", ".join(shade(step / 10) for step in range(11))
    return (
        f'<p class="scale"><span>0</span><i style="background:linear-gradient(90deg, {stops})"></i>'
        f"<span>{top:.3g} %</span></p>"
    )


def _legend(figures: Figures, chart: Chart) -> str:
    """The methods by head, the highest first, each with the number that stands for its curve."""
    curves = {curve.label: curve for curve in chart.curves}
    parts = [f'<li class="what">{LEGENDS[chart.summary]}</li>']
    for head, standings in figures.heads.items():
        own = [curves[each.group.label] for each in standings if each.group.label in curves]
        if own and len(figures.heads) > 1:
            parts.append(f'<li class="head">{escape(head or NO_HEAD)}</li>')
        for curve in sorted(own, key=chart.summarised, reverse=True):
            style, value = figures.styles[curve.label], escape(shown(chart.summarised(curve), chart.unit))
            parts.append(
                f'<li{STRONG * style.is_strong}><button type="button" data-key="{figures.keys[curve.label]}">'
                f"{_swatch(style)}<span>{escape(curve.label)}</span><b>{value}</b></button></li>"
            )
    return f'<ul class="legend">{"".join(parts)}</ul>'


def _numbers(chart: Chart) -> Sheet:
    """All values of a figure."""
    places = sorted({place for curve in chart.curves for place in curve.places})
    rows = []
    for curve in chart.curves:
        known = {place: _value_text(chart, curve, index) for index, place in enumerate(curve.places)}
        rows.append((curve.label, *(known.get(place, NONE) for place in places)))
    return Sheet("", (chart.across[0].upper() + chart.across[1:], *(f"{place:g}" for place in places)), tuple(rows))


def matrices(figures: Figures) -> str:
    """The accuracy matrix of every method, of one seed or as the mean over all."""
    drawn, none = [], '<p class="quiet">no finished run with this seed</p>'
    for group in leave_out_bounds(figures.groups):
        grids = accuracy_grids(group)
        # One of its cells is shown.
        cells = {"mean": grids.get(None)} | {str(seed): grids.get(seed) for seed in figures.seeds}
        inside = [
            f'<div class="cell" data-seed="{seed}">{_grid(grid) if grid else none}</div>'
            for seed, grid in cells.items()
        ]
        drawn += [f"<figure>{_name(figures, group.label)}{''.join(inside)}</figure>"] if grids else []
    if not drawn:
        return ""
    lead = "Accuracy after each task (down) on the test images of each task (across), in percent."
    # Buttons for the mean and for each seed, which work without the script.
    words = {"mean": "mean over seeds", **{str(seed): f"seed {seed}" for seed in figures.seeds}}
    buttons = "".join(
        f'<input type="radio" name="seed" id="seed-{value}"{" checked" if value == "mean" else ""}>'
        f'<label for="seed-{value}">{text}</label>'
        for value, text in words.items()
    )
    choice = f'<fieldset class="choice"><legend>Show</legend>{buttons}</fieldset>' if figures.seeds else ""
    return f'<p class="lead">{lead}</p>{choice}{_scale(100)}<div class="grids">{"".join(drawn)}</div>'


def choice_style(figures: Figures) -> str:
    """The rules that show the matrices of the chosen seed alone."""
    values = ("mean", *map(str, figures.seeds))
    return "".join(
        f'section:has(#seed-{value}:checked) .cell:not([data-seed="{value}"]) {{ display: none; }}\n'
        for value in values
    )


def _name(figures: Figures, label: str, remark: str = "") -> str:
    """A caption with the method's style."""
    style = figures.styles[label]
    note = f"<p>{escape(remark)}</p>" if remark else ""
    return f"<figcaption{STRONG * style.is_strong}><h3>{_swatch(style)}{escape(label)}</h3>{note}</figcaption>"


def _claims(figures: Figures, grid: Grid) -> str:
    """How much of each layer each task claimed."""
    note = "Share of each layer's coordinates (across) that each task (down) claimed, in percent."
    name = f"Claimed in each layer by {grid.label}" if len(figures.groups) > 1 else "Claimed in each layer"
    return (
        f'<figure class="chart"><figcaption><h3>{escape(name)}</h3><p>{note}</p></figcaption>'
        f"{_scale(grid.top)}{_grid(grid)}</figure>"
    )


def _histograms(figures: Figures) -> str:
    """How far the first stage moved coordinates at some tasks, and which of them were chosen."""
    drawn = []
    for group in figures.groups:
        for each in movement_histograms(group):
            moved, unmoved, most = map(count, (sum(each.counts), each.num_unmoved, max(each.counts)))
            counted = f"{moved} candidates moved, {unmoved} did not; the highest bar is {most}"
            caption = _name(figures, group.label, f"task {each.task + 1}: {counted}")
            label = f"{each.label}: sizes of updates of task {each.task + 1}"
            bars = page_svg(histogram_figure(each, PAGE_BARS), "histogram", label)
            drawn.append(f"<figure>{caption}{bars}</figure>")
    if not drawn:
        return ""
    lead = (
        "Coordinates by how far the first stage moved them (logarithmic, across). Those at or above the threshold, "
        "in colour, are the task's; the others went back."
    )
    return f'<h3>Sizes of updates</h3><p class="lead">{lead}</p><div class="grids">{"".join(drawn)}</div>'
