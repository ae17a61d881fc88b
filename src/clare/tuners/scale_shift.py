"""A scale and a shift for every channel of what the frozen layers put out, all of them in one flat parameter.

Lian et al., "Scaling & Shifting Your Features: A New Baseline for Efficient Model Tuning" (NeurIPS 2022).
Shapes: W channels of all places together.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from clare.backbones.families import Model, family_of
from clare.tuners.limits import fused_projections, one_width, unfit
from clare.tuners.tuner import Tuner

SPREAD = 0.02
"""Standard deviation of the initial values around one and zero."""


class ScaleShift(Tuner):
    """All scales, then all shifts, as one flat parameter of 2W numbers."""

    def __init__(self, model: Model, generator: torch.Generator) -> None:
        super().__init__()
        what = "scales and shifts of all layers"
        fused_projections(model, what)
        width = one_width(model, what)
        names, modules = places(model), dict(model.named_modules())
        if missing := set(names) - modules.keys():
            raise unfit(model, what, f"which has no '{min(missing)}'")
        self._weights: list[tuple[Tensor, Tensor]] = []
        self.attach(model, names)
        self.widths = [int(getattr(modules[name], "out_features", width)) for name in names]
        noise = SPREAD * torch.randn(2, sum(self.widths), generator=generator)
        noise[0] += 1
        self.values = nn.Parameter(noise.flatten(), requires_grad=False)

    def spread(self) -> AbstractContextManager[None]:
        """Split the flat parameter once for all places of a forward pass."""
        scales, shifts = (torch.split(half, self.widths) for half in self.values.chunk(2))
        return self.switched(_weights=list(zip(scales, shifts, strict=True)))

    def act(self, index: int, inner: nn.Module, x: Tensor, **context: Tensor) -> Tensor:
        """Return outputs * scale + shift of one place, in the type of the outputs."""
        outputs: Tensor = inner(x, **context)
        if not self._weights:
            return outputs
        scale, shift = self._weights[index]
        return (outputs * scale + shift).to(outputs.dtype)


def places(model: Model) -> list[str]:
    """Return the modules whose outputs are scaled: the patch embedding, six in every block, and the last norm."""
    parts = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    blocks = [f"{name}.{part}" for name in family_of(model).block_names(model) for part in parts]
    # The last module of the patch embedding, since other code reads the image size off the embedding itself.
    return ["patch_embed.norm", *blocks, "norm"]
