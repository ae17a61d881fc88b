"""Methods side by side at equal heads: figures over seeds, costs, and the difference to the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from clare.metrics.bootstrap import LEVEL, NUM_SAMPLES, STATISTICS, Statistic
from clare.metrics.summary import summarise
from clare.report.groups import FINAL, TASK_FIGURES, Group, Spread, Standing, TaskFigure, compare, group_runs
from clare.report.record import RunRecord
from clare.report.tables import NONE, Sheet, amount, count, duration, percent, points, state, to_markdown, to_rich

ACCURACIES = (
    "Average: the mean of the accuracies over all seen classes after each task. "
    "Final: the accuracy over all classes after the last task. "
    "Forgetting: how far a task has fallen from its best accuracy by the end, averaged over all tasks but the last. "
)
DEFINITIONS = ACCURACIES + (
    "±: the standard deviation over seeds. "
    "Δ: the difference to the reference on the same stream and backbone, with its "
    f"{LEVEL:.0%} interval from {NUM_SAMPLES} resamples of the test images, drawn within each class and "
    "shared by both methods and all seeds; it tells how much the choice of test images matters, not how much another "
    "seed would. "
    "Trained: the most numbers that a phase of a task trains. Stored: the numbers kept beside the backbone after the "
    "last task, with † where they take more than the training images would. Passes: how often an image goes through "
    "the backbone to be classified. Time: of learning and evaluating all tasks. "
    "A method that saw all classes at once is a bound for the others and is not ranked. "
    "Keeps pictures: training pictures of earlier tasks, which the others have not, are there to be learnt again. "
    "With the task given: each image is set against the classes of its own task alone; a method that must be told the "
    "task stands in that table only. Task right: how often the predicted class is one of the right task, or, where a "
    "method infers the task by a rule of its own, how often that is right."
)
NAMES: dict[Statistic, str] = dict(zip(STATISTICS, ("Average", "Final", "Forgetting"), strict=True))
GIVEN: dict[str, TaskFigure] = dict(zip(("Average", "Final", "Forgetting", "Task right"), TASK_FIGURES, strict=True))
COUNTED = {"Trained": "num_trained", "Stored": "num_stored"}
COSTS = (*COUNTED, "Passes", "Time")
HEAVY = " †"
NO_HEAD = "no head is recorded"
IN_LATEX = {"average_accuracy": r"$\bar{A}$", "final_accuracy": "$A_T$", "forgetting": "Forgetting"}
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end, and the sentence that says why."""

    label: str
    head: str
    reason: str


class Cell(NamedTuple):
    """A figure as it is shown, and the number behind it."""

    text: str
    value: float | None = None


Row = dict[str, Cell]
"""What is said of one method, by the names of the columns."""


def standing_sheets(
    ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure] = (), is_wide: bool = False
) -> list[Sheet]:
    """One sheet for each head, a wide one with more columns; failed runs stand at the end of theirs or of the first."""
    has_seeds = any(len(each.group.counted) > 1 for standings in ranking.values() for each in standings)
    sheets = []
    for place, (head, standings) in enumerate(untold(ranking).items()):
        rows = [_row(each, has_seeds, is_wide) for each in standings]
        failed = [each for each in failures if each.head == head or (place == 0 and each.head not in ranking)]
        nothing = dict.fromkeys(rows[0], Cell(NONE))
        rows += [nothing | {"Method": Cell(each.label), "Average": Cell("failed")} for each in failed]
        sheets.append(_sheet(f"Comparison in percent; head: {head or NO_HEAD}", rows, standings))
    return sheets


def untold(ranking: Mapping[str, Sequence[Standing]]) -> dict[str, list[Standing]]:
    """The ranking without methods that are told the task, whose figures are with the task given alone."""
    found = {head: [each for each in all_ if not each.group.is_told_task] for head, all_ in ranking.items()}
    return {head: standings for head, standings in found.items() if standings}


def task_sheets(ranking: Mapping[str, Sequence[Standing]]) -> list[Sheet]:
    """One sheet of what all methods reach with the task given, the best first, as far as that was recorded."""
    all_ = [each for standings in ranking.values() for each in standings if not each.is_bound]
    known = [each for each in all_ if each.group.spread_of("final_given").mean is not None]
    known.sort(key=lambda each: -(each.group.spread_of("final_given").mean or 0))
    rows = [
        _labelled(each, [state(each.group.counted[0])])
        | {"Head": Cell(each.group.head or NONE)}
        | {column: _spread_cell(each.group.spread_of(name)) for column, name in GIVEN.items()}
        for each in known
    ]
    return [_sheet("With the task given, in percent", rows, known)] if rows else []


