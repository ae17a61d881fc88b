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


def paired_interval(
    run_a: Evaluations,
    run_b: Evaluations,
    statistic: Statistic,
    num_samples: int = 2000,
    level: float = 0.95,
    *,
    random: np.random.RandomState,
) -> Interval:
    """Percentile interval of a statistic of `run_a` minus that of `run_b`, over one and the same resamples."""
    return paired_intervals(run_a, run_b, [statistic], num_samples, level, random=random)[statistic]


def paired_intervals(
    run_a: Evaluations,
    run_b: Evaluations,
    statistics: Sequence[Statistic],
    num_samples: int = 2000,
    level: float = 0.95,
    *,
    random: np.random.RandomState,
) -> dict[Statistic, Interval]:
    """Percentile intervals of several statistics of `run_a` minus `run_b`; images are resampled within each class."""
    target = _shared_target(run_a, run_b)
    right_2TN = np.stack([_right_answers(run_a), _right_answers(run_b)])
    num_tasks = len(run_a.target)
    task_of_image = run_a.task_of_class[target]
    num_images = np.bincount(task_of_image, minlength=num_tasks)[:num_tasks]

    def differences(right_S2TT: FloatArray) -> dict[Statistic, FloatArray]:
        seen, matrix = _accuracies(right_S2TT, num_images)
        values = {name: STATISTICS[name](seen, matrix) for name in statistics}
        return {name: value[:, 0] - value[:, 1] for name, value in values.items()}

    observed = differences(_count_right(right_2TN, target, run_a.task_of_class, None, 1))
    resampled = [
        differences(_count_right(right_2TN, target, run_a.task_of_class, random, size))
        for size in _chunks(num_samples, num_tasks, int(np.bincount(target).max()))
    ]
    return {
        name: _interval(float(observed[name][0]), np.concatenate([part[name] for part in resampled]), level)
        for name in statistics
    }


def pooled_interval(
    runs_a: Sequence[Evaluations],
    runs_b: Sequence[Evaluations],
    classes: Sequence[Sequence[str]],
    num_samples: int = 2000,
    level: float = 0.95,
    *,
    random: np.random.RandomState,
) -> Interval:
    """Percentile interval of the final accuracy of one method minus another's, each a mean over the same seeds.

    The runs of a pair share a seed, whose classes are named in stream order. An image is drawn for all seeds at once,
    so what they have in common is not taken for independent evidence.
    """
    gains: dict[tuple[str, int], list[FloatArray]] = {}
    for run_a, run_b, names in zip(runs_a, runs_b, classes, strict=True):
        for place, gain in _gains(run_a, run_b):
            # Seeds that hold out other numbers of images of a class cannot share a draw of them.
            gains.setdefault((names[place], len(gain)), []).append(gain / len(runs_a))
    # With one seed these are the draws of `paired_intervals`.
    num_tasks = max(len(run.target) for run in (*runs_a, *runs_b))
    resampled = []
    for size in _chunks(num_samples, num_tasks, max(num_images for _, num_images in gains)):
        total = np.zeros(size)
        for (_, num_images), parts in gains.items():
            total += _resample_weights(num_images, random, size) @ np.sum(parts, axis=0)
        resampled.append(total)
    observed = float(sum(gain.sum() for parts in gains.values() for gain in parts))
    return _interval(observed, np.concatenate(resampled), level)


def _gains(run_a: Evaluations, run_b: Evaluations) -> Iterator[tuple[int, FloatArray]]:
    """Yield each class and what each of its images adds to the difference of the final accuracies."""
    last_a, last_b = (Evaluations(run.predicted[-1:], run.target[-1:], run.task_of_class * 0) for run in (run_a, run_b))
    target = _shared_target(last_a, last_b)
    gain = (_right_answers(last_a)[0] - _right_answers(last_b)[0]).astype(np.float64) / len(target)
    classes, starts = np.unique(target, return_index=True)
    yield from zip(classes.tolist(), np.split(gain, starts[1:]), strict=True)


def _chunks(num_samples: int, num_tasks: int, largest_class: int) -> list[int]:
    """Cut the resamples into numbers whose temporary arrays fit into memory."""
    largest = max(2 * num_tasks * num_tasks, largest_class)
    chunk = max(1, min(num_samples, CHUNK_ELEMENTS // largest))
    return [min(chunk, num_samples - start) for start in range(0, num_samples, chunk)]


def _interval(observed: float, resampled: FloatArray, level: float) -> Interval:
    """The observed difference with the bounds of the resampled ones."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(observed, float(low), float(high))


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
    right_2TN: NDArray[np.float32],
    target: IntArray,
    task_of_class: IntArray,
    random: np.random.RandomState | None,
    num_samples: int,
) -> FloatArray:
    """Number of right answers by method, evaluation and task in each resample, or in the data without `random`."""
    num_methods, num_tasks, _ = right_2TN.shape
    counts = np.zeros((num_samples, num_methods, num_tasks, num_tasks))
    classes, starts = np.unique(target, return_index=True)
    for category, start, stop in zip(classes, starts, [*starts[1:], len(target)], strict=True):
        weights_SN = _resample_weights(int(stop - start), random, num_samples)
        rows = right_2TN[:, :, start:stop].reshape(num_methods * num_tasks, -1)
        counts[..., task_of_class[category]] += (weights_SN @ rows.T).reshape(num_samples, num_methods, num_tasks)
    return counts


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
