"""The settings of a new model folder."""

from collections.abc import Mapping
from typing import Any, get_args

from timm.data.config import resolve_model_data_config

from clare.backbones.families import family_of
from clare.backbones.stages import part_sizes
from clare.backbones.vit import EMBEDDED, Backbone, BackboneSettings
from clare.data.settings import Kernel
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.methods.base import HeadOnlySettings
from clare.settings import build_settings, idle, overlaid, tables_of

DEFAULT_METHOD = "linear"
"""Frozen features under a head of statistics: no lesson costs earlier classes what an adapter's drift would."""
STATISTICS: dict[str, Any] = {"kind": "quadratic", "shrinkage": "auto", "own_share": "auto"}
TRUST = 0.05
"""Part of earlier classes that a lesson may cost: nobody chose a learning rate for these pictures."""
OTHER_STATISTICS: dict[str, Any] = {**STATISTICS, "num_directions": 16}
"""What another kind of head than the default's takes over, as far as it has it."""
WIDEST = 4608
"""Features that a head of statistics reads at the most: it keeps a square matrix of them."""
DRAWINGS: dict[str, dict[str, Any]] = {
    "": {"epochs": 8, "head": {"kind": "aligned"}},
    "clare": {"probe_epochs": 3, "learning_rate": 0.2, "trust": TRUST},
    "clare-plus": {"trust": TRUST},
    "finetune": {"learning_rate": 0.05, "batch_size": 16},
    "linear": {"features": {"blocks": 4, "patches": True}, "head": {"kind": "gaussian"}},
}
"""What the preset quickdraw says for every method, and for some, within a trust region; `linear` is the default."""
PHOTOS: dict[str, dict[str, Any]] = {
    "": {"epochs": 10, "head": {"kind": "aligned"}},
    "clare": {"probe_epochs": 3, "trust": TRUST},
    "clare-plus": {
        "probe_epochs": 3,
        "trust": TRUST,
        "row_epochs": 5,
        "features": {"blocks": 6},
        "head": STATISTICS,
    },
    "linear": {
        "features": {"blocks": 6, "patches": True, "views": 3},
        "head": {"kind": "gaussian"},
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
    if dict(settings.get("head", {})).get("kind", "gaussian") != ours["head"]["kind"] == "gaussian":
        ours["head"] = OTHER_STATISTICS
    features, family = dict(ours.get("features", {})), family_of(backbone.vit)
    if features.get("patches"):
        features["patches"] = family.beside(backbone.vit) != "nothing"
    # A small backbone is read as far as it goes, a wide one as far as the matrices of a head of statistics allow.
    num_read = min(features.get("blocks", 1), len(family.ends(backbone.vit)))
    while num_read > 1 and sum(part_sizes(backbone.vit, num_read, features.get("patches", False))) > WIDEST:
        num_read -= 1
    ours["features"] = {**features, "blocks": num_read}
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
    config = resolve_model_data_config(backbone.vit)  # type: ignore[no-untyped-call]
    return {
        "image_size": size,
        "resize": round(size / config["crop_pct"]),
        "train": "crop",
        "crop_scale": (0.25, 1.0),
        "test_kernel": config["interpolation"] if config["interpolation"] in get_args(Kernel) else "bicubic",
        "normalise": "backbone",
    }
