"""What the methods that train by SGD over a task's images have in common."""

from typing import Literal

from pydantic import Field

from clare.heads.kinds import AnyHead, PrototypeAfterTraining
from clare.methods.base import HeadOnlySettings, Method
from clare.steps import Group, Phase, Sgd


class RecipeSettings(HeadOnlySettings):
    """The recipe of training a task."""

    head: AnyHead = Field(PrototypeAfterTraining(), description="The classifier.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training a task.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Images per step, over all ranks together.")
    learning_rate: float = Field(0.02, gt=0, le=100, description="Learning rate at the start of the cosine schedule.")
    schedule: Literal["cosine", "cosine-steps"] = Field(
        "cosine", description="Let the rate fall along the cosine after every epoch, or after every step."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of what is being trained.")


class RecipeMethod(Method):
    """A method whose phases follow one recipe."""

    settings: RecipeSettings

    def phase(self, name: str, epochs: int, groups: list[Group]) -> Phase:
        """Return a phase of the method's recipe over the task's images."""
        settings = self.settings
        optimizer = Sgd(settings.learning_rate, settings.momentum, settings.weight_decay, settings.schedule)
        return Phase(name, epochs, groups, self.loss, optimizer, settings.batch_size)
