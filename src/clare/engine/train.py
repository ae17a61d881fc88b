"""The one training loop: a phase of any method."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clare.data.store import LabelledImages
from clare.engine.context import Context
from clare.engine.images import ImageSource, drawn_batches
from clare.engine.optim import rate_at
from clare.engine.replay import ReplaySource
from clare.errors import DivergedError
from clare.methods.base import Method
from clare.seeds import derive_seed, generator_at
from clare.steps import Phase, Source

SaveEpoch = Callable[[int, dict[str, Tensor]], None]


@dataclass(frozen=True)
class Place:
    """Where in a run a step stands; every random draw depends on it."""

    task: int
    step: int


class PhaseRun:
    """One phase being trained: its optimiser and its losses, which a checkpoint holds."""

    def __init__(self, context: Context, method: Method, phase: Phase, images: LabelledImages, place: Place) -> None:
        self.context, self.method, self.phase, self.place = context, method, phase, place
        images = images if phase.places is None else images.select(phase.places)
        self.source: Source = phase.data or (
            ReplaySource(context, images, phase.replay)
            if phase.replay
            else ImageSource(context, images, augmented=True)
        )
        self.step = context.programs.train_step(method, phase)
        self.losses = torch.zeros(phase.epochs)
        # The last of a row is for padding.
        size = 1 + self.source.num_samples if phase.remarks else 0
        self.remarks = torch.zeros(phase.epochs, size, device=context.ranks.device)

    def run(self, start_epoch: int, save_epoch: SaveEpoch) -> list[float]:
        """Train from an epoch to the end and return the mean loss of every epoch."""
        parameters = [group.parameter for group in self.phase.groups]
        self.method.train()
        for parameter in parameters:
            parameter.requires_grad_(True)
        try:
            for epoch in range(start_epoch, self.phase.epochs):
                self._epoch(epoch)
                if epoch + 1 < self.phase.epochs:
                    save_epoch(epoch + 1, self.tensors())
        finally:
            for parameter in parameters:
                parameter.requires_grad_(False)
            self.method.eval()
        return [float(loss) for loss in self.losses]

    def _epoch(self, epoch: int) -> None:
        """Train one epoch; the loss is read once, at its end."""
        context, phase, ranks = self.context, self.phase, self.context.ranks
        place = (self.place.task, self.place.step, epoch)
        self.source.begin_epoch(generator_at(context.seed, *place, "source"))
        order = torch.randperm(self.source.num_samples, generator=generator_at(context.seed, *place, "order"))
        torch.manual_seed(derive_seed(context.seed, *place, ranks.rank, "dropout"))
        optimizer = phase.optimizer
        num_batches = -(-len(order) // phase.batch_size)
        rate = rate_at(optimizer, epoch, phase.epochs, num_batches)
        self.step.optimizer.set_rate(rate)
        self.step.total.zero_()
        halving = generator_at(context.seed, *place, "halves")
        context.listener.epoch(epoch, num_batches)
        for index, (batch, inputs, labels) in enumerate(drawn_batches(self.source, order, phase.batch_size, ranks)):
            if optimizer.schedule == "cosine-steps":
                done = epoch + index / num_batches
                self.step.optimizer.set_rate(rate_at(optimizer, done, phase.epochs, num_batches))
            if phase.position is not None:
                # In place, so that a recorded step sees it.
                phase.position.fill_(index / max(num_batches - 1, 1))
            if phase.progress is not None:
                phase.progress.fill_((epoch * num_batches + index) / max(phase.epochs * num_batches - 1, 1))
            self.step.draw(halving)
            self.step(inputs, labels, batch.weights.to(inputs.device), batch.num_samples)
            if phase.remarks:
                self.remarks[epoch, torch.where(batch.weights > 0, batch.positions, -1)] = self.step.remarks
            context.listener.batch()
        for average in phase.averages:
            average.into.lerp_(average.parameter.data, 1 - average.keep)
        ranks.sum_(self.step.total)
        if phase.remarks:
            self.remarks[epoch, -1] = 0
            ranks.sum_(self.remarks[epoch])
        self.losses[epoch] = float(self.step.total) / len(order)
        self._check_finite(epoch)
        context.listener.trained(phase.name, epoch, float(self.losses[epoch]), rate)

    def _check_finite(self, epoch: int) -> None:
        """Raise when the loss or a trained value stopped being a number."""
        finite = (
            torch.isfinite(self.losses[epoch])
            & torch.stack([torch.isfinite(group.parameter).all() for group in self.phase.groups]).all().cpu()
        )
        if not finite:
            raise DivergedError(
                f"the loss of task {self.place.task + 1} became {float(self.losses[epoch])} in epoch {epoch + 1} of "
                f"'{self.phase.name}'; the model is back where the task began: lower the learning rate "
                f"(now {self.phase.optimizer.learning_rate}) and start again in another --out"
            )

    def tensors(self) -> dict[str, Tensor]:
        """Return the trained parameters, the optimiser's state and the losses so far."""
        return {**self.left(), **self.step.optimizer.state, "losses": self.losses}

    def left(self) -> dict[str, Tensor]:
        """Return the trained parameters by their place among the groups, the averages of some, and the remarks."""
        averages = {f"average.{i}": average.into for i, average in enumerate(self.phase.averages)}
        remarks = {"remarks": self.remarks} if self.phase.remarks else {}
        parameters = {f"parameter.{i}": group.parameter.data for i, group in enumerate(self.phase.groups)}
        return {**averages, **parameters, **remarks}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go back to the end of an epoch."""
        load_parameters(self.phase, tensors)
        self.step.optimizer.restore(tensors)
        self.losses.copy_(tensors["losses"])
        if self.phase.remarks:
            self.remarks.copy_(tensors["remarks"])


def load_parameters(phase: Phase, tensors: dict[str, Tensor]) -> None:
    """Write saved values into the parameters that a phase trains."""
    for i, group in enumerate(phase.groups):
        group.parameter.data.copy_(tensors[f"parameter.{i}"])
    for i, average in enumerate(phase.averages):
        average.into.copy_(tensors[f"average.{i}"])