def comparison_sheet(comparisons: Sequence[Standing], differences: Sequence[Statistic] = tuple(STATISTICS)) -> Sheet:
    """The figures of each run in percent, and those differences to the reference that are asked for, in points."""
    rows = [
        _labelled(each, [state(each.run)]) | _accuracies(each.group.figures) | _differences(each, differences)
        for each in comparisons
    ]
    return _sheet("Comparison in percent, differences in points", rows, comparisons)


def comparison_table(runs: Sequence[RunRecord]) -> Table:
    """Runs side by side with their differences in accuracy to the reference method, for the terminal."""
    # A third interval would not fit into eighty columns.
    return to_rich(comparison_sheet(compare(runs), ("average_accuracy", "final_accuracy")))


def _sheet(title: str, rows: Sequence[Row], standings: Sequence[Standing]) -> Sheet:
    """Rows under their columns; that of the reference is marked."""
    marked = frozenset(index for index, each in enumerate(standings) if each.is_reference)
    texts = tuple(tuple(cell.text for cell in row.values()) for row in rows)
    values = tuple(tuple(cell.value for cell in row.values()) for row in rows)
    return Sheet(title, tuple(rows[0]), texts, marked, values)


def part_of(sheet: Sheet, columns: Sequence[str], title: str) -> Sheet:
    """Some columns of a sheet after its first, for a narrow terminal."""
    places = [0, *(place for place, name in enumerate(sheet.header) if name in columns)]
    header, *rows = (tuple(row[place] for place in places) for row in (sheet.header, *sheet.rows))
    return replace(sheet, title=title, header=header, rows=tuple(rows), values=())


def _labelled(standing: Standing, remarks: Sequence[str]) -> Row:
    """The name of a method with remarks."""
    said = ", ".join(filter(None, [*remarks, standing.group.kept]))
    return {"Method": Cell(f"{standing.group.label} ({said})" if said else standing.group.label)}


def _accuracies(figures: Mapping[Statistic, Spread]) -> Row:
    """Figures in percent."""
    return {NAMES[name]: _spread_cell(figures[name]) for name in STATISTICS}


def _spread_cell(spread: Spread) -> Cell:
    """A figure over seeds in percent."""
    return Cell(spread_percent(spread), spread.mean)


def _differences(standing: Standing, names: Sequence[Statistic]) -> Row:
    """Differences to the reference in points, or once why there are none."""
    columns = [f"Δ {NAMES[name].lower()}" for name in names]
    if not standing.intervals:
        return dict.fromkeys(columns, Cell(NONE)) | {columns[0]: Cell(standing.note)}
    found = [standing.intervals[name] for name in names]
    return {column: Cell(points(each), each.difference) for column, each in zip(columns, found, strict=True)}


def _row(standing: Standing, has_seeds: bool, is_wide: bool) -> Row:
    """One method's figures and costs."""
    group, costs = standing.group, standing.group.costs
    row = _labelled(standing, ["bound" if standing.is_bound else "", state(group.counted[0])])
    if has_seeds:
        row["Seeds"] = Cell(str(len(group.counted)), len(group.counted))
    row |= _accuracies(standing.figures)
    if is_wide:
        new = Spread(None, None) if standing.is_bound else group.spread_of("new_task_accuracy")
        row["New task"] = _spread_cell(new)
    row |= _differences(standing, FINAL)
    passes = costs["passes_per_image"]
    row |= {name: Cell(count(costs[key]), costs[key]) for name, key in COUNTED.items()}
    row["Stored"] = row["Stored"]._replace(text=row["Stored"].text + HEAVY * group.is_heavy)
    row["Passes"] = Cell(NONE if passes is None else str(passes), passes)
    row["Time"] = Cell(duration(group.seconds), group.seconds)
    if is_wide:
        row["Memory"] = Cell(amount(group.peak_memory), group.peak_memory)
    return row


def spread_percent(spread: Spread) -> str:
    """A mean as percent with its deviation over seeds."""
    mean = percent(spread.mean)
    return mean if spread.deviation is None else f"{mean} ± {percent(spread.deviation)}"


def to_page(title: str, sheets: Sequence[Sheet], failures: Sequence[Failure], *ending: str) -> str:
    """Tables, what failed and why, and what follows them, as Markdown."""
    failed = "\n".join(f"- {failure.label} failed: {failure.reason}" for failure in failures)
    parts = [f"# {title}", *(to_markdown(sheet).rstrip() for sheet in sheets), *([failed] if failed else []), *ending]
    return "\n\n".join(parts) + "\n"


def print_standings(console: Console, ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure]) -> None:
    """Print the methods of each head; a terminal too narrow for all columns gets accuracies and costs apart."""
    for sheet in standing_sheets(ranking, failures):
        whole = to_rich(sheet)
        # Measured on a terminal of any width; on this one a table never needs more than there is.
        if console.measure(whole, options=console.options.update(max_width=1000)).maximum <= console.width:
            console.print(whole)
        else:
            costs = part_of(sheet, COSTS, f"Cost; {sheet.title.partition('; ')[2]}")
            console.print(to_rich(part_of(sheet, sheet.header[1 : -len(COSTS)], sheet.title)), to_rich(costs))
    for sheet in task_sheets(ranking):
        console.print(to_rich(sheet))
    if any(standing.group.is_heavy for standings in ranking.values() for standing in standings):
        console.print(f"{HEAVY.strip()} keeps numbers that take more than the training images would", highlight=False)


