"""What a method asks the engine to do: training, sweeps over the data, computations, notices."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from clare.seeds import generator_at
from clare.sparse.update import PenaltyForm

Loss = Callable[..., Tensor]
"""(inputs, labels) -> one loss per sample; where a phase couples samples, (inputs, labels, weights); where it has
remarks -> losses and one number on each sample."""

Statistic = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]
"""(images or features, labels, weights) -> tensors that add up over batches and ranks; padding has weight zero."""


Schedule = Literal["cosine", "cosine-steps", "quarter-cosine", "constant"]
"""How the learning rate goes from epoch to epoch, or from step to step."""


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum; weight decay is added to the gradient."""

    learning_rate: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    milestones: tuple[int, ...] = ()
    """Epochs from which on the rate is a tenth of what it would be."""
    least_rate: float = 0.0
    """Where a cosine ends."""
    turn: int = 0
    """Epochs in which a cosine falls, after which it rises again; 0 means all of the phase."""
    start: int = 0
    """Epochs of the schedule that are over when the phase begins."""


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction; weight decay is added to the gradient."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    decoupled: bool = False
    """Whether decay shrinks the values by themselves, apart from the gradient: AdamW."""
    warm_up: int = 0
    """Steps in which the rate rises to its height, before the schedule begins (cosine-steps)."""


Optimizer = Sgd | Adam


@dataclass(frozen=True)
class Penalty:
    """A pull of a group towards its anchor."""

    weight: float
    form: PenaltyForm
    anchor: Tensor
    turn: float = 1.0
    """Where `transformed-l1` turns from counting how far coordinates moved to counting those that did."""
    norms: Callable[[Tensor], Tensor] | None = None
    """Of `group-lasso`: movement -> the norm of each coordinate's group."""


@dataclass(frozen=True)
class Pull:
    """What brings a group back towards an anchor before every step: the share of the way that it goes."""

    share: float
    anchor: Tensor


@dataclass(frozen=True)
class Steepest:
    """Gradients of all but the largest count as zero; which are the largest is chosen anew every so many steps."""

    share: float
    """Share of each layer's numbers whose gradients count; where fewer have one, those."""
    every: int
    sizes: tuple[int, ...]
    """How many numbers each layer has, one after another in the parameter."""


@dataclass(frozen=True)
class Group:
    """A parameter that a phase trains, where, and how."""

    parameter: nn.Parameter
    mask: Tensor | None = None
    penalty: Penalty | None = None
    decay_towards: Tensor | None = None
    rate_factor: float = 1.0
    """This group's share of the phase's learning rate."""
    pull: Pull | None = None
    steepest: Steepest | None = None


@dataclass(frozen=True)
class Average:
    """A running average that takes some of a parameter in after every epoch."""

    parameter: nn.Parameter
    into: Tensor
    keep: float
    """What of the average stays."""


@dataclass(frozen=True)
class Agreement:
    """Steps that one half of a batch's classes takes where the gradient of the other half leads, and the reverse."""

    radius: float
    """Largest length of the way there, for each entry of each parameter by itself; it is drawn up to this length."""
    parameters: tuple[nn.Parameter, ...]
    """Those of the phase's parameters that go there."""
    num_classes: int


class Source(Protocol):
    """Training inputs other than the task's images."""

    num_samples: int
    device: torch.device
    """Where positions are to be given."""

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw all that is random in an epoch; the generator is the same on every rank."""

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of these positions, augmented or sampled as drawn for the epoch."""


@dataclass(frozen=True)
class Pictures:
    """Raw pixels that a method keeps of images of these heights and widths, side by side."""

    pixels: Tensor
    sizes: Tensor
    channels: int


@dataclass(frozen=True)
class Replay:
    """Kept pictures that a phase trains on beside the task's images, augmented like these."""

    pictures: Pictures
    labels: Tensor
    """What the loss is given as the label of each; those of the task's images count within the task, as ever."""
    pools: tuple[Tensor, ...] = ()
    """Places of pictures of which one is drawn beside every image, a further one for each pool: the loss gets inputs of
    shape (B, 1 + pools, C, S, S) and labels of shape (B, 1 + pools). Without any, all are mixed among the images."""


@dataclass(frozen=True)
class Correction:
    """What a step makes of its gradient beside those of further losses, after ranks are added up, before clipping."""

    name: str
    losses: tuple[Loss, ...]
    apply: Callable[[Tensor, Tensor], Tensor]
    """(gradient (N,), gradients of the further losses (G, N), over all groups together) -> gradient (N,)"""


