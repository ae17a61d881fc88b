"""Sweeps without gradient: statistics of a task, and predictions for evaluation."""

import torch
from torch import Tensor

from clare.data.store import LabelledImages
from clare.engine.batches import batches
from clare.engine.context import Context
from clare.engine.images import ImageSource
from clare.engine.train import Place
from clare.methods.base import Method
from clare.seeds import derive_seed, generator_at
from clare.steps import Pass


def run_pass(context: Context, method: Method, step: Pass, images: LabelledImages, place: Place) -> dict[str, Tensor]:
    """Sweep once over the task's images and return the sums over batches and ranks."""
    ranks, size = context.ranks, context.steps.sweep_size(len(images), context.settings.eval_batch_size)
    method.eval()
    source = ImageSource(context, images, augmented=step.view == "train")
    source.begin_epoch(generator_at(context.seed, place.task, place.step, "source"))
    torch.manual_seed(derive_seed(context.seed, place.task, place.step, ranks.rank, "pass"))
    order = torch.arange(len(images), device=source.device)
    context.listener.epoch(0, -(-len(order) // size))
    sums: dict[str, Tensor] = {}
    for batch in batches(order, size, ranks.rank, ranks.world_size):
        inputs, labels = source.draw(batch.positions)
        if step.of == "features":
            inputs = context.steps.forward(method.features, inputs)
        with ranks.autocast():
            parts = step.statistic(inputs, labels, batch.weights.to(inputs.device))
        for name, part in parts.items():
            sums[name] = sums[name] + part if name in sums else part
        context.listener.batch()
    for name in sorted(sums):
        ranks.sum_(sums[name])
    return sums


@torch.no_grad()
def predict_logits(context: Context, method: Method, images: LabelledImages) -> Tensor:
    """Return the logits of all images over all classes learnt so far, on every rank, in the images' order."""
    ranks, size = context.ranks, context.steps.sweep_size(len(images), context.settings.eval_batch_size)
    method.eval()
    source = ImageSource(context, images, augmented=False)
    order = torch.arange(len(images), device=source.device)
    logits = torch.zeros(len(images) + 1, method.head.num_classes, device=ranks.device)
    context.listener.epoch(0, -(-len(order) // size))
    for batch in batches(order, size, ranks.rank, ranks.world_size):
        features = context.steps.forward(method.features, source.draw(batch.positions)[0])
        with ranks.autocast():
            part = method.classify(features)
        # Padding repeats a real position; it is written to the spare last row, which is dropped.
        places = torch.where(batch.weights > 0, batch.positions, len(images))
        logits[places.to(ranks.device)] = part.to(logits.dtype)
        context.listener.batch()
    return ranks.sum_(logits[:-1]).cpu()
