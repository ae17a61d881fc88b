"""The drawings that come with the package."""

import pytest

from clare.data.drawings import count_drawings, read_drawings
from clare.data.settings import DRAWINGS


@pytest.mark.parametrize("dataset", DRAWINGS)
def test_drawings_are_counted_without_being_read(dataset: str) -> None:
    classes, train, test = read_drawings(dataset)
    assert count_drawings(dataset) == (len(classes), len(train.images), len(test.images))
    assert all(len(part.images) == len(part.labels) for part in (train, test))
