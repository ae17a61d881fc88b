"""A scale and a shift for every channel of what the frozen layers put out, all of them in one flat parameter.

Lian et al., "Scaling & Shifting Your Features: A New Baseline for Efficient Model Tuning" (NeurIPS 2022).
Shapes: W channels of all places together.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clare.backbones.attach import replace_modules, restore_modules
from clare.backbones.families import Model, family_of
from clare.tuners.limits import fused_projections, one_width, unfit
from clare.tuners.tuner import Tuner

SPREAD = 0.02
"""Standard deviation of the initial values around one and zero."""


class ScaledModule(nn.Module):
    """A module whose output is scaled and shifted while the tuner is switched on."""

    def __init__(self, inner: nn.Module, tuner: "ScaleShift", index: int) -> None:
        super().__init__()
        self.inner = inner
        self.index = index
        # A tuple hides the tuner from the module tree: it belongs to the method, not to the backbone.
        self._tuner = (tuner,)

    def forward(self, x: Tensor) -> Tensor:
        """Run the module, then scale and shift its channels."""
        outputs: Tensor = self.inner(x)
        return self._tuner[0].scaled(self.index, outputs)


class ScaleShift(Tuner):
    """All scales, then all shifts, as one flat parameter of 2W numbers."""

    def __init__(self, model: Model, generator: torch.Generator) -> None:
        super().__init__()
        what = "scales and shifts of all layers"
        fused_projections(model, what)
        width = one_width(model, what)
        self.names = places(model)
        if missing := set(self.names) - dict(model.named_modules()).keys():
            raise unfit(model, what, f"which has no '{min(missing)}'")
        self.widths: list[int] = []
        self._weights: list[tuple[Tensor, Tensor]] = []

        def wrap(module: nn.Module, index: int) -> nn.Module:
            self.widths.append(module.out_features if isinstance(module, nn.Linear) else width)
            return ScaledModule(module, self, index)

        replace_modules(model, self.names, wrap)
        noise = SPREAD * torch.randn(2, sum(self.widths), generator=generator)
        noise[0] += 1
        self.values = nn.Parameter(noise.flatten(), requires_grad=False)

    @contextmanager
    def spread(self) -> Iterator[None]:
        """Split the flat parameter once for all places of a forward pass."""
        scales, shifts = (torch.split(half, self.widths) for half in self.values.chunk(2))
        self._weights = list(zip(scales, shifts, strict=True))
        try:
            yield
        finally:
            self._weights = []

    def scaled(self, index: int, x: Tensor) -> Tensor:
        """Return x * scale + shift of one place, in the type of x."""
        if len(self._weights) == 0:
            return x
        scale, shift = self._weights[index]
        return (x * scale + shift).to(x.dtype)

    def detach(self, model: Model) -> None:
        """Put the bare modules back."""
        restore_modules(model, self.names)


def places(model: Model) -> list[str]:
    """Return the modules whose outputs are scaled: the patch embedding, six in every block, and the last norm."""
    parts = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    blocks = [f"{name}.{part}" for name in family_of(model).block_names(model) for part in parts]
    # The last module of the patch embedding, since other code reads the image size off the embedding itself.
    return ["patch_embed.norm", *blocks, "norm"]
