"""One self-contained HTML page about one or more runs."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from clare.identity import flatten
from clare.report import charts, plots
from clare.report.charts import Chart, Curve, Grid, Histogram
from clare.report.choosing import AXES, PAGE_WIDE, Choice, choices_of, choosing_figure
from clare.report.groups import Group, Standing, group_runs
from clare.report.record import RunRecord, reproduce_command
from clare.report.standings import (
    DEFINITIONS,
    NO_HEAD,
    Failure,
    comparison_sheet,
    standing_sheets,
    task_sheets,
    untold,
)
from clare.report.svg import as_data, page_svg, places_in
from clare.report.tables import NONE, Sheet, amount, count, percent, phase_sheet, points, state, task_sheet
from clare.templates import fill, read_asset

MAX_COLUMNS = 6
NOT_SETTINGS = ("description", "overrides", "method.name")
"""These repeat the run's label or its other settings, in words or as the user typed them."""


def build_page(
    comparisons: Sequence[Standing],
    title: str,
    ranking: Mapping[str, Sequence[Standing]],
    failures: Sequence[Failure] = (),
) -> str:
    """The page as HTML that needs nothing but itself."""
    figures = Figures.of([each.run for each in comparisons], ranking)
    settings = [flat_settings(group.counted[0]) for group in figures.groups]
    settings = [{key: value for key, value in each.items() if key != "seed"} for each in settings]
    repeated = ["\n".join([f"# {group.label}", *map(reproduce_command, group.runs)]) for group in figures.groups]
    rivals, chosen = next((all_, each) for all_ in ranking.values() for each in all_ if each.is_reference)
    compared = (each for each in rivals if each.intervals and each.against is chosen.group and not each.is_bound)
    best, run = next(compared, None), chosen.group.counted[0]
    environments = [flatten(each.run.environment) for each in comparisons]
    script = read_asset("report/assets/page.js")
    return fill(
        "report/assets/page.html",
        title=title,
        digest=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        style=Markup(read_asset("report/assets/page.css")),
        colours=zip(plots.COLOURS, plots.COLOURS_ON_DARK, strict=True),
        script=Markup(script),
        figures=figures,
        description=run.preset.get("description"),
        preset=run.preset["name"],
        remark=state(run),
        chosen=chosen,
        headline=_headline(chosen),
        best=best,
        difference=best and points(best.intervals["final_accuracy"]),
        rankings=zip(
            [head or NO_HEAD for head in untold(ranking)], standing_sheets(ranking, failures, is_wide=True), strict=True
        ),
        task_sheets=task_sheets(ranking),
        failures=failures,
        definitions=DEFINITIONS,
        differing_settings=_differing(settings, [group.label for group in figures.groups], "Setting"),
        repeat="\n\n".join(repeated),
        comparisons=comparisons,
        comparison=comparison_sheet(comparisons),
        remarks=_remarks,
        command=reproduce_command,
        task_sheet=task_sheet,
        phase_sheet=phase_sheet,
        sizes=_sizes,
        settings=flat_settings,
        # What the runs ran on: what is the same everywhere, and what differs.
        environment=dict(
            item for item in environments[0].items() if all(item in each.items() for each in environments)
        ),
        differing_environment=_differing(environments, [each.group.label for each in comparisons], "Environment"),
    )


def _headline(chosen: Standing) -> list[tuple[str, str, str]]:
    """Names, values and units of the figures of the reference."""
    run, cards = chosen.group.counted[0], []
    for name, (mean, deviation) in chosen.figures.items():
        varies = "" if deviation is None else f", ± {percent(deviation)} over seeds"
        cards.append((f"{name.replace('_', ' ')}{varies}", percent(mean), "%"))
    capacity_used = run.tasks[-1].capacity_used if run.tasks else None
    if capacity_used is not None:
        cards.append(("of the adapter used", percent(capacity_used), "%"))
    return [*cards, (f"classes in {len(run.start.task_sizes)} tasks", str(len(run.start.classes)), "")]