@dataclass(frozen=True)
class Phase:
    """Gradient training of some groups for some epochs; data is the task's images unless a source is given."""

    name: str
    epochs: int
    groups: list[Group]
    loss: Loss
    optimizer: Optimizer
    batch_size: int
    data: Source | None = None
    clip_norm: float | None = None
    """Largest norm of the gradient over all groups together; larger ones are shortened."""
    averages: tuple[Average, ...] = ()
    agreement: Agreement | None = None
    replay: Replay | None = None
    correction: Correction | None = None
    position: Tensor | None = None
    """One number of the method's own, which before every step is set to where in its epoch the step stands: from 0 for
    the first to 1 for the last."""
    progress: Tensor | None = None
    """The same over all steps of the phase."""
    places: Tensor | None = None
    """Places of the task's images that are trained on; all unless given."""
    remarks: bool = False
    """Whether the loss has a number on each sample, such as whether it was told rightly, beside its loss: these come
    back as `remarks`, a row for each epoch in the order of the images."""
    couples: bool = False
    """Whether the loss sets samples of a batch beside each other, so that it must know which of them are padding."""


def num_trained(phase: Phase) -> int:
    """Return how many numbers a phase trains: what its masks leave open."""
    return sum(group.parameter.numel() if group.mask is None else int(group.mask.sum()) for group in phase.groups)


@dataclass(frozen=True)
class Pass:
    """One sweep over the task's training images without gradient; its sums come back to the method."""

    name: str
    statistic: Statistic
    of: Literal["features", "images"] = "features"
    view: Literal["train", "test"] = "test"
    replay: Replay | None = None
    """Kept pictures beside or among the images, as in a phase; all are then as training sees them."""


@dataclass(frozen=True)
class Collect:
    """One value for each of the task's training images, without gradient; `values` and `labels` come back in order."""

    name: str
    function: Callable[[Tensor], Tensor]
    """images or features -> one row per image"""
    of: Literal["features", "images"] = "images"
    view: Literal["train", "test"] = "test"
    pictures: Pictures | None = None
    """Kept pictures to look at in place of the task's images; labels are then their places."""


@dataclass(frozen=True)
class Take:
    """Raw pixels of some of the task's training images, for a method that keeps pictures.

    `pixels` of all side by side, `sizes` and `labels` come back in the order in which they were chosen, and of how many
    images they were chosen, as `count`.
    """

    name: str
    choose: Callable[[Tensor], Tensor]
    """labels of all images -> places of those to take"""


@dataclass(frozen=True)
class Solve:
    """A computation whose result must be the same on every rank and is never repeated, such as an SVD."""

    name: str
    function: Callable[[], dict[str, Tensor]]


@dataclass(frozen=True)
class Notice:
    """Something the user should know."""

    text: str


NUM_ROWS = 512
"""Collected features of which a statistic sees so many at a time, as in a sweep."""
Step = Phase | Pass | Collect | Take | Solve | Notice
Result = dict[str, Tensor]
Learning = Generator[Step, Result, None]
Choosing = Generator[Step, Result, Tensor]
"""Like Learning, and returns the mask of the coordinates that the task trained."""


@dataclass(frozen=True)
class TaskInfo:
    """What a method is told about a task: its place among all, the names of its classes, and the method's seed."""

    index: int
    classes: tuple[str, ...] = field(default=())
    seed: int = 0

    def generator(self, purpose: str) -> torch.Generator:
        """Return the random source for one purpose within the task."""
        return generator_at(self.seed, self.index, purpose)


def next_step(steps: Learning, result: Result | None) -> Step:
    """Return the first step, or the one that follows on the result of the last; raises StopIteration at the end."""
    return next(steps) if result is None else steps.send(result)


def answered(steps: Learning, collected: Result) -> Learning:
    """Run steps whose sweeps over features the driver need not see, since the features were collected just before."""
    result = None
    while True:
        try:
            step = next_step(steps, result)
        except StopIteration:
            return
        is_kept = isinstance(step, Collect) and step.pictures is not None
        if isinstance(step, Pass | Collect) and (step.of, step.view) == ("features", "test") and not is_kept:
            result = found_in(step, collected["values"], collected["labels"])
        else:
            result = yield step


def found_in(step: Pass | Collect, features: Tensor, labels: Tensor) -> Result:
    """Return what a sweep over images with these features would find."""
    if isinstance(step, Collect):
        return {"values": step.function(features), "labels": labels}
    parts = zip(torch.split(features, NUM_ROWS), torch.split(labels, NUM_ROWS), strict=True)
    return added_up(step.statistic(rows, named, torch.ones_like(named)) for rows, named in parts)


def added_up(parts: Iterable[Result]) -> Result:
    """Return the sums of what batches gave under the same names."""
    sums: Result = {}
    for name, part in (pair for each in parts for pair in each.items()):
        sums[name] = sums[name] + part if name in sums else part
    return sums
