"""Every class comes once, in the seed's order, and no image is both trained and evaluated on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clare.data.sources import Dataset
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Stream, StreamSettings, class_order, make_stream, task_sizes
from clare.errors import DataError, SettingsError
from clare.settings import build_settings


def labelled(labels: list[int]) -> LabelledImages:
    """Return images whose one pixel is their place, in an order that mixes the classes."""
    pixels = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    order = torch.from_numpy(np.random.RandomState(5).permutation(len(labels)))
    images = LabelledImages(ImageStore.from_array(pixels), torch.arange(len(labels)), torch.tensor(labels))
    return images.select(order)


def make_dataset(num_classes: int, num_train: int = 10, num_test: int = 2) -> Dataset:
    """Return a data set with equal classes named c000, c001, and so on."""
    names = tuple(f"c{place:03}" for place in range(num_classes))
    train, test = (
        labelled([place for place in range(num_classes) for _ in range(number)]) for number in (num_train, num_test)
    )
    return Dataset("tiny", names, train, test)


def places(images: LabelledImages) -> set[int]:
    """Return which images of the store are meant, each at most once."""
    found: list[int] = images.indices.tolist()
    assert len(set(found)) == len(found)
    return set(found)


def settings_of(**values: object) -> StreamSettings:
    """Return stream settings from loose values."""
    return StreamSettings.model_validate({"increment": 2, **values})


def train_places(stream: Stream) -> set[int]:
    """Return all images that some task trains on, none of them in two tasks."""
    parts = [places(task.train) for task in stream.tasks]
    assert sum(map(len, parts)) == len(set().union(*parts))
    return set().union(*parts)


@pytest.mark.parametrize(
    ("num_classes", "first"),
    [(100, [68, 56, 78, 8, 23]), (200, [168, 136, 51, 9, 183]), (1000, [54, 7, 894, 512, 126])],
)
def test_the_published_orders(num_classes: int, first: list[int]) -> None:
    order = class_order(num_classes, 1993)
    assert order[:5] == first
    assert sorted(order) == list(range(num_classes))


def test_no_seed_keeps_the_alphabet() -> None:
    assert class_order(4, None) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ((100, 10, 10), [10] * 10),
        ((100, 50, 10), [50] + [10] * 5),
        ((10, 4, 4), [4, 4, 2]),
        ((5, 5, 2), [5]),
        ((3, 1, 5), [1, 2]),
    ],
)
def test_task_sizes(arguments: tuple[int, int, int], sizes: list[int]) -> None:
    assert task_sizes(*arguments) == sizes


@given(num_classes=st.integers(1, 300), first=st.integers(1, 300), increment=st.integers(1, 300))
def test_task_sizes_add_up(num_classes: int, first: int, increment: int) -> None:
    if first > num_classes:
        with pytest.raises(DataError, match=f"{first} classes of {num_classes}"):
            task_sizes(num_classes, first, increment)
        return
    sizes = task_sizes(num_classes, first, increment)
    assert sum(sizes) == num_classes
    assert sizes[0] == first
    assert all(size == increment for size in sizes[1:-1])
    assert all(1 <= size <= increment for size in sizes[1:])


def test_tasks_of_no_classes_are_refused() -> None:
    with pytest.raises(DataError, match="`increment` to 1 or more"):
        task_sizes(10, 2, 0)
    with pytest.raises(DataError, match="`first` to 1"):
        task_sizes(10, 0, 2)


@settings(max_examples=50, deadline=None)
@given(
    num_classes=st.integers(2, 12),
    increment=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    evaluate_on=st.sampled_from(["test", "validation"]),
    share=st.floats(0.01, 0.5),
    train_per_class=st.none() | st.integers(1, 12),
)
def test_invariants(
    num_classes: int, increment: int, seed: int, evaluate_on: str, share: float, train_per_class: int | None
) -> None:
    dataset = make_dataset(num_classes)
    increment = min(increment, num_classes)
    values = {"increment": increment, "evaluate_on": evaluate_on, "validation_share": share}
    stream = make_stream(dataset, settings_of(**values, train_per_class=train_per_class), seed)
    assert stream.classes == tuple(dataset.classes[place] for place in class_order(num_classes, seed))
    assert sum((task.classes for task in stream.tasks), ()) == stream.classes
    assert [task.index for task in stream.tasks] == list(range(len(stream.tasks)))
    assert stream.num_seen(len(stream.tasks) - 1) == num_classes
    num_held_out = max(1, round(share * 10)) if evaluate_on == "validation" else 0
    num_trained = min(10 - num_held_out, train_per_class or 10)
    truth = dict(zip(dataset.train.indices.tolist(), dataset.train.labels.tolist(), strict=True))
    for task in stream.tasks:
        assert torch.equal(task.train.labels.bincount(), torch.full((len(task.classes),), num_trained))
        for index, label in zip(task.train.indices.tolist(), task.train.labels.tolist(), strict=True):
            assert dataset.classes[truth[index]] == task.classes[label]
    assert stream.test.labels.bincount().tolist() == [num_held_out or 2] * num_classes
    if evaluate_on == "validation":
        assert stream.test.store is dataset.train.store
        assert not train_places(stream) & places(stream.test)
    else:
        truth = dict(zip(dataset.test.indices.tolist(), dataset.test.labels.tolist(), strict=True))
    for index, label in zip(stream.test.indices.tolist(), stream.test.labels.tolist(), strict=True):
        assert dataset.classes[truth[index]] == stream.classes[label]


def test_all_training_images_train_when_the_test_images_are_used() -> None:
    dataset = make_dataset(4)
    stream = make_stream(dataset, settings_of(validation_share=0.5), 0)
    assert train_places(stream) == set(range(40))
    assert stream.test.store is dataset.test.store


def test_a_seed_gives_one_split_and_another_seed_another() -> None:
    dataset = make_dataset(4)
    held_out = [places(make_stream(dataset, settings_of(evaluate_on="validation"), seed).test) for seed in (1, 1, 2)]
    assert held_out[0] == held_out[1]
    assert held_out[0] != held_out[2]


def test_classes_are_split_each_in_its_own_way() -> None:
    dataset = make_dataset(8)
    in_order = replace(dataset, train=dataset.train.select(dataset.train.indices.argsort()))
    stream = make_stream(in_order, settings_of(evaluate_on="validation"), 0)
    within_class = stream.test.indices.view(8, 2) % 10
    assert len(within_class.unique(dim=0)) > 4


def test_the_split_of_a_class_does_not_depend_on_the_others() -> None:
    dataset = make_dataset(6)
    whole = make_stream(dataset, settings_of(evaluate_on="validation"), 3)
    part = make_stream(dataset, settings_of(evaluate_on="validation", num_classes=3, first=1), 3)
    assert part.classes == whole.classes[:3]
    assert places(part.test) == places(whole.test.select((whole.test.labels < 3).nonzero()[:, 0]))


def test_a_generous_limit_does_not_train_on_held_out_images() -> None:
    stream = make_stream(make_dataset(4), settings_of(evaluate_on="validation", train_per_class=10), 0)
    assert not train_places(stream) & places(stream.test)
    assert len(train_places(stream)) == 32


def test_fewer_training_images_are_a_part_of_more() -> None:
    dataset = make_dataset(4)
    few, more = (train_places(make_stream(dataset, settings_of(train_per_class=number), 7)) for number in (2, 5))
    assert few < more


def test_where_tasks_begin() -> None:
    stream = make_stream(make_dataset(8), settings_of(first=3), 0)
    assert [len(task.classes) for task in stream.tasks] == [3, 2, 2, 1]
    assert [stream.num_seen(index) for index in range(4)] == [3, 5, 7, 8]
    assert stream.task_of_class.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert stream.task_of_class.dtype == torch.int64


def test_labels_outside_the_classes_are_refused() -> None:
    dataset = make_dataset(3)
    for label in (-1, 3):
        broken = Dataset("odd", dataset.classes, labelled([0, 1, 2, label]), dataset.test)
        with pytest.raises(DataError, match=rf"training images of 'odd' have the label {label}; use 0\.\.2"):
            make_stream(broken, settings_of(), 0)


def test_empty_classes_are_refused() -> None:
    dataset = make_dataset(3)
    with pytest.raises(DataError, match="'c001' has no test images"):
        make_stream(Dataset("odd", dataset.classes, dataset.train, labelled([0, 2])), settings_of(), 0)
    with pytest.raises(DataError, match="'c002' has no training images"):
        make_stream(Dataset("odd", dataset.classes, labelled([0, 1]), dataset.test), settings_of(), 0)
    single = Dataset("odd", dataset.classes, labelled([0, 0, 1, 1, 2]), dataset.test)
    with pytest.raises(DataError, match="'c002' has no training images"):
        make_stream(single, settings_of(evaluate_on="validation"), 0)


def test_more_classes_than_there_are_is_refused() -> None:
    with pytest.raises(DataError, match="asks for 5 classes and 'tiny' has 3"):
        make_stream(make_dataset(3), settings_of(num_classes=5), 0)


def test_a_validation_share_of_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="validation_share above 0"):
        build_settings(StreamSettings, {"increment": 1, "evaluate_on": "validation", "validation_share": 0}, "stream")