def _remarks(run: RunRecord) -> str:
    """Seed and start of a run, and how far it came."""
    started = datetime.fromtimestamp(run.start.time, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    return ", ".join(filter(None, [f"seed {run.preset['seed']}", f"started {started}", state(run)]))


def _sizes(group: Group) -> dict[str, str]:
    """What a run trains, keeps and needs."""
    run = group.runs[0]
    sizes = {
        "coordinates of the adapter": run.start.num_coordinates,
        "coordinates still free": run.tasks[-1].num_free if run.tasks else None,
        "numbers that a phase trains at most": group.costs["num_trained"],
        "numbers stored beside the backbone": group.costs["num_stored"],
        "passes through the backbone per image": group.costs["passes_per_image"],
    }
    shown = {name: f"{size:,}" for name, size in sizes.items() if size is not None}
    shown |= {"training pictures": group.kept} if group.kept else {}
    memory = {} if group.peak_memory is None else {"peak memory": amount(group.peak_memory)}
    return {**shown, **memory, "backbone": run.start.backbone_hash or NONE}


def flat_settings(run: RunRecord) -> dict[str, str]:
    """The settings of a run as dotted keys and JSON values."""
    return {key: value for key, value in flatten(run.preset).items() if key not in NOT_SETTINGS}


def differing_keys(values: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys whose values differ among those that have them; what only one has is its own affair."""
    keys = dict.fromkeys(key for each in values for key in each)
    return [key for key in keys if len({each[key] for each in values if key in each}) > 1]


def _differing(values: Sequence[Mapping[str, str]], labels: Sequence[str], name: str) -> Sheet | dict[str, str]:
    """The facts in which some differ: a column for each, or for many who has which value."""
    keys = differing_keys(values)
    if keys and len(labels) <= MAX_COLUMNS:
        return Sheet("", (name, *labels), tuple((key, *(each.get(key, NONE) for each in values)) for key in keys))
    said = {}
    for key in keys:
        having: dict[str, list[str]] = {}
        for each, label in zip(values, labels, strict=True):
            if key in each:
                having.setdefault(each[key], []).append(label)
        common = sorted(having.items(), key=lambda item: -len(item[1]))
        said[key] = "; ".join(f"{value} ({', '.join(own)})" for value, own in common)
    return said


@dataclass(frozen=True)
class Figures:
    """Everything that the page's template asks of the figures."""

    heads: Mapping[str, Sequence[Standing]]
    groups: Sequence[Group]
    styles: Mapping[str, plots.Style]
    charts: Mapping[str, Chart]
    legends: ClassVar = {"last": "after the last task", "mean": "mean over tasks", "most": "at most"}
    shades: ClassVar = [plots.shade(step / 10) for step in range(11)]

    @classmethod
    def of(cls, runs: Sequence[RunRecord], ranking: Mapping[str, Sequence[Standing]]) -> "Figures":
        """Draw up all charts; a method looks the same in each, and groups stand as they rank."""
        groups = [each.group for standings in ranking.values() for each in standings]
        return cls(
            ranking,
            groups,
            plots.styles_of(group_runs(runs)),
            {chart.name: chart for chart in charts.make_charts(groups)},
        )

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
        drawn, groups = plots.chart_figure(chart, self.styles, plots.PAGE), {}
        where = "{} classes seen" if chart.across == "classes seen" else f"{chart.across} {{}}"
        for curve in chart.curves:
            known = [index for index, value in enumerate(curve.values) if not np.isnan(value)]
            places = places_in(drawn, [(curve.places[index], curve.values[index]) for index in known])
            points = [
                [*place, where.format(f"{curve.places[index]:g}"), _value_text(chart, curve, index)]
                for place, index in zip(places, known, strict=True)
            ]
            groups[curve.label] = self._series(curve.label) + as_data(label=curve.label, points=points)
            groups[f"{curve.label} band"] = self._series(curve.label)
        return Markup(page_svg(drawn, "curves", f"{chart.title}: {chart.upward} against {chart.across}", groups))

    def _series(self, label: str) -> str:
        """The attributes by which the script finds what is a method's."""
        return f'class="series{" strong" * self.styles[label].is_strong}"{as_data(key=str(self.keys[label]))}'

    @cached_property
    def choices(self) -> list[Choice]:
        """What each method reaches and costs, the best first."""
        return sorted(choices_of(self.groups), key=lambda choice: -choice.accuracy)

    @property
    def choosing(self) -> Markup:
        """The picture to choose a method by; a method's first mark tells the script of all three."""
        images = self.groups[0].counted[0].start.training_bytes
        drawn = choosing_figure(self.choices, self.styles, PAGE_WIDE, images)
        groups: dict[str, str] = {}
        for choice in self.choices:
            groups |= {f"{choice.label} {place}": self._series(choice.label) for place in range(len(AXES))}
            points = [
                [*places_in(drawn, [(cost, choice.accuracy)], place)[0], words, f"{choice.accuracy:.1f} %"]
                for place, (cost, words) in enumerate(choice.costs)
            ]
            groups[f"{choice.label} 0"] += as_data(label=choice.label, points=points)
        return Markup(page_svg(drawn, "curves", f"Final accuracy against {', '.join(AXES)}", groups))

    def legend(self, chart: Chart) -> list[tuple[str, list[tuple[str, str]]]]:
        """The methods by head, the highest first, each with the number that stands for its curve."""
        curves, found = {curve.label: curve for curve in chart.curves}, []
        for head, standings in self.heads.items():
            own = [curves[each.group.label] for each in standings if each.group.label in curves]
            ranked = sorted(own, key=chart.summarised, reverse=True)
            said = [(curve.label, charts.shown(chart.summarised(curve), chart.unit)) for curve in ranked]
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

    @cached_property
    def swatches(self) -> dict[str, Markup]:
        """A piece of each method's line."""
        drawn = {label: plots.swatch_figure(style) for label, style in self.styles.items()}
        return {label: Markup(page_svg(each, "swatch", "", is_decoration=True)) for label, each in drawn.items()}

    @property
    def matrices(self) -> dict[str, dict[str, Grid]]:
        """The accuracy matrices of every method by label and by choice."""
        found = {group.label: charts.accuracy_grids(group) for group in charts.leave_out_bounds(self.groups)}
        return {
            label: {"mean" if seed is None else str(seed): grid for seed, grid in grids.items()}
            for label, grids in found.items()
            if grids
        }

    @property
    def claims(self) -> list[Grid]:
        """How much of each layer each task claimed, by methods that tell."""
        return [grid for group in self.groups if (grid := charts.claims_grid(group))]

    @property
    def histograms(self) -> list[Histogram]:
        """How far the first stage moved coordinates at some tasks."""
        return [each for group in self.groups for each in charts.movement_histograms(group)]

    def grid(self, grid: Grid) -> Markup:
        """A heat map that the script can ask for its values."""
        drawn = plots.grid_figure(grid, "", plots.PAGE_GRID)
        left, right, below, above = plots.PAGE_GRID.margins or (0, 0, 0, 0)
        box = [left, above, plots.PAGE_GRID.width - left - right, plots.PAGE_GRID.height - below - above]
        values = [[None if np.isnan(value) else round(value, 1) for value in row] for row in grid.values.tolist()]
        data = as_data(across=grid.across, downward=grid.downward, box=box, values=values)
        label = f"{grid.label}: {grid.downward} downward, {grid.across} across"
        return Markup(page_svg(drawn, "grid", label, data=data))

    def bars(self, each: Histogram) -> Markup:
        """A histogram."""
        label = f"{each.label}: sizes of updates of task {each.task + 1}"
        return Markup(page_svg(plots.histogram_figure(each, plots.PAGE_BARS), "histogram", label))

    def counted(self, each: Histogram) -> str:
        """What a histogram counts."""
        moved, unmoved, most = map(count, (sum(each.counts), each.num_unmoved, max(each.counts)))
        return f"task {each.task + 1}: {moved} candidates moved, {unmoved} did not; the highest bar is {most}"


def _value_text(chart: Chart, curve: Curve, index: int) -> str:
    """The value of a curve at one of its places, with its deviation."""
    value = charts.shown(curve.values[index], chart.unit)
    return f"{value} ± {charts.shown(curve.deviations[index], chart.unit)}" if curve.deviations else value
