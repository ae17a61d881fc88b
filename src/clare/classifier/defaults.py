"""The settings of a new model folder."""

from collections.abc import Mapping
from typing import Any

from clare.backbones.vit import EMBEDDED, Backbone, BackboneSettings
from clare.methods import METHODS
from clare.methods.base import MethodSettings
from clare.settings import build_settings

DEFAULT_METHOD = "linear"
"""Frozen features under a head of statistics: no lesson costs earlier classes what an adapter's drift would."""
STATISTICS: dict[str, Any] = {"strategy": "quadratic", "shrinkage": "auto", "own_share": "auto"}
WIDEST = 4608
"""Features that a head of statistics reads at the most: it keeps a square matrix of them."""
DRAWINGS: dict[str, dict[str, Any]] = {
    "": {"epochs": 8, "head": {"strategy": "aligned"}},
    "clare": {"probe_epochs": 3, "learning_rate": 0.2},
    "finetune": {"learning_rate": 0.05, "batch_size": 16},
    "linear": {"head": {**STATISTICS, "num_directions": 16, "read_blocks": 4, "read_patches": True}},
    "simplecil": {"head": {"strategy": "prototype"}},
}
"""What the preset quickdraw says for every method, and for some; `linear` is the default."""
PHOTOS: dict[str, dict[str, Any]] = {
    "": {"epochs": 10, "head": {"strategy": "aligned"}},
    "clare": {"probe_epochs": 3},
    "clare-plus": {
        "probe_epochs": 3,
        "row_epochs": 5,
        "head": {**STATISTICS, "read_blocks": 6},
    },
    "linear": {"head": {**STATISTICS, "num_directions": 16, "read_blocks": 6, "read_patches": True, "read_looks": 3}},
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
    head, vit = ours["head"], backbone.vit
    # A small backbone is read as far as it goes, a wide one as far as the matrices of a head of statistics allow.
    most = max(1, WIDEST // (int(vit.num_features) * (2 if head.get("read_patches") else 1)))
    ours["head"] = {**head, "read_blocks": min(head.get("read_blocks", 1), len(vit.blocks), most)}
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
        drawn = {"train": "affine", "normalise": "backbone", "invert": "bright-border"}
        return {"image_size": size, "resize": size, **drawn}
    return {
        "image_size": size,
        "resize": round(size * 8 / 7),
        "train": "crop",
        "crop_scale": (0.25, 1.0),
        "normalise": "backbone",
    }
