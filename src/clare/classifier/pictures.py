"""Pictures to be taught: read, brought to a size that fits in memory, and a fifth of each class held back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from clare.data.examples import Examples, ImageLike, read_examples, read_image
from clare.data.folders import image_paths, subfolders
from clare.data.images import Pixels, shrink_image
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

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes to be taught."""
        return tuple(self.train)

    @property
    def num_train(self) -> int:
        """Pictures to learn from."""
        return sum(map(len, self.train.values()))

    @property
    def num_held_back(self) -> int:
        """Pictures to measure on."""
        return sum(map(len, self.held_back.values()))


class Reader:
    """Reads pictures as one model needs them."""

    def __init__(self, channels: int, shorter_side: int, seed: int, skip_bad: bool = False) -> None:
        self.channels, self.shorter_side, self.seed, self.skip_bad = channels, shorter_side, seed, skip_bad
        self.skipped: list[str] = []

    def image(self, image: ImageLike) -> Pixels:
        """Return one picture, no larger than needed."""
        return shrink_image(read_image(image, self.channels), self.shorter_side)

    def to_teach(self, examples: Examples) -> Pictures:
        """Read examples, and hold back what is in a folder `test` or else a fifth of each class."""
        self.skipped = []
        if isinstance(examples, str | Path) and is_split(Path(examples)):
            train, test = (self.by_class(Path(examples) / part) for part in ("train", "test"))
            strange = sorted(test.keys() - train.keys())
            if strange:
                raise DataError(
                    f"'{examples}/test' has the class '{strange[0]}', which '{examples}/train' has not; "
                    "give both the same class folders"
                )
            pictures = Pictures(train, {name: test.get(name, []) for name in train}, self.skipped)
        else:
            pictures = self._split(self.by_class(examples))
        for name in pictures.classes:
            check_name(name)
        return pictures

    def by_class(self, examples: Examples) -> dict[str, list[Pixels]]:
        """Read all pictures of some examples by class name."""
        if isinstance(examples, str | Path):
            folder = Path(examples)
            if not folder.is_dir():
                raise DataError(f"there is no folder {folder}; give a folder that has one folder per class")
            names = subfolders(folder)
            if not names:
                raise DataError(f"{folder} has no class folders; put the images of each class into a folder of its own")
            found = {name: self._readable(image_paths(folder / name)) for name in names}
        elif isinstance(examples, Mapping):
            found = {str(name): self._readable(images) for name, images in examples.items()}
        else:
            read = read_examples(examples, self.channels)
            found = {
                name: [shrink_image(image, self.shorter_side) for image in images] for name, images in read.items()
            }
        empty = [name for name, images in found.items() if not images]
        if empty:
            raise DataError(f"the class '{empty[0]}' has no images that can be read; add some or leave the class out")
        if not found:
            raise DataError("there are no classes to read; give at least one class with images")
        return found

    def _readable(self, images: Iterable[ImageLike]) -> list[Pixels]:
        """Read pictures; those that cannot be read stop it, or are left out and remembered."""
        found = []
        for image in images:
            try:
                found.append(self.image(image))
            except DataError:
                if not self.skip_bad:
                    raise
                self.skipped.append(str(image) if isinstance(image, str | Path) else "an image")
        return found

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


def is_split(folder: Path) -> bool:
    """Tell whether a folder has the two parts `train` and `test` instead of class folders."""
    return folder.is_dir() and set(subfolders(folder)) == {"train", "test"}


def check_name(name: str) -> None:
    """Refuse a class name that cannot be shown on one line."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise DataError(
            f"{name[:MAX_NAME]!r} cannot be a class name; use 1 to {MAX_NAME} printable characters, not only spaces"
        )


def labelled(
    images: Mapping[str, list[Pixels]], label_of: Callable[[str], int], device: torch.device
) -> LabelledImages:
    """Return pictures with their labels in the order of the classes."""
    flat = [image for name in images for image in images[name]]
    labels = torch.tensor([label_of(name) for name in images for _ in images[name]], dtype=torch.int64)
    return LabelledImages(ImageStore.from_images(flat).to(device), torch.arange(len(flat)), labels)
