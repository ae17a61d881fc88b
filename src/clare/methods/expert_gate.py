"""Expert Gate: a network of its own for every task, and autoencoders that say which, and which to start a new one from.

Aljundi, Chakravarty, Tuytelaars: "Expert Gate: Lifelong Learning with a Network of Experts" (CVPR 2017).
Shapes: T tasks, N numbers of an expert.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.autoencoder import ByAutoencoder
from clare.methods._shared.distil import distilled
from clare.methods._shared.masked import NetworksMethod, NetworksSettings, RouteSettings
from clare.methods.base import register
from clare.methods.protocols import Diagnoses
from clare.settings import Acts
from clare.steps import Collect, Group, Learning, Loss, TaskInfo

GATED = {"route.by": ("autoencoder",)}


class ExpertGateSettings(NetworksSettings):
    """From when on tasks are related, and what a related expert's answers are worth."""

    acts: ClassVar[Acts] = {**NetworksSettings.acts, **dict.fromkeys(("related", "distillation", "temperature"), GATED)}

    route: RouteSettings = Field(RouteSettings(by="autoencoder"), description="How the task of an image is inferred.")
    related: float = Field(
        0.85,
        ge=-1e6,
        le=1e6,
        description="Relatedness from which on a new expert keeps the most related one's answers.",
    )
    distillation: float = Field(1.0, ge=0, le=1000, description="Weight of these answers.")
    temperature: float = Field(2.0, gt=0, le=100, description="What logits are divided by in distillation.")


@register
class ExpertGate(NetworksMethod, Diagnoses):
    """Experts that never change again; a new one goes on from the most related, or, without gates, begins afresh."""

    name = "expert-gate"
    summary = "trains an expert for each task from the most related one, and lets autoencoders choose among them"
    # The rows that a related expert answers with are not the same number in every task.
    fixed_shapes = False
    settings_type = ExpertGateSettings
    settings: ExpertGateSettings
    kept: Tensor
    start: Tensor

    def __init__(self, backbone: Backbone, settings: ExpertGateSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("kept", self.values.new_zeros(0, len(self.values)))
        self.register_buffer("start", self.values.detach().clone(), persistent=False)
        self.relatedness: dict[str, Any] = {}

    @property
    def num_networks(self) -> int:
        """The experts of earlier tasks, and the newest one."""
        return len(self.kept) + 1

    def network(self, task: int) -> Tensor:
        """Return the numbers of an expert; those of the newest are the ones that are trained."""
        return self.kept[task] if task < len(self.kept) else self.values

    def train_network(self, task: TaskInfo) -> Learning:
        """Train an expert from where the most related one ended, beside its answers if it is related enough."""
        loss: Loss = self.loss
        if self.tasks:
            self.kept = torch.cat([self.kept, self.values.data[None]])
            self.values.copy_(self.start)
        if self.tasks and isinstance(self.route, ByAutoencoder):
            found = yield Collect("errors", partial(errors_of, self, self.route))
            *related, _ = relatedness(found["values"].double().mean(0)).tolist()
            best = max(range(len(related)), key=related.__getitem__)
            self.relatedness = {"related_to": best + 1, "relatedness": related[best]}
            self.values.copy_(self.kept[best])
            if related[best] > self.settings.related:
                loss = partial(self.kept_loss, best)
        groups = [Group(self.values), *self.head.groups()]
        yield self.phase("train", self.settings.epochs, groups, loss=loss)

    def kept_loss(self, task: int, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy, and how far the answers over a related task's classes are from its expert's."""
        features, head = self.features_at(images), self.head
        first = sum(map(len, self.tasks[:task]))
        rows = head.directions[first : first + len(self.tasks[task])]
        with torch.no_grad():
            before = head.settings.row_scale * head.scores(self.features_at(images, self.kept[task]), rows)
        changed = distilled(head.settings.row_scale * head.scores(features, rows), before, self.settings.temperature)
        return head.block_loss(features, labels) + self.settings.distillation * changed

    def diagnosis(self) -> dict[str, Any]:
        """Return the number of the task that the last one is most related to, and how much."""
        return self.relatedness

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Make room for the experts."""
        super().rebuild(structure)
        self.kept = self.kept.new_zeros(max(len(self.tasks) - 1, 0), self.kept.shape[1])


def errors_of(method: NetworksMethod, gate: ByAutoencoder, images: Tensor) -> Tensor:
    """Return the errors of all tasks' autoencoders on the bare features of images, shape (B, T)."""
    return gate.errors(method.bare(images))


def relatedness(errors_T: Tensor) -> Tensor:
    """Return how related each task is to the last one, by the mean errors of all autoencoders on its images."""
    return 1 - (errors_T - errors_T[-1]) / errors_T[-1]
