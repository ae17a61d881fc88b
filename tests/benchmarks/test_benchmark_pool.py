"""The benchmark of expanded pools: its tasks, and what it counts."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from clare.data.settings import DataSettings
from clare.data.sources import load_dataset
from clare.metrics.bootstrap import Evaluations


@pytest.fixture
def pool(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("pool")


def test_classes_come_back_under_other_names_and_with_other_drawings(pool: ModuleType) -> None:
    data = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    first, again = (pool.task_of(data.train, 200, index, 2, 5) for index in (1, 101))
    assert (first.classes, again.classes) == (("class 2", "class 3"), ("class 202", "class 203"))
    for task in (first, again):
        assert task.train.labels.tolist() == [0] * 5 + [1] * 5
    drawn = [set(task.train.indices.tolist()) for task in (first, again)]
    assert drawn[0].isdisjoint(drawn[1])
    labels = {int(label) for task in (first, again) for label in data.train.labels[task.train.indices]}
    assert labels == {2, 3}


def test_ways_are_compared_on_the_same_images(pool: ModuleType) -> None:
    def answered(right: int) -> Evaluations:
        predicted = np.where(np.arange(100) < right, np.arange(100) % 5, -1)
        return Evaluations([predicted], [np.arange(100) % 5], np.zeros(5, dtype=np.int64))

    found: list[dict[str, Any]] = pool.compared({"none": [answered(50)], "fresh": [answered(80)]}, [3])
    assert [(row["expand"], row["num_tasks"]) for row in found] == [("fresh", 3)]
    assert found[0]["difference"] == pytest.approx(0.3)
    assert 0.1 < found[0]["low"] < 0.3 < found[0]["high"] < 0.5
