"""What every tuner of a frozen backbone is."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from torch import nn

from clare.backbones.families import Model
from clare.steps import Group


class Tuner(nn.Module, ABC):
    """Trained numbers attached to a frozen backbone, which act only where they are switched on."""

    @abstractmethod
    def spread(self) -> AbstractContextManager[None]:
        """Let the tuner act on the forward passes inside the context; outside, the backbone is bare."""

    @abstractmethod
    def detach(self, model: Model) -> None:
        """Take the tuner off the backbone, which is then what it was before."""

    def groups(self) -> list[Group]:
        """Return all that is trained."""
        return [Group(parameter) for parameter in self.parameters()]
