"""Trained tokens beside the image's: afresh in every block (deep), or once and carried through all (shallow).

Jia et al., "Visual Prompt Tuning" (ECCV 2022).
Shapes: B images, T tokens, P prompts, D width of the residual stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clare.backbones.attach import replace_blocks, restore_blocks
from clare.backbones.families import Model
from clare.tuners.limits import require_token_room
from clare.tuners.tuner import Tuner


class PromptedBlock(nn.Module):
    """A timm block that sees prompts after the image's tokens while the tuner is switched on."""

    def __init__(self, block: nn.Module, tuner: "TokenPrompts", index: int) -> None:
        super().__init__()
        self.block = block
        self.index = index
        # A tuple hides the tuner from the module tree: it belongs to the method, not to the backbone.
        self._tuner = (tuner,)

    def forward(self, x: Tensor, **context: Tensor) -> Tensor:
        """Append the prompts that enter here, run the block, and drop those that leave."""
        tuner = self._tuner[0]
        outputs: Tensor = self.block(tuner.entered(self.index, x), **context)
        return tuner.left(self.index, outputs)


class TokenPrompts(Tuner):
    """Prompts without position embedding, zero at the start: (L, P, D) for L blocks when deep, (1, P, D) otherwise."""

    def __init__(self, model: Model, num_prompts: int, deep: bool) -> None:
        super().__init__()
        width = require_token_room(model, "token prompts")
        self.num_prompts, self.deep, self.num_blocks = num_prompts, deep, len(model.blocks)
        self.is_active = False
        shape = (self.num_blocks if deep else 1, num_prompts, width)
        self.values = nn.Parameter(torch.zeros(shape), requires_grad=False)
        replace_blocks(model, lambda block, index: PromptedBlock(block, self, index))

    @contextmanager
    def spread(self) -> Iterator[None]:
        """Let prompts enter and leave."""
        self.is_active = True
        try:
            yield
        finally:
            self.is_active = False

    def entered(self, index: int, x_BTD: Tensor) -> Tensor:
        """Return the tokens with the prompts that enter at a block."""
        if not self.is_active or not (self.deep or index == 0):
            return x_BTD
        prompts = self.values[index].to(x_BTD.dtype).expand(len(x_BTD), -1, -1)
        return torch.cat([x_BTD, prompts], dim=1)

    def left(self, index: int, x_BTD: Tensor) -> Tensor:
        """Return the tokens without the prompts that leave after a block."""
        if not self.is_active or not (self.deep or index == self.num_blocks - 1):
            return x_BTD
        return x_BTD[:, : -self.num_prompts]

    def detach(self, model: Model) -> None:
        """Put the bare blocks back."""
        restore_blocks(model)
