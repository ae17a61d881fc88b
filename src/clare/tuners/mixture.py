"""Bottleneck adapters beside the MLPs whose number grows: a router mixes those of a block, descriptors know their data.

Shapes: B images, N tokens, D width of the residual stream, K adapters of a block, R bottleneck, H descriptor.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.families import Model, family_of
from clare.growth import Growing
from clare.settings import Settings
from clare.steps import Group
from clare.tuners.tuner import Branches, uniform

MIN_RECORDS = 3
"""With fewer losses than this a descriptor has no statistics, and nothing is new to it."""


class MixtureSettings(Settings):
    """The shape of an adapter and of its descriptor."""

    bottleneck: int = Field(16, ge=1, le=4096, description="Width of an adapter's hidden layer.")
    descriptor: int = Field(128, ge=1, le=65_536, description="Width of a descriptor's hidden layer.")


class Entries(nn.Module, Growing):
    """Adapters of one block; every parameter has one entry for each of them."""

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Put tensors in the place of the parameters."""
        for name, tensor in tensors.items():
            setattr(self, name, nn.Parameter(tensor, requires_grad=False))
        self.grows = tuple(self._parameters)

    def newest(self, names: Iterable[str]) -> list[Group]:
        """Return groups that train the newest adapter's entries alone."""
        return [Group(parameter, mask=newest_mask(parameter)) for parameter in map(self.get_parameter, names)]


