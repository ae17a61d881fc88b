"""What every part of the engine needs to know, and whom it tells what happens."""

from dataclasses import dataclass, field
from typing import Protocol, cast

from clare.data.transforms import Transforms
from clare.engine.programs import Mode, Programs
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.errors import SettingsError
from clare.record import TaskEvent


class Listener(Protocol):
    """Someone who watches a run; who inherits from this may leave out what is of no interest."""

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """A task begins."""
        return

    def step(self, name: str, num_epochs: int) -> None:
        """A phase or a pass begins."""
        return

    def epoch(self, epoch: int, num_batches: int) -> None:
        """An epoch, or a sweep over the data, begins."""
        return

    def batch(self) -> None:
        """A batch is done."""
        return

    def trained(self, phase: str, epoch: int, loss: float, rate: float) -> None:
        """An epoch of a phase is done, with this mean loss, at this learning rate."""
        return

    def measured(self, task: TaskEvent) -> None:
        """A task is learnt, evaluated and committed; this is what the record has of it."""
        return

    def notice(self, text: str) -> None:
        """Something the user should know."""
        return


class Silence(Listener):
    """A listener that ignores everything."""


@dataclass(frozen=True)
class Context:
    """The machine, the transforms, the seed and the audience of a run."""

    ranks: Ranks
    transforms: Transforms
    settings: EngineSettings
    seed: int
    listener: Listener
    programs: Programs = field(init=False)

    def __post_init__(self) -> None:
        """Make the store of recorded programs, which lives as long as the run."""
        mode = program_mode(self.settings.compile, self.ranks.can_capture)
        object.__setattr__(self, "programs", Programs(self.ranks, mode, self.listener.notice))


def program_mode(choice: str, can_capture: bool) -> Mode:
    """Resolve `auto`, and refuse to record where that is impossible."""
    if choice == "auto":
        return "graph" if can_capture else "off"
    mode = cast(Mode, choice)
    if mode != "off" and not can_capture:
        raise SettingsError(f"`engine.compile` is {mode}, which needs one GPU and one process; set it to auto or off")
    return mode
