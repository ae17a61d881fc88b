"""MoAL: a slow average of one adapter, an analytic head on random features, and old classes shown to it once more.

Gao et al.: "Knowledge Memorization and Rumination for Pre-trained Model-based Class-Incremental Learning" (CVPR 2025).
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.contrast import Contrast
from clare.heads.drift import fit_drift_of_parts, moved
from clare.heads.ridge import FixedRidgeSettings, RidgeHead
from clare.methods._shared.first_task import TUNING_HEAD
from clare.methods._shared.recipe import ContrastMethod, SgdSettings
from clare.methods.base import ReadingSettings, bare_features, register
from clare.seeds import generator_at
from clare.steps import Average, Collect, Group, Learning, Solve, TaskInfo
from clare.tuners.adapter import AdapterSettings, FlatAdapter


class MoalHeadSettings(FixedRidgeSettings):
    """The random features and the regression on them."""

    num_projected: int = Field(5000, ge=1, le=100_000, description="Random features of an image.")
    ridge: float = Field(
        0.0, ge=0, le=1e12, description="Ridge of the regression; 0 chooses it on a fifth of the first task's images."
    )

    def make(self, num_features: int, seed: int) -> "MoalHead":
        """Return the head of so many features, whose projection depends on the seed alone."""
        generator = generator_at(seed, "projection")
        head = MoalHead(num_features, self, generator, keeps_classes=False)
        bound = 1 / math.sqrt(num_features)
        head.projection.uniform_(-bound, bound, generator=generator)
        return head


class MoalHead(RidgeHead):
    """Sums of random features, to which more of known classes can be added, and class means."""

    chosen: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("chosen", torch.zeros((), dtype=torch.float64))


def ruminated(features: Tensor, labels: Tensor, means: Tensor, num_old: int) -> tuple[Tensor, Tensor]:
    """Return features and labels of old classes: those of the new class whose mean is most alike, moved over."""
    unit = F.normalize(means, dim=1)
    alike = num_old + (unit[:num_old] @ unit[num_old:].T).argmax(1)
    parts = [features[labels == new] - means[new] + means[old] for old, new in enumerate(alike.tolist())]
    sizes = torch.tensor([len(part) for part in parts], device=labels.device)
    return torch.cat(parts), torch.arange(num_old, device=labels.device).repeat_interleave(sizes)


FIRST_SHARE = 0.9
"""What the authors' code leaves of the first task's rows."""


class MoalSettings(SgdSettings, ReadingSettings):
    """The authors' hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"epochs": 80, "batch_size": 48, "learning_rate": 0.01}
    head: MoalHeadSettings = Field(MoalHeadSettings(), description="The classifier, which is solved, not trained.")
    adapter: AdapterSettings = Field(AdapterSettings(), description="The shared adapter.")
    keep: float = Field(
        0.999, ge=0, lt=1, description="Share of the averaged adapter that is left after an epoch of a later task."
    )
    as_published: bool = Field(
        False,
        description="Follow the authors' code and not their text: scale down the first task's rows, and show also the "
        "misclassified new images once more.",
    )


@register
class Moal(ContrastMethod):
    """One adapter, of which later tasks change little, and a regression that sees every image once or twice."""

    name = "moal"
    summary = "averages one adapter over tasks and solves a regression, in which old classes are shown once more"
    family = "projections"
    tiny: ClassVar[dict[str, Any]] = {"head": {"num_projected": 64}}
    fixed_shapes = True
    settings: MoalSettings
    head: MoalHead
    average: Tensor

    def __init__(self, backbone: Backbone, settings: MoalSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.adapter = FlatAdapter(backbone.vit, settings.adapter, generator_at(seed, "adapter"), keeps_initial=False)
        self.register_buffer("average", self.adapter.values.detach().clone(), persistent=False)
        self.auxiliary = TUNING_HEAD.make(self.head.num_features, seed)
        self.contrast = Contrast(self.auxiliary.row_size, "seen-trained")

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Make room for the rows of all tasks where their number is known."""
        super().prepare(num_tasks, largest_task)
        self.auxiliary.reserve(largest_task)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the adapted backbone."""
        with self.adapter.spread():
            return bare_features(self, images)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over all classes so far, by rows that serve training alone."""
        return self.contrast.loss(self.auxiliary, self.features(images), labels)

    def learn(self, task: TaskInfo) -> Learning:
        """Tune the adapter, memorise the task's images, and ruminate on the classes before."""
        before = (yield Collect("features before", self.features)) if self.tasks else {}
        yield from self._tune(task)
        seen = yield Collect("features after", self.features)
        features, labels, num_new = seen["values"], seen["labels"], len(task.classes)
        means = torch.stack([features[labels == label].mean(0) for label in range(num_new)])
        if before:
            sizes = self.settings.reading.part_sizes(self.backbone)
            drift = yield Solve("drift", lambda: fit_drift_of_parts(before["values"], features, labels, sizes))
            self.head.means = moved(self.head.means, drift)
        self.head.means = torch.cat([self.head.means, means.to(self.head.means)])
        yield from self._memorise(task)
        if before:
            yield from self._ruminate(features, labels + len(self.classes))

    def _tune(self, task: TaskInfo) -> Learning:
        """Train the adapter beside rows of all classes so far; of a later task's values, take a little."""
        settings, values = self.settings, self.adapter.values
        self.auxiliary.open_block(len(task.classes), task.generator("rows"))
        self.contrast.take(self.auxiliary)
        self.average.copy_(values)
        groups = [Group(values), *self.auxiliary.groups(), *self.contrast.groups()]
        averages = (Average(values, self.average, settings.keep),) if self.tasks else ()
        yield self.phase("train", settings.epochs, groups, averages=averages)
        if self.tasks:
            values.copy_(self.average)
        self.contrast.give_back(self.auxiliary)
        self.auxiliary.append(self.auxiliary.block.data[: len(task.classes)])

    def _memorise(self, task: TaskInfo) -> Learning:
        """Add the task's images, augmented as in training, and solve; the first task decides on the ridge."""
        found = yield Collect("features to memorise", self.features, view="train")
        features, labels, num_new = found["values"], found["labels"], len(task.classes)
        self.head.add(features, labels, num_new)
        order = torch.randperm(len(labels), generator=task.generator("split")).to(labels.device)
        if not self.tasks:
            if self.settings.as_published:
                self.head.sums.mul_(FIRST_SHARE)
            asked = self.settings.head.ridge
            ridge = yield Solve(
                "ridge",
                lambda: {
                    "ridge": torch.tensor(asked or self.head.choose_ridge(features[order], labels[order], num_new))
                },
            )
            self.head.chosen.copy_(ridge["ridge"])
        yield from self._solve()

    def _ruminate(self, features: Tensor, labels: Tensor) -> Learning:
        """Show the regression what features of earlier classes may be, where it mistakes them, and solve again."""
        pseudo, classes = ruminated(features, labels, self.head.means, len(self.classes))
        if self.settings.as_published:
            pseudo, classes = torch.cat([features, pseudo]), torch.cat([labels, classes])
        is_mistaken = self.head.logits(pseudo).argmax(1) != classes
        self.head.show(pseudo[is_mistaken], classes[is_mistaken])
        yield from self._solve()

    def _solve(self) -> Learning:
        """Make the rows of all classes anew."""
        yield from self.head.solved(lambda: self.head.solve_at(float(self.head.chosen))[0])
