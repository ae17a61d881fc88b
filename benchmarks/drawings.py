"""All embedded drawings as one set, and as many times more as a long stream needs classes."""

from collections.abc import Sequence

import torch

from clare.data.settings import DRAWINGS, DataSettings
from clare.data.sources import Dataset, load_dataset
from clare.data.store import ImageStore, LabelledImages


def load_drawings(channels: int, num_ways: int = 2) -> Dataset:
    """Return every embedded class so many times: as it is, turned by 90 degrees, turned further, and mirrored."""
    parts = [load_dataset(DataSettings(dataset=name, channels=channels)) for name in DRAWINGS]
    names = [name for part in parts for name in part.classes]
    marks = ["", ", turned", *(f", way {way + 1}" for way in range(2, num_ways))][:num_ways]
    return Dataset(
        "drawings",
        tuple(f"{name}{mark}" for mark in marks for name in names),
        train=_all_ways([part.train for part in parts], len(names), num_ways),
        test=_all_ways([part.test for part in parts], len(names), num_ways),
    )


def _all_ways(parts: Sequence[LabelledImages], num_classes: int, num_ways: int) -> LabelledImages:
    """Put data sets of disjoint classes one after another, and all of them once more for each other way."""
    pixels, labels, num_before = [], [], 0
    for part in parts:
        pixels.append(part.store.batch(part.indices).pixels)
        labels.append(part.labels + num_before)
        num_before += int(part.labels.max()) + 1
    upright, label = torch.cat(pixels), torch.cat(labels)
    turned = [(upright if way < 4 else upright.flip(3)).rot90(way % 4, (2, 3)) for way in range(num_ways)]
    store = ImageStore.from_array(torch.cat(turned).contiguous())
    all_labels = torch.cat([label + way * num_classes for way in range(num_ways)])
    return LabelledImages(store, torch.arange(len(store)), all_labels)
