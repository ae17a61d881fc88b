"""Many bottleneck adapters on one backbone, each a row of one matrix, applied side by side in chunks.

Shapes: S adapters, C adapters of a chunk, N coordinates of an adapter, B images, T tokens, D width of the residual
stream, R bottleneck. A chunk is folded into the batch: (C, B, T, D) goes through the backbone as (C * B, T, D).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clare.backbones.attach import bare_blocks
from clare.backbones.families import Model, Step, family_of
from clare.growth import Growing
from clare.tuners.adapter import AdapterSettings, initial_values, part_shapes

Weights = tuple[Tensor, ...]
"""Of one block, for all adapters of a chunk: (C, R, D), (C, R), (C, D, R), (C, D)."""

EXPORTED = 8
BUSY_CPU, BUSY_GPU = 2**18, 2**25
"""Numbers in the residual stream that keep a device busy: more gain nothing, and cost a CPU its caches."""


def chunk_size_for(tokens: Tensor) -> int:
    """Return how many adapters are worth applying together to these tokens: many to one image, one to many images."""
    if torch.compiler.is_exporting():
        # A graph for any batch cannot have chunks that follow the size of the batch.
        return EXPORTED
    return max(1, (BUSY_CPU if tokens.device.type == "cpu" else BUSY_GPU) // tokens.numel())


class AdapterStack(nn.Module, Growing):
    """The adapters of all tasks: the last one can be trained, those before it never change again."""

    grows = ("kept",)

    def __init__(self, model: Model, settings: AdapterSettings) -> None:
        super().__init__()
        self.settings = settings
        bare_blocks(model)
        self.family = family_of(model)
        self.widths = self.family.widths(model)
        self.shapes = [shape for width in self.widths for shape in part_shapes(width, settings.bottleneck)]
        num_coordinates = sum(map(math.prod, self.shapes))
        self.kept = nn.Parameter(torch.zeros(0, num_coordinates), requires_grad=False)
        # Its own parameter, so that training touches no other row and finds it in the same place in every task.
        self.current = nn.Parameter(torch.zeros(num_coordinates), requires_grad=False)
        # A tuple hides the backbone from the module tree: it belongs to the method, which holds it already.
        self._model = (model,)

    def __len__(self) -> int:
        """Return how many adapters there are, the current one included."""
        return len(self.kept) + 1

    @property
    def values(self) -> Tensor:
        """All adapters, one in a row, shape (S, N)."""
        return torch.cat([self.kept, self.current[None]])

    def keep(self) -> None:
        """Put the current adapter among those that never change again."""
        self.kept = nn.Parameter(self.values.data, requires_grad=False)

    def draw(self, generator: torch.Generator) -> None:
        """Make the current adapter a fresh one, which changes nothing yet."""
        values = initial_values(self.widths, self.settings.bottleneck, generator)
        self.current.data.copy_(values)

    def features(self, images: Tensor, adapters: Tensor, chunk_size: int = 0) -> Tensor:
        """Return the features of the backbone with each of the adapters (S, N), shape (B, S, D); 0 chooses chunks."""
        x, (first, *others) = self.family.start(self._model[0], images)
        # No adapter has its say before the end of the first block, so all of them share what is before it.
        middle, after = first.halves(x)
        chunks = torch.split(adapters, chunk_size or chunk_size_for(middle))
        parts = [self._chunk(rows, middle, after, others) for rows in chunks]
        return torch.cat(parts).transpose(0, 1)

    def _chunk(self, adapters: Tensor, middle: Tensor, after: Tensor, steps: list[Step]) -> Tensor:
        """Return the features (C, B, D) of a chunk, from what its first branches read and join."""
        size = len(adapters)
        first, *others = self.spread(adapters)
        tokens, repeated = self.family.tokens(middle), after.expand(size, *after.shape).flatten(0, 1)
        x = self.family.joined(repeated, self.branch(first, tokens.expand(size, *tokens.shape)).flatten(0, 1))
        for step, weights in zip(steps, others, strict=True):
            middle, after = step.halves(x)
            tokens = self.family.tokens(middle)
            x = self.family.joined(after, self.branch(weights, tokens.view(size, -1, *tokens.shape[1:])).flatten(0, 1))
        model = self._model[0]
        features = self.family.pooled(model, self.family.normal(model, x, True), True)
        return features.view(size, -1, features.shape[1])

    def spread(self, adapters: Tensor) -> list[Weights]:
        """Split the rows of a chunk (C, N) once for all blocks."""
        kind = adapters.device.type
        # One cast of all rows, where autocast would make one of every slice.
        values = adapters.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else adapters
        parts = torch.split(values, [math.prod(shape) for shape in self.shapes], dim=1)
        views = [part.view(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return [tuple(views[4 * i : 4 * i + 4]) for i in range(len(self.widths))]

    def branch(self, weights: Weights, x: Tensor) -> Tensor:
        """Return scale * up(dropout(relu(down(x)))) of one block, each adapter on its own tokens (C, B, T, D)."""
        down, down_bias, up, up_bias = weights
        scale = self.settings.scale
        hidden = torch.baddbmm(down_bias[:, None], x.flatten(1, 2), down.mT).relu()
        hidden = F.dropout(hidden, self.settings.dropout, self.training)
        return torch.baddbmm(up_bias[:, None], hidden, up.mT, beta=scale, alpha=scale).view(x.shape)
