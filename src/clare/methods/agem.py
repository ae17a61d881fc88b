"""A-GEM: a step may not raise the loss on a batch of kept pictures; where it would, that part of it is taken away.

Chaudhry, Ranzato, Rohrbach, Elhoseiny: "Efficient Lifelong Learning with A-GEM" (ICLR 2019). Shapes: N numbers, G
losses.
"""

from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from clare.methods._shared.replayed import ReplayMethod, ReplaySettings
from clare.methods.base import register
from clare.steps import Correction

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
    settings: AgemSettings

    def pools(self, every: Tensor) -> tuple[Tensor, ...]:
        """Put one of all kept pictures beside every image."""
        return (every,)

    def correction(self, num_pools: int) -> Correction:
        """Take from a step what would raise the loss on the pictures beside its images."""
        return Correction("a-gem", (partial(self.loss_at, 1),), harmless)


def harmless(gradient_N: Tensor, others_GN: Tensor) -> Tensor:
    """Return the gradient without what points against that of the one further loss."""
    other = others_GN[0]
    return gradient_N - (gradient_N @ other).clamp(max=0) / (other @ other + TINY) * other
