"""One step of training, eager or captured: loss, gradients, masked update."""

from collections.abc import Callable, Hashable
from dataclasses import replace

import torch
from torch import Tensor

from clare.engine.optim import MaskedSgd
from clare.engine.ranks import Ranks
from clare.steps import Group, Phase

NUM_WARM_UPS = 3


class TrainStep:
    """A step of one kind; masks, anchors and momenta live in its own tensors, so that their places never change."""

    def __init__(self, ranks: Ranks, phase: Phase) -> None:
        self.ranks = ranks
        self.loss = phase.loss
        self.groups = [_own_tensors(group) for group in phase.groups]
        self.parameters = [group.parameter for group in self.groups]
        self.optimizer = MaskedSgd(self.groups, phase.optimizer)
        self.total = torch.zeros((), device=self.parameters[0].device)

    def begin(self, phase: Phase) -> None:
        """Take over the masks and anchors of a phase of the same kind, with fresh momenta."""
        for own, given in zip(self.groups, phase.groups, strict=True):
            for target, source in zip(_tensors_of(own), _tensors_of(given), strict=True):
                target.copy_(source)
        for momentum in self.optimizer.momenta:
            momentum.zero_()

    def __call__(self, inputs: Tensor, labels: Tensor, weights: Tensor, num_samples: int) -> None:
        """Take one step; the summed loss of this rank's samples is added to `total`."""
        self.compute(inputs, labels, weights, 1 / num_samples)

    def compute(self, inputs: Tensor, labels: Tensor, weights: Tensor, share: float | Tensor) -> None:
        """Compute loss and gradients, add gradients up over ranks, and update."""
        with torch.enable_grad():
            with self.ranks.autocast():
                losses = self.loss(inputs, labels)
            summed = (losses * weights).sum()
            gradients = torch.autograd.grad(summed * share, self.parameters)
        for gradient in gradients:
            self.ranks.sum_(gradient)
        self.optimizer.step(gradients)
        self.total += summed.detach()


class CapturedStep(TrainStep):
    """A step whose loss is compiled and whose whole work is one CUDA graph, replayed on tensors that stay in place."""

    def __init__(self, ranks: Ranks, phase: Phase) -> None:
        super().__init__(ranks, phase)
        self.loss = torch.compile(phase.loss, fullgraph=True, dynamic=False)
        # Placed by the first batch, whose shape all others have.
        self.inputs = self.labels = self.weights = torch.zeros(0)
        self.share = torch.zeros_like(self.total)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Tensor, labels: Tensor, weights: Tensor, num_samples: int) -> None:
        """Copy the batch into place and replay."""
        if self.graph is None:
            self.inputs, self.labels, self.weights = (torch.empty_like(part) for part in (inputs, labels, weights))
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.weights.copy_(weights)
        self.share.fill_(1 / num_samples)
        if self.graph is None:
            self.graph = self._capture()
        self.graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Warm up, which compiles, then record the step; state and random numbers are as before."""
        kept = [*(parameter.data for parameter in self.parameters), *self.optimizer.momenta, self.total]
        before = [tensor.clone() for tensor in kept]
        random = torch.cuda.get_rng_state()
        graph = record(lambda: self.compute(self.inputs, self.labels, self.weights, self.share))
        for tensor, value in zip(kept, before, strict=True):
            tensor.copy_(value)
        torch.cuda.set_rng_state(random)
        return graph


class CapturedForward:
    """A function of one batch without gradient, compiled and replayed as one CUDA graph."""

    def __init__(self, ranks: Ranks, function: Callable[[Tensor], Tensor], inputs: Tensor) -> None:
        self.ranks = ranks
        self.function = torch.compile(function, fullgraph=True, dynamic=False)
        self.inputs = inputs.clone()
        self.output = inputs
        with torch.no_grad():
            self.graph = record(self._compute)

    def _compute(self) -> None:
        """Leave the function's value in `output`."""
        with self.ranks.autocast():
            self.output = self.function(self.inputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the function's value, which the next call overwrites."""
        self.inputs.copy_(inputs)
        self.graph.replay()
        return self.output


def record(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Do some work a few times on a side stream, which compiles it, and record it as a graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(NUM_WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


class Steps:
    """The steps of a run by kind, each compiled at most once when compiling is on."""

    def __init__(self, ranks: Ranks, compiles: bool) -> None:
        self.ranks, self.compiles = ranks, compiles
        self.kinds: dict[Hashable, CapturedStep | CapturedForward] = {}

    def train_step(self, phase: Phase) -> TrainStep:
        """Return a step for this phase, ready to begin; images are worth compiling, drawn features are not."""
        if not self.compiles or phase.data is not None:
            return TrainStep(self.ranks, phase)
        kind = ("train", phase.batch_size, phase.optimizer.momentum, phase.optimizer.weight_decay, _kind(phase))
        step = self.kinds.get(kind)
        if step is None:
            step = self.kinds[kind] = CapturedStep(self.ranks, phase)
        assert isinstance(step, CapturedStep)
        step.begin(phase)
        return step

    def sweep_size(self, num_images: int, batch_size: int) -> int:
        """Return the batch size of a sweep: always the same when compiled, no larger than needed otherwise."""
        return batch_size if self.compiles else min(batch_size, num_images)

    def forward(self, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """Return the function of a batch without gradient; a captured value is overwritten by the next call."""
        if not self.compiles:
            with self.ranks.autocast():
                return function(inputs)
        kind = ("forward", function.__qualname__, tuple(inputs.shape))
        step = self.kinds.get(kind)
        if step is None:
            step = self.kinds[kind] = CapturedForward(self.ranks, function, inputs)
        assert isinstance(step, CapturedForward)
        return step(inputs)


def _kind(phase: Phase) -> Hashable:
    """Return what makes a phase's step another program: its loss and the shape of its groups."""
    groups = tuple(
        (
            id(group.parameter),
            group.mask is not None,
            (group.penalty.form, group.penalty.weight) if group.penalty else None,
            group.decay_towards is not None,
        )
        for group in phase.groups
    )
    return (phase.loss.__qualname__, groups)


def _tensors_of(group: Group) -> list[Tensor]:
    """Return the tensors that belong to a group beside its parameter."""
    anchor = group.penalty.anchor if group.penalty else None
    return [tensor for tensor in (group.mask, anchor, group.decay_towards) if tensor is not None]


def _own_tensors(group: Group) -> Group:
    """Return the group with copies of its tensors."""
    return replace(
        group,
        mask=None if group.mask is None else group.mask.clone(),
        penalty=replace(group.penalty, anchor=group.penalty.anchor.clone()) if group.penalty else None,
        decay_towards=None if group.decay_towards is None else group.decay_towards.clone(),
    )
