"""The paper's experiments as data: which rows, on which streams, and what is looked at."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from pydantic import TypeAdapter

from clare.errors import SettingsError, nearest

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
