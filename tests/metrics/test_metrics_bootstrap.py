"""Intervals of differences on runs whose answers are known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from clare.engine.evaluate import accuracies
from clare.errors import RunError
from clare.metrics import bootstrap
from clare.metrics.accuracy import IntArray, forgetting, matrix_from_rows
from clare.metrics.bootstrap import (
    STATISTICS,
    Evaluations,
    Interval,
    Pair,
    Statistic,
    paired_intervals,
)

TASK_OF_CLASS = np.array([0, 0, 1, 1])
NAMES = ("ant", "bee", "cat", "dog")


def evaluate(right: Callable[[int, IntArray, IntArray], IntArray], target: IntArray) -> Evaluations:
    """Evaluate after two tasks; `right(task, image, category)` says which images are answered right."""
    predicted, targets = [], []
    for task in range(2):
        images = np.flatnonzero(TASK_OF_CLASS[target] <= task)
        truth = target[images]
        predicted.append(np.where(right(task, images, truth), truth, (truth + 1) % 4))
        targets.append(truth)
    return Evaluations(predicted, targets, TASK_OF_CLASS)


def generator() -> np.random.RandomState:
    return np.random.RandomState(0)


SORTED = np.repeat(np.arange(4), 10)
SHUFFLED = np.random.RandomState(1).permutation(SORTED)


def noisy(seed: int, target: IntArray, skill: float) -> Evaluations:
    random = np.random.RandomState(seed)
    return evaluate(lambda task, images, truth: random.rand(len(images)) < skill, target)


def plain_measures(run: Evaluations) -> list[dict[str, Any]]:
    """Return the accuracies that a run records after each task."""
    answers = zip(run.predicted, run.target, strict=True)
    tensors = [tuple(map(torch.from_numpy, (*pair, TASK_OF_CLASS))) for pair in answers]
    return [accuracies(*each, task) for task, each in enumerate(tensors)]


def paired_interval(run: Evaluations, other: Evaluations, name: Statistic, **options: Any) -> Interval:
    """Compare two runs of one seed in one figure."""
    return paired_intervals([Pair(run, other, NAMES)], [name], **options)[name]


def pooled_interval(
    runs: Sequence[Evaluations], others: Sequence[Evaluations], classes: Sequence[Sequence[str]], **options: Any
) -> Interval:
    """Compare the runs of several seeds in their final accuracy."""
    pairs = [Pair(run, other, names) for run, other, names in zip(runs, others, classes, strict=True)]
    return paired_intervals(pairs, ["final_accuracy"], **options)["final_accuracy"]


def test_identical_runs_differ_by_nothing() -> None:
    run = noisy(0, SHUFFLED, 0.6)
    for interval in paired_intervals([Pair(run, run, NAMES)], list(STATISTICS), random=generator()).values():
        assert interval == Interval(0.0, 0.0, 0.0)


def test_always_right_against_always_wrong() -> None:
    best = evaluate(lambda task, images, truth: images >= 0, SORTED)
    worst = evaluate(lambda task, images, truth: images < 0, SORTED)
    assert paired_interval(best, worst, "average_accuracy", random=generator()) == Interval(1.0, 1.0, 1.0)
    assert paired_interval(worst, best, "final_accuracy", random=generator()) == Interval(-1.0, -1.0, -1.0)
    assert paired_interval(best, worst, "forgetting", random=generator()) == Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize("target", [SORTED, SHUFFLED])
def test_the_difference_is_that_of_the_plain_measures(target: IntArray) -> None:
    run_a, run_b = noisy(1, target, 0.8), noisy(2, target, 0.5)
    intervals = paired_intervals([Pair(run_a, run_b, NAMES)], list(STATISTICS), random=generator())
    measured = [plain_measures(run) for run in (run_a, run_b)]
    seen = [[each["seen"] for each in rows] for rows in measured]
    matrices = [matrix_from_rows([each["per_task"] for each in rows]) for rows in measured]
    expected = {
        "average_accuracy": np.mean(seen[0]) - np.mean(seen[1]),
        "final_accuracy": seen[0][-1] - seen[1][-1],
        "forgetting": forgetting(matrices[0]) - forgetting(matrices[1]),
    }
    for name, interval in intervals.items():
        assert interval.difference == pytest.approx(expected[name])
        assert interval.low < interval.high


def test_images_are_resampled_within_their_class() -> None:
    # Right on two classes of four each, so every resample within classes gives exactly one half.
    run_a = evaluate(lambda task, images, truth: truth % 2 == 0, SHUFFLED)
    run_b = evaluate(lambda task, images, truth: truth % 2 == 1, SHUFFLED)
    assert paired_interval(run_a, run_b, "final_accuracy", random=generator()) == Interval(0.0, 0.0, 0.0)


def test_both_runs_are_judged_on_the_same_images() -> None:
    # The second run is right wherever the first is: were the resamples not shared, it would sometimes lose.
    run_a = evaluate(lambda task, images, truth: images % 2 == 0, SHUFFLED)
    run_b = evaluate(lambda task, images, truth: (images % 2 == 0) | (images == 1), SHUFFLED)
    interval = paired_interval(run_b, run_a, "final_accuracy", random=generator())
    assert interval.difference == pytest.approx(1 / 40)
    assert interval.low >= 0


@pytest.mark.parametrize("target", [SORTED, SHUFFLED])
def test_an_image_keeps_its_place_in_every_evaluation(target: IntArray) -> None:
    # Answers that never change cannot be forgotten, whichever images are drawn.
    run_a = evaluate(lambda task, images, truth: images % 3 == 0, target)
    run_b = evaluate(lambda task, images, truth: images % 5 == 0, target)
    assert paired_interval(run_a, run_b, "forgetting", random=generator()) == Interval(0.0, 0.0, 0.0)


def test_the_same_generator_gives_the_same_interval() -> None:
    run_a, run_b = noisy(1, SORTED, 0.8), noisy(2, SORTED, 0.5)
    first, second = (paired_interval(run_a, run_b, "forgetting", random=generator()) for _ in range(2))
    assert first == second


def test_a_lower_level_gives_a_narrower_interval() -> None:
    run_a, run_b = noisy(1, SORTED, 0.8), noisy(2, SORTED, 0.5)
    wide = paired_interval(run_a, run_b, "average_accuracy", level=0.99, random=generator())
    narrow = paired_interval(run_a, run_b, "average_accuracy", level=0.5, random=generator())
    assert wide.low < narrow.low < narrow.high < wide.high


def test_small_chunks_give_much_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    run_a, run_b = noisy(1, SORTED, 0.8), noisy(2, SORTED, 0.5)
    whole = paired_interval(run_a, run_b, "average_accuracy", random=generator())
    monkeypatch.setattr(bootstrap, "CHUNK_ELEMENTS", 700)
    parts = paired_interval(run_a, run_b, "average_accuracy", random=generator())
    assert parts.difference == whole.difference
    assert parts.low == pytest.approx(whole.low, abs=0.03)
    assert parts.high == pytest.approx(whole.high, abs=0.03)


def test_the_interval_holds_the_true_difference_about_as_often_as_it_says() -> None:
    target = np.repeat(np.arange(4), 50)
    num_hits = 0
    for seed in range(200):
        interval = paired_interval(
            noisy(2 * seed, target, 0.8),
            noisy(2 * seed + 1, target, 0.7),
            "final_accuracy",
            num_samples=300,
            random=np.random.RandomState(seed),
        )
        num_hits += interval.low <= 0.1 <= interval.high
    assert 178 <= num_hits <= 199


def test_other_test_images_are_refused() -> None:
    run = noisy(0, SORTED, 0.5)
    with pytest.raises(RunError, match="same images"):
        paired_interval(run, noisy(0, SORTED[:-1], 0.5), "forgetting", random=generator())
    with pytest.raises(RunError, match="same images"):
        paired_interval(
            run, Evaluations(run.predicted[:1], run.target[:1], TASK_OF_CLASS), "forgetting", random=generator()
        )


def test_a_test_set_that_changes_between_tasks_is_refused() -> None:
    run = noisy(0, SORTED, 0.5)
    changed = Evaluations(
        [run.predicted[0][:-1], run.predicted[1][1:]], [run.target[0][:-1], run.target[1][1:]], TASK_OF_CLASS
    )
    with pytest.raises(RunError, match="change between tasks"):
        paired_interval(changed, changed, "forgetting", random=generator())


def test_runs_without_a_task_are_refused() -> None:
    empty = Evaluations([], [], TASK_OF_CLASS)
    with pytest.raises(RunError, match="no evaluated task"):
        paired_interval(empty, empty, "forgetting", random=generator())


def test_one_pooled_seed_is_a_pair() -> None:
    one, other = noisy(3, SHUFFLED, 0.8), noisy(4, SHUFFLED, 0.6)
    pair = paired_interval(one, other, "final_accuracy", random=generator())
    pooled = pooled_interval([one], [other], [NAMES], random=generator())
    assert (pooled.difference, pooled.low, pooled.high) == pytest.approx((pair.difference, pair.low, pair.high))


def test_the_pooled_difference_is_the_mean_over_seeds() -> None:
    runs_a = [noisy(seed, SHUFFLED, 0.8) for seed in (3, 5)]
    runs_b = [noisy(seed, SHUFFLED, 0.6) for seed in (4, 6)]
    pairs = [
        paired_interval(one, other, "final_accuracy", random=generator())
        for one, other in zip(runs_a, runs_b, strict=True)
    ]
    pooled = pooled_interval(runs_a, runs_b, [NAMES, NAMES[::-1]], random=generator())
    assert pooled.difference == pytest.approx(np.mean([pair.difference for pair in pairs]))
    assert pooled.low < pooled.difference < pooled.high


def test_the_same_answers_twice_are_no_more_evidence_than_once() -> None:
    one, other = noisy(3, SORTED, 0.8), noisy(4, SORTED, 0.6)
    once = pooled_interval([one], [other], [NAMES], random=generator())
    twice = pooled_interval([one, one], [other, other], [NAMES, NAMES], random=generator())
    assert (twice.difference, twice.low, twice.high) == pytest.approx((once.difference, once.low, once.high))
    # Other classes are other images, whose errors even out.
    apart = pooled_interval([one, one], [other, other], [NAMES, ("eel", "fox", "gnu", "hen")], random=generator())
    assert apart.high - apart.low < 0.85 * (once.high - once.low)


def test_pooled_runs_may_differ_in_their_tasks_but_not_in_their_images() -> None:
    one, other = noisy(3, SHUFFLED, 0.8), noisy(4, SHUFFLED, 0.6)
    at_once = Evaluations(other.predicted[-1:], other.target[-1:], np.zeros(4, dtype=np.int64))
    expected = pooled_interval([one], [other], [NAMES], random=generator())
    found = pooled_interval([one], [at_once], [NAMES], random=generator())
    assert found.difference == pytest.approx(expected.difference)
    with pytest.raises(RunError, match="not tested on the same images"):
        pooled_interval([one], [noisy(4, SORTED[:-1], 0.6)], [NAMES], random=generator())


def test_every_figure_can_be_pooled() -> None:
    seeds = [(noisy(seed, SHUFFLED, 0.8), noisy(seed + 10, SHUFFLED, 0.6)) for seed in (1, 2)]
    pooled = paired_intervals([Pair(*runs, NAMES) for runs in seeds], list(STATISTICS), random=generator())
    for name, interval in pooled.items():
        apart = [paired_interval(*runs, name, random=generator()).difference for runs in seeds]
        assert interval.difference == pytest.approx(np.mean(apart))
        assert interval.low < interval.difference < interval.high


def test_without_a_pair_there_is_nothing_to_compare() -> None:
    with pytest.raises(RunError, match="no two runs to compare; give runs that met the same classes"):
        paired_intervals([], ["final_accuracy"], random=generator())
