"""Sweeps without gradient: statistics of a task, and predictions for evaluation."""

import torch
from torch import Tensor

from clare.data.store import LabelledImages
from clare.engine.batches import batches
from clare.engine.context import Context
from clare.engine.train import Place
from clare.methods.base import Method
from clare.seeds import derive_seed, generator_at
from clare.steps import Pass


def run_pass(context: Context, method: Method, step: Pass, images: LabelledImages, place: Place) -> dict[str, Tensor]:
    """Sweep once over the task's images and return the sums over batches and ranks."""
    ranks, size = context.ranks, context.settings.eval_batch_size
    method.eval()
    order = torch.arange(len(images))
    generator = generator_at(context.seed, place.task, place.step, ranks.rank, "augmentation")
    torch.manual_seed(derive_seed(context.seed, place.task, place.step, ranks.rank, "pass"))
    context.listener.epoch(0, -(-len(order) // size))
    sums: dict[str, Tensor] = {}
    for batch in batches(order, min(size, len(order)), ranks.rank, ranks.world_size):
        canvas, labels = images.batch(batch.positions)
        view = context.transforms.train(canvas, generator) if step.view == "train" else context.transforms.test(canvas)
        inputs, weights = view.to(ranks.device), batch.weights.to(ranks.device)
        with ranks.autocast():
            parts = step.statistic(inputs, labels.to(ranks.device), weights)
        for name, part in parts.items():
            sums[name] = sums[name] + part if name in sums else part
        context.listener.batch()
    for name in sorted(sums):
        ranks.sum_(sums[name])
    return sums


@torch.no_grad()
def predict_logits(context: Context, method: Method, images: LabelledImages) -> Tensor:
    """Return the logits of all images over all classes learnt so far, on every rank, in the images' order."""
    ranks, size = context.ranks, context.settings.eval_batch_size
    method.eval()
    logits = torch.zeros(len(images), method.head.num_classes, device=ranks.device)
    order = torch.arange(len(images))
    context.listener.epoch(0, -(-len(order) // size))
    for batch in batches(order, min(size, len(order)), ranks.rank, ranks.world_size):
        canvas, _ = images.batch(batch.positions)
        with ranks.autocast():
            part = method(context.transforms.test(canvas).to(ranks.device))
        # Padding repeats a real position, so only the rank that owns a position may write it.
        own = batch.weights > 0
        logits[batch.positions[own]] = part[own].to(logits.dtype)
        context.listener.batch()
    return ranks.sum_(logits).cpu()
