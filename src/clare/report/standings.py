"""Methods side by side at equal heads: figures over seeds, costs, and the difference to the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from clare.files import write_text
from clare.metrics.bootstrap import LEVEL, NUM_SAMPLES, STATISTICS
from clare.report.groups import Spread, Standing
from clare.report.tables import NONE, Sheet, amount, count, duration, percent, points, state, to_markdown, to_rich

DEFINITIONS = (
    "Average: the mean of the accuracies over all seen classes after each task. "
    "Final: the accuracy over all classes after the last task. "
    "Forgetting: how far a task has fallen from its best accuracy by the end, averaged over all tasks but the last. "
    "±: the standard deviation over seeds. "
    "Δ: the difference to the reference on the same stream and backbone, with its "
    f"{LEVEL:.0%} interval from {NUM_SAMPLES} resamples of the test images, drawn within each class and "
    "shared by both methods and all seeds; it tells how much the choice of test images matters, not how much another "
    "seed would. "
    "Trained: the most numbers that a phase of a task trains. Stored: the numbers kept beside the backbone after the "
    "last task. Passes: how often an image goes through the backbone to be classified. Time: of learning and "
    "evaluating all tasks. "
    "A method that saw all classes at once is a bound for the others and is not ranked."
)
COSTS = ("Trained", "Stored", "Passes", "Time")
NO_HEAD = "no head is recorded"


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end, and the sentence that says why."""

    label: str
    head: str
    reason: str


class Cell(NamedTuple):
    """A figure as it is shown, and the number behind it."""

    text: str
    value: float | None


def standing_sheets(
    ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure] = (), is_wide: bool = False
) -> list[Sheet]:
    """One sheet for each head, a wide one with more columns; failed runs stand at the end of theirs or of the first."""
    has_seeds = any(len(each.group.counted) > 1 for standings in ranking.values() for each in standings)
    first = next(iter(ranking))
    failed_at = {head: [each for each in failures if each.head == head] for head in ranking}
    failed_at[first] += [each for each in failures if each.head not in ranking]
    return [_sheet(head, standings, failed_at[head], has_seeds, is_wide) for head, standings in ranking.items()]


def _sheet(
    head: str, standings: Sequence[Standing], failures: Sequence[Failure], has_seeds: bool, is_wide: bool
) -> Sheet:
    """The methods of one head."""
    table = [_row(each, has_seeds, is_wide) for each in standings]
    header = tuple(table[0])
    rows = [tuple(cell.text for cell in row.values()) for row in table]
    values = [tuple(cell.value for cell in row.values()) for row in table]
    for failure in failures:
        cells = dict.fromkeys(header, NONE) | {"Method": failure.label, "Average": "failed"}
        rows.append(tuple(cells.values()))
        values.append((None,) * len(header))
    marked = frozenset(index for index, each in enumerate(standings) if each.is_reference)
    title = f"Comparison in percent; head: {head or NO_HEAD}"
    return Sheet(title, header, tuple(rows), marked, tuple(values))


def without_costs(sheet: Sheet) -> Sheet:
    """The accuracies alone, for a narrow terminal."""
    return replace(sheet, header=sheet.header[: -len(COSTS)], rows=tuple(row[: -len(COSTS)] for row in sheet.rows))


def costs_alone(sheet: Sheet) -> Sheet:
    """The costs alone, for a narrow terminal."""
    rows = tuple((row[0], *row[-len(COSTS) :]) for row in sheet.rows)
    return replace(sheet, title=f"Cost; {sheet.title.partition('; ')[2]}", header=("Method", *COSTS), rows=rows)


def _row(standing: Standing, has_seeds: bool, is_wide: bool) -> dict[str, Cell]:
    """One method's figures and costs by the names of their columns."""
    group, figures = standing.group, standing.figures
    remarks = [*(["bound"] if standing.is_bound else []), *filter(None, [state(group.counted[0])])]
    label = f"{group.label} ({', '.join(remarks)})" if remarks else group.label
    row = {"Method": Cell(label, None)}
    if has_seeds:
        row["Seeds"] = Cell(str(len(group.counted)), len(group.counted))
    for name, statistic in zip(("Average", "Final", "Forgetting"), STATISTICS, strict=True):
        row[name] = Cell(spread_percent(figures[statistic]), figures[statistic].mean)
    if is_wide:
        new = Spread(None, None) if standing.is_bound else group.new_task_accuracy
        row["New task"] = Cell(spread_percent(new), new.mean)
    interval = standing.intervals.get("final_accuracy")
    row["Δ final"] = Cell(points(interval), interval.difference) if interval else Cell(standing.note, None)
    row["Trained"] = Cell(count(group.num_trained), group.num_trained)
    row["Stored"] = Cell(count(group.num_stored), group.num_stored)
    passes = group.passes_per_image
    row["Passes"] = Cell(NONE if passes is None else str(passes), passes)
    row["Time"] = Cell(duration(group.seconds), group.seconds)
    if is_wide:
        row["Memory"] = Cell(amount(group.peak_memory), group.peak_memory)
    return row


def spread_percent(spread: Spread) -> str:
    """A mean as percent with its deviation over seeds."""
    mean = percent(spread.mean)
    return mean if spread.deviation is None else f"{mean} ± {percent(spread.deviation)}"


def write_comparison(
    ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure], title: str, folder: Path
) -> Path:
    """Write `comparison.md`: the tables, what failed and why, and what the figures mean."""
    path = folder / "comparison.md"
    parts = [f"# {title}", *(to_markdown(sheet).rstrip() for sheet in standing_sheets(ranking, failures))]
    if failures:
        parts.append("\n".join(f"- {failure.label} failed: {failure.reason}" for failure in failures))
    write_text(path, "\n\n".join([*parts, DEFINITIONS]) + "\n")
    return path


def print_standings(console: Console, ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure]) -> None:
    """Print the methods of each head; a terminal too narrow for all columns gets accuracies and costs apart."""
    for sheet in standing_sheets(ranking, failures):
        whole = to_rich(sheet)
        # Measured on a terminal of any width; on this one a table never needs more than there is.
        if console.measure(whole, options=console.options.update(max_width=1000)).maximum <= console.width:
            console.print(whole)
        else:
            console.print(to_rich(without_costs(sheet)), to_rich(costs_alone(sheet)))
