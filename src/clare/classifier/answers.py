"""How a classifier answers: labels and probabilities as scikit-learn has them, guesses, and counts of right ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from clare.classifier.coverage import least_probability, name_sets
from clare.classifier.inputs import pictures
from clare.classifier.labels import Labels
from clare.classifier.lesson import unknown_scores
from clare.classifier.measure import evaluation_of
from clare.classifier.unknown import threshold_at
from clare.data.images import Pixels
from clare.data.pictures import ImageLike
from clare.data.store import ImageStore
from clare.errors import DataError, ModelError
from clare.model.records import Answer, Evaluation, Guess, Mode

BATCH = 1000
"""Pictures that are decoded at a time, a multiple of those that are computed at a time."""


@dataclass(frozen=True)
class Thresholds:
    """From which score on a picture is unknown, and from which probability on a name is in its set, if any."""

    unknown: float
    least_probability: float | None = None


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
            probabilities: npt.NDArray[np.float64] = self._probabilities(
                self.parts.logits(self._features(pictures(X)))
            ).numpy()
            return probabilities

    def score(self, X: Any, y: Any = None) -> float:
        """Return the share of pictures that get their own class; a class that is not known is never right."""
        counts = self.evaluate(X, y)
        num_strangers = sum(number for number, _ in counts.strangers.values())
        return sum(counts.correct) / (counts.num_images + num_strangers)

    def guess(
        self,
        images: Any,
        top: int = 5,
        threshold: float | None = None,
        *,
        unknown_rate: float | None = None,
        coverage: float | None = None,
    ) -> list[Answer]:
        """Say of each picture what it most probably shows, and whether it may show none of the known classes.

        `unknown_rate` sets the threshold by the share of known pictures that one accepts to lose; with `coverage` the
        answers hold a set of names each, in which the right one is in this share of cases.
        """
        given = list(pictures(images))
        names = [str(image) if isinstance(image, str | Path) else f"image {n}" for n, image in enumerate(given, 1)]
        with self._threads:
            thresholds = self.thresholds(threshold, unknown_rate, coverage)
            return self._answers(names, self._features(given), top, thresholds) if given else []

    def guess_pixels(
        self, names: Sequence[str], images: Sequence[Pixels], top: int = 5, thresholds: Thresholds | None = None
    ) -> list[Answer]:
        """Say the same of pictures that the reader has read."""
        with self._threads:
            return self._answers(names, self._features_of(images), top, thresholds or self.thresholds())

    def thresholds(
        self, threshold: float | None = None, unknown_rate: float | None = None, coverage: float | None = None
    ) -> Thresholds:
        """Return from which score on a picture is unknown, and from which probability on a name is in its set."""
        if threshold is not None and unknown_rate is not None:
            raise DataError("threshold and unknown_rate were both given; give one of them")
        for name, share in (("unknown rate", unknown_rate), ("coverage", coverage)):
            if share is not None and not 0 < share < 1:
                raise DataError(f"the {name} is {share:g}; give a share between 0 and 1, such as 0.05 or 0.95")
        if unknown_rate is None and coverage is None:
            return Thresholds(self.threshold if threshold is None else threshold)
        method, memory, curve = self.parts.method, self._state.memory, self.calibration
        held = memory.held
        logits = self.parts.logits(held)
        if unknown_rate is not None:
            by = teaching.LOGIT if curve is None else curve.get("by", teaching.LOGIT)
            threshold = threshold_at(curve, teaching.familiarity_of(method, held, logits, by), unknown_rate)
        limit = self.threshold if threshold is None else threshold
        if coverage is None:
            return Thresholds(limit)
        return Thresholds(limit, least_probability(self._probabilities(logits), memory.labels, coverage))

    def evaluate(self, X: Any, y: Any = None) -> Evaluation:
        """Count, on pictures whose classes are given, what each class is taken for."""
        images = self.reader().by_class(X, y)
        with self._threads:
            features = self._features_of([image for name in images for image in images[name]])
            method, logits = self.parts.method, self.parts.logits(features)
            unknown = unknown_scores(method, features, logits, self.calibration)
            return evaluation_of(method, images, (logits, unknown), self.calibration)

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

    def _answers(self, names: Sequence[str], features: Tensor, top: int, thresholds: Thresholds) -> list[Answer]:
        """Return answers to pictures with these features."""
        if top < 1:
            raise DataError(f"the number of guesses is {top}; ask for at least one")
        if not names:
            return []
        known, logits = self.parts.method.classes, self.parts.logits(features)
        unknown = unknown_scores(self.parts.method, features, logits, self.calibration).tolist()
        probabilities = self._probabilities(logits)
        best, least = probabilities.topk(min(top, len(known))), thresholds.least_probability
        sets = [None] * len(names) if least is None else name_sets(probabilities, least)
        return [
            Answer(
                name,
                tuple(Guess(known[place], value) for place, value in zip(places, values, strict=True)),
                score,
                score >= thresholds.unknown and score > 0,
                None if own is None else tuple(known[place] for place in own),
            )
            for name, values, places, score, own in zip(
                names, best.values.tolist(), best.indices.tolist(), unknown, sets, strict=True
            )
        ]

    def _probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities that belong to logits."""
        return (self.scale * logits.double()).softmax(1)

    def _features(self, images: Iterable[ImageLike]) -> Tensor:
        """Return the features of pictures that are still to be read."""
        reader, rest = self.reader(), iter(images)
        # In batches, so that not all pictures are in memory at once.
        batches = iter(lambda: [reader.image(image) for image in islice(rest, BATCH)], [])
        found = [self._features_of(batch) for batch in batches]
        return torch.cat(found) if found else self._features_of([])

    def _features_of(self, images: Sequence[Pixels]) -> Tensor:
        """Return the features of pictures that were read; before anything was taught nothing is answered."""
        if not self.parts.method.classes and self.folder is None:
            raise ModelError("the classifier knows no classes yet; teach it some: fit, learn or partial_fit")
        if not self.parts.method.classes:
            command = f"clare learn {quote(str(self.folder))} PICTURES"
            raise ModelError(f"{self.folder} knows no classes yet; teach it some: {command}")
        return self.parts.features(images) if len(images) else torch.zeros(0, 1)
