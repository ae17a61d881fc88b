"""The figures of the page: curves with their legends and numbers, heat maps, histograms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from clare.report.charts import (
    Chart,
    Curve,
    Grid,
    Histogram,
    accuracy_grids,
    claims_grid,
    leave_out_bounds,
    make_charts,
    movement_histograms,
    shown,
)
from clare.report.choosing import AXES, PAGE_WIDE, Choice, choices_of, choosing_figure
from clare.report.groups import Group, Standing, group_runs
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


@dataclass(frozen=True)
class Figures:
    """Everything that the page's template asks of the figures."""

    heads: Mapping[str, Sequence[Standing]]
    groups: Sequence[Group]
    styles: Mapping[str, Style]
    charts: Mapping[str, Chart]
    legends: ClassVar = {"last": "after the last task", "mean": "mean over tasks", "most": "at most"}
    shades: ClassVar = [shade(step / 10) for step in range(11)]

    @classmethod
    def of(cls, runs: Sequence[RunRecord], ranking: Mapping[str, Sequence[Standing]]) -> "Figures":
        """Draw up all charts; a method looks the same in each, and groups stand as they rank."""
        groups = [each.group for standings in ranking.values() for each in standings]
        return cls(ranking, groups, styles_of(group_runs(runs)), {chart.name: chart for chart in make_charts(groups)})

    @cached_property
    def keys(self) -> dict[str, int]:
        """What the script knows methods by."""
        return {label: index for index, label in enumerate(self.styles)}

    @property
    def seeds(self) -> list[int]:
        """The seeds among which a reader can choose: all, or none where no method has several."""
        several = any(len(group.counted) > 1 for group in self.groups)
        return sorted({seed for group in self.groups for seed in group.seeds}) if several else []

    @property
    def shown_matrices(self) -> list[str]:
        """Which accuracy matrices can be seen: the mean's, and those of the seeds."""
        return ["mean", *map(str, self.seeds)]

    def charts_of(self, names: Sequence[str]) -> list[Chart]:
        """Those charts in which something was measured."""
        return [self.charts[name] for name in names if name in self.charts]

    def curves(self, chart: Chart) -> Markup:
        """A chart whose curves the script can light and ask for their values."""
        # The strong one is drawn last, over the others; what stands beside a curve is told by its style and its data.
        drawn, groups = chart_figure(chart, self.styles, PAGE), {}
        where = "{} classes seen" if chart.across == "classes seen" else f"{chart.across} {{}}"
        for curve in chart.curves:
            kind = 'class="series strong"' if self.styles[curve.label].is_strong else 'class="series"'
            key = as_data(key=str(self.keys[curve.label]))
            known = [index for index, value in enumerate(curve.values) if not np.isnan(value)]
            places = places_in(drawn, [(curve.places[index], curve.values[index]) for index in known])
            points = [
                [*place, where.format(f"{curve.places[index]:g}"), _value_text(chart, curve, index)]
                for place, index in zip(places, known, strict=True)
            ]
            groups[curve.label] = f"{kind}{key}{as_data(label=curve.label, points=points)}"
            groups[f"{curve.label} band"] = f"{kind}{key}"
        return Markup(page_svg(drawn, "curves", f"{chart.title}: {chart.upward} against {chart.across}", groups))

    def legend(self, chart: Chart) -> list[tuple[str, list[tuple[str, str]]]]:
        """The methods by head, the highest first, each with the number that stands for its curve."""
        curves, found = {curve.label: curve for curve in chart.curves}, []
        for head, standings in self.heads.items():
            own = [curves[each.group.label] for each in standings if each.group.label in curves]
            ranked = sorted(own, key=chart.summarised, reverse=True)
            said = [(curve.label, shown(chart.summarised(curve), chart.unit)) for curve in ranked]
            found += [(head or NO_HEAD, said)] if said else []
        return found

    def numbers(self, chart: Chart) -> Sheet:
        """All values of a chart."""
        places = sorted({place for curve in chart.curves for place in curve.places})
        rows = []
        for curve in chart.curves:
            known = {place: _value_text(chart, curve, index) for index, place in enumerate(curve.places)}
            rows.append((curve.label, *(known.get(place, NONE) for place in places)))
        return Sheet("", (chart.across[0].upper() + chart.across[1:], *(f"{place:g}" for place in places)), tuple(rows))

    def swatch(self, label: str) -> Markup:
        """A piece of a method's line."""
        return _swatch(self.styles[label])

    @cached_property
    def choices(self) -> list[Choice]:
        """What each method reaches and costs, the best first."""
        return sorted(choices_of(self.groups), key=lambda choice: -choice.accuracy)

    @property
    def choosing(self) -> Markup:
        """The picture to choose a method by; a method's first mark tells the script of all three."""
        images = next((run.start.training_bytes for group in self.groups for run in group.counted), None)
        drawn = choosing_figure(self.choices, self.styles, PAGE_WIDE, images)
        groups: dict[str, str] = {}
        for choice in self.choices:
            kind = 'class="series strong"' if self.styles[choice.label].is_strong else 'class="series"'
            key = as_data(key=str(self.keys[choice.label]))
            groups |= {f"{choice.label} {place}": f"{kind}{key}" for place in range(len(AXES))}
            points = [
                [*places_in(drawn, [(cost, choice.accuracy)], place)[0], words, f"{choice.accuracy:.1f} %"]
                for place, (cost, words) in enumerate(choice.costs)
            ]
            groups[f"{choice.label} 0"] += as_data(label=choice.label, points=points)
        return Markup(page_svg(drawn, "curves", f"Final accuracy against {', '.join(AXES)}", groups))

    @property
    def matrices(self) -> dict[str, dict[str, Grid]]:
        """The accuracy matrices of every method by label and by choice."""
        found = {group.label: accuracy_grids(group) for group in leave_out_bounds(self.groups)}
        return {
            label: {"mean" if seed is None else str(seed): grid for seed, grid in grids.items()}
            for label, grids in found.items()
            if grids
        }

    @property
    def claims(self) -> list[Grid]:
        """How much of each layer each task claimed, by methods that tell."""
        return [grid for group in self.groups if (grid := claims_grid(group))]

    @property
    def histograms(self) -> list[Histogram]:
        """How far the first stage moved coordinates at some tasks."""
        return [each for group in self.groups for each in movement_histograms(group)]

    def grid(self, grid: Grid) -> Markup:
        """A heat map that the script can ask for its values."""
        drawn = grid_figure(grid, "", PAGE_GRID)
        left, right, below, above = PAGE_GRID.margins or (0, 0, 0, 0)
        box = [left, above, PAGE_GRID.width - left - right, PAGE_GRID.height - below - above]
        values = [[None if np.isnan(value) else round(value, 1) for value in row] for row in grid.values.tolist()]
        data = as_data(across=grid.across, downward=grid.downward, box=box, values=values)
        label = f"{grid.label}: {grid.downward} downward, {grid.across} across"
        return Markup(page_svg(drawn, "grid", label, data=data))

    def bars(self, each: Histogram) -> Markup:
        """A histogram."""
        label = f"{each.label}: sizes of updates of task {each.task + 1}"
        return Markup(page_svg(histogram_figure(each, PAGE_BARS), "histogram", label))

    def counted(self, each: Histogram) -> str:
        """What a histogram counts."""
        moved, unmoved, most = map(count, (sum(each.counts), each.num_unmoved, max(each.counts)))
        return f"task {each.task + 1}: {moved} candidates moved, {unmoved} did not; the highest bar is {most}"


def _value_text(chart: Chart, curve: Curve, index: int) -> str:
    """The value of a curve at one of its places, with its deviation."""
    value = shown(curve.values[index], chart.unit)
    return f"{value} ± {shown(curve.deviations[index], chart.unit)}" if curve.deviations else value


@lru_cache(maxsize=256)
def _swatch(style: Style) -> Markup:
    """A piece of a line."""
    return Markup(page_svg(swatch_figure(style), "swatch", "", is_decoration=True))
