"""The bottleneck adapter beside the last branch of every block, all of its scalars in one flat parameter.

Shapes: N coordinates, L blocks, D width of the residual stream, R bottleneck.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.families import Model, family_of
from clare.settings import Settings
from clare.tuners.tuner import Branches, Tuner


class AdapterSettings(Settings):
    """The shape of the adapter, after AdaptFormer."""

    bottleneck: int = Field(64, ge=1, le=4096, description="Width of the adapter's hidden layer.")
    scale: float = Field(0.1, gt=0, le=100, description="Constant factor on the adapter's output.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on the hidden layer while training.")


PARTS = ("down", "down_bias", "up", "up_bias")
"""What an adapter is made of, in the order of the flat parameter."""
Weights = tuple[Tensor, ...]
"""These parts of one block."""


class FlatAdapter(Branches, Tuner):
    """All adapter coordinates as one flat parameter, beside their initial values."""

    initial: Tensor

    def __init__(
        self, model: Model, settings: AdapterSettings, generator: torch.Generator, keeps_initial: bool = True
    ) -> None:
        """Attach an adapter to every block; its initial values are saved with it only where they are to be kept."""
        super().__init__()
        self.settings = settings
        self.widths = family_of(model).widths(model)
        self.bottlenecks = [settings.bottleneck]
        """Of adapters side by side, each with coordinates of its own after those of the one before."""
        initial = initial_values(self.widths, settings.bottleneck, generator)
        self.values = nn.Parameter(initial.clone(), requires_grad=False)
        self.register_buffer("initial", initial, persistent=keeps_initial)
        self._weights: list[Weights] = []
        self._is_other = False
        self._replacement: Tensor | None = None
        self.attach_branches(model)

    @property
    def num_blocks(self) -> int:
        """How many blocks have an adapter."""
        return len(self.widths)

    def spread(self, other: Tensor | None = None) -> AbstractContextManager[None]:
        """Split the flat parameter once for all blocks of a forward pass; other values are used without dropout."""
        kind = self.values.device.type
        # One cast of the flat vector, where autocast would make one of every slice.
        own = self.values if self._replacement is None else self._replacement
        values = own if other is None else other
        values = values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values
        return self.switched(_weights=self._split(values), _is_other=other is not None)

    def replaced(self, values: Tensor) -> AbstractContextManager[None]:
        """Let other values, such as those made of the flat parameter, take its place, with dropout as ever."""
        return self.switched(_replacement=values)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the first adapter's matrices and biases as they lie in the flat parameter, by block and part."""
        sizes = [part_shapes(width, self.bottlenecks[0]) for width in self.widths]
        return {f"{i}.{name}": shape for i, block in enumerate(sizes) for name, shape in zip(PARTS, block, strict=True)}

    @property
    def block_sizes(self) -> list[int]:
        """How many coordinates each block has, one after another, in each of the adapters side by side."""
        return [sum(map(math.prod, part_shapes(width, hidden))) for hidden in self.bottlenecks for width in self.widths]

    def grow(self, hidden: int, generator: torch.Generator) -> int:
        """Put a fresh adapter of this bottleneck beside the others, which changes nothing yet; return its size."""
        fresh = initial_values(self.widths, hidden, generator).to(self.initial)
        self.bottlenecks.append(hidden)
        self.values.data = torch.cat([self.values.data, fresh])
        self.initial = torch.cat([self.initial, fresh])
        return len(fresh)

    def resize(self, bottlenecks: list[int]) -> None:
        """Make room for saved adapters before they are loaded."""
        if bottlenecks != self.bottlenecks:
            self.bottlenecks = list(bottlenecks)
            self.values.data = self.initial.new_zeros(sum(self.block_sizes))
            self.initial = torch.zeros_like(self.values.data)

    def unit_norms(self, movement: Tensor) -> Tensor:
        """Return for each coordinate how far its hidden unit moved; a block's output biases count as one unit."""
        norms = []
        for down, down_bias, up, up_bias in (weights for side in self._sides(movement) for weights in side):
            units = (down.square().sum(1) + down_bias.square() + up.square().sum(0)).sqrt()
            biases = up_bias.norm().expand_as(up_bias)
            norms += [units[:, None].expand_as(down).flatten(), units, units.expand_as(up).flatten(), biases]
        return torch.cat(norms)

    def parts(self) -> dict[str, Tensor]:
        """Return the matrices and biases out of the flat parameter, by block and part."""
        blocks = enumerate(self._split(self.values))
        return {f"{i}.{name}": part for i, block in blocks for name, part in zip(PARTS, block, strict=True)}

    def _sides(self, values: Tensor) -> list[list[Weights]]:
        """Return the parts of every block, for each of the adapters side by side."""
        sides = ((width, hidden) for hidden in self.bottlenecks for width in self.widths)
        shapes = [shape for side in sides for shape in part_shapes(*side)]
        pieces = torch.split(values, [math.prod(shape) for shape in shapes])
        parts = [part.view(shape) for part, shape in zip(pieces, shapes, strict=True)]
        blocks = [tuple(parts[start : start + 4]) for start in range(0, len(parts), 4)]
        return [blocks[start : start + self.num_blocks] for start in range(0, len(blocks), self.num_blocks)]

    def _split(self, values: Tensor) -> list[Weights]:
        """Return the parts of every block; adapters side by side are one with the hidden units of all."""
        first, *others = self._sides(values)
        return [_joined(sides) for sides in zip(first, *others, strict=True)] if others else first

    @property
    def is_active(self) -> bool:
        """Whether a forward pass is adapted."""
        return len(self._weights) > 0

    def branch(self, index: int, x: Tensor) -> Tensor:
        """Return scale * up(dropout(relu(down(x)))) of one block."""
        down, down_bias, up, up_bias = self._weights[index]
        drops = self.training and not self._is_other
        hidden = F.dropout(F.relu(F.linear(x, down, down_bias)), self.settings.dropout, drops)
        return self.settings.scale * F.linear(hidden, up, up_bias)


def _joined(sides: tuple[Weights, ...]) -> Weights:
    """Return the parts of one adapter that does what several do side by side."""
    down, down_bias, up, up_bias = zip(*sides, strict=True)
    return torch.cat(down), torch.cat(down_bias), torch.cat(up, 1), torch.stack(up_bias).sum(0)


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
