"""One step of training: loss, gradients, masked update."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from clare.engine.optim import MaskedOptimizer, clip_gradients
from clare.engine.ranks import Ranks
from clare.errors import ModelError
from clare.steps import Agreement, Group, Loss, Phase

Half = tuple[Tensor, Tensor]
"""The weight of each sample, and one over the samples of the half on all ranks."""


class Halves:
    """What is random in gradient-aligned steps, in tensors whose places never change."""

    def __init__(self, agreement: Agreement, parameters: Sequence[nn.Parameter]) -> None:
        self.agreement = agreement
        device = parameters[0].device
        self.keys = torch.zeros(agreement.num_classes, device=device)
        self.length = torch.zeros((), device=device)
        self.moved = [parameter for parameter in parameters if any(parameter is own for own in agreement.parameters)]
        self.is_moved = [any(parameter is own for own in agreement.parameters) for parameter in parameters]

    def draw(self, generator: torch.Generator) -> None:
        """Draw the order of the classes and the length of the way."""
        self.keys.copy_(torch.rand(len(self.keys), generator=generator))
        self.length.copy_(self.agreement.radius * torch.rand((), generator=generator))

    def split(self, labels: Tensor, weights: Tensor, ranks: Ranks) -> tuple[Half, Half, Tensor]:
        """Return both halves of the classes in this step, the first the smaller one, and whether there are two."""
        counts = torch.zeros_like(self.keys).index_add_(0, labels, (weights > 0).to(self.keys.dtype))
        is_here = ranks.sum_(counts) > 0
        is_before = (self.keys[:, None] > self.keys) & is_here
        num_first = (is_here.sum() // 2).clamp(min=1)
        is_first = (is_before.sum(1) < num_first)[labels]
        halves = [torch.where(is_own, weights, 0) for is_own in (is_first, ~is_first)]
        first, second = ((half, 1 / ranks.sum_((half > 0).sum().float()).clamp(min=1)) for half in halves)
        return first, second, is_here.sum() > 1

    def ways(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return where the moved parameters go: against the gradient, each entry of a parameter equally far."""
        chosen = [gradient for gradient, is_moved in zip(gradients, self.is_moved, strict=True) if is_moved]
        norms = [gradient.flatten(1).norm(dim=1) + 1e-12 for gradient in chosen]
        return [
            -self.length * gradient / norm.view(-1, *[1] * (gradient.dim() - 1))
            for gradient, norm in zip(chosen, norms, strict=True)
        ]

    def go(self, ways: Sequence[Tensor], factor: float) -> None:
        """Move the parameters along their ways."""
        for parameter, way in zip(self.moved, ways, strict=True):
            parameter.data.add_(way, alpha=factor)


