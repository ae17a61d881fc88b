"""The order in which classes come, and the tasks they form."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from clare.data.settings import StreamSettings as StreamSettings
from clare.data.sources import Dataset
from clare.data.store import LabelledImages
from clare.errors import DataError


@dataclass(frozen=True)
class Task:
    """The classes that come together, with training labels that count from 0 within the task."""

    index: int
    classes: tuple[str, ...]
    train: LabelledImages


@dataclass(frozen=True)
class Stream:
    """Tasks in order, and the images to evaluate on, whose labels are positions in `classes`."""

    classes: tuple[str, ...]
    tasks: tuple[Task, ...]
    test: LabelledImages

    def num_seen(self, task_index: int) -> int:
        """Return the number of classes seen once the task is learnt."""
        return sum(len(task.classes) for task in self.tasks[: task_index + 1])

    @property
    def task_of_class(self) -> Tensor:
        """Return for each class the index of the task that brings it."""
        return torch.repeat_interleave(torch.tensor([len(task.classes) for task in self.tasks]))


def merge_tasks(stream: Stream) -> Stream:
    """Return the stream with all classes in one task."""
    parts = [task.train for task in stream.tasks]
    first = [stream.num_seen(task.index) - len(task.classes) for task in stream.tasks]
    indices = torch.cat([part.indices for part in parts])
    labels = torch.cat([part.labels + offset for part, offset in zip(parts, first, strict=True)])
    train = replace(parts[0], indices=indices, labels=labels)
    return replace(stream, tasks=(Task(0, stream.classes, train),))


def class_order(num_classes: int, seed: int | None) -> list[int]:
    """Return the alphabetical positions of the classes in stream order; no seed keeps the alphabet."""
    if seed is None:
        return list(range(num_classes))
    order: list[int] = np.random.RandomState(seed).permutation(num_classes).tolist()
    return order


def task_sizes(num_classes: int, first: int, increment: int) -> list[int]:
    """Return the number of classes of each task; the last takes what is left."""
    if not 1 <= first <= num_classes:
        raise DataError(f"the first task asks for {first} classes of {num_classes}; set `first` to 1..{num_classes}")
    if increment < 1:
        raise DataError(f"a task of {increment} classes is empty; set `increment` to 1 or more")
    later = num_classes - first
    rest = later % increment
    return [first] + [increment] * (later // increment) + ([rest] if rest else [])


def make_stream(dataset: Dataset, settings: StreamSettings, seed: int) -> Stream:
    """Order the classes by the seed, cut them into tasks, and choose what to train and to evaluate on."""
    available = len(dataset.classes)
    num_classes = settings.num_classes or available
    if num_classes > available:
        raise DataError(
            f"the stream asks for {num_classes} classes and '{dataset.name}' has {available}; "
            f"set `num_classes` to at most {available}"
        )
    order = class_order(available, seed)[:num_classes]
    names = tuple(dataset.classes[place] for place in order)
    train_positions = _positions_by_class(dataset, dataset.train, "training", order)
    splits = [_split(positions, settings, seed, place) for positions, place in zip(train_positions, order, strict=True)]
    if settings.evaluate_on == "validation":
        test = _relabel(dataset.train, [held_out for _, held_out in splits])
    else:
        test = _relabel(dataset.test, _positions_by_class(dataset, dataset.test, "test", order))
    kept = [positions for positions, _ in splits]
    _check_not_empty(names, kept, "training")
    edges = np.cumsum([0, *task_sizes(num_classes, settings.first or settings.increment, settings.increment)]).tolist()
    tasks = tuple(
        Task(index, names[start:end], _relabel(dataset.train, kept[start:end]))
        for index, (start, end) in enumerate(pairwise(edges))
    )
    return Stream(names, tasks, test)


def _positions_by_class(dataset: Dataset, images: LabelledImages, part: str, order: list[int]) -> list[Tensor]:
    """Return the positions of the images of each class, in the order of the classes."""
    num_classes = len(dataset.classes)
    labels = images.labels.cpu()
    outside = labels[(labels < 0) | (labels >= num_classes)]
    if len(outside):
        raise DataError(
            f"the {part} images of '{dataset.name}' have the label {int(outside[0])}; use 0..{num_classes - 1}"
        )
    sorted_positions = labels.argsort(stable=True)
    by_class = torch.split(sorted_positions, torch.bincount(labels, minlength=num_classes).tolist())
    chosen = [by_class[place] for place in order]
    _check_not_empty([dataset.classes[place] for place in order], chosen, part)
    return chosen


def _split(positions: Tensor, settings: StreamSettings, seed: int, place: int) -> tuple[Tensor, Tensor]:
    """Return the positions of one class to train on and to hold out."""
    # A shuffle of its own for each class, so that a class's split does not depend on which others take part.
    shuffled = positions[torch.from_numpy(np.random.RandomState([seed, place]).permutation(len(positions)))]
    num_held_out = 0
    if settings.evaluate_on == "validation":
        num_held_out = max(1, round(settings.validation_share * len(positions)))
    num_left = len(positions) - num_held_out
    num_kept = num_left if settings.train_per_class is None else min(num_left, settings.train_per_class)
    return shuffled[:num_kept].sort().values, shuffled[num_left:].sort().values


def _check_not_empty(names: tuple[str, ...] | list[str], positions: list[Tensor], part: str) -> None:
    """Refuse a class without images."""
    for name, places in zip(names, positions, strict=True):
        if len(places) == 0:
            raise DataError(f"the class '{name}' has no {part} images; add some or leave the class out")


def _relabel(images: LabelledImages, positions: list[Tensor]) -> LabelledImages:
    """Return the images at the positions of each class, labelled by the class's place in the list."""
    labels = torch.repeat_interleave(torch.tensor([len(places) for places in positions]))
    return replace(images.select(torch.cat(positions)), labels=labels.to(images.labels.device))
