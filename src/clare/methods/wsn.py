"""WSN: numbers and scores are learnt together; a task's network is what scores highest, and may hold earlier tasks'.

Kang and others: "Forget-free Continual Learning with Winning Subnetworks" (ICML 2022). Shapes: N numbers of a layer.
"""

from functools import partial
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.methods._shared.masked import MaskedMethod, MaskedSettings, passing
from clare.methods.base import register
from clare.seeds import generator_at
from clare.steps import Choosing, Group, TaskInfo


class WsnSettings(MaskedSettings):
    """How much of a layer a task's network has."""

    defaults: ClassVar[Any] = {"optimize": "adam", "weight_decay": 0.0, "learning_rate": 1e-3, "outside": "zero"}
    keep: float = Field(0.5, gt=0, le=1, description="Share of each layer that a task's network has.")


@register
class WinningSubnetworks(MaskedMethod):
    """Networks that overlap: any number can be in a task's mask, and changes only if no earlier task has it."""

    name = "wsn"
    summary = "learns scores beside the numbers, and gives each task the numbers that score highest"
    settings_type = WsnSettings
    settings: WsnSettings

    def __init__(self, backbone: Backbone, settings: WsnSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed, settings.outside)
        self.draw_zeros(settings)
        self.scores = nn.Parameter(self.drawn(generator_at(seed, "scores")), requires_grad=False)

    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train scores, free numbers and rows together, and keep what scores highest in the end."""
        groups = [Group(self.values, mask=self.free), Group(self.scores), *self.head.groups()]
        yield self.phase("train", self.settings.epochs, groups)
        return self.highest()

    def highest(self) -> Tensor:
        """Mark the numbers that are in the network by their scores, layer by layer."""
        return self.per_layer(partial(winners, self.settings.keep), self.scores.abs())

    def running(self) -> Tensor:
        """Return the network that scores highest."""
        return chosen(self.highest(), self.scores, self.values, self.outside)


def winners(keep: float, sizes_N: Tensor) -> Tensor:
    """Mark those of a layer's scores that reach the one below which the others are."""
    place = 1 + round((1 - keep) * (len(sizes_N) - 1))
    return sizes_N >= sizes_N.kthvalue(place).values


def chosen(mask_N: Tensor, scores_N: Tensor, values_N: Tensor, outside: Tensor) -> Tensor:
    """Return values inside a mask, whose gradient passes to the sizes of the scores as if these were the mask."""
    return outside + passing(mask_N.to(values_N), scores_N.abs()) * (values_N - outside)
