"""Which file on the Hugging Face Hub holds a timm model's weights."""

import timm

from clare.hub import HubFile

WEIGHTS = "model.safetensors"
"""What timm's repositories on the Hub call a model's weights."""


def hub_weights(name: str) -> HubFile | None:
    """Return the file on the Hub from which timm takes a model's weights; a few models have none there."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        return None
    return HubFile(config.hf_hub_id, config.hf_hub_filename or WEIGHTS)


def without_connection(file: HubFile) -> str:
    """Say in a clause how weights come to a machine without a connection."""
    return (
        f"download {file.address} elsewhere and set `backbone.weights` to the file, "
        "or copy the Hub's cache from a machine that has them"
    )