def summary_of(
    comparisons: Sequence[Standing], ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure] = ()
) -> dict[str, Any]:
    """Each method's figures over its seeds, costs, difference to the reference, and runs, as JSON has them."""
    by_run, labels = summary_of_runs(comparisons), {each.run.folder: each.group.label for each in comparisons}
    standings = [each for standings in ranking.values() for each in standings]
    summary: dict[str, Any] = {}
    for standing in sorted(standings, key=lambda each: list(labels).index(each.group.runs[0].folder)):
        own = {labels[run.folder]: by_run[labels[run.folder]] for run in standing.group.runs}
        summary[standing.group.label] = {**_rounded_figures(standing), "runs": own, **_rounded_differences(standing)}
    return summary | {failure.label: {"failed": failure.reason} for failure in failures}


def _rounded_figures(standing: Standing) -> dict[str, Any]:
    """What a method reached over its seeds, and what it costs."""
    group = standing.group
    deviations = {name: rounded(spread.deviation) for name, spread in group.figures.items()}
    return {
        "method": group.method,
        "head": group.head,
        "is_bound": standing.is_bound,
        "seeds": group.seeds,
        "finished": all(run.finished for run in group.counted),
        **{name: rounded(spread.mean) for name, spread in group.figures.items()},
        **{name: rounded(group.spread_of(name).mean) for name in TASK_FIGURES},
        "is_told_task": group.is_told_task,
        "deviation": deviations if len(group.counted) > 1 else None,
        **group.costs,
        "seconds": round(group.seconds, 3),
    }


def summary_of_runs(comparisons: Sequence[Standing]) -> dict[str, dict[str, Any]]:
    """The figures of each run by its label."""
    return {
        each.group.label: {
            **summarise(each.run),
            "num_tasks": len(each.run.tasks),
            "finished": each.run.finished,
            "seed": each.run.preset["seed"],
            **_rounded_differences(each),
        }
        for each in comparisons
    }


def _rounded_differences(standing: Standing) -> dict[str, Any]:
    """The differences to the reference, where there are any, as [difference, low, high] in fractions."""
    if standing.against is None or not standing.intervals:
        return {}
    found = {
        name: [rounded(bound) for bound in (each.difference, each.low, each.high)]
        for name, each in standing.intervals.items()
    }
    return {f"difference_to_{standing.against.method}": found}


def rounded(value: float | None) -> float | None:
    """Six digits of what was measured."""
    return None if value is None else round(value, 6)


def to_latex(runs: Sequence[RunRecord]) -> str:
    """One table for each preset: means and standard deviations over seeds in percent, the best in bold."""
    by_preset: dict[str, list[RunRecord]] = {}
    for run in (run for run in runs if not run.start.is_told_task):
        by_preset.setdefault(str(run.preset["name"]), []).append(run)
    tables = [_latex_table(preset, group_runs(own)) for preset, own in by_preset.items()]
    return "\n".join(["% \\usepackage{booktabs}", *tables])


def _latex_table(preset: str, groups: Sequence[Group]) -> str:
    """The methods on one preset."""
    best = {}
    for name in STATISTICS if len(groups) > 1 else ():
        means = [mean for group in groups if (mean := group.figures[name].mean) is not None]
        # Of forgetting the least is the best.
        best[name] = (min if name == "forgetting" else max)(means, default=None)
    lines = [f"% {preset}; percent, mean and standard deviation over seeds", r"\begin{tabular}{lrrrr}", r"\toprule"]
    lines += [" & ".join(["Method", "Seeds", *(IN_LATEX[name] for name in STATISTICS)]) + r" \\", r"\midrule"]
    for group in groups:
        figures = [_latex_figure(group.figures[name], best.get(name)) for name in STATISTICS]
        shown = f"{group.label} ({group.kept})" if group.kept else group.label
        lines.append(" & ".join([escaped(shown), str(len(group.counted)), *figures]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_figure(spread: Spread, best: float | None) -> str:
    """A mean with its deviation in percent, the best in bold."""
    if spread.mean is None:
        return "--"
    mean = f"{100 * spread.mean:.1f}"
    shown = rf"\mathbf{{{mean}}}" if spread.mean == best else mean
    return f"${shown}$" if spread.deviation is None else rf"${shown} \pm {100 * spread.deviation:.1f}$"


def escaped(text: str) -> str:
    """A text in which LaTeX finds nothing to do."""
    return "".join(SPECIAL.get(character, character) for character in text)
