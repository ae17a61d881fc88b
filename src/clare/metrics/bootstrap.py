"""How sure a difference between two methods is, by resampling the test images they share."""

# Shapes: S resamples, 2 methods, T evaluations (one after each task) or tasks, N test images sorted by class.

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clare.errors import RunError
from clare.metrics.accuracy import FloatArray, IntArray, forgotten, mean_over_tasks

# Bounds the largest temporary array of one chunk of resamples to a few tens of megabytes.
CHUNK_ELEMENTS = 4_000_000
NUM_SAMPLES = 2000
LEVEL = 0.95

Statistic = Literal["average_accuracy", "final_accuracy", "forgetting"]

STATISTICS: dict[Statistic, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "average_accuracy": lambda seen, matrix: seen.mean(axis=-1),
    "final_accuracy": lambda seen, matrix: seen[..., -1],
    "forgetting": lambda seen, matrix: mean_over_tasks(forgotten(matrix)),
}


@dataclass(frozen=True)
class Evaluations:
    """What a method answered after each task: predicted and true class of every test image of the seen classes."""

    predicted: Sequence[IntArray]
    target: Sequence[IntArray]
    task_of_class: IntArray


@dataclass(frozen=True)
class Interval:
    """A difference between two methods and the bounds within which resampled differences fall."""

    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Pair:
    """Two methods on one stream of one seed, whose classes are named in stream order."""

    run: Evaluations
    other: Evaluations
    classes: Sequence[str]


