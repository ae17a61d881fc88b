"""Trained tokens beside the image's: afresh in every block (deep), or once and carried through all (shallow).

Jia et al., "Visual Prompt Tuning" (ECCV 2022).
Shapes: B images, T tokens, P prompts, D width of the residual stream.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from clare.backbones.families import Model
from clare.tuners.limits import require_token_room
from clare.tuners.tuner import Tuner


class TokenPrompts(Tuner):
    """Prompts without position embedding, zero at the start: (L, P, D) for L blocks when deep, (1, P, D) otherwise."""

    def __init__(self, model: Model, num_prompts: int, deep: bool) -> None:
        super().__init__()
        width = require_token_room(model, "token prompts")
        self.num_prompts, self.deep, self.num_blocks = num_prompts, deep, len(model.blocks)
        self.is_active = False
        shape = (self.num_blocks if deep else 1, num_prompts, width)
        self.values = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.attach(model)

    def spread(self) -> AbstractContextManager[None]:
        """Let prompts enter and leave."""
        return self.switched(is_active=True)

    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Append the prompts that enter at a block, run it, and drop those that leave after it."""
        if self.is_active and (self.deep or index == 0):
            x = torch.cat([x, self.values[index].to(x.dtype).expand(len(x), -1, -1)], dim=1)
        outputs: Tensor = inner(x, **context)
        if self.is_active and (self.deep or index == self.num_blocks - 1):
            return outputs[:, : -self.num_prompts]
        return outputs
