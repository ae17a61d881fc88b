"""HAT: every task learns gates on hidden units, which become hard, and what feeds or reads a used unit stands still.

Serrà, Suris, Miron, Karatzoglou: "Overcoming Catastrophic Forgetting with Hard Attention to the Task" (ICML 2018).
Shapes: U units with gates and one more without, N numbers, B images.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.errors import BackboneError
from clare.methods._shared.masked import MaskedMethod, NetworksSettings, passing
from clare.methods.base import register
from clare.steps import Choosing, Group, TaskInfo

FEEDS, BIASES = (".down", ".mlp.fc1.weight"), (".down_bias", ".mlp.fc1.bias")
READS, SHIFTS = (".up", ".mlp.fc2.weight"), (".up_bias", ".mlp.fc2.bias")
"""Names of what feeds the hidden units of an adapter or of a block's MLP, and of what makes outputs of them."""
FARTHEST = 6.0
"""Beyond this an embedding counts as if it were here."""


class HatSettings(NetworksSettings):
    """How hard gates become, and what a unit costs."""

    defaults: ClassVar[Any] = {"weight_decay": 0.0}
    hardness: float = Field(400.0, ge=1, le=1e6, description="Factor on embeddings at the end of an epoch: s_max.")
    gates: Literal["hidden", "all"] = Field(
        "hidden", description="Units that have gates: hidden ones, or the outputs of each adapter as well."
    )
    sparsity: float = Field(0.75, ge=0, le=1000, description="Weight of the share of free units that a task takes.")


@register
class Hat(MaskedMethod):
    """Gates on units, hard at the end of every epoch; all that belongs to no unit is the first task's."""

    name = "hat"
    summary = "learns hard gates on units for each task and freezes what belongs to units in use"
    settings_type = HatSettings
    settings: HatSettings
    units: Tensor
    outputs: Tensor
    reads: Tensor
    position: Tensor
    used: Tensor

    def __init__(self, backbone: Backbone, settings: HatSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        num_units, units, outputs, reads = units_of(self.tuner.shapes, settings.gates == "all")
        self.register_buffer("units", units, persistent=False)
        self.register_buffer("outputs", outputs, persistent=False)
        self.register_buffer("reads", reads, persistent=False)
        self.register_buffer("position", torch.zeros(()), persistent=False)
        self.register_buffer("used", torch.zeros(num_units), persistent=False)
        self.masks = torch.zeros(0, num_units + 1, dtype=torch.bool)
        self.embedding = nn.Parameter(torch.zeros(num_units), requires_grad=False)

    def spread(self, mask_U: Tensor) -> Tensor:
        """Return which numbers lie between units of a mask, or belong to one."""
        return mask_U[self.units] & mask_U[self.outputs]

    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train gates, what belongs to free units, and the rows; then harden the gates."""
        draw = torch.randn(len(self.embedding), generator=task.generator("gates"))
        self.embedding.copy_(draw)
        self.used.copy_(self.masks.any(0)[:-1])
        groups = [Group(self.values, mask=self.free), Group(self.embedding), *self.head.groups()]
        yield self.phase("train", self.settings.epochs, groups, position=self.position)
        return torch.cat([self.embedding > 0, self.masks.new_ones(1)])

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy under the gates as hard as they are by now, and what the units cost."""
        gates = gates_at(self.embedding, annealed(self.position, self.settings.hardness), self.settings.hardness)
        on_all = torch.cat([gates, gates.new_ones(1)])
        values = torch.where(self.reads, self.values * on_all[self.units], self.values) * on_all[self.outputs]
        losses = self.head.block_loss(self.features_of(images, values), labels)
        return losses + self.settings.sparsity * taken(gates, self.used)


def annealed(position: Tensor, hardness: float) -> Tensor:
    """Return the factor on embeddings at a place in an epoch, from 0 for its first step to 1 for its last."""
    return 1 / hardness + (hardness - 1 / hardness) * position


def gates_at(embedding_U: Tensor, factor: Tensor, hardness: float) -> Tensor:
    """Return the gates under a factor, with gradients as the authors compensate them.

    They multiply the gradient by hardness / factor and by what makes the sigmoid's slope that of factor one.
    """
    held = passing(embedding_U.clamp(-FARTHEST, FARTHEST), embedding_U)
    return passing((factor * held).sigmoid(), hardness * held.sigmoid())


def taken(gates_U: Tensor, used_U: Tensor) -> Tensor:
    """Return how far gates are open on units that no earlier task uses, as a share of these units."""
    free = 1 - used_U
    return (gates_U * free).sum() / free.sum().clamp(min=1)


class Units(NamedTuple):
    """The units with gates, and to which of them each number belongs; the one more stands for none."""

    num_units: int
    units: Tensor
    """The hidden unit that a number feeds or reads, shape (N,)."""
    outputs: Tensor
    """The output that a number goes into, shape (N,)."""
    reads: Tensor
    """Whether a number reads a hidden unit, shape (N,)."""


def units_of(shapes: Mapping[str, tuple[int, ...]], has_outputs: bool) -> Units:
    """Return the hidden units, and the outputs where these have gates as well."""
    last, made, num_units = torch.arange(0), torch.arange(0), 0
    units, outputs, reads = [], [], []
    for name, shape in shapes.items():
        size, is_read = math.prod(shape), name.endswith(READS) and shape[1] == len(last)
        unit = output = torch.full((size,), -1)
        if name.endswith(FEEDS):
            last = num_units + torch.arange(shape[0])
            num_units += shape[0]
        if is_read:
            unit = last.repeat(shape[0])
            made = num_units + torch.arange(shape[0] if has_outputs else 0)
            num_units += len(made)
        elif name.endswith(FEEDS + BIASES):
            unit = last.repeat_interleave(size // len(last))
        if len(made) and (is_read or name.endswith(SHIFTS)):
            output = made.repeat_interleave(size // len(made))
        units.append(unit)
        outputs.append(output)
        reads.append(torch.full((size,), is_read))
    if not any(each.any() for each in reads):
        raise BackboneError(
            f"HAT finds no hidden units between {FEEDS[1]} and {READS[1]}; set `method.tunes` to adapter"
        )
    of_none = num_units + 1
    return Units(num_units, torch.cat(units) % of_none, torch.cat(outputs) % of_none, torch.cat(reads))
