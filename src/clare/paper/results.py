"""What an experiment found beside what the paper printed; every difference is computed here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clare.metrics.summary import summarise
from clare.paper.paper import (
    BOTH,
    Metric,
    Paper,
    Published,
    Row,
    Stated,
    Study,
    has_paper_backbone,
    recipe_differences,
    stream_in_paper,
)
from clare.paper.plan import Place, Run, Score
from clare.presets.schema import Experiment
from clare.report.groups import Spread, spread
from clare.report.record import RunRecord


@dataclass(frozen=True)
class Choice:
    """Which of several settings was taken for a row, and by what numbers on validation images."""

    chosen: str | None
    scores: Mapping[str, Score | None]


@dataclass(frozen=True)
class Cell:
    """One row on one preset: figures over seeds in percent, or why there are none."""

    row: Row
    preset: str
    figures: Mapping[Metric, Spread]
    seconds: Spread
    records: tuple[RunRecord, ...]
    reasons: tuple[str, ...]
    published: Published
    choice: Choice | None = None

    @property
    def failed(self) -> bool:
        """Whether any run of the cell failed; its figures would be of fewer seeds than the others'."""
        return bool(self.reasons)


@dataclass(frozen=True)
class Setting:
    """One preset of an experiment, and in what it is the paper's."""

    preset: str
    experiment: Experiment
    stream: str | None
    """The paper's name of the stream, where it is one of the paper's."""
    has_numbers: bool
    """Whether the paper prints numbers of this experiment on this stream."""
    same_backbone: bool
    same_seeds: bool | None
    """Not known of experiments over several seeds, of which the paper gives the spread alone."""
    recipe: Mapping[str, tuple[str, Stated]]

    @property
    def is_paper(self) -> bool:
        """Whether our numbers and the paper's are of the same thing, so that their difference means something."""
        return self.has_numbers and self.same_backbone


@dataclass(frozen=True)
class Results:
    """All cells of an experiment."""

    study: Study
    paper: Paper
    settings: tuple[Setting, ...]
    cells: Mapping[Place, Cell]
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]

    def delta(self, cell: Cell, metric: Metric) -> float | None:
        """How far a row is above the reference row on the same preset, in points."""
        return difference(cell.figures[metric].mean, self.reference(cell).figures[metric].mean)

    def paper_delta(self, cell: Cell, metric: Metric) -> float | None:
        """The same difference between the rows that the paper prints."""
        return difference(printed(cell.published, metric), printed(self.reference(cell).published, metric))

    def delta_to_paper(self, cell: Cell, metric: Metric) -> float | None:
        """How far our difference to the reference row is above the paper's."""
        return difference(self.delta(cell, metric), self.paper_delta(cell, metric))

    def to_paper(self, cell: Cell, metric: Metric) -> float | None:
        """How far our number is above the paper's, where both are of the same data and backbone."""
        if not self.setting(cell.preset).is_paper:
            return None
        return difference(cell.figures[metric].mean, printed(cell.published, metric))

    def reference(self, cell: Cell) -> Cell:
        """The cell that differences are taken to."""
        return self.cells[cell.preset, self.study.reference]

    def setting(self, preset: str) -> Setting:
        """The setting of a preset."""
        return next(setting for setting in self.settings if setting.preset == preset)

    def name(self, preset: str) -> str:
        """The name of a preset's stream and settings."""
        return self.setting(preset).experiment.name

    def rows(self, preset: str) -> list[Cell]:
        """The cells of one preset in the order of the table."""
        return [self.cells[preset, row.key] for row in self.study.rows]


def difference(value: float | None, other: float | None) -> float | None:
    """One number minus another, where there are both."""
    return None if value is None or other is None else value - other


def printed(published: Published, metric: Metric) -> float | None:
    """What the paper prints of a metric."""
    return published.average if metric == "average" else published.final


def make_cell(
    row: Row,
    preset: str,
    records: Sequence[RunRecord],
    reasons: Sequence[str],
    published: Published,
    choice: Choice | None,
) -> Cell:
    """Put the runs of a row together, accuracies in percent; a row with a failed run has no figures."""
    summaries = [] if reasons else [summarise(record) for record in records]
    figures: dict[Metric, Spread] = {}
    for place, metric in enumerate(BOTH):
        fractions = [(each["average_accuracy"], each["final_accuracy"])[place] for each in summaries]
        figures[metric] = spread([None if fraction is None else 100 * fraction for fraction in fractions])
    seconds = spread([summary["seconds"] for summary in summaries])
    return Cell(row, preset, figures, seconds, tuple(records), tuple(reasons), published, choice)


def make_setting(paper: Paper, study: Study, preset: str, runs: Sequence[Run]) -> Setting:
    """Compare a preset's runs of the reference row with what the paper did."""
    experiment = runs[0].experiment
    stream = stream_in_paper(paper, experiment, study.all_at_once)
    seeds = {run.experiment.seed for run in runs}
    clare = experiment.method_label == "clare"
    return Setting(
        preset,
        experiment,
        stream,
        has_numbers=stream is not None and bool(paper.cells(study.name, stream)),
        same_backbone=has_paper_backbone(paper, study.name, experiment),
        same_seeds=None if study.seeds else seeds == {paper.seed},
        recipe=recipe_differences(paper, experiment) if clare else {},
    )


def as_values(results: Results, cell: Cell) -> dict[str, Any]:
    """A cell as flat values for a CSV file; what is not known is none."""
    values: dict[str, Any] = {"preset": cell.preset, "row": cell.row.label, "num_seeds": len(cell.records)}
    for metric in results.study.metrics:
        mean, deviation = cell.figures[metric]
        values |= {
            metric: rounded(mean),
            f"{metric}_deviation": rounded(deviation),
            f"{metric}_to_reference": rounded(results.delta(cell, metric)),
            f"paper_{metric}": printed(cell.published, metric),
            f"paper_{metric}_to_reference": rounded(results.paper_delta(cell, metric)),
            f"{metric}_to_paper": rounded(results.to_paper(cell, metric)),
        }
    values["paper_deviation"] = cell.published.deviation
    values["seconds"] = rounded(cell.seconds.mean)
    values["paper_hours"] = cell.published.hours
    values["chosen"] = cell.choice.chosen if cell.choice else None
    values["failed"] = " ".join(cell.reasons) or None
    return values


def rounded(value: float | None) -> float | None:
    """Four digits, and no minus before a zero."""
    return None if value is None else round(value, 4) + 0.0
