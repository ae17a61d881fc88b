"""Low-rank updates added to the projections they update, so that a plain ViT carries them."""

from typing import cast

import torch
from torch import Tensor, nn

from clare.methods.base import Method
from clare.methods.inflora import InfLora
from clare.methods.sdlora import SdLora
from clare.tuners.lora import QkvLora


def lora_of(method: Method) -> QkvLora | None:
    """Return what updates the projections of a method whose updates are the same for every image."""
    return method.lora if isinstance(method, InfLora | SdLora) else None


@torch.no_grad()
def folded_projections(method: Method) -> list[Tensor] | None:
    """Return each block's projection to q, k and v with all updates added; none where a method has no such updates."""
    lora = lora_of(method)
    if lora is None:
        return None
    update = method.update() if isinstance(method, SdLora) else cast(InfLora, method).merged + lora.product()
    with lora.active(update):
        return [lora.updated(index, part.weight) for index, part in enumerate(projections(method))]


def projections(method: Method) -> list[nn.Linear]:
    """Return the bare projections that a method updates."""
    names = [f"blocks.{index}.attn.qkv.inner" for index in range(len(method.backbone.blocks))]
    return [cast(nn.Linear, method.backbone.get_submodule(name)) for name in names]
