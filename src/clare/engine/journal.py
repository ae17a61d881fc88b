"""What is remembered of a task that is being learnt, so that it can go on after a crash."""

from torch import Tensor

from clare.methods.state import Snapshot
from clare.steps import Phase


class Journal:
    """Finished steps of the current task and the last epoch of the step in progress; this one keeps nothing."""

    def start(self) -> Snapshot | None:
        """Return the state in which the task began, if it is at hand."""

    def finished(self, step: int) -> dict[str, Tensor] | None:
        """Return what a finished step left, or nothing when it is not finished."""

    def finish(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Remember what a step left."""

    def epoch(self, step: int) -> tuple[int, dict[str, Tensor]] | None:
        """Return the next epoch of a step in progress and its state, if one was saved."""

    def save_epoch(self, step: int, epoch: int, tensors: dict[str, Tensor]) -> None:
        """Remember the state from which an epoch starts."""

    def phase_done(self, phase: Phase, losses: list[float], seconds: float) -> None:
        """Note a finished phase."""

    def notice(self, text: str) -> None:
        """Note something the user should know."""
