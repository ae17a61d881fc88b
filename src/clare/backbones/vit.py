"""A frozen timm model with its normalisation and its fingerprint."""

import hashlib
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from clare.backbones.families import Model, check_model, family_of
from clare.backbones.hub import check_name, outline
from clare.backbones.settings import EMBEDDED as EMBEDDED
from clare.backbones.settings import EMBEDDED_WEIGHTS as EMBEDDED_WEIGHTS
from clare.backbones.settings import BackboneSettings as BackboneSettings
from clare.backbones.weights import check_reach, hub_file, unfetched
from clare.errors import BackboneError

EMBEDDED_BASE = "vit_tiny_patch16_224"
EMBEDDED_ARCHITECTURE: dict[str, Any] = {
    "img_size": 28,
    "patch_size": 7,
    "in_chans": 1,
    "embed_dim": 192,
    "depth": 6,
    "num_heads": 3,
}
CLASSIFIER = ("head.weight", "head.bias", "head_dist.weight", "head_dist.bias", "head.fc.weight", "head.fc.bias")


@dataclass(frozen=True)
class Backbone:
    """A frozen model, how its inputs are normalised, and what identifies it."""

    vit: Model
    settings: BackboneSettings | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str

    @property
    def image_size(self) -> int:
        """Side of the square input."""
        config = getattr(self.vit, "pretrained_cfg", None) or {}
        usual = (self.settings and self.settings.image_size) or int(config.get("input_size", (3, 224, 224))[-1])
        return int(self.vit.patch_embed.img_size[0]) if family_of(self.vit).sizes_by_name else usual

    @property
    def channels(self) -> int:
        """Input channels: 3 for colour, 1 for grey."""
        return num_channels(self.vit)


def load_backbone(settings: BackboneSettings) -> Backbone:
    """Build the model that the settings name, load its weights and freeze it."""
    vit = create(settings)
    if settings.weights not in ("pretrained", "random"):
        _load_weights(vit, Path(settings.weights).expanduser(), resize=settings.image_size is not None)
    elif settings.name == EMBEDDED and settings.weights == "pretrained":
        _load_weights(vit, Path(str(files("clare") / EMBEDDED_WEIGHTS)), resize=False)
    return freeze(vit, settings)


def num_channels(model: Model) -> int:
    """Return how many channels the images of a model have, which its first convolution reads."""
    return next(int(part.in_channels) for part in model.modules() if isinstance(part, nn.Conv2d))


def build_embedded(**sizes: Any) -> Model:
    """Build the drawing model with random weights; sizes other than its own make a smaller or larger one."""
    vit: Model = timm.create_model(EMBEDDED_BASE, num_classes=0, **{**EMBEDDED_ARCHITECTURE, **sizes})
    vit.pretrained_cfg = {}
    return vit


def create(settings: BackboneSettings, drop_path: float = 0.0) -> Model:
    """Build the model, with timm's pretrained weights only when it has some and no file replaces them."""
    name = settings.name
    check_name(name)
    fetch = name != EMBEDDED and settings.weights == "pretrained"
    sizes: dict[str, Any] = {**settings.architecture, **({"drop_path_rate": drop_path} if drop_path else {})}
    if fetch or settings.image_size is not None:
        outlined = outline(EMBEDDED_BASE if name == EMBEDDED else name)
        # Before weights are asked for.
        check_model(outlined)
        sizes |= {"img_size": settings.image_size} if settings.image_size and family_of(outlined).sizes_by_name else {}
    check_reach(settings)
    try:
        if name == EMBEDDED:
            return build_embedded(**sizes)
        return timm.create_model(name, pretrained=fetch, num_classes=0, **sizes)
    except Exception as error:
        if fetch:
            raise unfetched(f"of '{name}'", type(error).__name__, hub_file(name)) from error
        raise BackboneError(f"timm could not build '{name}': {error}; check `backbone.architecture`") from error


def _load_weights(vit: Model, path: Path, resize: bool) -> None:
    """Load a safetensors file whose keys and shapes are the model's, leaving out a classifier.

    Positions of another image size are resampled as timm does it, where that was asked for.
    """
    if not path.is_file():
        raise BackboneError(f"there is no weights file {path}; set `backbone.weights` to an existing safetensors file")
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise BackboneError(
            f"{path} is not a readable safetensors file ({error}); convert or fetch it again"
        ) from error
    # Published files come with the classifier of their pretraining.
    weights = {key: value for key, value in weights.items() if key not in CLASSIFIER}
    shapes = {key: value.shape for key, value in vit.state_dict().items()}
    changed = [key for key in weights if weights[key].shape != shapes.get(key, weights[key].shape)]
    if resize and changed and all("pos" in key for key in changed):
        weights = sys.modules[type(vit).__module__].checkpoint_filter_fn(weights, vit)
    differences = (
        ("missing", sorted(shapes.keys() - weights.keys())),
        ("unknown", sorted(weights.keys() - shapes.keys())),
        ("of another shape", sorted(key for key in shapes if key in weights and weights[key].shape != shapes[key])),
    )
    detail = "; ".join(
        f"{len(keys)} {what} ({', '.join(keys[:3])}{', …' * (len(keys) > 3)})" for what, keys in differences if keys
    )
    if detail:
        raise BackboneError(
            f"{path} does not fit the backbone: {detail}; check `backbone.name` and `backbone.image_size`"
        )
    vit.load_state_dict(weights)


def freeze(model: Model, settings: BackboneSettings | None) -> Backbone:
    """Freeze a model that is already built and loaded, dropping its classifier."""
    check_model(model)
    if int(model.num_classes) != 0:
        model.reset_classifier(0)
    model.requires_grad_(False).eval()
    backbone = Backbone(model, settings, *normalisation(model), fingerprint(model))
    least = int(model.feature_info[-1]["reduction"])
    if backbone.image_size < least:
        raise BackboneError(
            f"images of {backbone.image_size} pixels are too small for a {type(model).__name__}, whose last maps have "
            f"one place for {least} x {least} pixels; set `backbone.image_size` to {least} or more"
        )
    return backbone


def normalisation(model: Model) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel in the pretraining of a model."""
    config, channels = getattr(model, "pretrained_cfg", None) or {}, num_channels(model)

    def per_channel(name: str) -> tuple[float, ...]:
        values = tuple(map(float, config.get(name, (0.5,))))
        # timm names three for colour even when the model is built for grey.
        return values if len(values) == channels else (sum(values) / len(values),) * channels

    return per_channel("mean"), per_channel("std")


def fingerprint(model: Model) -> str:
    """Return a hash over the number of attention heads, and names, shapes and bytes of all weights."""
    digest = hashlib.sha256(family_of(model).heads(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
