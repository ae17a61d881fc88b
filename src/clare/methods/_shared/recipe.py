"""What the methods that train on a task's images have in common."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from clare.heads.contrast import Contrast
from clare.heads.kinds import AnyHead, PrototypeAfterTraining
from clare.methods.base import HeadOnlySettings, Method
from clare.methods.protocols import GrowsRoom, HasTinySettings, PlansTasks
from clare.steps import Adam, Group, Optimizer, Phase, Sgd


class EpochSettings(HeadOnlySettings):
    """How long a task is trained, and in what steps."""

    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training a task.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Images per step, over all ranks together.")
    learning_rate: float = Field(0.02, gt=0, le=100, description="Learning rate at the start of a task's training.")

    @property
    def optimizer(self) -> Optimizer:
        """What takes the steps: Adam at one rate, unless a method says otherwise."""
        return Adam(self.learning_rate)


class SgdSettings(EpochSettings):
    """Training by SGD, whose rate falls along a cosine."""

    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of what is being trained.")

    @property
    def optimizer(self) -> Sgd:
        """SGD with the cosine's rate falling after every epoch."""
        return Sgd(self.learning_rate, self.momentum, self.weight_decay)


class MarginSettings(SgdSettings):
    """Training by SGD with a margin between the cosines."""

    margin: float = Field(
        0.0, ge=0, le=2, description="What the cosine of an image's own class must be larger by, in the loss."
    )


class RecipeSettings(SgdSettings):
    """The recipe of training a task."""

    head: AnyHead = Field(PrototypeAfterTraining(), description="The classifier.")
    schedule: Literal["cosine", "cosine-steps"] = Field(
        "cosine", description="Let the rate fall along the cosine after every epoch, or after every step."
    )

    @property
    def optimizer(self) -> Sgd:
        """SGD with the schedule of the settings."""
        return replace(super().optimizer, schedule=self.schedule)


class RecipeMethod(Method, HasTinySettings):
    """A method whose phases follow one recipe."""

    settings: EpochSettings

    def phase(self, name: str, epochs: int, groups: list[Group], **more: Any) -> Phase:
        """Return a phase of the method's recipe over the task's images; `more` is what this one has otherwise."""
        recipe = {"loss": self.loss, "optimizer": self.settings.optimizer, "batch_size": self.settings.batch_size}
        return Phase(name, epochs, groups, **{**recipe, **more})


class ContrastMethod(RecipeMethod, PlansTasks, GrowsRoom):
    """A method whose loss may set a task's classes beside earlier ones."""

    contrast: Contrast

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Make room for the rows of all tasks where their number is known."""
        self.contrast.reserve((num_tasks or 0) * largest_task)

    @property
    def room(self) -> int:
        """Return the room for earlier rows, which grows where their number is unknown."""
        return len(self.contrast.rows)


class MarginMethod(RecipeMethod):
    """A method whose classes are told apart by a margin."""

    settings: MarginSettings

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, with the margin taken off the true cosine."""
        return self.head.block_loss(self.features(images), labels, self.settings.margin)
