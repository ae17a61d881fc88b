"""The streams and the rows of the study, and what each means as an experiment."""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clare.errors import RunError, nearest
from clare.identity import flatten, identity
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment, completed

HOME = Path(__file__).resolve().parent
ROOT = HOME.parents[1]

# These say where and how it was computed, or are told by the place of the file: no two rows differ in them.
NEUTRAL = re.compile(r"(engine\..*|data\.root|stream\.evaluate_on|name|seed|method\.name)")
PATHS = ("backbone.weights",)
OF_QUADRATIC = {"method.head.own_share", "method.head.num_directions"}


@dataclass(frozen=True)
class Row:
    """A method with settings; its id names the folder of its results and never changes."""

    id: str
    method: str
    title: str
    settings: tuple[str, ...]
    on: Mapping[str, tuple[str, ...]]

    @property
    def is_plain(self) -> bool:
        """Whether the row has the settings that the preset gives its method."""
        return not self.settings and not self.on

    def settings_on(self, stream: str) -> tuple[str, ...] | None:
        """Return what differs from the preset on a stream, or nothing where the row is not meant for it."""
        return self.on.get(stream) if self.on else self.settings


@dataclass(frozen=True)
class Study:
    """What was to be measured."""

    titles: Mapping[str, str]
    presets: Mapping[str, str]
    """Each stream's preset as the command line takes it, with the overlay where it has one."""
    rows: Mapping[str, Row]
    training_bytes: Mapping[str, int]
    """What each stream's training images take as pixels, none counted larger than the backbone sees it."""

    def row(self, name: str) -> Row:
        """Return a row by its id."""
        if name not in self.rows:
            raise RunError(f"study.toml has no row '{name}'{nearest(name, self.rows)}; correct the id or add the row")
        return self.rows[name]

    def experiment(self, stream: str, row: Row, seed: int | None = None) -> Experiment | None:
        """Return what a row means on a stream, or nothing where it is not meant for it."""
        settings = row.settings_on(stream)
        preset = re.sub(r"\+(?!/)", f"+{ROOT}/", self.presets[stream])
        return None if settings is None else make_experiment(preset, row.method, settings, seed)

    def find(self, stream: str, settings: Mapping[str, Any]) -> Row | None:
        """Return the row whose settings a run on a stream has."""
        wanted = telling(completed(dict(settings)))
        for row in self.rows.values():
            if row.method == settings["method"]["name"]:
                experiment = self.experiment(stream, row)
                if experiment and telling(experiment.model_dump(mode="json")) == wanted:
                    return row
        return None


def telling(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings on which figures depend, so that equal runs of two machines are seen to be equal."""
    flat = flatten(identity(settings))
    # Records of before say `strategy`, and what other heads than the quadratic one did not look at.
    idle = OF_QUADRATIC if flat.get("method.head.strategy", "quadratic") != "quadratic" else set()
    kept = {key: value for key, value in flat.items() if not NEUTRAL.fullmatch(key) and key not in idle}
    return {key: re.split(r"[/\\]", value)[-1] if key in PATHS else value for key, value in kept.items()}


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return a hash of the settings on which figures depend, as they were recorded."""
    text = json.dumps(telling(settings), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_study(path: Path = HOME / "study.toml") -> Study:
    """Read study.toml."""
    try:
        values = tomllib.loads(path.read_text())
        streams: dict[str, Any] = values["streams"]
        overlay = (path.resolve().parent / values["overlay"]).relative_to(ROOT)
        rows = {name: _row(name, row) for name, row in values["rows"].items()}
        presets = {name: f"{name}+{overlay}" if stream["overlay"] else name for name, stream in streams.items()}
        titles = {name: str(stream["title"]) for name, stream in streams.items()}
        sizes = {name: int(stream["training_bytes"]) for name, stream in streams.items()}
        return Study(titles, presets, rows, sizes)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"{path.name} is no valid study ({error!r}); correct it") from None


def _row(name: str, row: Mapping[str, Any]) -> Row:
    """Check and type a row."""
    unknown = row.keys() - {"method", "title", "set", "on"}
    if unknown or not re.fullmatch(r"[a-z0-9.-]{1,50}", name) or ("set" in row and "on" in row):
        raise ValueError(f"row '{name}'")
    settings = tuple(map(str, row.get("set", ())))
    return Row(
        id=name,
        method=str(row["method"]),
        title=str(row.get("title", _title(str(row["method"]), settings))),
        settings=settings,
        on={stream: tuple(map(str, each)) for stream, each in row.get("on", {}).items()},
    )


def _title(method: str, settings: Sequence[str]) -> str:
    """Name a row by its method and what differs."""
    return ", ".join([method, *(each.removeprefix("method.") for each in settings)])
