"""What is exported: a learnt method with its backbone and transforms, and what the model folder knows about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clare.backbones.vit import EMBEDDED, Backbone
from clare.classifier.certainty import fitted_scale
from clare.classifier.classifier import load
from clare.data.store import ImageStore
from clare.data.transforms import Transforms, TransformSettings
from clare.errors import ModelError
from clare.methods.base import Method
from clare.model.folder import Named
from clare.model.records import Change, ClassInfo


@dataclass(frozen=True)
class Source:
    """A learnt classifier on the CPU, and what is known about it."""

    method: Method
    backbone: Backbone
    transforms: TransformSettings
    classes: tuple[ClassInfo, ...]
    history: tuple[Change, ...]
    calibration: dict[str, Any] | None = None
    """The factor on logits in a softmax, and the curve of the score of showing none of the classes."""

    @property
    def class_names(self) -> list[str]:
        """Names of the classes in the order of the logits."""
        return [line.name for line in self.classes]

    @property
    def backbone_name(self) -> str:
        """The backbone's timm name, or the embedded one's."""
        return self.backbone.settings.name if self.backbone.settings else "a backbone built by hand"

    @property
    def is_drawing_model(self) -> bool:
        """Whether the backbone is the one for drawings."""
        return self.backbone_name == EMBEDDED

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel that the transforms normalise by."""
        if self.transforms.normalise == "backbone":
            return self.backbone.mean, self.backbone.std
        return (0.0,) * self.backbone.channels, (1.0,) * self.backbone.channels

    @property
    def inverts(self) -> bool:
        """Whether the model sees the negative of an image whose border is bright."""
        return self.transforms.invert == "bright-border"

    @property
    def unknown_curve(self) -> dict[str, float] | None:
        """Slope, offset and threshold of the score that a picture shows none of the classes."""
        if self.calibration is None:
            return None
        # A file answers with logits alone, so its score goes by them.
        curve = self.calibration.get("of_logits") or self.calibration
        return {name: float(curve[name]) for name in ("slope", "offset", "threshold")}

    @property
    def scale(self) -> float:
        """Factor that turns logits into the arguments of a softmax."""
        return fitted_scale(self.calibration, self.method)

    @torch.no_grad()
    def logits(self, images: ImageStore) -> Tensor:
        """Return what the model itself says to images."""
        transforms = Transforms(self.transforms, self.backbone.mean, self.backbone.std)
        logits: Tensor = self.method(transforms.test(images.batch(torch.arange(len(images)))))
        return logits

    def inputs(self, images: ImageStore) -> Tensor:
        """Return what an exported model takes of images: resized and cropped, float32 in 0..1."""
        transforms = self.transforms.model_copy(update={"normalise": "none", "invert": "never"})
        plain = Transforms(transforms, self.backbone.mean, self.backbone.std)
        return plain.test(images.batch(torch.arange(len(images))))


def open_source(folder: Path, method: Named = None) -> Source:
    """Read what was committed last to a model folder."""
    model = load(folder, method=method, device="cpu")
    if not model.classes:
        raise ModelError(f"{folder} knows no classes yet; teach it some before it is exported")
    classes, history, parts = tuple(model.classes), tuple(model.history), model.parts
    return Source(parts.method.eval(), parts.backbone, parts.transforms, classes, history, model.calibration)
