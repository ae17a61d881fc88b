"""Pictures to be taught: read, brought to a size that fits in memory, and a fifth of each class held back."""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from clare.classifier.inputs import Pair, labelled
from clare.classifier.labels import as_labels, kind_of, names_of
from clare.classifier.sources import ByClass, Source, find_source
from clare.data.images import Pixels, shrink_image
from clare.data.pictures import ImageLike, Stored, read_image
from clare.data.store import ImageStore, LabelledImages
from clare.errors import DataError
from clare.seeds import generator_at

HELD_BACK_SHARE = 5
"""One in so many pictures of a class is held back; a class with fewer than this gives none."""
MAX_NAME = 200


@dataclass(frozen=True)
class Pictures:
    """Pictures by class name: those to learn from, those that were held back, and the files that were left out."""

    train: dict[str, list[Pixels]]
    held_back: dict[str, list[Pixels]]
    skipped: list[str] = field(default_factory=list)
    kind: str | None = None
    """The type of the classes where they were given as numbers."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes to be taught."""
        return tuple(self.train)

    def of(self, classes: Collection[str]) -> "Pictures":
        """Return the pictures of some classes alone."""
        train, held_back = (
            {name: images for name, images in part.items() if name in classes} for part in (self.train, self.held_back)
        )
        return replace(self, train=train, held_back=held_back)

    @property
    def num_train(self) -> int:
        """Pictures to learn from."""
        return sum(map(len, self.train.values()))

    @property
    def num_held_back(self) -> int:
        """Pictures to measure on."""
        return sum(map(len, self.held_back.values()))

    def digest(self) -> str:
        """Return what is the same for the same pictures of the same classes, in any order, and for no others."""
        found = hashlib.sha256()
        for name in sorted(self.train):
            images = (*self.train[name], *self.held_back.get(name, ()))
            pixels = sorted(hashlib.sha256(repr(image.shape).encode() + image.tobytes()).digest() for image in images)
            found.update(b"".join([repr((name, len(images))).encode(), *pixels]))
        return found.hexdigest()


class Reader:
    """Reads pictures as one model needs them."""

    def __init__(self, channels: int, shorter_side: int, seed: int, skip_bad: bool = False) -> None:
        self.channels, self.shorter_side, self.seed, self.skip_bad = channels, shorter_side, seed, skip_bad
        self.skipped: list[str] = []

    def image(self, image: ImageLike) -> Pixels:
        """Return one picture, no larger than needed."""
        return shrink_image(read_image(image, self.channels), self.shorter_side)

    def to_teach(self, given: Any, labels: Any = None) -> Pictures:
        """Read pictures to learn from, and hold back a part `val` or `test`, or else a fifth of each class."""
        self.skipped = []
        if labels is None and isinstance(given, str | Path):
            given = find_source(given)
        if isinstance(given, Source):
            held_back, train = given.held_back, self._read(given.to_learn)
            held = {} if held_back is None else self._read(held_back)
            whole = {name: held.get(name, []) for name in train}
            pictures = self._split(train) if held_back is None else Pictures(train, whole, self.skipped)
        else:
            found = self._found(*labelled(given, labels))
            named = dict(zip(names_of(found), found.values(), strict=True))
            pictures = replace(self._split(named), kind=kind_of(as_labels(list(found))))
        for name in pictures.classes:
            check_name(name)
        return pictures

    def by_class(self, given: Any, labels: Any = None) -> dict[str, list[Pixels]]:
        """Read pictures to measure on by the names of their classes."""
        if labels is None and isinstance(given, str | Path | Source):
            return self._read((given if isinstance(given, Source) else find_source(given)).to_measure)
        found = self._found(*labelled(given, labels))
        return dict(zip(names_of(found), found.values(), strict=True))

    def _read(self, images: ByClass) -> dict[str, list[Pixels]]:
        """Read pictures whose places are known."""
        found = self._found(list(images), ((name, image) for name in images for image in images[name]))
        return {str(name): pixels for name, pixels in found.items()}

    def _found(self, classes: Sequence[Hashable] | None, pairs: Iterable[Pair]) -> dict[Hashable, list[Pixels]]:
        """Read pictures by their classes, some of which may be known beforehand."""
        found: dict[Hashable, list[Pixels]] = {label: [] for label in classes or ()}
        for label, image in pairs:
            found.setdefault(label, []).extend(self._readable(image))
        empty = [label for label, images in found.items() if not images]
        if empty:
            raise DataError(f"the class '{empty[0]}' has no images that can be read; add some or leave the class out")
        if not found:
            raise DataError("there are no classes to read; give at least one class with images")
        return found if classes is not None else {label: found[label] for label in sorted(found)}  # type: ignore[type-var]

    def _readable(self, image: ImageLike) -> list[Pixels]:
        """Read a picture; one that cannot be read stops it, or is left out and remembered."""
        try:
            return [self.image(image)]
        except DataError:
            if not self.skip_bad:
                raise
            self.skipped.append(str(image) if isinstance(image, str | Path | Stored) else "an image")
            return []

    def _split(self, found: dict[str, list[Pixels]]) -> Pictures:
        """Hold back a fifth of each class, drawn by the seed and the class's name."""
        train, held_back = {}, {}
        for name, images in found.items():
            order = torch.randperm(len(images), generator=generator_at(self.seed, name, "held back")).tolist()
            is_held = set(order[: num_held_back(len(images))])
            train[name] = [image for place, image in enumerate(images) if place not in is_held]
            held_back[name] = [image for place, image in enumerate(images) if place in is_held]
        return Pictures(train, held_back, self.skipped)


def num_held_back(num_images: int) -> int:
    """Return how many pictures of a class are held back: a fifth, of fewer than five none."""
    return num_images // HELD_BACK_SHARE


def check_name(name: str) -> None:
    """Refuse a class name that cannot be shown on one line."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise DataError(
            f"{name[:MAX_NAME]!r} cannot be a class name; use 1 to {MAX_NAME} printable characters, not only spaces"
        )


def as_images(
    images: Mapping[str, list[Pixels]], label_of: Callable[[str], int], device: torch.device
) -> LabelledImages:
    """Return pictures with their labels in the order of the classes."""
    flat = [image for name in images for image in images[name]]
    labels = torch.tensor([label_of(name) for name in images for _ in images[name]], dtype=torch.int64)
    return LabelledImages(ImageStore.from_images(flat).to(device), torch.arange(len(flat)), labels)