class TrainStep:
    """A step of one kind; masks, anchors and optimiser live in its own tensors, whose places never change."""

    def __init__(self, ranks: Ranks, phase: Phase) -> None:
        if not phase.groups:
            raise ModelError(f"the phase '{phase.name}' has no groups; say what it trains, or leave it out")
        self.ranks = ranks
        self.name, self.loss, self.couples = phase.name, phase.loss, phase.couples
        self.groups = [_own_tensors(group) for group in phase.groups]
        self.parameters = [group.parameter for group in self.groups]
        self.optimizer = MaskedOptimizer(self.groups, phase.optimizer)
        self.clip_norm = phase.clip_norm
        self.correction = phase.correction
        self.has_remarks, self.remarks = phase.remarks, torch.zeros(0)
        self.halves = Halves(phase.agreement, self.parameters) if phase.agreement else None
        self.total = torch.zeros((), device=self.parameters[0].device)

    def begin(self, phase: Phase) -> None:
        """Take over the masks and anchors of a phase of the same kind, with a fresh optimiser."""
        for own, given in zip(self.groups, phase.groups, strict=True):
            for target, source in zip(_tensors_of(own), _tensors_of(given), strict=True):
                target.copy_(source)
        self.optimizer.reset()

    def __call__(self, inputs: Tensor, labels: Tensor, weights: Tensor, num_samples: int) -> None:
        """Take one step; the summed loss of this rank's samples is added to `total`."""
        self.compute(inputs, labels, weights, 1 / num_samples)

    def draw(self, generator: torch.Generator) -> None:
        """Draw what is random in the next step beside its inputs, the same on every rank."""
        if self.halves is not None:
            self.halves.draw(generator)

    def compute(self, inputs: Tensor, labels: Tensor, weights: Tensor, share: float | Tensor) -> None:
        """Compute loss and gradients, add gradients up over ranks, and update."""
        for group in self.groups:
            if group.pull is not None:
                group.parameter.data.lerp_(group.pull.anchor, group.pull.share)
        if self.halves is not None:
            self._compute_halves(self.halves, inputs, labels, weights)
            return
        gradients, summed = self._gradients(inputs, labels, weights, share)
        self.optimizer.step(gradients)
        self.total += summed

    def _gradients(
        self, inputs: Tensor, labels: Tensor, weights: Tensor, share: float | Tensor
    ) -> tuple[Sequence[Tensor], Tensor]:
        """Return the gradients over all ranks, corrected and clipped, and the summed loss of this rank's samples."""
        gradients, summed = self._gradients_of(self.loss, inputs, labels, weights, share)
        if self.correction is not None:
            batch = (inputs, labels, weights, share)
            others = [_flat(self._gradients_of(loss, *batch)[0]) for loss in self.correction.losses]
            corrected = self.correction.apply(_flat(gradients), torch.stack(others))
            parts = torch.split(corrected, [gradient.numel() for gradient in gradients])
            gradients = [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
        if self.clip_norm is not None:
            gradients = clip_gradients(gradients, self.clip_norm)
        return gradients, summed

    def _gradients_of(
        self, loss: Loss, inputs: Tensor, labels: Tensor, weights: Tensor, share: float | Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return the gradients of one loss over all ranks, and its sum over this rank's samples."""
        with torch.enable_grad():
            with self.ranks.autocast():
                beside = (weights,) if self.couples else ()
                found = loss(inputs, labels, *beside)
                if self.has_remarks and loss is self.loss:
                    found = self._noted(*found)
                losses = self._checked(found, len(weights))
            summed = (losses * weights).sum()
            slopes = torch.autograd.grad(summed * share, self.parameters, allow_unused=True)
            gradients = [self._used(place, gradient) for place, gradient in enumerate(slopes)]
        for gradient in gradients:
            self.ranks.sum_(gradient)
        return gradients, summed.detach()

    def _noted(self, losses: Tensor, remarks: Tensor) -> Tensor:
        """Return losses, and leave the remarks on their samples where the next step finds the same room."""
        if self.remarks.shape != remarks.shape:
            self.remarks = torch.zeros(remarks.shape, device=remarks.device)
        self.remarks.copy_(remarks.detach())
        return losses

    def _checked(self, losses: object, num_samples: int) -> Tensor:
        """Return losses, or say how they are not one number for each sample that hangs on what is trained."""
        if not isinstance(losses, Tensor) or losses.shape != (num_samples,):
            came = f"of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
            raise ModelError(
                f"the loss of '{self.name}' is {came} for {num_samples} samples; return one number for each, "
                f"a tensor of shape ({num_samples},)"
            )
        if not losses.requires_grad:
            raise ModelError(
                f"the loss of '{self.name}' has no gradient; compute it from what the phase's groups train, without "
                "`detach`, `item` or `torch.no_grad`"
            )
        return losses

    def _used(self, place: int, gradient: Tensor | None) -> Tensor:
        """Return a gradient with a place for each number, or say which parameter the loss does not use."""
        if gradient is None:
            shape = tuple(self.parameters[place].shape)
            raise ModelError(
                f"the loss of '{self.name}' does not use parameter {place + 1} of its {len(self.parameters)}, of shape "
                f"{shape}; use it in the loss, or leave its group out of the phase"
            )
        # That of a sum may be one number in many places, which ranks cannot add up in place.
        return gradient.contiguous()

    def _compute_halves(self, halves: Halves, inputs: Tensor, labels: Tensor, weights: Tensor) -> None:
        """Let each half of the classes take a step where the other half's gradient leads."""
        first, second, is_split = halves.split(labels, weights, self.ranks)
        # A batch of one class has no second half to take the first step: all that it does is undone.
        for source, target, is_taken in ((first, second, is_split), (second, first, torch.ones_like(is_split))):
            kept = [tensor.clone() for tensor in self._state()]
            ways = halves.ways(self._gradients(inputs, labels, *source)[0])
            halves.go(ways, 1.0)
            gradients, summed = self._gradients(inputs, labels, *target)
            self.optimizer.step(gradients)
            halves.go(ways, -1.0)
            for tensor, value in zip(self._state(), kept, strict=True):
                tensor.copy_(torch.where(is_taken, tensor, value))
            self.total += summed

    def _state(self) -> list[Tensor]:
        """Return all that a step changes."""
        return [*(parameter.data for parameter in self.parameters), *self.optimizer.state.values()]


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    """Return the gradients of all groups as one vector."""
    return torch.cat([gradient.flatten() for gradient in gradients])


def _tensors_of(group: Group) -> list[Tensor]:
    """Return the tensors that belong to a group beside its parameter."""
    anchor = group.penalty.anchor if group.penalty else None
    pulled = group.pull.anchor if group.pull else None
    return [tensor for tensor in (group.mask, anchor, group.decay_towards, pulled) if tensor is not None]


def _own_tensors(group: Group) -> Group:
    """Return the group with copies of its tensors."""
    return replace(
        group,
        mask=None if group.mask is None else group.mask.clone(),
        penalty=replace(group.penalty, anchor=group.penalty.anchor.clone()) if group.penalty else None,
        pull=replace(group.pull, anchor=group.pull.anchor.clone()) if group.pull else None,
        decay_towards=None if group.decay_towards is None else group.decay_towards.clone(),
    )
