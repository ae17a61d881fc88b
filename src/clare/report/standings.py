"""Methods side by side at equal heads: figures over seeds, costs, and the difference to the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clare.files import write_text
from clare.metrics.bootstrap import STATISTICS
from clare.report.compare import LEVEL, NUM_SAMPLES
from clare.report.groups import Spread, Standing
from clare.report.tables import NONE, Sheet, count, duration, percent, points, state, to_markdown

DEFINITIONS = (
    "Average: the mean of the accuracies over all seen classes after each task. "
    "Final: the accuracy over all classes after the last task. "
    "Forgetting: how far a task has fallen from its best accuracy by the end, averaged over all tasks but the last. "
    "±: the standard deviation over seeds. "
    f"Δ: the difference to the reference on the same stream, with its {LEVEL:.0%} interval from {NUM_SAMPLES} "
    "resamples of the test images, drawn within each class and shared by both methods and all seeds; it tells how much "
    "the choice of test images matters, not how much another seed would. "
    "Trained: the most numbers that a phase of a task trains. Stored: the numbers kept beside the backbone after the "
    "last task. Passes: how often an image goes through the backbone to be classified. "
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


def standing_sheets(ranking: Mapping[str, Sequence[Standing]], failures: Sequence[Failure] = ()) -> list[Sheet]:
    """One sheet for each head; failed runs stand at the end of theirs, or of the first when theirs has no other."""
    has_seeds = any(len(each.group.counted) > 1 for standings in ranking.values() for each in standings)
    first = next(iter(ranking))
    failed_at = {head: [each for each in failures if each.head == head] for head in ranking}
    failed_at[first] += [each for each in failures if each.head not in ranking]
    return [_sheet(head, standings, failed_at[head], has_seeds) for head, standings in ranking.items()]


def _sheet(head: str, standings: Sequence[Standing], failures: Sequence[Failure], has_seeds: bool) -> Sheet:
    """The methods of one head."""
    figures = ("Average", "Final", "Forgetting", "Δ final")
    header = ("Method", *(["Seeds"] if has_seeds else []), *figures, *COSTS)
    rows = [_row(each, has_seeds) for each in standings]
    rows += [(failure.label, *([NONE] if has_seeds else []), "failed", *[NONE] * 7) for failure in failures]
    marked = frozenset(index for index, each in enumerate(standings) if each.is_reference)
    title = f"Comparison in percent; head: {head or NO_HEAD}"
    return Sheet(title, header, tuple(rows), marked)


def without_costs(sheet: Sheet) -> Sheet:
    """The accuracies alone, for a narrow terminal."""
    return replace(sheet, header=sheet.header[: -len(COSTS)], rows=tuple(row[: -len(COSTS)] for row in sheet.rows))


def costs_alone(sheet: Sheet) -> Sheet:
    """The costs alone, for a narrow terminal."""
    rows = tuple((row[0], *row[-len(COSTS) :]) for row in sheet.rows)
    return replace(sheet, title=f"Cost; {sheet.title.partition('; ')[2]}", header=("Method", *COSTS), rows=rows)


def _row(standing: Standing, has_seeds: bool) -> tuple[str, ...]:
    """One method's figures and costs."""
    group = standing.group
    remarks = [*(["bound"] if standing.is_bound else []), *filter(None, [state(group.counted[0])])]
    label = f"{group.label} ({', '.join(remarks)})" if remarks else group.label
    return (
        label,
        *([str(len(group.counted))] if has_seeds else []),
        *(spread_percent(standing.figures[name]) for name in STATISTICS),
        points(standing.interval) if standing.interval else standing.note,
        count(group.num_trained),
        count(group.num_stored),
        NONE if group.passes_per_image is None else str(group.passes_per_image),
        duration(group.seconds),
    )


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
