"""Small maps after every block, one more for each task, whose mixture is added to the residual stream.

Shapes: B images, N tokens, L blocks, D width, H width of the maps' space, T tasks.
"""

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clare.backbones.families import Model, family_of
from clare.growth import Growing
from clare.tuners.limits import one_width
from clare.tuners.tuner import Tuner, uniform


class NoiseMaps(Tuner, Growing):
    """Full linear maps, fixed random ways into a narrow space and back, and each task's two maps within it."""

    down: Tensor
    up: Tensor
    grows = ("kept", "shares")

    def __init__(self, model: Model, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        num_blocks, width = len(family_of(model).block_names(model)), one_width(model, "maps after every block")
        self.linear = nn.Parameter(torch.zeros(num_blocks, width, width + 1), requires_grad=False)
        self.register_buffer("down", uniform((num_blocks, hidden, width), hidden, generator))
        self.register_buffer("up", uniform((num_blocks, width, hidden), width, generator))
        # Of earlier tasks the sums of both maps are kept; biases are the last columns.
        self.current = nn.Parameter(torch.zeros(2, num_blocks, hidden, hidden + 1), requires_grad=False)
        self.kept = nn.Parameter(torch.zeros(0, *self.current.shape[1:]), requires_grad=False)
        self.shares = nn.Parameter(torch.zeros(num_blocks, 1), requires_grad=False)
        self._mixed: tuple[Tensor, ...] = ()
        self.attach(model)

    def begin(self, shares_T: Tensor) -> None:
        """Give a task maps of zeros and the last share of the mixture; the maps of the task before are kept."""
        if len(shares_T) > 1:
            kept = torch.cat([self.kept.data, self.current.data.sum(0, keepdim=True)])
            self.kept = nn.Parameter(kept, requires_grad=False)
        self.current.data.zero_()
        self.shares = nn.Parameter(shares_T.to(self.current).repeat(len(self.linear), 1), requires_grad=False)

    def spread(self) -> AbstractContextManager[None]:
        """Mix the tasks' maps once for all blocks of a forward pass, and switch them on."""
        sums = torch.cat([self.kept, self.current.sum(0, keepdim=True)])
        return self.switched(_mixed=torch.einsum("lt,tlhj->lhj", self.shares, sums).unbind(0))

    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Run a block, and add to its output what its linear map and the mixture make of it."""
        x_BND: Tensor = inner(x, **context)
        if not self._mixed:
            return x_BND
        linear, mixed = self.linear[index], self._mixed[index]
        hidden = F.linear(F.linear(x_BND, self.down[index]), mixed[:, :-1], mixed[:, -1])
        return x_BND + F.linear(x_BND, linear[:, :-1], linear[:, -1]) + F.linear(hidden, self.up[index])
