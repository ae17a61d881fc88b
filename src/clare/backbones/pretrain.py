"""Pretrain a small model on the drawings that are not part of the embedded stream."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import EMBEDDED, BackboneSettings, create, normalisation, num_channels
from clare.data.sources import Dataset
from clare.data.store import LabelledImages
from clare.data.transforms import Transforms, TransformSettings
from clare.errors import BackboneError
from clare.seeds import derive_seed, generator_at
from clare.settings import Settings

AUGMENTATION = TransformSettings(
    image_size=28, resize=28, train="affine", rotation=15, zoom=0.2, shift=0.1, shear=10, normalise="backbone"
)


class PretrainSettings(Settings):
    """The recipe: AdamW, warm-up and cosine, mixup, label smoothing, affine maps, averaged weights."""

    epochs: int = Field(300, ge=1, le=100_000, description="Passes over the pretraining drawings.")
    batch_size: int = Field(512, ge=1, le=65_536, description="Drawings per step.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Learning rate after the warm-up.")
    warmup_share: float = Field(0.05, ge=0, lt=1, description="Share of the steps in which the rate rises.")
    weight_decay: float = Field(0.05, ge=0, le=1, description="Decay of the matrices; vectors are not decayed.")
    mixup: float = Field(0.8, gt=0, le=10, description="Parameter of the Beta distribution that mixes pairs.")
    smoothing: float = Field(0.1, ge=0, lt=1, description="Label smoothing.")
    drop_path: float = Field(0.1, ge=0, lt=1, description="Stochastic depth.")
    head_scale: float = Field(16.0, gt=0, le=1000, description="Factor on the cosines of the throw-away classifier.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto is bf16 on GPUs and fp32 on CPUs, of which newer ones are faster in bf16."
    )
    averaging: float = Field(0.999, ge=0, lt=1, description="Share of the averaged weights kept at each step.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of initial weights and of every draw.")
    name: str = Field(EMBEDDED, description="The timm model to train with other sizes, by default the embedded ViT.")
    architecture: dict[str, int | tuple[int, ...]] = Field({}, description="Sizes given to timm.")


@dataclass(frozen=True)
class Pretrained:
    """The averaged weights and what they reach."""

    weights: dict[str, Tensor]
    accuracy: float
    seconds: float


class _Classifier(nn.Module):
    """The model with a throw-away cosine classifier."""

    def __init__(self, num_classes: int, settings: PretrainSettings) -> None:
        super().__init__()
        told = settings.model_dump(include={"name", "architecture"})
        self.vit = create(
            BackboneSettings(weights="random", image_size=AUGMENTATION.image_size, **told), settings.drop_path
        )
        if (channels := num_channels(self.vit)) != 1:
            raise BackboneError(f"the drawings are grey, but the model takes {channels} channels; set in_chans to 1")
        self.rows = nn.Parameter(torch.randn(num_classes, int(self.vit.num_features)) * 0.02)
        self.scale = settings.head_scale

    def forward(self, images: Tensor) -> Tensor:
        """Return scaled cosines with the rows."""
        logits: Tensor = self.scale * F.normalize(self.vit(images), dim=1) @ F.normalize(self.rows, dim=1).T
        return logits


def pretrain(
    dataset: Dataset, settings: PretrainSettings, device: torch.device, report: Callable[[int, float], None]
) -> Pretrained:
    """Train the embedded architecture and return its averaged weights; `report` hears every epoch's loss."""
    started = time.perf_counter()
    torch.manual_seed(derive_seed(settings.seed, "weights"))
    model = _Classifier(len(dataset.classes), settings).to(device)
    averaged = copy.deepcopy(model).eval()
    train, test = dataset.train.to(device), dataset.test.to(device)
    transforms = Transforms(AUGMENTATION, *normalisation(model.vit))
    # Matrices are decayed, vectors are not.
    groups = [
        {"params": [part for part in model.parameters() if (part.ndim > 1) == is_matrix], "weight_decay": decay}
        for is_matrix, decay in ((True, settings.weight_decay), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98))
    num_steps = settings.epochs * (len(train) // settings.batch_size)
    step = 0
    for epoch in range(settings.epochs):
        generator = generator_at(settings.seed, epoch, "draws")
        torch.manual_seed(derive_seed(settings.seed, epoch, "dropout"))
        order = torch.randperm(len(train), generator=generator)
        total = torch.zeros((), device=device)
        for positions in torch.split(order, settings.batch_size)[: len(train) // settings.batch_size]:
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, num_steps, settings)
            images, targets = _mixed_batch(train, positions, transforms, len(dataset.classes), settings, generator)
            total += _step(model, optimizer, images, targets, settings)
            step += 1
            keep = min(settings.averaging, step / (step + 10))
            with torch.no_grad():
                for target, source in zip(averaged.parameters(), model.parameters(), strict=True):
                    target.lerp_(source, 1 - keep)
        report(epoch, float(total) / (len(train) // settings.batch_size))
    accuracy = _accuracy(averaged, test, transforms)
    weights = {name: tensor.cpu() for name, tensor in averaged.vit.state_dict().items()}
    return Pretrained(weights, accuracy, time.perf_counter() - started)


def rate_at(step: int, num_steps: int, settings: PretrainSettings) -> float:
    """Return the learning rate of a step: a linear rise, then a cosine to zero."""
    rise = min(1.0, (step + 1) / max(1, int(num_steps * settings.warmup_share)))
    return settings.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / num_steps))


def _mixed_batch(
    train: LabelledImages,
    positions: Tensor,
    transforms: Transforms,
    num_classes: int,
    settings: PretrainSettings,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return augmented drawings mixed in pairs, and their mixed and smoothed targets."""
    canvas, labels = train.batch(positions)
    images = transforms.train(canvas, generator)
    targets = F.one_hot(labels, num_classes) * (1 - settings.smoothing) + settings.smoothing / num_classes
    partner = torch.randperm(len(images), generator=generator).to(images.device)
    share = float(torch.distributions.Beta(settings.mixup, settings.mixup).sample())
    return images.lerp(images[partner], share), targets.lerp(targets[partner], share)


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, targets: Tensor, settings: PretrainSettings
) -> Tensor:
    """Take one optimiser step and return its loss."""
    device = images.device.type
    is_bf16 = settings.precision == "bf16" or (settings.precision == "auto" and device == "cuda")
    with torch.autocast(device, torch.bfloat16, enabled=is_bf16):
        logits = model(images)
    loss = -(targets * F.log_softmax(logits.float(), dim=1)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def _accuracy(model: nn.Module, test: LabelledImages, transforms: Transforms) -> float:
    """Return the share of test drawings that the classifier names rightly."""
    parts = torch.split(torch.arange(len(test)), 1000)
    predicted = [model(transforms.test(test.batch(positions)[0])).argmax(1) for positions in parts]
    return float((torch.cat(predicted) == test.labels).double().mean())
