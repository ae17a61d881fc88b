"""The bottleneck adapter beside the last branch of every block, all of its scalars in one flat parameter.

Shapes: N coordinates, L blocks, D width of the residual stream, R bottleneck.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.attach import BranchedBlock, replace_blocks, restore_blocks
from clare.backbones.families import Model, family_of
from clare.settings import Settings
from clare.tuners.tuner import Tuner


class AdapterSettings(Settings):
    """The shape of the adapter, after AdaptFormer."""

    bottleneck: int = Field(64, ge=1, le=4096, description="Width of the adapter's hidden layer.")
    scale: float = Field(0.1, gt=0, le=100, description="Constant factor on the adapter's output.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on the hidden layer while training.")


PARTS = ("down", "down_bias", "up", "up_bias")
"""What an adapter is made of, in the order of the flat parameter."""


class FlatAdapter(Tuner):
    """All adapter coordinates as one flat parameter, beside their initial values."""

    initial: Tensor

    def __init__(
        self, model: Model, settings: AdapterSettings, generator: torch.Generator, keeps_initial: bool = True
    ) -> None:
        """Attach an adapter to every block; its initial values are saved with it only where they are to be kept."""
        super().__init__()
        self.settings = settings
        widths = family_of(model).widths(model)
        self.shapes = [part_shapes(width, settings.bottleneck) for width in widths]
        initial = initial_values(widths, settings.bottleneck, generator)
        self.values = nn.Parameter(initial.clone(), requires_grad=False)
        self.register_buffer("initial", initial, persistent=keeps_initial)
        self._weights: list[tuple[Tensor, ...]] = []
        self._is_other = False
        replace_blocks(model, lambda block, index: BranchedBlock(model, block, self, index))

    @property
    def block_sizes(self) -> list[int]:
        """How many coordinates each block has, one block after another."""
        return [sum(map(math.prod, shapes)) for shapes in self.shapes]

    @contextmanager
    def spread(self, other: Tensor | None = None) -> Iterator[None]:
        """Split the flat parameter once for all blocks of a forward pass; other values are used without dropout."""
        kind = self.values.device.type
        # One cast of the flat vector, where autocast would make one of every slice.
        values = self.values if other is None else other
        values = values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values
        self._weights = self._split(values)
        self._is_other = other is not None
        try:
            yield
        finally:
            self._weights = []

    def parts(self) -> dict[str, Tensor]:
        """Return the matrices and biases out of the flat parameter, by block and part."""
        return {
            f"{index}.{name}": part
            for index, parts in enumerate(self._split(self.values))
            for name, part in zip(PARTS, parts, strict=True)
        }

    def _split(self, values: Tensor) -> list[tuple[Tensor, ...]]:
        """Return the matrices and biases of each block as views of a flat vector."""
        shapes = [shape for of_block in self.shapes for shape in of_block]
        split = torch.split(values, [math.prod(shape) for shape in shapes])
        parts = [part.view(shape) for part, shape in zip(split, shapes, strict=True)]
        return [tuple(parts[4 * i : 4 * i + 4]) for i in range(len(self.shapes))]

    @property
    def is_active(self) -> bool:
        """Whether a forward pass is adapted."""
        return len(self._weights) > 0

    def detach(self, model: Model) -> None:
        """Put the bare blocks back."""
        restore_blocks(model)

    def branch(self, index: int, x: Tensor) -> Tensor:
        """Return scale * up(dropout(relu(down(x)))) of one block."""
        down, down_bias, up, up_bias = self._weights[index]
        drops = self.training and not self._is_other
        hidden = F.dropout(F.relu(F.linear(x, down, down_bias)), self.settings.dropout, drops)
        return self.settings.scale * F.linear(hidden, up, up_bias)


def part_shapes(width: int, hidden: int) -> list[tuple[int, ...]]:
    """Return the shapes of an adapter's parts in a block of this width."""
    return [(hidden, width), (hidden,), (width, hidden), (width,)]


def initial_values(widths: Sequence[int], hidden: int, generator: torch.Generator) -> Tensor:
    """Draw down-projections Kaiming-uniform with a = sqrt(5); up-projections and biases are zero."""
    blocks = []
    for width in widths:
        bound = 1 / math.sqrt(width)
        down = torch.empty(hidden * width).uniform_(-bound, bound, generator=generator)
        blocks += [down, torch.zeros(hidden + width * hidden + width)]
    return torch.cat(blocks)
