"""How a classifier answers: labels and probabilities as scikit-learn has them, guesses, and counts of right ones."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clare.classifier import teaching
from clare.classifier.changes import Changes
from clare.classifier.inputs import pictures
from clare.classifier.labels import Labels
from clare.classifier.measure import evaluation_of
from clare.classifier.unknown import scores
from clare.data.images import Pixels
from clare.data.pictures import ImageLike
from clare.data.store import ImageStore
from clare.errors import DataError, ModelError
from clare.model.records import Answer, Evaluation, Guess, Mode

BATCH = 1000
"""Pictures that are decoded at a time, a multiple of those that are computed at a time."""


class Answers(Changes):
    """A classifier that can be asked; pictures are given one by one or several at a time, in whatever holds them."""

    def predict(self, X: Any) -> Labels:
        """Return the most probable class of each picture."""
        with self._threads:
            best = self.predict_proba(X).argmax(1)
            labels: Labels = self.classes_[best]
            return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return a row for each picture with a probability for each class, in the order of `classes_`."""
        with self._threads:
            probabilities: npt.NDArray[np.float64] = self._probabilities(self._logits(pictures(X))).numpy()
            return probabilities

    def score(self, X: Any, y: Any = None) -> float:
        """Return the share of pictures that get their own class; a class that is not known is never right."""
        counts = self.evaluate(X, y)
        num_strangers = sum(number for number, _ in counts.strangers.values())
        return sum(counts.correct) / (counts.num_images + num_strangers)

    def guess(self, images: Any, top: int = 5, threshold: float | None = None) -> list[Answer]:
        """Say of each picture what it most probably shows, and whether it may show none of the known classes."""
        given = list(pictures(images))
        names = [str(image) if isinstance(image, str | Path) else f"image {n}" for n, image in enumerate(given, 1)]
        with self._threads:
            return self._answers(names, self._logits(given) if given else torch.zeros(0, 1), top, threshold)

    def guess_pixels(
        self, names: Sequence[str], images: Sequence[Pixels], top: int = 5, threshold: float | None = None
    ) -> list[Answer]:
        """Say the same of pictures that the reader has read."""
        with self._threads:
            return self._answers(names, self._logits_of(images), top, threshold)

    def evaluate(self, X: Any, y: Any = None) -> Evaluation:
        """Count, on pictures whose classes are given, what each class is taken for."""
        images = self.reader().by_class(X, y)
        with self._threads:
            logits = self._logits_of([image for name in images for image in images[name]])
            return evaluation_of(self.parts.method, images, logits, self.calibration)

    def count_inverted(self, images: Sequence[Pixels]) -> int:
        """Count the pictures of which the backbone sees the negative."""
        parts = self.parts
        if parts.transforms.invert == "never" or not images:
            return 0
        canvas = ImageStore.from_images(images).batch(torch.arange(len(images)))
        return int(parts.context.transforms.inverted(canvas).sum())

    def estimate_seconds(self, num_images: int, num_classes: int, mode: Mode = "learn") -> float:
        """Estimate how long teaching will take, from a short measurement on this device."""
        with self._threads:
            parts = self.parts
            return teaching.measure_seconds(parts.context, parts.method, num_images, num_classes, mode == "learn")

    def _answers(self, names: Sequence[str], logits: Tensor, top: int, threshold: float | None) -> list[Answer]:
        """Return answers to pictures with these logits."""
        if top < 1:
            raise DataError(f"the number of guesses is {top}; ask for at least one")
        if not names:
            return []
        known = self.parts.method.classes
        unknown = scores(self.calibration, logits.amax(1)).tolist()
        limit = self.threshold if threshold is None else threshold
        best = self._probabilities(logits).topk(min(top, len(known)))
        return [
            Answer(
                name,
                tuple(Guess(known[place], value) for place, value in zip(places, values, strict=True)),
                score,
                score >= limit and score > 0,
            )
            for name, values, places, score in zip(
                names, best.values.tolist(), best.indices.tolist(), unknown, strict=True
            )
        ]

    def _probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities that belong to logits."""
        return (self.scale * logits.double()).softmax(1)

    def _logits(self, images: Iterable[ImageLike]) -> Tensor:
        """Return the logits of pictures over all known classes."""
        reader = self.reader()
        found = [self._logits_of([reader.image(image) for image in some]) for some in _batches(images)]
        return torch.cat(found) if found else self._logits_of([])

    def _logits_of(self, images: Sequence[Pixels]) -> Tensor:
        """Return the logits of pictures that were read; before anything was taught there are none."""
        known = self.parts.method.classes
        if not known and self.folder is None:
            raise ModelError("the classifier knows no classes yet; teach it some: fit, learn or partial_fit")
        if not known:
            command = f"clare learn {quote(str(self.folder))} PICTURES"
            raise ModelError(f"{self.folder} knows no classes yet; teach it some: {command}")
        return self.parts.logits(images) if len(images) else torch.zeros(0, len(known))


def _batches(images: Iterable[ImageLike]) -> Iterator[list[ImageLike]]:
    """Yield pictures in batches, so that not all are in memory at once."""
    rest = iter(images)
    while some := list(islice(rest, BATCH)):
        yield some