class BlockAdapters(Entries):
    """The adapters of one block, whose outputs are mixed."""

    down: nn.Parameter
    """(K, R, D)"""
    down_bias: nn.Parameter
    """(K, R)"""
    up: nn.Parameter
    """(K, R, D)"""
    up_bias: nn.Parameter
    """(K, D)"""

    names: tuple[str, ...] = ("down", "down_bias", "up", "up_bias")
    """What the training of an adapter moves."""

    def __init__(self, width: int, settings: MixtureSettings) -> None:
        super().__init__()
        self.width, self.settings = width, settings
        self.take({name: entry.new_zeros(0, *entry.shape) for name, entry in self.draw(torch.Generator()).items()})

    def __len__(self) -> int:
        """Return the number of adapters."""
        return len(self.down)

    def draw(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the initial values of one more adapter, whose output is zero."""
        width, hidden = self.width, self.settings.bottleneck
        return {
            "down": uniform((hidden, width), width, generator),
            "down_bias": torch.zeros(hidden),
            "up": torch.zeros(hidden, width),
            "up_bias": torch.zeros(width),
        }

    def grow(self, generator: torch.Generator) -> None:
        """Add an adapter with its initial values."""
        old, drawn = dict(self.named_parameters()), self.draw(generator)
        self.take({name: torch.cat([old[name].data, entry[None].to(old[name])]) for name, entry in drawn.items()})

    def mix(self, x_BND: Tensor, shares_BK: Tensor) -> Tensor:
        """Return sum_k share_k * (up_k(relu(down_k(x)))), all adapters in two products."""
        hidden = F.relu(F.linear(x_BND, self.down.flatten(0, 1), self.down_bias.flatten()))
        weights = shares_BK.to(hidden.dtype).repeat_interleave(self.settings.bottleneck, dim=1)
        return (hidden * weights[:, None]) @ self.up.flatten(0, 1) + (shares_BK @ self.up_bias)[:, None]

    def groups(self) -> list[Group]:
        """Return what the training of the newest adapter moves."""
        return self.newest(self.names)


class RoutedAdapters(BlockAdapters):
    """Adapters that can get more, with a router over them, and for each a descriptor and the statistics of its loss."""

    router: nn.Parameter
    """(K, D)"""
    router_bias: nn.Parameter
    """(K,)"""
    encoder: nn.Parameter
    """(K, H, D)"""
    encoder_bias: nn.Parameter
    """(K, H)"""
    decoder: nn.Parameter
    """(K, D, H)"""
    decoder_bias: nn.Parameter
    """(K, D)"""
    mean: nn.Parameter
    """(K,), of the losses that each descriptor had on its own task"""
    std: nn.Parameter
    """(K,), likewise"""

    names = (*BlockAdapters.names, "router", "router_bias")
    descriptor_names = ("encoder", "encoder_bias", "decoder", "decoder_bias")

    def draw(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the initial values of one more adapter, of its row of the router and of its descriptor."""
        width, hidden = self.width, self.settings.descriptor
        return {
            **super().draw(generator),
            "router": uniform((width,), width, generator),
            "router_bias": uniform((), width, generator),
            "encoder": uniform((hidden, width), width, generator),
            "encoder_bias": torch.zeros(hidden),
            "decoder": uniform((width, hidden), hidden, generator),
            "decoder_bias": torch.zeros(width),
            "mean": torch.zeros(()),
            # Every distance is zero until there are statistics.
            "std": torch.tensor(math.inf),
        }

    def token_mean(self, x_BND: Tensor) -> Tensor:
        """Return the mean over all tokens, which is what router and descriptors see, shape (B, D)."""
        return x_BND.mean(1, dtype=self.router.dtype)

    def shares(self, mean_BD: Tensor) -> Tensor:
        """Return the router's softmax over the adapters for each image, shape (B, K)."""
        with torch.autocast(mean_BD.device.type, enabled=False):
            return F.linear(mean_BD, self.router, self.router_bias).softmax(1)

    def description_losses(self, mean_BD: Tensor, first: int = 0) -> Tensor:
        """Return the mean squared error of each descriptor from `first` on for each image, shape (B, K)."""
        encoder, decoder = self.encoder[first:], self.decoder[first:]
        # Half precision would blur the small differences that make an image new.
        with torch.autocast(mean_BD.device.type, enabled=False):
            code_BKH = torch.einsum("bd,khd->bkh", mean_BD, encoder) + self.encoder_bias[first:]
            copy_BKD = torch.einsum("bkh,kdh->bkd", code_BKH, decoder) + self.decoder_bias[first:]
        return (copy_BKD - mean_BD[:, None]).square().mean(2)

    def newest_loss(self, mean_BD: Tensor) -> Tensor:
        """Return the loss of the newest descriptor for each image, shape (B,)."""
        return self.description_losses(mean_BD, len(self) - 1)[:, 0]

    def novelty(self, mean_BD: Tensor) -> Tensor:
        """Return how many standard deviations each descriptor's loss is from its mean, shape (B, K)."""
        return (self.description_losses(mean_BD) - self.mean).abs() / self.std

    def descriptor_groups(self) -> list[Group]:
        """Return what the training of the newest descriptor moves."""
        return self.newest(self.descriptor_names)

    def remember(self, losses: Tensor) -> None:
        """Keep mean and standard deviation of the newest descriptor's losses, if there are enough."""
        if len(losses) >= MIN_RECORDS:
            self.mean.data[-1] = losses.double().mean()
            self.std.data[-1] = losses.double().std()


class Mixture(Branches):
    """One adapter in each block from the start; the last blocks can get more."""

    def __init__(
        self, model: Model, settings: MixtureSettings, num_expandable: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        widths = family_of(model).widths(model)
        num_fixed = len(widths) - num_expandable
        self.fixed = nn.ModuleList(BlockAdapters(width, settings) for width in widths[:num_fixed])
        self.expandable = nn.ModuleList(RoutedAdapters(width, settings) for width in widths[num_fixed:])
        for adapters in self.adapters:
            adapters.grow(generator)
        self._means: list[Tensor] | None = None
        self.attach_branches(model)

    @property
    def adapters(self) -> list[BlockAdapters]:
        """The adapters of every block, in order."""
        return [*self.fixed, *self.expandable]

    @property
    def routed(self) -> list[RoutedAdapters]:
        """The adapters of the blocks that can get more."""
        return list(self.expandable)  # type: ignore[arg-type]

    @property
    def counts(self) -> list[int]:
        """How many adapters each block has that can get more."""
        return [len(adapters) for adapters in self.routed]

    @property
    def is_active(self) -> bool:
        """Whether the blocks add the adapters' outputs."""
        return self._means is not None

    @contextmanager
    def spread(self) -> Iterator[list[Tensor]]:
        """Switch the adapters on; the token means of the blocks that can get more are listed as a pass reaches them."""
        means: list[Tensor] = []
        with self.switched(_means=means):
            yield means

    def branch(self, index: int, x_BND: Tensor) -> Tensor:
        """Return the adapters' output in one block."""
        place = index - len(self.fixed)
        if place < 0:
            return self.adapters[index].mix(x_BND, x_BND.new_ones(len(x_BND), 1))
        routed = self.routed[place]
        mean_BD = routed.token_mean(x_BND)
        assert self._means is not None
        self._means.append(mean_BD)
        return routed.mix(x_BND, routed.shares(mean_BD))


def newest_mask(parameter: Tensor) -> Tensor | None:
    """Mark the last entry of a parameter; a parameter with one entry needs no mask."""
    if len(parameter) == 1:
        return None
    mask = torch.zeros_like(parameter, dtype=torch.bool)
    mask[-1] = True
    return mask
