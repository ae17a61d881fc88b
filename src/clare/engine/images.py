"""A task's images on their way to the model: gathered and transformed in batches."""

import torch
from torch import Tensor

from clare.data.store import LabelledImages
from clare.engine.context import Context


class ImageSource:
    """Labelled images, as training sees them (augmented) or as testing does."""

    def __init__(self, context: Context, images: LabelledImages, augmented: bool) -> None:
        self.transforms, self.augmented = context.transforms, augmented
        self.store = images.store
        self.num_samples = len(images)
        # Images of one size are gathered by the device alone; others are looked up one by one, by the host.
        self.device = images.store.device if images.store.is_uniform else torch.device("cpu")
        self.target = context.ranks.device
        self.indices = images.indices.to(self.device)
        self.labels = images.labels.to(self.target)
        self.draws = torch.zeros(0)

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw how each image will be augmented in this epoch."""
        if self.augmented:
            self.draws = self.transforms.draws(self.num_samples, generator).to(self.target)

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images at these positions, transformed, and their labels."""
        canvas = self.store.batch(self.indices[positions])
        if canvas.pixels.device != self.target:
            canvas = canvas._replace(pixels=canvas.pixels.to(self.target, non_blocking=True))
        places = positions.to(self.target, non_blocking=True)
        if self.augmented:
            return self.transforms.augment(canvas, self.draws[places]), self.labels[places]
        return self.transforms.test(canvas), self.labels[places]
