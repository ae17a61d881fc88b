"""A model folder that is read: what it knows, what it guesses, and how good its guesses are."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, cast

import torch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.classifier import teaching
from clare.classifier.capacity import tasks_left
from clare.classifier.certainty import fitted_scale
from clare.classifier.defaults import is_drawing_backbone
from clare.classifier.measure import evaluation_of
from clare.classifier.memory import Memory
from clare.classifier.pictures import Reader, is_split
from clare.classifier.unknown import DEFAULT_THRESHOLD, scores
from clare.data.examples import Examples, ImageLike, as_list
from clare.data.images import Pixels
from clare.data.store import ImageStore
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Silence
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.errors import DataError, ModelError
from clare.methods.base import Method
from clare.methods.protocols import Capacity, capacity_of
from clare.model.folder import Manifest
from clare.model.records import Change, ClassInfo, ClassReport, Evaluation, Guess, Mode, class_reports
from clare.settings import build_settings

Parts = tuple[Method, Backbone, TransformSettings]


class Classifier:
    """The state of a model folder that was read or committed last, and what can be asked of it."""

    def __init__(self, path: Path, manifest: Manifest, parts: Parts, memory: Memory, device: str) -> None:
        """Take what was read from a folder."""
        self.path, self.device = path, device
        self._manifest, self._memory = manifest, memory
        # Predictions and changes of one object exclude each other, whichever threads ask for them.
        self._threads = threading.RLock()
        self._take(parts)

    def _take(self, parts: Parts) -> None:
        """Put a method where it computes."""
        self.method, self.backbone, transforms = parts
        settings = build_settings(EngineSettings, {"device": self.device}, "")
        ranks = Ranks(settings)
        self.method.to(ranks.device)
        built = Transforms(transforms, self.backbone.mean, self.backbone.std)
        self._context = Context(ranks, built, settings, self.method.seed, Silence())

    @property
    def version(self) -> int:
        """Number of the last change, which grows with every commit."""
        return self._manifest.version

    @property
    def classes(self) -> list[ClassInfo]:
        """The known classes in the order of the model's rows."""
        return [ClassInfo(**values) for values in self._manifest.state["classes"]]

    @property
    def history(self) -> list[Change]:
        """All changes, oldest first."""
        return [Change(**{**values, "classes": tuple(values["classes"])}) for values in self._manifest.history]

    @property
    def reports(self) -> dict[str, ClassReport]:
        """The newest measurement of each class on its held-back pictures, and its date."""
        return class_reports(self.history)

    @property
    def capacity(self) -> Capacity | None:
        """State of the coordinate pool, if the method has one."""
        return capacity_of(self.method)

    @property
    def claims(self) -> list[list[int]] | None:
        """Coordinates that each task claimed in each layer, if the method keeps account of them."""
        return teaching.claims_by_layer(self.method)

    @property
    def tasks_left(self) -> int | None:
        """About how many more tasks the free coordinates suffice for."""
        return tasks_left(self.method)

    @property
    def num_undoable(self) -> int:
        """How many changes can be taken back, one after another."""
        return len(self._manifest.kept)

    @property
    def backbone_name(self) -> str:
        """The backbone's name, with its weights file where it has one."""
        settings = self.backbone.settings
        if settings is None:
            return "built by hand"
        is_file = settings.weights not in ("pretrained", "random")
        return f"{settings.name} ({settings.weights})" if is_file else settings.name

    @property
    def backbone_hash(self) -> str:
        """Hash of the backbone's weights."""
        return self.backbone.fingerprint

    @property
    def image_size(self) -> int:
        """Side of the square that the backbone sees."""
        return self.transforms.image_size

    @property
    def channels(self) -> int:
        """3 for colour, 1 for grey."""
        return self.backbone.channels

    @property
    def transforms(self) -> TransformSettings:
        """How pictures become inputs."""
        return self._context.transforms.settings

    @property
    def is_drawing_model(self) -> bool:
        """Whether the backbone is the one for drawings that comes with the package."""
        return is_drawing_backbone(self.backbone.settings)

    @property
    def calibration(self) -> dict[str, Any] | None:
        """How probabilities and the score of being unknown come about; none before there is enough to fit them."""
        return cast(dict[str, Any] | None, self._manifest.state["calibration"])

    @property
    def threshold(self) -> float:
        """The score from which a picture is called unknown unless another is asked for."""
        return DEFAULT_THRESHOLD if self.calibration is None else float(self.calibration["threshold"])

    @property
    def scale(self) -> float:
        """Factor that turns logits into the arguments of a softmax, the head's own where nothing was fitted."""
        return fitted_scale(self.calibration, self.method)

    def reader(self, skip_bad: bool = False) -> Reader:
        """Return what reads pictures as this model needs them."""
        side = self.transforms.resize
        # A random crop takes a part of the picture, so more of its detail is kept.
        return Reader(self.channels, 2 * side if self.transforms.train == "crop" else side, self.method.seed, skip_bad)

    def predict(
        self, images: ImageLike | Sequence[ImageLike], top: int = 5, threshold: float | None = None
    ) -> list[Guess]:
        """Name each picture: its most probable classes, and the score that it is none of them."""
        reader = self.reader()
        return self.predict_pixels([reader.image(image) for image in as_list(images)], top, threshold)

    def predict_pixels(self, images: Sequence[Pixels], top: int = 5, threshold: float | None = None) -> list[Guess]:
        """Name pictures that this model's reader has read."""
        if top < 1:
            raise DataError(f"the number of guesses is {top}; ask for at least one")
        if not images:
            return []
        with self._threads:
            self._require_classes()
            names = self.method.classes
            logits = self._logits(images)
            unknown = scores(self.calibration, logits.amax(1)).tolist()
            scale = self.scale
        limit = self.threshold if threshold is None else threshold
        best = (scale * logits.double()).softmax(1).topk(min(top, len(names)))
        return [
            Guess(tuple(names[place] for place in places), tuple(values), score, score >= limit and score > 0)
            for values, places, score in zip(best.values.tolist(), best.indices.tolist(), unknown, strict=True)
        ]

    def evaluate(self, examples: Examples) -> Evaluation:
        """Count, on pictures whose classes are given, what each class is taken for."""
        if isinstance(examples, str | Path) and is_split(Path(examples)):
            examples = Path(examples) / "test"
        images = self.reader().by_class(examples)
        with self._threads:
            self._require_classes()
            flat = [image for name in images for image in images[name]]
            return self._measured(images, self._logits(flat), self.calibration)

    def _measured(
        self, images: Mapping[str, list[Pixels]], logits: Tensor, calibration: dict[str, Any] | None
    ) -> Evaluation:
        """Count what pictures with these logits, class by class, are taken for."""
        given = [name for name in images for _ in images[name]]
        scale = fitted_scale(calibration, self.method)
        return evaluation_of(self.method.classes, given, logits, calibration, self.threshold, scale)

    def count_inverted(self, images: Sequence[Pixels]) -> int:
        """Count the pictures of which the backbone sees the negative."""
        if self.transforms.invert == "never" or not images:
            return 0
        canvas = ImageStore.from_images(images).batch(torch.arange(len(images)))
        return int(self._context.transforms.inverted(canvas).sum())

    def estimate_seconds(self, num_images: int, num_classes: int, mode: Mode = "learn") -> float:
        """Estimate how long teaching will take, from a short measurement on this device."""
        with self._threads:
            return teaching.measure_seconds(self._context, self.method, num_images, num_classes, mode == "learn")

    def _logits(self, images: Sequence[Pixels]) -> Tensor:
        """Return the logits of pictures over all known classes."""
        return teaching.logits_of(self._context, self.method, teaching.features_of(self._context, self.method, images))

    def _require_classes(self) -> None:
        """Refuse to guess before anything was taught."""
        if not self.method.classes:
            command = f"clare learn {quote(str(self.path))} PICTURES"
            raise ModelError(f"{self.path} knows no classes yet; teach it some: {command}")
