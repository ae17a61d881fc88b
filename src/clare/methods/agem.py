"""A-GEM: a step may not raise the loss on a batch of kept pictures; where it would, that part of it is taken away.

Chaudhry, Ranzato, Rohrbach, Elhoseiny: "Efficient Lifelong Learning with A-GEM" (ICLR 2019). Shapes: N numbers, G
losses.
"""

from typing import Any, ClassVar

from torch import Tensor

from clare.methods._shared.replayed import ReplayMethod, ReplaySettings
from clare.methods.base import register
from clare.steps import Correction, Phase

TINY = 1e-12
"""What keeps a division by a gradient of nothing from being one by zero."""


class AgemSettings(ReplaySettings):
    """The recipe without momentum and decay, which would bring back what was taken away."""

    defaults: ClassVar[Any] = {"momentum": 0.0, "weight_decay": 0.0}


@register
class AverageGem(ReplayMethod):
    """Steps that do no harm to earlier tasks on average."""

    name = "agem"
    summary = "takes from each step what would raise the loss on a batch of kept pictures"
    settings_type = AgemSettings
    settings: AgemSettings

    def train_phase(self) -> Phase:
        """Return the phase over the task's images, each with a kept picture beside it once there are any."""
        replay = self.replay(1)
        if replay is None:
            return self.phase("train", self.settings.epochs, self.groups())
        correction = Correction("a-gem", (self.memory_loss,), harmless)
        more = {"loss": self.task_loss, "replay": replay, "correction": correction}
        return self.phase("train", self.settings.epochs, self.groups(), **more)

    def memory_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of the pictures beside them."""
        return self.loss(images[:, 1], labels[:, 1])


def harmless(gradient_N: Tensor, others_GN: Tensor) -> Tensor:
    """Return the gradient without what points against that of the one further loss."""
    other = others_GN[0]
    return gradient_N - (gradient_N @ other).clamp(max=0) / (other @ other + TINY) * other
