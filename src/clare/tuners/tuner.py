"""What every tuner of a frozen backbone is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clare.backbones.attach import attach, bare_blocks, restore
from clare.backbones.families import Model, family_of
from clare.backbones.residuals import halves_of
from clare.steps import Group


class Attachment(nn.Module, ABC):
    """What acts in the place of modules of a frozen backbone, or lets them be where it is not switched on."""

    def attach(self, model: Model, names: list[str] | None = None) -> None:
        """Act from now on in the place of the modules of these names, or of all blocks."""
        if names is None:
            bare_blocks(model)
        self.names = names or family_of(model).block_names(model)
        attach(model, self.names, self.act)

    @abstractmethod
    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Return what comes out in the place of one module."""

    def detach(self, model: Model) -> None:
        """Come off the backbone, which is then what it was before."""
        restore(model, self.names)

    @contextmanager
    def switched(self, **values: Any) -> Iterator[None]:
        """Let attributes have these values inside the context, and those of before after it."""
        before = {name: getattr(self, name) for name in values}
        for name, value in values.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


class Branches(Attachment):
    """What adds something of its own to the residual stream of every block, outside LayerScale and drop-path."""

    def attach_branches(self, model: Model) -> None:
        """Add to the stream of every block from now on."""
        self._family, self._halves = family_of(model), [halves_of(block) for block in bare_blocks(model)]
        self.attach(model)

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether a forward pass is changed."""

    @abstractmethod
    def branch(self, index: int, x: Tensor, /) -> Tensor:
        """Return what one block gets for its tokens, both of shape (B, N, D)."""

    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Run the block, and beside its last branch the added one, on the same residual stream."""
        if not self.is_active:
            outputs: Tensor = inner(x, **context)
            return outputs
        middle, after = self._halves[index](inner, x, **context)
        return self._family.joined(after, self.branch(index, self._family.tokens(middle)))


class Tuner(Attachment):
    """Trained numbers attached to a frozen backbone, which act only where they are switched on."""

    @abstractmethod
    def spread(self) -> AbstractContextManager[None]:
        """Let the tuner act on the forward passes inside the context; outside, the backbone is bare."""

    def groups(self) -> list[Group]:
        """Return all that is trained."""
        return [Group(parameter) for parameter in self.parameters()]


def uniform(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Tensor:
    """Draw uniformly between -1 / sqrt(fan_in) and 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
