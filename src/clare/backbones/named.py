"""The backbone that a user names: one that timm has, or a file with its weights."""

from pathlib import Path

import timm
from safetensors import SafetensorError, safe_open

from clare.backbones.hub import check_name
from clare.backbones.originals import MODEL, SUFFIXES, convert
from clare.backbones.recognise import fitting_model, models_like, plain_model
from clare.backbones.vit import EMBEDDED, EMBEDDED_ARCHITECTURE, BackboneSettings
from clare.errors import BackboneError


def is_weights_file(name: str) -> bool:
    """Tell whether a name means a file of weights."""
    return name.endswith(".safetensors") or Path(name).is_file()


def named_backbone(name: str) -> BackboneSettings:
    """Return the settings of a local weights file, or of a name that timm has; others are refused."""
    if is_weights_file(name):
        return _from_file(Path(name))
    check_name(name)
    return BackboneSettings(name=name)


def is_timm_model(name: str) -> bool:
    """Tell whether timm has a model of this name, whatever its weights are called."""
    return bool(timm.is_model(name.split(".")[0]))


def _from_file(path: Path) -> BackboneSettings:
    """Find out from the shapes in a weights file which model it is for; an original checkpoint is converted first."""
    if not path.is_file():
        raise BackboneError(f"there is no weights file {path}; give a timm name or a weights file")
    if path.suffix in SUFFIXES:
        path = convert(path)
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            noted = (file.metadata() or {}).get(MODEL)
    except (OSError, SafetensorError) as error:
        raise BackboneError(
            f"{path} is not a readable safetensors file ({error}); give a timm name or a weights file"
        ) from error
    # As good as the root of the number of patches, with class token and registers or without.
    side = round((shapes["pos_embed"][1] - 1) ** 0.5) if "pos_embed" in shapes else None
    plain = None if noted else plain_model(shapes)
    name = noted or plain or fitting_model(shapes, models_like(shapes))
    if name is None or not (plain or timm.is_model(name)):
        raise BackboneError(
            f"{path} holds no weights of a timm model that works; convert them to timm's names first, or "
            "name the model as `backbone.name` of a preset"
        )
    size = None if side is None else side * shapes["patch_embed.proj.weight"][-1]
    if plain is None:
        return BackboneSettings(name=name, weights=str(path.resolve()), image_size=size)
    width, channels, *_ = shapes["patch_embed.proj.weight"]
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    if plain != EMBEDDED:
        sizes = {"depth": depth, "in_chans": channels}
        return BackboneSettings(name=name, weights=str(path.resolve()), image_size=size, architecture=sizes)
    sizes = {"img_size": size, "embed_dim": width, "depth": depth, "num_heads": max(1, width // 64)}
    changed = {key: value for key, value in sizes.items() if value != EMBEDDED_ARCHITECTURE[key]}
    return BackboneSettings(weights=str(path.resolve()), architecture=changed)
