"""ER: each batch of a task beside one of kept pictures, under one cross-entropy over all classes so far.

Chaudhry and others: "On Tiny Episodic Memories in Continual Learning" (2019).
"""

from pydantic import Field
from torch import Tensor

from clare.methods._shared.replayed import ReplayMethod, ReplaySettings
from clare.methods.base import register


class ErSettings(ReplaySettings):
    """Which pictures are kept, and how many of them come beside an image."""

    replayed: int = Field(
        1, ge=1, le=16, description="Kept pictures beside every image of a task, drawn anew each time."
    )


@register
class ExperienceReplay(ReplayMethod):
    """Pictures of earlier tasks learnt again as if they were the task's own."""

    name = "er"
    summary = "learns kept pictures of earlier tasks again beside those of the task"
    settings: ErSettings

    def pools(self, every: Tensor) -> tuple[Tensor, ...]:
        """Put so many of all kept pictures beside every image."""
        return (every,) * self.settings.replayed

    def replay_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return for each image the mean cross-entropy over itself and the pictures beside it."""
        return self.loss(images.flatten(0, 1), labels.flatten()).view(labels.shape).mean(1)
