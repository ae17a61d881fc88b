"""The bottleneck adapter beside every MLP, all of its scalars in one flat parameter.

Shapes: N coordinates, L blocks, D width of the residual stream, R bottleneck.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from pydantic import Field
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from clare.backbones.attach import replace_blocks, restore_blocks
from clare.backbones.stages import attended, mlp_update
from clare.settings import Settings
from clare.tuners.tuner import Tuner


class AdapterSettings(Settings):
    """The shape of the adapter, after AdaptFormer."""

    bottleneck: int = Field(64, ge=1, le=4096, description="Width of the adapter's hidden layer.")
    scale: float = Field(0.1, gt=0, le=100, description="Constant factor on the adapter's output.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on the hidden layer while training.")


class AdaptedBlock(nn.Module):
    """A plain timm block with the adapter's output added to the residual stream outside LayerScale and drop-path."""

    def __init__(self, block: Block, adapter: "FlatAdapter", index: int) -> None:
        super().__init__()
        self.block = block
        self.index = index
        # A tuple hides the adapter from the module tree: it belongs to the method, not to the backbone.
        self._adapter = (adapter,)

    def forward(self, x: Tensor) -> Tensor:
        """Run attention, then the MLP and the adapter side by side on the same residual stream."""
        block = self.block
        if not self._adapter[0].is_active:
            outputs: Tensor = block(x)
            return outputs
        x = attended(block, x)
        return x + mlp_update(block, x) + self._adapter[0].branch(self.index, x)


PARTS = ("down", "down_bias", "up", "up_bias")
"""What an adapter is made of, in the order of the flat parameter."""


class FlatAdapter(Tuner):
    """All adapter coordinates as one flat parameter, beside their initial values."""

    initial: Tensor

    def __init__(
        self, vit: VisionTransformer, settings: AdapterSettings, generator: torch.Generator, keeps_initial: bool = True
    ) -> None:
        """Attach an adapter to every block; its initial values are saved with it only where they are to be kept."""
        super().__init__()
        self.settings = settings
        width, hidden = int(vit.embed_dim), settings.bottleneck
        self.num_blocks = len(vit.blocks)
        self.shapes = [(hidden, width), (hidden,), (width, hidden), (width,)]
        self.block_size = sum(math.prod(shape) for shape in self.shapes)
        initial = initial_values(self.num_blocks, width, hidden, generator)
        self.values = nn.Parameter(initial.clone(), requires_grad=False)
        self.register_buffer("initial", initial, persistent=keeps_initial)
        self._weights: list[tuple[Tensor, ...]] = []
        self._is_other = False
        self._replacement: Tensor | None = None
        replace_blocks(vit, lambda block, index: AdaptedBlock(block, self, index))

    @contextmanager
    def spread(self, other: Tensor | None = None) -> Iterator[None]:
        """Split the flat parameter once for all blocks of a forward pass; other values are used without dropout."""
        sizes = [math.prod(shape) for shape in self.shapes] * self.num_blocks
        kind = self.values.device.type
        # One cast of the flat vector, where autocast would make one of every slice.
        own = self.values if self._replacement is None else self._replacement
        values = own if other is None else other
        values = values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values
        shapes = self.shapes * self.num_blocks
        parts = [part.view(shape) for part, shape in zip(torch.split(values, sizes), shapes, strict=True)]
        self._weights = [tuple(parts[4 * i : 4 * i + 4]) for i in range(self.num_blocks)]
        self._is_other = other is not None
        try:
            yield
        finally:
            self._weights = []

    @contextmanager
    def replaced(self, values: Tensor) -> Iterator[None]:
        """Let other values, such as those made of the flat parameter, take its place, with dropout as ever."""
        self._replacement = values
        try:
            yield
        finally:
            self._replacement = None

    def unit_norms(self, movement: Tensor) -> Tensor:
        """Return for each coordinate how far its hidden unit moved; a block's output biases count as one unit."""
        down, down_bias, up, up_bias = torch.split(
            movement.view(self.num_blocks, -1), [math.prod(shape) for shape in self.shapes], dim=1
        )
        down, up = down.reshape(-1, *self.shapes[0]), up.reshape(-1, *self.shapes[2])
        units = (down.square().sum(2) + down_bias.square() + up.square().sum(1)).sqrt()
        biases = up_bias.norm(dim=1, keepdim=True).expand_as(up_bias)
        parts = (units[:, :, None].expand_as(down).flatten(1), units, units[:, None].expand_as(up).flatten(1), biases)
        return torch.cat(parts, 1).flatten()

    def parts(self) -> dict[str, Tensor]:
        """Return the matrices and biases out of the flat parameter, by block and part."""
        sizes = [math.prod(shape) for shape in self.shapes]
        return {
            f"{index}.{name}": part.view(shape)
            for index, row in enumerate(self.values.view(self.num_blocks, -1))
            for name, part, shape in zip(PARTS, torch.split(row, sizes), self.shapes, strict=True)
        }

    @property
    def is_active(self) -> bool:
        """Whether a forward pass is adapted."""
        return len(self._weights) > 0

    def detach(self, vit: VisionTransformer) -> None:
        """Put the bare blocks back."""
        restore_blocks(vit)

    def branch(self, index: int, x: Tensor) -> Tensor:
        """Return scale * up(dropout(relu(down(x)))) of one block."""
        down, down_bias, up, up_bias = self._weights[index]
        drops = self.training and not self._is_other
        hidden = F.dropout(F.relu(F.linear(x, down, down_bias)), self.settings.dropout, drops)
        return self.settings.scale * F.linear(hidden, up, up_bias)


def initial_values(num_blocks: int, width: int, hidden: int, generator: torch.Generator) -> Tensor:
    """Draw down-projections Kaiming-uniform with a = sqrt(5); up-projections and biases are zero."""
    bound = 1 / math.sqrt(width)
    blocks = []
    for _ in range(num_blocks):
        down = torch.empty(hidden * width).uniform_(-bound, bound, generator=generator)
        blocks += [down, torch.zeros(hidden + width * hidden + width)]
    return torch.cat(blocks)
