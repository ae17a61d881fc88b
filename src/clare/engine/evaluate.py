"""One evaluation after each task: every figure from one sweep over the test images."""

import math
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.passes import FeatureCache, predict
from clare.methods.base import Method, passes_per_image
from clare.methods.protocols import is_told_task, num_kept
from clare.methods.state import learnt_tensors


class Answers(NamedTuple):
    """What a method says of the test images of all seen classes, and what is right."""

    predicted: Tensor
    target: Tensor
    given: Tensor
    """The best class of the image's own task."""
    tasks: Tensor
    """The task that the image is taken to be of."""
    seconds: float


def evaluate(context: Context, method: Method, stream: Stream, task: int, kept: FeatureCache | None = None) -> Answers:
    """Return what a method answers on all test images of the seen classes, and the seconds it took."""
    started = time.perf_counter()
    context.listener.step("evaluate", 1)
    num_seen = stream.num_seen(task)
    seen = (stream.test.labels.cpu() < num_seen).nonzero().squeeze(1)
    images = stream.test.select(seen)
    fixed = (kept or FeatureCache()).of(context, method, stream.test, seen)
    found, target = predict(context, method, images, fixed), images.labels.cpu()
    logits, task_of_class = found[:, :num_seen], stream.task_of_class
    is_other = task_of_class[:num_seen] != task_of_class[target][:, None]
    given = logits.masked_fill(is_other, -math.inf).argmax(1)
    predicted = given if is_told_task(method) else logits.argmax(1)
    tasks = found[:, num_seen].long() if found.shape[1] > num_seen else task_of_class[predicted]
    return Answers(predicted, target, given, tasks, time.perf_counter() - started)


def measured(method: Method, answers: Answers, task_of_class: Tensor, task: int) -> dict[str, Any]:
    """Return all accuracies after a task; of a method that is told the task, those with the task given alone."""
    plain, given = (
        accuracies(found, answers.target, task_of_class, task) for found in (answers.predicted, answers.given)
    )
    task_right = float((answers.tasks == task_of_class[answers.target]).double().mean())
    with_task = {"given": given["seen"], "given_per_task": given["per_task"]}
    if is_told_task(method):
        nothing = dict.fromkeys(("seen", "new", "first"), math.nan)
        return {**nothing, "per_task": [math.nan] * (task + 1), **with_task}
    return {**plain, **with_task, "task_right": task_right}


def accuracies(predicted: Tensor, target: Tensor, task_of_class: Tensor, task: int) -> dict[str, Any]:
    """Return the accuracy on all seen classes, on the new task's, on the first task's, and on each task's."""
    correct = (predicted == target).double()
    task_of_image = task_of_class[target]
    right, number = (torch.bincount(task_of_image, weights, task + 1) for weights in (correct, None))
    per_task = (right / number).tolist()
    return {"seen": float(correct.mean()), "new": per_task[-1], "first": per_task[0], "per_task": per_task}


BITS = 32
"""Bits of a mask that count as one stored number."""


def count_parameters(method: Method) -> dict[str, int]:
    """Return the numbers, and the pictures, that the method stores beside the backbone, and its passes for an image."""
    tensors = learnt_tensors(method).values()
    num_bits = sum(tensor.numel() for tensor in tensors if tensor.dtype == torch.bool)
    num_numbers = sum(tensor.numel() for tensor in tensors if tensor.dtype != torch.bool)
    num_pictures, num_bytes = num_kept(method)
    num_stored = num_numbers - num_bytes + math.ceil(num_bits / BITS)
    counts = {"num_stored": num_stored, "passes_per_image": passes_per_image(method)}
    return {**counts, "num_pictures": num_pictures, "picture_bytes": num_bytes}
