"""SD-LoRA: low-rank directions of all tasks are kept and normalised, and every task learns all their magnitudes anew.

Wu et al.: "SD-LoRA: Scalable Decoupled Low-Rank Adaptation for Class Incremental Learning" (ICLR 2025).
Shapes: L blocks, P = 2 parts (query, value), D width, R rank, T earlier tasks.
"""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.growth import Growing
from clare.heads.trained import TrainedSettings
from clare.methods._shared.low_rank import LowRankMethod
from clare.methods._shared.recipe import EpochSettings
from clare.methods.base import MethodSettings, register
from clare.steps import Group, Learning, Sgd, TaskInfo
from clare.tuners.lora import QkvLora, unit_norm


class SdLoraSettings(MethodSettings, EpochSettings):
    """The authors' hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"head": TrainedSettings(form="linear"), "batch_size": 128, "learning_rate": 8e-3}
    rank: int = Field(10, ge=1, le=4096, description="Rank of a task's direction of a query or value projection.")
    reduces_rank: bool = Field(
        False, description="Take 0.8 of the rank from the fifth task on, and 0.6 from the ninth (SD-LoRA-RR)."
    )
    magnitude: float = Field(0.8, ge=-100, le=100, description="Where every task starts all magnitudes, old and new.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")


@register
class SdLora(LowRankMethod, Growing):
    """One low-rank direction per task on queries and values, one magnitude per direction."""

    # Steps are not recorded: directions and magnitudes grow with every task.
    name = "sdlora"
    summary = "adds a low-rank direction of queries and values per task and learns the magnitudes of all directions"
    family = "LoRA"
    tiny: ClassVar[dict[str, Any]] = {"rank": 4, "learning_rate": 0.05}
    grows = ("earlier_down", "earlier_up", "magnitudes")
    settings: SdLoraSettings
    earlier_down: Tensor
    earlier_up: Tensor

    def __init__(self, backbone: Backbone, settings: SdLoraSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.lora = QkvLora(backbone.vit, settings.rank, ("q", "v"), shared_down=False)
        self.register_buffer("earlier_down", self.lora.down.data[:, :, :0])
        self.register_buffer("earlier_up", self.lora.up.data[..., :0])
        self.magnitudes = nn.Parameter(torch.full((1,), settings.magnitude), requires_grad=False)

    def update(self) -> Tensor:
        """Return the sum of all directions times their magnitudes, shape (L, P, D, D)."""
        ranks = torch.tensor([self.rank_of(index) for index in range(len(self.magnitudes) - 1)], dtype=torch.int64)
        scales = self.magnitudes[:-1].repeat_interleave(ranks.to(self.magnitudes.device), output_size=self.num_earlier)
        return (self.earlier_up * scales) @ self.earlier_down + self.magnitudes[-1] * self.lora.product()

    def rank_of(self, index: int) -> int:
        """Return the rank of a task's direction, at least one."""
        share = 1.0 if index < 4 or not self.settings.reduces_rank else 0.8 if index < 8 else 0.6
        return max(1, round(share * self.settings.rank))

    @property
    def num_earlier(self) -> int:
        """The ranks of all earlier directions together."""
        return self.earlier_down.shape[2]

    def learn(self, task: TaskInfo) -> Learning:
        """Fix the last direction, draw a new one, and train it with all magnitudes and the new rows."""
        settings = self.settings
        self.head.open_block(len(task.classes), task.generator("rows"))
        if self.tasks:
            self.fix_direction()
        self.lora.draw(task.generator("down"))
        self.lora.up.zero_()
        self.magnitudes.fill_(settings.magnitude)
        # Rows beyond the task's rank are no part of the product, which has them at zero in both factors.
        used = torch.arange(settings.rank, device=self.lora.down.device) < self.rank_of(task.index)
        self.lora.down[:, :, ~used] = 0
        down = Group(self.lora.down, mask=used[:, None].expand_as(self.lora.down))
        up = Group(self.lora.up, mask=used.expand_as(self.lora.up))
        groups = [down, up, Group(self.magnitudes), *self.head.groups()]
        optimizer = Sgd(settings.learning_rate, settings.momentum, schedule="constant")
        yield self.phase("train", settings.epochs, groups, optimizer=optimizer)
        yield from self.head.finish(len(task.classes))

    def fix_direction(self) -> None:
        """Keep the last task's direction, divided by the norms of its factors, and make room for another magnitude."""
        rank = self.rank_of(len(self.magnitudes) - 1)
        self.earlier_down = torch.cat([self.earlier_down, unit_norm(self.lora.down.data)[:, :, :rank]], dim=2)
        self.earlier_up = torch.cat([self.earlier_up, unit_norm(self.lora.up.data)[..., :rank]], dim=3)
        self.magnitudes = nn.Parameter(self.magnitudes.new_zeros(len(self.magnitudes) + 1), requires_grad=False)
