"""A task's images on their way to the model: gathered and transformed in batches."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from clare.data.prefetch import prefetched
from clare.data.store import Canvas, LabelledImages, blank_outside
from clare.engine.context import Context
from clare.engine.ranks import Ranks
from clare.steps import Source


class Batch(NamedTuple):
    """One rank's part of a batch."""

    positions: Tensor
    """Positions in the data, shape (B,); padding repeats the first position."""
    weights: Tensor
    """One for a sample, zero for padding, shape (B,), where the positions are."""
    num_samples: int
    """Samples in the whole batch, over all ranks."""


def batches(order: Tensor, batch_size: int, rank: int, world_size: int) -> Iterator[Batch]:
    """Cut an order into batches that all have the same shape on every rank."""
    share = -(-batch_size // world_size)
    full = torch.ones(share, device=order.device)
    for start in range(0, len(order), batch_size):
        whole = order[start : start + batch_size]
        own = whole[rank::world_size]
        if len(own) == share:
            yield Batch(own, full, len(whole))
        else:
            padding = order[:1].expand(share - len(own))
            weights = full.clone()
            weights[len(own) :] = 0
            yield Batch(torch.cat([own, padding]), weights, len(whole))


NUM_SLOTS = 3
"""Batches under way at once: one in use, one being copied, one being gathered."""

Drawn = tuple[Batch, Tensor, Tensor]
"""A batch, its inputs and its labels."""


class ImageSource:
    """Labelled images, as training sees them (augmented) or as testing does."""

    def __init__(self, context: Context, images: LabelledImages, augmented: bool) -> None:
        self.transforms, self.augmented = context.transforms, augmented
        self.store = images.store
        self.num_samples = len(images)
        self.device = context.ranks.device
        self.host_indices = images.indices
        self.indices = images.indices.to(self.device)
        # All sizes and labels are where the computing is done, so that a batch takes only pixels from the host.
        self.sizes = images.store.sizes[images.indices].to(self.device)
        self.labels = images.labels.to(self.device)
        self.draws = torch.zeros(0)

    @property
    def is_gathered_ahead(self) -> bool:
        """Whether the pixels must be fetched, over the bus or from a file, which is done before they are needed."""
        return self.store.device.type == "cpu" and (self.device.type != "cpu" or self.store.is_mapped)

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw how each image will be augmented in this epoch."""
        if self.augmented:
            self.draws = self.transforms.draws(self.num_samples, generator).to(self.device)

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images at these positions, transformed, and their labels."""
        indices = self.host_indices[positions.cpu()] if self.is_gathered_ahead else self.indices[positions]
        canvas = self.store.batch(indices)
        return self.transform(Canvas(*(part.to(self.device) for part in canvas)), positions)

    def transform(self, canvas: Canvas, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return gathered images, transformed, and their labels."""
        if self.augmented:
            return self.transforms.augment(canvas, self.draws[positions]), self.labels[positions]
        return self.transforms.test(canvas), self.labels[positions]


def drawn_batches(source: Source, order: Tensor, batch_size: int, ranks: Ranks) -> Iterator[Drawn]:
    """Yield this rank's part of every batch of an order, on the source's device; pixels elsewhere are fetched ahead."""
    placed = batches(order.to(source.device), batch_size, ranks.rank, ranks.world_size)
    if isinstance(source, ImageSource) and source.is_gathered_ahead:
        on_host = list(batches(order, batch_size, ranks.rank, ranks.world_size))
        yield from _gathered_ahead(source, placed, on_host)
        return
    for batch in placed:
        yield batch, *source.draw(batch.positions)


def _gathered_ahead(source: ImageSource, placed: Iterator[Batch], on_host: list[Batch]) -> Iterator[Drawn]:
    """Yield batches whose pixels a background thread gathers; inputs and labels are those of `draw`."""
    store = source.store
    shape = (len(on_host[0].positions) if on_host else 0, store.channels, *store.canvas_size)
    copies = torch.cuda.Stream(source.device) if source.device.type == "cuda" else None  # type: ignore[no-untyped-call]
    slots = [Slot(shape, source.device, copies) for _ in range(NUM_SLOTS)]

    # The thread touches host memory alone: a CUDA call from it would spoil a graph that is being recorded.
    def fill(batch: Batch, slot: Slot) -> None:
        store.rows(source.host_indices[batch.positions], out=slot.host)

    for (_, slot), batch in zip(prefetched(on_host, fill, slots), placed, strict=True):
        sizes = source.sizes[batch.positions]
        pixels = slot.send()
        canvas = Canvas(pixels if store.is_uniform else blank_outside(pixels, sizes), sizes)
        inputs, labels = source.transform(canvas, batch.positions)
        slot.release()
        yield batch, inputs, labels
        slot.wait()


class Slot:
    """Room for the pixels of one batch, on the host and where the computing is done."""

    def __init__(self, shape: tuple[int, ...], device: torch.device, copies: torch.cuda.Stream | None) -> None:
        self.copies = copies
        self.host = torch.empty(shape, dtype=torch.uint8, pin_memory=copies is not None)
        self.pixels = self.host if copies is None else torch.empty(shape, dtype=torch.uint8, device=device)
        if copies is not None:
            self.is_sent, self.is_released = (torch.cuda.Event() for _ in range(2))  # type: ignore[no-untyped-call]
        # The memory may have had another use, which queued work still reads.
        self.release()

    def send(self) -> Tensor:
        """Copy the pixels beside the computing, and let what is queued from now on wait for them."""
        if self.copies is not None:
            with torch.cuda.stream(self.copies):
                self.copies.wait_event(self.is_released)
                self.pixels.copy_(self.host, non_blocking=True)
                self.is_sent.record(self.copies)
            torch.cuda.current_stream().wait_event(self.is_sent)
        return self.pixels

    def release(self) -> None:
        """Allow the pixels to be overwritten once all work that is queued by now is done."""
        if self.copies is not None:
            self.is_released.record()

    def wait(self) -> None:
        """Wait until the copy has left the host, whose memory may then be filled again."""
        if self.copies is not None:
            self.is_sent.synchronize()
