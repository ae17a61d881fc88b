"""One evaluation after each task: every figure from one sweep over the test images."""

import time
from typing import Any

import torch
from torch import Tensor

from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.passes import FeatureCache, predict_logits
from clare.methods.base import Method, passes_per_image
from clare.methods.state import learnt_tensors


def evaluate(
    context: Context, method: Method, stream: Stream, task: int, kept: FeatureCache | None = None
) -> tuple[Tensor, Tensor, float]:
    """Return predicted and true classes of all test images of the seen classes, and the seconds it took."""
    started = time.perf_counter()
    context.listener.step("evaluate", 1)
    seen = (stream.test.labels.cpu() < stream.num_seen(task)).nonzero().squeeze(1)
    images = stream.test.select(seen)
    fixed = (kept or FeatureCache()).of(context, method, stream.test, seen)
    predicted = predict_logits(context, method, images, fixed).argmax(1)
    return predicted, images.labels.cpu(), time.perf_counter() - started


def accuracies(predicted: Tensor, target: Tensor, task_of_class: Tensor, task: int) -> dict[str, Any]:
    """Return the accuracy on all seen classes, on the new task's, on the first task's, and on each task's."""
    correct = (predicted == target).double()
    task_of_image = task_of_class[target]
    per_task = [float(correct[task_of_image == index].mean()) for index in range(task + 1)]
    return {"seen": float(correct.mean()), "new": per_task[-1], "first": per_task[0], "per_task": per_task}


def count_parameters(method: Method) -> dict[str, int]:
    """Return how many numbers the method stores beside the backbone, and how often an image goes through that."""
    stored = sum(tensor.numel() for name, tensor in learnt_tensors(method).items() if tensor.dtype != torch.bool)
    return {"num_stored": stored, "passes_per_image": passes_per_image(method)}
