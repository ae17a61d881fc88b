"""Pictures that a method keeps: taken from a task's images, and drawn beside or among those of a later one."""

import torch
from torch import Tensor

from clare.data.store import ImageStore, LabelledImages
from clare.engine.context import Context
from clare.engine.images import ImageSource
from clare.errors import ModelError
from clare.methods.base import Method
from clare.methods.protocols import KeepsPictures
from clare.steps import Pictures, Replay, Result, Take


def take_pictures(step: Take, method: Method, images: LabelledImages) -> Result:
    """Return the raw pixels of the images that a method chooses; only one that declares it may keep any."""
    if not isinstance(method, KeepsPictures):
        raise ModelError(f"{method.name} asks for training pictures to keep; inherit from KeepsPictures, which says so")
    places = step.choose(images.labels.cpu()).cpu()
    store, indices = images.store, images.indices[places]
    sizes = store.sizes[indices]
    parts = [
        store.batch(index[None]).pixels[0, :, :height, :width].flatten().cpu()
        for index, (height, width) in zip(indices, sizes.tolist(), strict=True)
    ]
    pixels = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.uint8)
    return {"pixels": pixels, "sizes": sizes, "labels": images.labels.cpu()[places], "count": torch.tensor(len(images))}


def stored(pictures: Pictures, labels: Tensor | None = None) -> LabelledImages:
    """Return kept pictures as images, labelled by their places unless otherwise."""
    places = torch.arange(len(pictures.sizes))
    store = ImageStore(pictures.pixels, pictures.sizes, pictures.channels)
    return LabelledImages(store, places, places.to(pictures.pixels.device) if labels is None else labels)


class ReplaySource:
    """A task's images with kept pictures, drawn anew in every epoch, beside each of them or mixed among them."""

    def __init__(self, context: Context, images: LabelledImages, replay: Replay) -> None:
        self.own = ImageSource(context, images, augmented=True)
        self.kept = ImageSource(context, stored(replay.pictures, replay.labels), augmented=True)
        self.transforms, self.device, self.pools = self.own.transforms, self.own.device, replay.pools
        self.num_samples = self.own.num_samples + (0 if replay.pools else self.kept.num_samples)
        self.places = torch.zeros(0, dtype=torch.int64)

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw how each image will be augmented, and which pictures come beside it, each augmented by itself."""
        self.own.begin_epoch(generator)
        if not self.pools:
            self.kept.begin_epoch(generator)
            return
        shape = (self.num_samples,)
        drawn = [pool.cpu()[torch.randint(len(pool), shape, generator=generator)] for pool in self.pools]
        self.places = torch.stack(drawn, 1).to(self.device)
        self.draws = self.transforms.draws(self.places.numel(), generator).to(self.device)

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of these positions, each with the pictures beside it."""
        if not self.pools:
            return self._mixed(positions)
        inputs, labels = self.own.draw(positions)
        num_beside, places = len(self.pools), self.places[positions].flatten()
        numbers = positions[:, None] * num_beside + torch.arange(num_beside, device=self.device)
        canvas = self.kept.store.batch(self.kept.indices[places])
        beside = self.transforms.augment(canvas, self.draws[numbers.flatten()])
        beside = beside.view(len(inputs), num_beside, *beside.shape[1:])
        known = self.kept.labels[places].view(len(labels), num_beside)
        return torch.cat([inputs[:, None], beside], 1), torch.cat([labels[:, None], known], 1)

    def _mixed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return images and, at positions behind the last of them, kept pictures."""
        num_own = self.own.num_samples
        is_own = positions < num_own
        # Both are drawn for every position, so that no shape depends on how a batch is mixed.
        own, labels = self.own.draw(torch.where(is_own, positions, 0))
        kept, known = self.kept.draw(torch.where(is_own, 0, positions - num_own))
        return torch.where(is_own[:, None, None, None], own, kept), torch.where(is_own, labels, known)
