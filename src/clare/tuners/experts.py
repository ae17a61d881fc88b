"""Experts beside the MLPs, one more for each task, with a prober and a router each, and an adapter that tasks share.

A prober tells classes of its task apart by what its expert makes of the class token; the surer it is, the more likely
an image is of that task. A router mixes the experts that there were when its task came.
Shapes: B images, N tokens, D width, E experts of a block, R bottleneck, C classes of a task, S routers that are asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.families import Model
from clare.growth import Growing
from clare.settings import Settings
from clare.steps import Group
from clare.tuners.limits import one_width, unfit
from clare.tuners.mixture import Entries
from clare.tuners.tuner import Branches, uniform

CLOSED = -1e4
"""The logit of a class that a task does not have: no probability, and no infinity in a logarithm."""
ADAPTER = ("norm", "norm_bias", "down", "down_bias", "up", "up_bias", "scale")
GATE = ("prober_norm", "prober_norm_bias", "prober", "prober_bias", "router", "router_bias")


class ExpertSettings(Settings):
    """The shape of experts and of the shared adapter, and how many of them are mixed."""

    bottleneck: int = Field(16, ge=1, le=4096, description="Width of an expert's hidden layer.")
    shared_bottleneck: int = Field(64, ge=1, le=4096, description="Width of the shared adapter's hidden layer.")
    num_routers: int = Field(2, ge=1, le=1000, description="Routers that are asked about an image.")
    num_experts: int = Field(3, ge=1, le=1000, description="Experts that a router mixes.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on hidden layers while training.")


class ExpertBlock(Entries):
    """The experts of one block and the shared adapter; every parameter has one entry for each expert."""

    def __init__(self, width: int, settings: ExpertSettings, generator: torch.Generator) -> None:
        super().__init__()
        self.width, self.settings = width, settings
        shared, unseeded = self._draw(settings.shared_bottleneck, generator), torch.Generator()
        self.take({f"shared_{name}": entry[None] for name, entry in shared.items()})
        like = self._draw(settings.bottleneck, unseeded) | self._gate(0, 0, unseeded)
        self.take({name: torch.zeros(0, *entry.shape) for name, entry in like.items()})

    @property
    def num_entries(self) -> int:
        """How many experts there are."""
        return len(self.get_parameter("down"))

    @property
    def num_places(self) -> int:
        """How many classes a prober has places for."""
        return self.get_parameter("prober").shape[1]

    def _draw(self, hidden: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return an adapter that changes nothing yet, since its scale is zero."""
        width = self.width
        return {
            "norm": torch.ones(width),
            "norm_bias": torch.zeros(width),
            "down": uniform((hidden, width), width, generator),
            "down_bias": torch.zeros(hidden),
            "up": uniform((width, hidden), hidden, generator),
            "up_bias": torch.zeros(width),
            "scale": torch.zeros(width),
        }

    def _gate(self, num_entries: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return a prober with so many places and a router over so many experts."""
        width = self.width
        return {
            "prober_norm": 0.02 * torch.randn(width, generator=generator),
            "prober_norm_bias": torch.zeros(width),
            "prober": uniform((size, width), width, generator),
            "prober_bias": uniform((size,), width, generator),
            "router": 0.02 * torch.randn(num_entries, width, generator=generator),
            "router_bias": torch.zeros(num_entries),
        }

    def grow(self, num_classes: int, generator: torch.Generator) -> None:
        """Add an expert: a fresh one, or from the third on the mean of all but the last."""
        size, added = self.num_entries, max(num_classes - self.num_places, 0)
        fresh = self._draw(self.settings.bottleneck, generator)
        if size >= 2:
            fresh = {name: self.get_parameter(name).data[:-1].mean(0) for name in ADAPTER}
        fresh |= self._gate(size + 1, self.num_places + added, generator)
        old = {name: self.get_parameter(name).data for name in (*ADAPTER, *GATE)}
        for name, more in (("prober", added), ("router", 1)):
            old[name], old[f"{name}_bias"] = F.pad(old[name], (0, 0, 0, more)), F.pad(old[f"{name}_bias"], (0, more))
        self.take({name: torch.cat([old[name], fresh[name][None].to(old[name])]) for name in old})

    def groups(self) -> list[Group]:
        """Return what the training of the newest expert, its prober and its router moves."""
        return self.newest((*ADAPTER, *GATE))

    def shared(self) -> list[nn.Parameter]:
        """Return the parameters of the shared adapter."""
        return [self.get_parameter(f"shared_{name}") for name in ADAPTER]

    def forward(self, x_BND: Tensor, sizes: Tensor, task: int | None) -> tuple[Tensor, Tensor]:
        """Return what is added to the residual stream, and the prober's logits of the known, or else newest, task."""
        size = self.num_entries if task is None else task + 1
        hidden, up, up_bias = self._hidden(x_BND, "", size)
        tokens_BED = torch.einsum("ber,edr->bed", hidden[:, 0].view(len(hidden), size, -1), up) + up_bias
        logits_BEC = self._probed(tokens_BED, sizes[:size])
        shares_BE = self._shares(tokens_BED, logits_BEC, task)
        weights = shares_BE.to(hidden.dtype).repeat_interleave(self.settings.bottleneck, dim=1)
        mixed = (hidden * weights[:, None]) @ up.mT.flatten(0, 1) + (shares_BE.to(up_bias.dtype) @ up_bias)[:, None]
        shared, shared_up, shared_bias = self._hidden(x_BND, "shared_", 1)
        return mixed + F.linear(shared, shared_up[0]) + shared_bias[0], logits_BEC[:, -1]

    def _hidden(self, x_BND: Tensor, prefix: str, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden layers of so many adapters side by side, and their scaled up-projections and biases."""
        norm, norm_bias, down, down_bias, up, up_bias, scale = (
            self.get_parameter(prefix + name)[:size] for name in ADAPTER
        )
        # Norms differ by gain and bias alone, which join the projections.
        normed = F.layer_norm(x_BND, (self.width,))
        bias = torch.einsum("erd,ed->er", down, norm_bias) + down_bias
        hidden = F.linear(normed, (down * norm[:, None]).flatten(0, 1), bias.flatten()).relu()
        dropped = F.dropout(hidden, self.settings.dropout, self.training)
        return dropped, up * scale[:, :, None], up_bias * scale

    def _probed(self, tokens_BED: Tensor, sizes: Tensor) -> Tensor:
        """Return the logits of each expert's prober, shape (B, E, C)."""
        size = tokens_BED.shape[1]
        gain, shift, weight, bias = (self.get_parameter(name)[:size] for name in GATE[:4])
        normed = F.layer_norm(tokens_BED, (self.width,)) * gain + shift
        logits = torch.einsum("bed,ecd->bec", normed, weight) + bias
        is_closed = torch.arange(self.num_places, device=sizes.device) >= sizes[:, None]
        return logits.masked_fill(is_closed, CLOSED)

    def _shares(self, tokens_BED: Tensor, logits_BEC: Tensor, task: int | None) -> Tensor:
        """Return the weight of each expert, added up over the routers that are asked, shape (B, E)."""
        size = tokens_BED.shape[1]
        router, bias = self.get_parameter("router")[:size, :size], self.get_parameter("router_bias")[:size, :size]
        scores_BRE = torch.einsum("brd,red->bre", tokens_BED, router) + bias
        later = torch.ones(size, size, dtype=torch.bool, device=router.device).triu(1)
        scores_BRE = scores_BRE.masked_fill(later, -torch.inf)
        chosen = chosen_routers(entropies(logits_BEC), self.settings.num_routers, task is not None)
        picked = scores_BRE.gather(1, chosen[:, :, None].expand(-1, -1, size))
        return top_softmax(picked, self.settings.num_experts).sum(1)


def entropies(logits_BEC: Tensor) -> Tensor:
    """Return how unsure each prober is, shape (B, E)."""
    chances = logits_BEC.softmax(2)
    return -(chances * (chances + 1e-10).log()).sum(2)


def chosen_routers(entropies_BE: Tensor, num_routers: int, is_known: bool) -> Tensor:
    """Return the routers with the surest probers, shape (B, S); the last one among them where the task is known."""
    size = entropies_BE.shape[1]
    if is_known:
        # Surer than any can be.
        entropies_BE = torch.cat([entropies_BE[:, :-1], torch.full_like(entropies_BE[:, -1:], -1.0)], 1)
    return entropies_BE.topk(min(num_routers, size), dim=1, largest=False)[1]


def top_softmax(scores: Tensor, num_kept: int) -> Tensor:
    """Return the softmax over the largest scores of each row, and nothing for the others."""
    if num_kept < scores.shape[-1]:
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(num_kept, dim=-1)[1], True)
        scores = scores.masked_fill(~kept, -torch.inf)
    return scores.softmax(-1)


class Experts(Branches, Growing):
    """The experts of all blocks, and how many classes each task has."""

    grows = ("sizes",)
    sizes: Tensor

    def __init__(self, model: Model, settings: ExpertSettings, generator: torch.Generator) -> None:
        super().__init__()
        width = one_width(model, what := "experts that are chosen by the class token")
        if getattr(model, "cls_token", None) is None:
            raise unfit(model, what, "which has no class token")
        self.layers = nn.ModuleList(ExpertBlock(width, settings, generator) for _ in model.blocks)
        self.register_buffer("sizes", torch.zeros(0, dtype=torch.int64))
        self._logits: list[Tensor] | None = None
        self._task: int | None = None
        self.attach_branches(model)

    @property
    def blocks(self) -> list[ExpertBlock]:
        """The experts of each block, in order."""
        return list(self.layers)  # type: ignore[arg-type]

    def grow(self, num_classes: int, generator: torch.Generator) -> None:
        """Add an expert to each block for a task of so many classes."""
        for block in self.blocks:
            block.grow(num_classes, generator)
        self.sizes = torch.cat([self.sizes, self.sizes.new_tensor([num_classes])])

    @property
    def is_active(self) -> bool:
        """Whether the blocks add what the experts make."""
        return self._logits is not None

    @contextmanager
    def spread(self, task: int | None) -> Iterator[list[Tensor]]:
        """Let the experts act on a forward pass, of a known task or not; a list fills with each block's logits."""
        logits: list[Tensor] = []
        with self.switched(_logits=logits, _task=task):
            yield logits

    def branch(self, index: int, x_BND: Tensor) -> Tensor:
        """Return what the experts of one block add."""
        outputs: Tensor
        outputs, logits = self.blocks[index](x_BND, self.sizes, self._task)
        assert self._logits is not None
        self._logits.append(logits)
        return outputs
