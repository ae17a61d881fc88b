"""The parts of a classifier where they compute: a method, its frozen backbone, and the transforms before it."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from clare.backbones.vit import Backbone, BackboneSettings, freeze, load_backbone
from clare.classifier import teaching
from clare.classifier.defaults import default_settings, default_transforms
from clare.classifier.pictures import Reader
from clare.data.images import Pixels
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Silence
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.errors import ModelError, SettingsError
from clare.methods import METHODS
from clare.methods.base import HeadOnlySettings, Method, prepare
from clare.methods.protocols import KeepsPictures, is_told_task
from clare.presets.load import find_backbone
from clare.settings import build_settings

BackboneLike = str | Path | BackboneSettings | nn.Module
"""A backbone as a person gives it: a name, a weights file, settings, or a timm model."""
Compute = Callable[[Tensor], Tensor]
"""Takes normalised images to features."""


class Parts:
    """A method on its backbone, on one device."""

    def __init__(self, method: Method, backbone: Backbone, transforms: TransformSettings, device: str) -> None:
        """Put a method where it computes, if its answers ask for nothing but a picture."""
        if is_told_task(method):
            raise ModelError(
                f"with these settings the method '{method.name}' must be told the task of each picture, and nobody can "
                "tell it that of your own; let it infer the task, as by default, or choose another method"
            )
        settings = build_settings(EngineSettings, {"device": device}, "")
        ranks = Ranks(settings)
        self.method, self.backbone, self.transforms = method.to(ranks.device), backbone, transforms
        built = Transforms(transforms, backbone.mean, backbone.std)
        self.context = Context(ranks, built, settings, method.seed, Silence())
        self.compute: Compute | None = None
        """What takes images to features in the method's place, for a model that answers and never changes."""

    def reader(self, skip_bad: bool = False) -> Reader:
        """Return what reads pictures as this backbone needs them."""
        side = self.transforms.resize
        # A random crop takes a part of the picture, so more of its detail is kept.
        shorter_side = 2 * side if self.transforms.train == "crop" else side
        return Reader(self.backbone.channels, shorter_side, self.method.seed, skip_bad)

    def features(self, images: Sequence[Pixels], compute: Compute | None = None) -> Tensor:
        """Return the features of pictures, as something else computes them where it is given or was set."""
        return teaching.features_of(self.context, self.method, images, compute or self.compute)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of features over all known classes."""
        return teaching.logits_of(self.context, self.method, features)


def new_parts(
    backbone: BackboneLike | None,
    kind: type[Method],
    settings: Mapping[str, Any] | HeadOnlySettings | None,
    transforms: TransformSettings | None,
    seed: int,
    device: str,
) -> Parts:
    """Make the parts of a classifier that knows nothing yet."""
    if issubclass(kind, KeepsPictures):
        raise ModelError(
            f"the method '{kind.name}' learns from pictures that it keeps, and a model of your own never carries any; "
            "run it over a stream with `clare train`, or choose another method"
        )
    frozen = frozen_backbone(backbone)
    if not isinstance(settings, Mapping | HeadOnlySettings | None):
        raise SettingsError(f"settings came as {settings!r}; give a dict, such as {{'epochs': 5}}")
    if not isinstance(settings, HeadOnlySettings):
        settings = default_settings(frozen, METHODS.name_of(kind), settings or {})
    method = kind(frozen, settings, seed)
    prepare(method, None, 0)
    method.eval()
    transforms = transforms or build_settings(TransformSettings, default_transforms(frozen), "transforms")
    return Parts(method, frozen, transforms, device)


def frozen_backbone(backbone: BackboneLike | None) -> Backbone:
    """Return the backbone that a person gives, by default the one for drawings; a timm model stays as it is."""
    if backbone is None or isinstance(backbone, str | Path):
        backbone = find_backbone(None if backbone is None else str(backbone))
    if isinstance(backbone, BackboneSettings):
        return load_backbone(backbone)
    # What a method attaches goes to a copy, so that one model can serve several classifiers.
    return freeze(deepcopy(backbone), None)
