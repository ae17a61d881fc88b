"""OGD: the directions in which earlier answers would change are remembered, and no later step goes along them.

Farajtabar, Azizan, Mott, Li: "Orthogonal Gradient Descent for Continual Learning" (AISTATS 2020). The values are
trained as start + (I - VᵀV) u with u from zero: this is projected SGD, with momentum too. Shapes: N numbers, Q
directions, R new ones.
"""

from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.growth import Growing
from clare.methods._shared.sample_gradients import sample_gradients, some_of
from clare.methods._shared.tuned import TunedMethod, TunedSettings
from clare.methods.base import register
from clare.methods.protocols import GrowsRoom, KeepsRowsAlone
from clare.steps import Group, Learning, Pass, Solve, TaskInfo

SHORTEST = 1e-6
"""What a new direction must keep of its length, stripped of the others, not to be noise."""


class OgdSettings(TunedSettings):
    """How many directions a task adds."""

    vectors: int = Field(10, ge=1, le=10_000, description="Directions that are kept of each task.")
    gradient_share: float = Field(1.0, gt=0, le=1, description="Share of a task's images that directions are made of.")


@register
class Ogd(TunedMethod, KeepsRowsAlone, Growing, GrowsRoom):
    """Training in what is left of the space when the directions of earlier answers are taken out."""

    name = "ogd"
    summary = "takes the gradients of earlier answers out of every step"
    family = "projections"
    grows = ("basis",)
    settings: OgdSettings
    basis: Tensor
    start: Tensor

    def __init__(self, backbone: Backbone, settings: OgdSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("basis", self.values.new_zeros(0, len(self.values)))
        self.register_buffer("start", self.values.detach().clone(), persistent=False)
        self.way = nn.Parameter(torch.zeros_like(self.values), requires_grad=False)

    @property
    def room(self) -> int:
        """Return how many directions there are."""
        return len(self.basis)

    def learn(self, task: TaskInfo) -> Learning:
        """Train along what is free, remember what this task's answers depend on, then finish the rows."""
        settings, num_new = self.settings, len(task.classes)
        self.head.open_block(num_new, task.generator("rows"))
        self.start.copy_(self.values)
        yield self.phase("train", settings.epochs, [Group(self.way), *self.head.groups()])
        self.values.copy_(self.start + free(self.way, self.basis))
        self.way.zero_()
        found = yield Pass("gradients", self.sketch, of="images")
        solved = yield Solve("directions", partial(added, self.basis, found["sketch"]))
        self.basis = torch.cat([self.basis, solved["directions"]])
        yield from self.head.finish(num_new)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy over the task's classes, at values that went along free directions."""
        values = self.start + free(self.way, self.basis)
        return self.head.block_loss(self.features_of(images, values), labels)

    def sketch(self, images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Return sums of the gradients of the images' own logits, each with random signs: their leading directions."""

        def answer(values: Tensor, image: Tensor, label: Tensor) -> Tensor:
            return self.head.block_logits(self.features_at(image[None], values))[0].gather(0, label[None])[0]

        images, labels = some_of(images, labels, weights, self.settings.gradient_share)
        total = self.values.new_zeros(self.settings.vectors, len(self.values))
        for gradients in sample_gradients(answer, self.values, images, labels):
            signs = torch.randint(0, 2, (len(total), len(gradients)), device=total.device).to(total) * 2 - 1
            total += signs @ gradients
        return {"sketch": total}


def free(way_N: Tensor, basis_QN: Tensor) -> Tensor:
    """Return what of a way goes along none of the directions."""
    return way_N - (basis_QN @ way_N) @ basis_QN


def added(basis_QN: Tensor, vectors_RN: Tensor) -> dict[str, Tensor]:
    """Return unit directions of these vectors, orthogonal to the basis and each other; zeros where nothing is new."""
    directions = torch.zeros_like(vectors_RN)
    for place, vector in enumerate(vectors_RN):
        left = vector
        # Once more, since what rounding leaves of the others is as long as what is new.
        for _ in range(2):
            left = free(free(left, basis_QN), directions[:place])
        length = left.norm()
        directions[place] = torch.where(length > SHORTEST * vector.norm(), left / length, 0)
    return {"directions": directions}