def paired_intervals(
    pairs: Sequence[Pair],
    statistics: Sequence[Statistic],
    num_samples: int = NUM_SAMPLES,
    level: float = LEVEL,
    *,
    random: np.random.RandomState,
) -> dict[Statistic, Interval]:
    """Percentile intervals of the first method's figures minus the other's, a mean over pairs.

    Images are resampled within each class, for both methods and all seeds at once, so that what they have in common is
    not taken for independent evidence. Of the final accuracy alone, the methods of a pair may differ in their tasks.
    """
    if not pairs:
        raise RunError("there are no two runs to compare; give runs that met the same classes in the same order")
    num_tasks = max(len(run.target) for pair in pairs for run in (pair.run, pair.other))
    tested = [_tested(pair, is_final=list(statistics) == ["final_accuracy"]) for pair in pairs]

    def differences(random: np.random.RandomState | None, size: int) -> dict[Statistic, FloatArray]:
        figures = [_accuracies(counts, each.num_images) for counts, each in _count_right(tested, random, size)]
        values = {name: np.mean([STATISTICS[name](*each) for each in figures], axis=0) for name in statistics}
        return {name: value[:, 0] - value[:, 1] for name, value in values.items()}

    observed = differences(None, 1)
    largest = max(len(part) for each in tested for part in each.places.values())
    # Numbers of resamples whose temporary arrays fit into memory.
    chunk = max(1, min(num_samples, CHUNK_ELEMENTS // max(2 * num_tasks * num_tasks, largest)))
    sizes = [min(chunk, num_samples - start) for start in range(0, num_samples, chunk)]
    resampled, bounds = [differences(random, size) for size in sizes], [(1 - level) / 2, (1 + level) / 2]
    return {
        name: Interval(
            float(observed[name][0]),
            *map(float, np.quantile(np.concatenate([part[name] for part in resampled]), bounds)),
        )
        for name in statistics
    }


@dataclass(frozen=True)
class _Tested:
    """The answers of a pair on its test images, sorted by class."""

    right_2TN: NDArray[np.float32]
    places: dict[str, IntArray]
    """Where the images of each class stand."""
    task_of: dict[str, int]
    num_images: IntArray
    """How many images each task has."""


def _tested(pair: Pair, is_final: bool) -> _Tested:
    """Check that both methods of a pair were tested on the same images, and put their answers side by side."""
    runs = [pair.run, pair.other]
    if is_final:
        runs = [Evaluations(run.predicted[-1:], run.target[-1:], run.task_of_class * 0) for run in runs]
    target = _shared_target(*runs)
    task_of_class = runs[0].task_of_class
    classes, starts = np.unique(target, return_index=True)
    parts = np.split(np.arange(len(target)), starts[1:])
    names = [pair.classes[index] for index in classes]
    return _Tested(
        right_2TN=np.stack([_right_answers(run) for run in runs]),
        places=dict(zip(names, parts, strict=True)),
        task_of={name: int(task_of_class[index]) for name, index in zip(names, classes, strict=True)},
        num_images=np.bincount(task_of_class[target], minlength=len(runs[0].target))[: len(runs[0].target)],
    )


def _shared_target(run_a: Evaluations, run_b: Evaluations) -> IntArray:
    """The sorted true classes after the last task, once it is sure that both runs saw the same test images."""
    targets_a, targets_b = ([np.sort(target) for target in run.target] for run in (run_a, run_b))
    same = len(targets_a) == len(targets_b) and all(map(np.array_equal, targets_a, targets_b))
    if not same or not np.array_equal(run_a.task_of_class, run_b.task_of_class):
        raise RunError("the two runs were not tested on the same images; compare runs on one stream and its test set")
    if not targets_a or not len(targets_a[-1]):
        raise RunError("the two runs hold no evaluated task; compare them after their first task")
    last = targets_a[-1]
    if not all(np.array_equal(target, last[: len(target)]) for target in targets_a):
        raise RunError("the test images of a class change between tasks; compare runs with one fixed test set")
    return last


def _right_answers(run: Evaluations) -> NDArray[np.float32]:
    """1 where image n is right after task t, in an array of T by N; 0 where it is wrong or its class unseen."""
    # A stable sort by class gives an image the same place in every evaluation, because classes are numbered
    # in stream order: the images of the classes seen so far come first.
    right_TN = np.zeros((len(run.target), len(run.target[-1])), dtype=np.float32)
    for task, (predicted, target) in enumerate(zip(run.predicted, run.target, strict=True)):
        order = np.argsort(target, kind="stable")
        right_TN[task, : len(order)] = (predicted == target)[order]
    return right_TN


def _count_right(
    tested: Sequence[_Tested], random: np.random.RandomState | None, num_samples: int
) -> Iterator[tuple[FloatArray, _Tested]]:
    """Yield each pair with its right answers by method, evaluation and task in each resample, or in the data itself."""
    counts = [np.zeros((num_samples, *each.right_2TN.shape[:2], each.right_2TN.shape[1])) for each in tested]
    # Seeds that hold out other numbers of images of a class cannot share a draw of them.
    drawn = dict.fromkeys((name, len(part)) for each in tested for name, part in each.places.items())
    for name, num_images in drawn:
        weights_SN = _resample_weights(num_images, random, num_samples)
        for each, count in zip(tested, counts, strict=True):
            part = each.places.get(name)
            if part is not None and len(part) == num_images:
                rows = each.right_2TN[:, :, part].reshape(-1, num_images)
                count[..., each.task_of[name]] += (weights_SN @ rows.T).reshape(count.shape[:-1])
    yield from zip(counts, tested, strict=True)


def _resample_weights(num_images: int, random: np.random.RandomState | None, num_samples: int) -> NDArray[np.float32]:
    """How often each image is drawn when as many are drawn with replacement; once each without `random`."""
    if random is None:
        return np.ones((num_samples, num_images), dtype=np.float32)
    drawn = random.randint(num_images, size=(num_samples, num_images))
    drawn += num_images * np.arange(num_samples)[:, None]
    weights = np.bincount(drawn.ravel(), minlength=num_samples * num_images)
    return weights.reshape(num_samples, num_images).astype(np.float32)


def _accuracies(right_S2TT: FloatArray, num_images: IntArray) -> tuple[FloatArray, FloatArray]:
    """Accuracy over all seen classes after each task, and the accuracy matrix, of each resample and method."""
    seen: FloatArray = right_S2TT.sum(axis=-1) / np.maximum(np.cumsum(num_images), 1)
    matrix = np.full_like(right_S2TT, np.nan)
    reached = np.tril(np.ones(matrix.shape[-2:], dtype=bool)) & (num_images > 0)
    np.divide(right_S2TT, num_images, out=matrix, where=np.broadcast_to(reached, matrix.shape))
    return seen, matrix
