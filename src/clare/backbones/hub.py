"""What timm says of a model that nobody has built: its name, its shapes, and where on the Hugging Face Hub it lies."""

from functools import lru_cache
from typing import Any

import timm
import torch

from clare.backbones.settings import EMBEDDED
from clare.errors import BackboneError, nearest
from clare.index import IndexedWeights

WEIGHTS = "model.safetensors"
"""What timm's repositories on the Hub call a model's weights."""


def check_name(name: str) -> None:
    """Refuse a model that timm does not have, and weights that it does not have of a model."""
    base = name.split(".")[0]
    if name != EMBEDDED and not timm.is_model(base):
        known = [*timm.list_models("vit_*"), EMBEDDED]
        raise BackboneError(
            f"timm knows no model '{name}'{nearest(base, known)}; `backbone.name` takes a timm name or '{EMBEDDED}'"
        )
    tagged = timm.list_pretrained(f"{base}.*")
    if "." in name and name not in tagged:
        raise BackboneError(
            f"timm knows no weights '{name}'{nearest(name, tagged)}; known tags of {base}: {', '.join(tagged)}"
        )


def published(name: str) -> IndexedWeights:
    """Return where timm finds a model's weights, and how many bytes they have with their classifier."""
    config = timm.get_pretrained_cfg(name)
    return {
        "repository": (config and config.hf_hub_id) or None,
        "file": (config and config.hf_hub_filename) or WEIGHTS,
        "num_bytes": sum(tensor.nbytes for tensor in outline(name).state_dict().values()),
    }


@lru_cache(maxsize=8)
def outline(name: str) -> Any:
    """Return a timm model without numbers, which tells class, shapes and configuration."""
    with torch.device("meta"):
        return timm.create_model(name)
