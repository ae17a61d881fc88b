"""The settings of a new model folder."""

from collections.abc import Mapping
from typing import Any

from clare.backbones.vit import EMBEDDED, Backbone, BackboneSettings
from clare.methods import METHODS
from clare.methods.base import MethodSettings
from clare.settings import build_settings

DRAWINGS: dict[str, dict[str, Any]] = {
    "": {"epochs": 8, "head": {"strategy": "aligned"}},
    "clare": {"probe_epochs": 3, "learning_rate": 0.2},
    "finetune": {"learning_rate": 0.05, "batch_size": 16},
    "simplecil": {"head": {"strategy": "prototype"}},
}
"""What the preset quickdraw says for every method, and for some."""
PHOTOS: dict[str, dict[str, Any]] = {
    "": {"epochs": 10, "head": {"strategy": "aligned"}},
    "clare": {"probe_epochs": 3},
    "clare-plus": {
        "probe_epochs": 3,
        "row_epochs": 5,
        "head": {"strategy": "quadratic", "shrinkage": "auto", "own_share": "auto", "read_blocks": 6},
    },
    "simplecil": {"head": {"strategy": "prototype"}},
}
"""Fewer epochs than the paper's 5 and 20, so that a CPU is not kept busy for hours."""


def is_drawing_backbone(settings: BackboneSettings | None) -> bool:
    """Tell whether a backbone is the one for drawings that comes with the package."""
    return settings is not None and settings.name == EMBEDDED


def default_settings(backbone: Backbone, method: str, settings: Mapping[str, Any]) -> MethodSettings:
    """Return the settings of a method on this backbone, the user's laid over ours."""
    kind = METHODS.get(method)
    chosen = DRAWINGS if is_drawing_backbone(backbone.settings) else PHOTOS
    fields = kind.settings_type.model_fields
    ours = {**chosen[""], **chosen.get(method, {})}
    # A small backbone is read as far as it goes.
    num_read = min(ours["head"].get("read_blocks", 1), len(backbone.vit.blocks))
    ours["head"] = {**ours["head"], "read_blocks": num_read}
    if not _takes_aligned(kind.settings_type):
        ours.pop("head")
    values: dict[str, Any] = {key: value for key, value in ours.items() if key in fields}
    for key, value in settings.items():
        both = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = {**values[key], **value} if both else value
    return build_settings(kind.settings_type, values, "")


def _takes_aligned(kind: type[MethodSettings]) -> bool:
    """Tell whether a method has the plain head, whose rows may come about in any way."""
    return kind.model_fields["head"].annotation is MethodSettings.model_fields["head"].annotation


def default_transforms(backbone: Backbone) -> dict[str, Any]:
    """Return how pictures become inputs: drawings are moved about, photos are cropped."""
    size = backbone.image_size
    if is_drawing_backbone(backbone.settings):
        return {"image_size": size, "resize": size, "train": "affine", "normalise": "backbone"}
    return {
        "image_size": size,
        "resize": round(size * 8 / 7),
        "train": "crop",
        "crop_scale": (0.25, 1.0),
        "normalise": "backbone",
    }
