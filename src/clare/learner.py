"""The library's front door: make a learner, teach it classes, ask it, save it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer

from clare.backbones.vit import EMBEDDED, Backbone, BackboneSettings, freeze, load_backbone
from clare.classifier.certainty import fitted_scale
from clare.classifier.taught import Mode, TaughtModel
from clare.data.examples import Examples, ImageLike, as_list, read_examples, read_image
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Silence
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.errors import DataError, ModelError
from clare.methods import METHODS
from clare.methods.base import Method, prepare
from clare.model.beginning import no_model_without_lesson
from clare.model.folder import build_model, read_manifest, read_model, save_model
from clare.model.lock import writing
from clare.presets.load import find_backbone
from clare.seeds import check_seed
from clare.settings import build_settings

__all__ = ["Learner", "TaughtModel", "create", "load", "teach"]


class Learner:
    """A classifier that learns new classes without the pictures of the old ones."""

    def __init__(
        self,
        method: Method,
        backbone: Backbone,
        transforms: TransformSettings,
        device: str,
        calibration: dict[str, Any] | None = None,
    ) -> None:
        """Take the parts of a classifier; `calibration` is what was fitted to pictures that were held back."""
        self._calibration = calibration
        settings = build_settings(EngineSettings, {"device": device}, "")
        ranks = Ranks(settings)
        if not method.tasks:
            prepare(method, None, 0)
        self.method = method.to(ranks.device)
        self.backbone = backbone
        built = Transforms(transforms, backbone.mean, backbone.std)
        self.context = Context(ranks, built, settings, method.seed, Silence())

    @property
    def classes(self) -> list[str]:
        """Names of the classes learnt so far."""
        return self.method.classes

    def learn(self, dataset: Examples) -> None:
        """Learn the classes of a data set as one new task."""
        examples = read_examples(dataset, self.backbone.channels)
        classes = tuple(examples)
        images = [image for name in classes for image in examples[name]]
        if not images:
            raise DataError("the data set has no images; give at least one class with images")
        labels = torch.tensor([label for label, name in enumerate(classes) for _ in examples[name]])
        store = ImageStore.from_images(images).to(self.context.ranks.device)
        task = Task(len(self.method.tasks), classes, LabelledImages(store, torch.arange(len(images)), labels))
        learn_task(self.context, self.method, task)
        # What was fitted before knew nothing of these classes.
        self._calibration = None

    def probabilities(self, images: ImageLike | Sequence[ImageLike]) -> torch.Tensor:
        """Return one row per image with a probability for each class learnt so far."""
        if not self.classes:
            raise ModelError("the learner knows no classes yet; call learn first")
        several = as_list(images)
        if not several:
            return torch.zeros(0, len(self.classes))
        decoded = [read_image(image, self.backbone.channels) for image in several]
        store = ImageStore.from_images(decoded).to(self.context.ranks.device)
        positions = torch.arange(len(decoded))
        logits = predict_logits(
            self.context, self.method, LabelledImages(store, positions, torch.zeros_like(positions))
        )
        return (fitted_scale(self._calibration, self.method) * logits).softmax(1)

    def predict(self, images: ImageLike | Sequence[ImageLike]) -> list[str]:
        """Return the most probable class of each image."""
        return [self.classes[index] for index in self.probabilities(images).argmax(1).tolist()]

    def save(self, folder: str | Path) -> None:
        """Write the model folder; an interruption leaves what was there before."""
        folder = Path(folder)
        with writing(folder, wait=True, makes_folder=True):
            if (folder / "model.json").exists() and read_manifest(folder).history:
                raise ModelError(f"{folder} holds a model with a history, which would be lost; save to another folder")
            save_model(folder, self.method, self.backbone, self.context.transforms.settings)


def create(
    backbone: str | VisionTransformer | BackboneSettings = "quickdraw-vit",
    method: str | type[Method] = "clare",
    *,
    settings: Mapping[str, Any] | None = None,
    transforms: Mapping[str, Any] | None = None,
    seed: int = 1993,
    device: str = "auto",
) -> Learner:
    """Make a learner from a timm name, a built ViT or backbone settings, and a method's name, file or class."""
    check_seed(seed)
    frozen = _backbone(backbone)
    kind = METHODS.named(method)
    learner_settings = build_settings(kind.settings_type, settings or {}, "settings")
    size = frozen.image_size
    defaults = {"image_size": size, "resize": size, "normalise": "backbone"}
    if frozen.settings is not None and frozen.settings.name == EMBEDDED:
        defaults["train"] = "affine"
    built = build_settings(TransformSettings, {**defaults, **(transforms or {})}, "transforms")
    return Learner(kind(frozen, learner_settings, seed), frozen, built, device)


def load(
    folder: str | Path,
    backbone: str | VisionTransformer | BackboneSettings | None = None,
    *,
    method: str | type[Method] | None = None,
    device: str = "auto",
) -> Learner:
    """Read a learner that was saved; a backbone built by hand and a method of one's own must be given again."""
    manifest, tensors = read_model(Path(folder))
    given = None if backbone is None else _backbone(backbone)
    built, frozen, transforms = build_model(Path(folder), manifest.state, tensors, given, method)
    return Learner(built, frozen, transforms, device, manifest.state["calibration"])


def teach(
    folder: str | Path,
    pictures: Examples,
    backbone: str | BackboneSettings | None = None,
    *,
    method: str | type[Method] | None = None,
    mode: Mode = "learn",
    device: str = "auto",
) -> TaughtModel:
    """Teach a model folder new classes, or with mode 'update' more pictures; the folder is made if there is none."""
    folder = Path(folder)
    if (folder / "model.json").exists():
        if backbone is not None:
            raise ModelError(f"{folder} has its backbone already; leave out `backbone` or choose another folder")
        model = TaughtModel.open(folder, device=device, method=method)
    else:
        settings = find_backbone(backbone) if isinstance(backbone, str) else backbone
        chosen: dict[str, Any] = {} if method is None else {"method": method}
        with no_model_without_lesson(folder):
            model = TaughtModel.create(folder, settings, device=device, **chosen)
            model.teach(pictures, mode=mode)
        return model
    model.teach(pictures, mode=mode)
    return model


def _backbone(backbone: str | VisionTransformer | BackboneSettings) -> Backbone:
    """Return a frozen backbone of a name, settings, or a model."""
    if isinstance(backbone, str):
        backbone = BackboneSettings(name=backbone)
    if isinstance(backbone, BackboneSettings):
        return load_backbone(backbone)
    return freeze(backbone, None)
