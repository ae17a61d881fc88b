"""Evaluation: accuracies by hand, and predictions in the order of the test images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context, Silence
from clare.engine.evaluate import Answers, accuracies, count_parameters, evaluate, measured
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.run import run_experiment
from clare.files import read_tensors
from clare.methods.protocols import InfersTask, IsToldTask
from clare.methods.simplecil import SimpleCil, SimpleCilSettings
from clare.presets.load import make_experiment
from clare.report.record import read_run

NO_PICTURES = {"num_pictures": 0, "picture_bytes": 0}


def test_accuracies_by_hand() -> None:
    task_of_class = torch.tensor([0, 0, 1, 1, 1, 2])
    target = torch.tensor([0, 0, 1, 1, 2, 3, 4, 4])
    predicted = torch.tensor([0, 2, 1, 1, 2, 4, 0, 4])
    assert accuracies(predicted, target, task_of_class, 1) == {
        "seen": 5 / 8,
        "new": 2 / 4,
        "first": 3 / 4,
        "per_task": [3 / 4, 2 / 4],
    }
    assert accuracies(predicted[:4], target[:4], task_of_class, 0) == {
        "seen": 3 / 4,
        "new": 3 / 4,
        "first": 3 / 4,
        "per_task": [3 / 4],
    }


def test_tasks_of_different_sizes_weigh_by_their_images() -> None:
    target = torch.tensor([0] * 9 + [1])
    result = accuracies(torch.zeros(10, dtype=torch.long), target, torch.tensor([0, 1]), 1)
    assert (result["seen"], result["per_task"]) == (0.9, [1.0, 0.0])


def test_a_task_without_test_images_is_unknown() -> None:
    task_of_class, target = torch.tensor([0, 1, 2]), torch.tensor([0, 2])
    result = accuracies(torch.tensor([1, 2]), target, task_of_class, 2)
    np.testing.assert_array_equal(result["per_task"], [0.0, np.nan, 1.0])
    assert np.isnan(accuracies(target[:0], target[:0], task_of_class, 0)["seen"])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_the_tasks_make_up_the_accuracy_over_all_seen_classes(answers: list[tuple[int, int]]) -> None:
    task_of_class = torch.tensor([0, 0, 1, 1, 2, 2])
    predicted, target = (torch.tensor(side) for side in zip(*answers, strict=True))
    result = accuracies(predicted, target, task_of_class, 2)
    num_images = np.bincount(task_of_class[target], minlength=3)
    total = np.nansum(np.array(result["per_task"]) * num_images) / num_images.sum()
    assert total == pytest.approx(result["seen"])
    ends = (result["per_task"][0], result["per_task"][2])
    assert (result["first"], result["new"]) == pytest.approx(ends, nan_ok=True)


class ByBrightness(SimpleCil):
    """Answers with the class whose number is the image's brightness, so that every answer is known."""

    def features(self, images: Tensor) -> Tensor:
        """Return the features of a class, one-hot in the place of the image's brightness."""
        brightness = ((images.mean(dim=(1, 2, 3)) + 1) / 2 * 255).round().long()
        return torch.nn.functional.one_hot(brightness, self.head.num_features).float()


@pytest.mark.parametrize("batch_size", [1, 4, 5, 100])
def test_predictions_come_in_the_order_of_the_images(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    batch_size: int,
) -> None:
    stream, run = tiny_stream(), context(eval_batch_size=batch_size)
    method = ByBrightness(tiny_backbone(), SimpleCilSettings(), 0)
    # An image of class k is k + 3 everywhere; three of the test images are made to look like another class.
    labels = stream.test.labels
    shown = labels.clone()
    shown[[0, 7, 35]] = torch.tensor([1, 0, 2])
    images = stream.test.store.flat.view(-1, 28 * 28)
    images[stream.test.indices] = (shown + 3)[:, None].to(torch.uint8)
    for task in stream.tasks:
        first = stream.num_seen(task.index) - len(task.classes)
        images[task.train.indices] = (task.train.labels + first + 3)[:, None].to(torch.uint8)
        learn_task(run, method, task, Journal())
        predicted, target, *_ = evaluate(run, method, stream, task.index)
        is_seen = labels < stream.num_seen(task.index)
        assert target.tolist() == labels[is_seen].tolist()
        assert predicted.tolist() == shown[is_seen].tolist()
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    logits = predict_logits(run, method, stream.test.select(shuffled))
    assert logits.argmax(1).tolist() == shown[shuffled].tolist()


