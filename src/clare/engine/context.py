"""What every part of the engine needs to know, and whom it tells what happens."""

from dataclasses import dataclass, field
from typing import Protocol

from clare.data.transforms import Transforms
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import Steps
from clare.errors import SettingsError


class Listener(Protocol):
    """Someone who watches a run."""

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """A task begins."""

    def step(self, name: str, num_epochs: int) -> None:
        """A phase or a pass begins."""

    def epoch(self, epoch: int, num_batches: int) -> None:
        """An epoch, or a sweep over the data, begins."""

    def batch(self) -> None:
        """A batch is done."""

    def notice(self, text: str) -> None:
        """Something the user should know."""


class Silence:
    """A listener that ignores everything."""

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Ignore it."""

    def step(self, name: str, num_epochs: int) -> None:
        """Ignore it."""

    def epoch(self, epoch: int, num_batches: int) -> None:
        """Ignore it."""

    def batch(self) -> None:
        """Ignore it."""

    def notice(self, text: str) -> None:
        """Ignore it."""


@dataclass(frozen=True)
class Context:
    """The machine, the transforms, the seed and the audience of a run."""

    ranks: Ranks
    transforms: Transforms
    settings: EngineSettings
    seed: int
    listener: Listener
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        """Make the store of compiled steps, which lives as long as the run."""
        compiles = self.settings.compile == "graph"
        if compiles and not self.ranks.can_capture:
            raise SettingsError("`engine.compile` is graph, which needs one GPU and one process; set it to off")
        object.__setattr__(self, "steps", Steps(self.ranks, compiles))
