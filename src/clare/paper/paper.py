"""What the paper did and published: its experiments as rows, its numbers, their streams and backbone, its recipe."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import Field, TypeAdapter

from clare.errors import SettingsError, nearest
from clare.identity import flatten
from clare.presets.schema import Experiment
from clare.settings import Settings

Stated = bool | float | str
"""A setting as the paper's text reads."""


class Published(Settings):
    """What the paper prints in one cell of a table; accuracies in percent."""

    average: float | None = Field(None, ge=0, le=100, description="Mean of the accuracies after each task.")
    final: float | None = Field(None, ge=0, le=100, description="Accuracy after the last task.")
    deviation: float | None = Field(None, ge=0, description="Standard deviation of the final accuracy over seeds.")
    hours: float | None = Field(None, gt=0, description="Hours of training.")


class PaperStream(Settings):
    """A stream that the paper measures on."""

    dataset: str = Field(description="Name of the data set.")
    increment: int = Field(ge=1, description="Classes of each task.")


class Paper(Settings):
    """Everything that is known of the paper's experiments."""

    source: str = Field(description="Authors and title.")
    device: str = Field(description="What its times were measured on.")
    seed: int = Field(description="Seed of the class order.")
    backbone: str = Field(description="timm's name of the backbone of the tables.")
    image_size: int = Field(ge=1, description="Side of its input.")
    backbones: dict[str, str] = Field(description="Names of other backbones, by experiment.")
    recipe: dict[str, Stated] = Field(description="Settings of CLARE as its text reads, under dotted keys.")
    streams: dict[str, PaperStream] = Field(description="The streams, by the names of their presets.")
    numbers: dict[str, dict[str, dict[str, Published]]] = Field(description="Cells by experiment, stream and row.")
    remarks: dict[str, list[str]] = Field(description="What a reader of its numbers should know, by experiment.")

    def backbone_of(self, experiment: str) -> str:
        """Return the name of the backbone that the paper used for an experiment."""
        return self.backbones.get(experiment, self.backbone)

    def cells(self, experiment: str, stream: str) -> Mapping[str, Published]:
        """Return the printed cells of one stream of an experiment, none where it has none."""
        return self.numbers.get(experiment, {}).get(stream, {})


@cache
def read_paper() -> Paper:
    """Read the paper's numbers, which come with the package."""
    text = (files("clare.paper") / "paper.toml").read_text()
    return Paper.model_validate(tomllib.loads(text))


def stream_in_paper(paper: Paper, experiment: Experiment, all_at_once: bool = False) -> str | None:
    """Return the paper's name for a run's stream: the same data set in the same tasks, nothing left out."""
    stream = experiment.stream
    is_whole = stream.num_classes is None and stream.train_per_class is None
    sizes = {stream.increment, stream.increment if all_at_once else stream.first or stream.increment}
    for name, known in paper.streams.items():
        if is_whole and known.dataset == experiment.data.dataset and sizes == {known.increment}:
            return name
    return None


def has_paper_backbone(paper: Paper, study: str, experiment: Experiment) -> bool:
    """Tell whether a run uses the weights that the paper used for this experiment, at the same size."""
    backbone = experiment.backbone
    # A file may hold anything, also under the right architecture's name.
    return (
        backbone.name == paper.backbone_of(study)
        and backbone.weights == "pretrained"
        and backbone.image_size in (None, paper.image_size)
    )


def recipe_differences(paper: Paper, experiment: Experiment) -> dict[str, tuple[str, Stated]]:
    """Return the settings of CLARE in which a run differs from the paper's text: ours, and the paper's."""
    ours = flatten(experiment.method)
    return {
        key: (ours[key], stated) for key, stated in paper.recipe.items() if key in ours and differs(ours[key], stated)
    }


def differs(ours: str, stated: Stated) -> bool:
    """Tell whether a setting, as text, is another one than the paper's."""
    if isinstance(stated, float):
        return float(ours) != stated
    return ours != in_words(stated)


def in_words(stated: Stated) -> str:
    """Return what the paper states as settings are written."""
    if isinstance(stated, bool):
        return str(stated).lower()
    return stated if isinstance(stated, str) else f"{stated:g}"


Metric = Literal["average", "final"]
BOTH: tuple[Metric, ...] = ("average", "final")


@dataclass(frozen=True)
class Row:
    """A method with settings of its own; `choices` are overrides of which the best on validation images is taken."""

    key: str
    label: str
    method: str = "clare"
    overrides: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """One table or figure of the paper."""

    name: str
    title: str
    presets: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...] = BOTH
    reference: str = "clare"
    """The row that differences are taken to."""
    seeds: tuple[int, ...] = ()
    """Seeds when the user gives none; empty is the preset's own."""
    kind: Literal["table", "figure", "efficiency"] = "table"
    all_at_once: bool = False
    """Whether all classes are learnt as one task."""

    @property
    def methods(self) -> list[str]:
        """The methods of its rows."""
        return [row.method for row in self.rows]

    def row(self, key: str) -> Row:
        """Return the row of this key."""
        return next(row for row in self.rows if row.key == key)


def _read() -> Iterator[Study]:
    """Read the experiments, which come with the package."""
    values = tomllib.loads((files("clare.paper") / "studies.toml").read_text(encoding="utf-8"))
    for name, study in values["studies"].items():
        rows = [
            {"key": row, "label": values["methods"][row], "method": row} if isinstance(row, str) else row
            for row in study["rows"]
        ]
        yield TypeAdapter(Study).validate_python({**study, "name": name, "rows": rows})


STUDIES = {study.name: study for study in _read()}


def find_study(name: str) -> Study:
    """Return the experiment of this name, or say which there are."""
    if name not in STUDIES:
        raise SettingsError(
            f"there is no experiment '{name}'{nearest(name, STUDIES)}; known: {', '.join(STUDIES)}, "
            "see docs/reproduce.md"
        )
    return STUDIES[name]
