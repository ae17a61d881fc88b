"""Which file on the Hugging Face Hub holds a timm model's weights, and how large they are."""

from functools import lru_cache
from typing import Any

import timm
import torch

from clare.hub import HubFile

WEIGHTS = "model.safetensors"
"""What timm's repositories on the Hub call a model's weights."""


def hub_weights(name: str) -> HubFile | None:
    """Return the file on the Hub from which timm takes a model's weights; a few models have none there."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        return None
    return HubFile(config.hf_hub_id, config.hf_hub_filename or WEIGHTS)


def count_bytes(name: str) -> int:
    """Return how many bytes a timm model's weights have in full precision, classifier included."""
    return sum(tensor.numel() * tensor.element_size() for tensor in outline(name).state_dict().values())


@lru_cache(maxsize=8)
def outline(name: str) -> Any:
    """Return a timm model without numbers, which tells class, shapes and configuration."""
    with torch.device("meta"):
        return timm.create_model(name)