def test_stored_numbers_are_counted_without_the_backbone(tiny_backbone: Callable[..., Backbone]) -> None:
    method = SimpleCil(tiny_backbone(), SimpleCilSettings(), 0)
    assert count_parameters(method) == {"num_stored": 0, "passes_per_image": 1, **NO_PICTURES}
    method.head.append(torch.ones(2, 24))
    assert count_parameters(method) == {"num_stored": 48, "passes_per_image": 1, **NO_PICTURES}
    # A bit is a 32nd of a number, and a part of a number counts as one.
    method.register_buffer("mask", torch.ones(2, 32, dtype=torch.bool))
    assert count_parameters(method)["num_stored"] == 50
    method.register_buffer("more", torch.zeros(1, dtype=torch.bool))
    assert count_parameters(method)["num_stored"] == 51


def test_the_record_agrees_with_the_predictions(tiny_preset: Path, tmp_path: Path) -> None:
    run_experiment(make_experiment(str(tiny_preset), "simplecil"), tmp_path, Silence())
    record = read_run(tmp_path)
    assert record.finished
    assert len(record.tasks) == 3
    for task in record.tasks:
        tensors = read_tensors(tmp_path / "predictions" / f"task-{task.task:04d}.safetensors")
        correct = (tensors["predicted"] == tensors["target"]).double()
        assert sorted(set(tensors["target"].tolist())) == list(range(2 * (task.task + 1)))
        assert float(correct.mean()) == pytest.approx(task.seen)
        per_task = [float(correct[tensors["target"] // 2 == index].mean()) for index in range(task.task + 1)]
        assert per_task == pytest.approx(list(task.per_task))
        assert (task.new, task.first) == (task.per_task[-1], task.per_task[0])
        assert task.given is not None
        assert task.task_right is not None
        assert task.seen <= min(task.given, task.task_right)
        right = float((tensors["predicted"] // 2 == tensors["target"] // 2).double().mean())
        assert task.task_right == pytest.approx(right)


class Sure(ByBrightness, InfersTask):
    """Takes every image to be of the second task, whatever class it names."""

    def inferred_tasks(self, features: Tensor) -> Tensor:
        return torch.ones(len(features), dtype=torch.long)


class Told(ByBrightness, IsToldTask):
    """Must be told the task."""


def answers_of(kind: type[SimpleCil], run: Context, stream: Stream, backbone: Backbone) -> tuple[SimpleCil, Answers]:
    """Teach a method that answers with an image's brightness, on images of which some look like other classes."""
    method = kind(backbone, SimpleCilSettings(), 0)
    images = stream.test.store.flat.view(-1, 28 * 28)
    # Half of the images of class 0 look like class 1, of the same task, and half of class 2 like class 0.
    shown = stream.test.labels.clone()
    shown[:3], shown[12:15] = 1, 0
    images[stream.test.indices] = (shown + 3)[:, None].to(torch.uint8)
    for task in stream.tasks[:2]:
        images[task.train.indices] = (task.train.labels + 2 * task.index + 3)[:, None].to(torch.uint8)
        learn_task(run, method, task, Journal())
    return method, evaluate(run, method, stream, 1)


@pytest.mark.parametrize(("kind", "task_right"), [(ByBrightness, 21 / 24), (Sure, 1 / 2), (Told, None)])
def test_figures_with_the_task_given_by_hand(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    kind: type[SimpleCil],
    task_right: float | None,
) -> None:
    stream = tiny_stream()
    method, answers = answers_of(kind, context(eval_batch_size=5), stream, tiny_backbone())
    found = measured(method, answers, stream.task_of_class, 1)
    # The first of equal scores is taken, so with its task given an image of class 2 is right whatever it looks like.
    assert (found["given"], found["given_per_task"]) == (21 / 24, [9 / 12, 1.0])
    assert found.get("task_right") == task_right
    if kind is Told:
        assert np.isnan([found["seen"], found["new"], found["first"], *found["per_task"]]).all()
        assert torch.equal(answers.predicted, answers.given)
    else:
        assert (found["seen"], found["per_task"]) == (18 / 24, [9 / 12, 9 / 12])
    assert torch.equal(stream.task_of_class[answers.given], stream.task_of_class[answers.target])
