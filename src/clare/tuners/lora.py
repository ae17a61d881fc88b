"""Low-rank updates of the q, k or v rows of every block's fused projection.

Shapes: L blocks, P updated parts of the projection, D width, R rank, B images, N tokens of an image.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clare.backbones.attach import bare_parameter
from clare.backbones.families import Model
from clare.errors import SettingsError
from clare.tuners.limits import fused_projections, one_width
from clare.tuners.tuner import Attachment, uniform

Part = Literal["q", "k", "v"]
PARTS: tuple[Part, ...] = ("q", "k", "v")


class QkvLora(Attachment):
    """One pair of factors for each block, and a way to add their products, or any others, to the projections."""

    left: Tensor
    right: Tensor

    def __init__(
        self,
        model: Model,
        rank: int,
        parts: tuple[Part, ...],
        shared_down: bool,
        is_separate: bool = False,
        num_kept: int = 0,
    ) -> None:
        """Take the parts, whether they share one down-projection, if updates stay separate, and what OPLoRA keeps."""
        super().__init__()
        self.is_separate = is_separate
        names = fused_projections(model, "low-rank updates of q, k and v")
        num_blocks, width = len(names), one_width(model, "")
        for name, size in (("rank", rank), ("kept_directions", num_kept)):
            if size > width:
                raise SettingsError(
                    f"`method.{name}` is {size}, but the backbone is {width} wide; set it to {width} or less"
                )
        self.places = tuple(PARTS.index(part) for part in parts)
        num_parts = len(parts)
        num_down = 1 if shared_down else num_parts
        self.down = nn.Parameter(torch.zeros(num_blocks, num_down, rank, width), requires_grad=False)
        self.up = nn.Parameter(torch.zeros(num_blocks, num_parts, width, rank), requires_grad=False)
        self.num_kept = num_kept
        if num_kept:
            for name, part in zip(
                ("left", "right"), leading_directions(model, names, self.places, num_kept), strict=True
            ):
                self.register_buffer(name, part, persistent=False)
        self._updates: tuple[Tensor, ...] = ()
        self._weights: Tensor | None = None
        self._moments: list[Tensor] = []
        self.attach(model, names)

    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Project with the sum of the weight and its update, or add what the update makes of the inputs by itself."""
        linear = cast(nn.Linear, inner)
        if self._weights is not None:
            self._moments.append(second_moment(x, self._weights))
        if self.is_separate:
            return self.added(index, x, F.linear(x, linear.weight, linear.bias))
        return F.linear(x, self.updated(index, linear.weight), linear.bias)

    def draw(self, generator: torch.Generator) -> None:
        """Draw down-projections Kaiming-uniform with a = sqrt(5)."""
        self.down.copy_(uniform(self.down.shape, self.down.shape[-1], generator))

    def product(self) -> Tensor:
        """Return the update that the pairs make outside the kept directions, shape (L, P, D, D)."""
        if not self.num_kept:
            return self.up @ self.down
        down = self.down - self.down @ self.right @ self.right.mT
        return (self.up - self.left @ (self.left.mT @ self.up)) @ down

    def active(self, updates: Tensor) -> AbstractContextManager[None]:
        """Add updates of shape (L, P, D, D) to the projections of a forward pass."""
        return self.switched(_updates=updates.unbind(0))

    def updated(self, index: int, weight: Tensor) -> Tensor:
        """Return the weight of a projection with its update; outside `active`, the weight itself."""
        if not self._updates:
            return weight
        # The sum of weights, not of outputs: one product however many pairs there are, and the same one when merged.
        rows = list(weight.chunk(3))
        for place, update in zip(self.places, self._updates[index].unbind(0), strict=True):
            rows[place] = rows[place] + update
        return torch.cat(rows)

    def weights(self, model: Model, updates: Tensor) -> dict[str, Tensor]:
        """Return the weights of the projections with updates of shape (L, P, D, D) by their names in the bare model."""
        names = [f"{name}.weight" for name in self.names]
        with self.active(updates):
            return {name: self.updated(index, bare_parameter(model, name)) for index, name in enumerate(names)}

    def added(self, index: int, x: Tensor, outputs: Tensor) -> Tensor:
        """Return the outputs of a projection and the updates' products with its inputs, whose rounding is their own."""
        if not self._updates:
            return outputs
        parts = list(outputs.chunk(3, dim=-1))
        for place, update in zip(self.places, self._updates[index].unbind(0), strict=True):
            parts[place] = parts[place] + F.linear(x, update)
        return torch.cat(parts, dim=-1)

    @contextmanager
    def watched(self, weights: Tensor) -> Iterator[list[Tensor]]:
        """Fill a list with each block's second moment of the projection's inputs during a forward pass."""
        moments: list[Tensor] = []
        with self.switched(_weights=weights, _moments=moments):
            yield moments


def leading_directions(
    model: Model, names: Sequence[str], places: Sequence[int], num_kept: int
) -> tuple[Tensor, Tensor]:
    """Return the leading singular vectors of parts of all projections, both of shape (L, P, D, so many)."""
    weights = [bare_parameter(model, f"{name}.weight").detach().chunk(3) for name in names]
    parts = torch.stack([torch.stack([parts[place] for place in places]) for parts in weights])
    left, _, right = torch.linalg.svd(parts.double())
    return left[..., :num_kept].to(parts), right[..., :num_kept, :].mT.to(parts)


def second_moment(x_BND: Tensor, weights_B: Tensor) -> Tensor:
    """Return the sum over images and tokens of weight * x x^T, shape (D, D), in double precision."""
    # Products in single precision, which is fast everywhere; sums over batches in double.
    with torch.autocast(x_BND.device.type, enabled=False):
        x = x_BND.float()
        weighted = x * weights_B[:, None, None]
        return (weighted.flatten(0, 1).T @ x.flatten(0, 1)).double()


def unit_norm(factors: Tensor) -> Tensor:
    """Divide each block's and part's factor by its Frobenius norm; a factor of zeros stays what it is."""
    return F.normalize(factors.flatten(2), dim=2).view_as(factors)
