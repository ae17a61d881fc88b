"""Expert Gate's autoencoders: one for each task, which makes the least error on features like those of its images.

Aljundi, Chakravarty, Tuytelaars: "Expert Gate: Lifelong Learning with a Network of Experts" (CVPR 2017).
Shapes: B images, T tasks, D features, C numbers in a code, W numbers of an autoencoder.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.methods._shared.collected import Collected
from clare.methods._shared.routes import Route, max_logit
from clare.settings import Settings
from clare.steps import Adam, Collect, Group, Learning, Phase, TaskInfo


class AutoencoderSettings(Settings):
    """The autoencoders and how they are trained."""

    code: int = Field(100, ge=1, le=65_536, description="Numbers between encoder and decoder.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training an autoencoder.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Features per step.")
    learning_rate: float = Field(1e-3, gt=0, le=100, description="Learning rate of Adam.")


class ByAutoencoder(Route):
    """The task whose autoencoder makes the least error on the features of the bare backbone, a row each."""

    reads_bare = True
    kept: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, num_features: int, settings: AutoencoderSettings) -> None:
        super().__init__(max_logit)
        self.settings, code = settings, settings.code
        self.shapes = [(code, num_features), (code,), (num_features, code), (num_features,)]
        size = sum(map(math.prod, self.shapes))
        # Of the newest task; its own parameter, so that training touches no other.
        self.current = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.register_buffer("kept", torch.zeros(0, size))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("deviation", torch.ones(num_features))

    def look(self, task: TaskInfo, bare: Callable[[Tensor], Tensor]) -> Learning:
        """Train an autoencoder on a task's bare features; the first task's mean and deviation count for all."""
        found = yield Collect("bare features", bare)
        values, settings = found["values"], self.settings
        if task.index:
            self.kept = self.values
        else:
            self.mean.copy_(values.mean(0))
            self.deviation.copy_(values.std(0, correction=0).clamp(min=1e-6))
        self.current.copy_(self.drawn(task.generator("autoencoder")))
        rows = Collected(values, found["labels"])
        adam = Adam(settings.learning_rate)
        groups = [Group(self.current)]
        yield Phase("autoencoder", settings.epochs, groups, self.loss, adam, settings.batch_size, rows)

    @property
    def values(self) -> Tensor:
        """All autoencoders, one in a row, shape (T, W)."""
        return torch.cat([self.kept, self.current[None]])

    def drawn(self, generator: torch.Generator) -> Tensor:
        """Draw matrices uniformly by the numbers that each of their rows reads, beside biases of zero."""
        draws = [torch.rand(shape, generator=generator) * 2 - 1 for shape in self.shapes]
        parts = [draw / math.sqrt(draw.shape[1]) if draw.dim() == 2 else 0 * draw for draw in draws]
        return torch.cat([part.flatten() for part in parts])

    def resize(self, num_tasks: int, num_classes: int) -> None:
        """Make room for saved autoencoders before they are loaded."""
        self.kept = self.kept.new_zeros(max(num_tasks - 1, 0), self.kept.shape[1])

    def scores(self, parts_BPD: Tensor, logits_BTK: Tensor, own_TK: Tensor) -> Tensor:
        """Return the negative error of each task's autoencoder."""
        return -self.errors(parts_BPD[:, 0])

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return for each image the binary cross-entropy between its squashed features and what comes out."""
        inputs = self.squashed(features)
        logits = self.decoded(inputs, self.current)
        return F.binary_cross_entropy_with_logits(logits, inputs, reduction="none").sum(1)

    def errors(self, features: Tensor) -> Tensor:
        """Return the squared error of every task's autoencoder, shape (B, T)."""
        inputs = self.squashed(features)
        found = [(inputs - self.decoded(inputs, each).sigmoid()).square().sum(1) for each in self.values]
        return torch.stack(found, 1)

    def squashed(self, features: Tensor) -> Tensor:
        """Return features as the autoencoders see them, between 0 and 1."""
        return ((features - self.mean) / self.deviation).sigmoid()

    def decoded(self, inputs_BD: Tensor, numbers_W: Tensor) -> Tensor:
        """Return the logits of what an autoencoder makes of its inputs."""
        parts = torch.split(numbers_W, [math.prod(shape) for shape in self.shapes])
        encoder, bias, decoder, out_bias = (part.view(shape) for part, shape in zip(parts, self.shapes, strict=True))
        return F.linear(F.linear(inputs_BD, encoder, bias).relu(), decoder, out_bias)
