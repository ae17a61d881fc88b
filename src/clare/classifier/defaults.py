"""The settings of a new model folder."""

from collections.abc import Mapping
from typing import Any

from clare.backbones.vit import EMBEDDED, Backbone, BackboneSettings
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.methods.base import HeadOnlySettings
from clare.settings import build_settings, idle, overlaid, tables_of

DEFAULT_METHOD = "linear"
"""Frozen features under a head of statistics: no lesson costs earlier classes what an adapter's drift would."""
STATISTICS: dict[str, Any] = {"kind": "quadratic", "shrinkage": "auto", "own_share": "auto"}
WIDEST = 4608
"""Features that a head of statistics reads at the most: it keeps a square matrix of them."""
DRAWINGS: dict[str, dict[str, Any]] = {
    "": {"epochs": 8, "head": {"kind": "aligned"}},
    "clare": {"probe_epochs": 3, "learning_rate": 0.2},
    "finetune": {"learning_rate": 0.05, "batch_size": 16},
    "linear": {"features": {"blocks": 4, "patches": True}, "head": {**STATISTICS, "num_directions": 16}},
}
"""What the preset quickdraw says for every method, and for some; `linear` is the default."""
PHOTOS: dict[str, dict[str, Any]] = {
    "": {"epochs": 10, "head": {"kind": "aligned"}},
    "clare": {"probe_epochs": 3},
    "clare-plus": {
        "probe_epochs": 3,
        "row_epochs": 5,
        "features": {"blocks": 6},
        "head": STATISTICS,
    },
    "linear": {
        "features": {"blocks": 6, "patches": True, "views": 3},
        "head": {**STATISTICS, "num_directions": 16},
    },
}
"""Fewer epochs than the paper's 5 and 20, so that a CPU is not kept busy for hours."""


def is_drawing_backbone(settings: BackboneSettings | None) -> bool:
    """Tell whether a backbone is the one for drawings that comes with the package."""
    return settings is not None and settings.name == EMBEDDED


def default_settings(backbone: Backbone, method: str, settings: Mapping[str, Any]) -> HeadOnlySettings:
    """Return the settings of a method on this backbone, the user's laid over ours."""
    kind = METHODS.get(method)
    chosen = DRAWINGS if is_drawing_backbone(backbone.settings) else PHOTOS
    fields = kind.settings_type.model_fields
    ours = {**chosen[""], **chosen.get(method, {})}
    features, vit = ours.get("features", {}), backbone.vit
    # A small backbone is read as far as it goes, a wide one as far as the matrices of a head of statistics allow.
    most = max(1, WIDEST // (int(vit.num_features) * (2 if features.get("patches") else 1)))
    ours["features"] = {**features, "blocks": min(features.get("blocks", 1), len(vit.blocks), most)}
    if not _takes_aligned(kind.settings_type):
        ours.pop("head")
    values = {key: value for key, value in ours.items() if key in fields}
    built = build_settings(kind.settings_type, overlaid(kind.settings_type, values, settings), "")
    for name, reason in idle(built, settings, ""):
        raise SettingsError(f"the setting '{name}' does nothing here: {reason}; leave it out, or set that too")
    return built


def _takes_aligned(kind: type[HeadOnlySettings]) -> bool:
    """Tell whether a method that would classify by class means has an aligned head as well."""
    field = kind.model_fields["head"]
    return field.default.kind == "prototype" and "aligned" in tables_of(field)


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
