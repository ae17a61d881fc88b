"""The field's practice, written plainly: fp32, eager, PIL transforms in worker processes, one sync per step.

An adapter in every block of a timm ViT, a cosine head with a learnt scale, torch's SGD, fresh loaders for every task.
It is the yardstick of `throughput.py`, not part of the package.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Pictures(Dataset[tuple[int, Tensor, int]]):
    """Images decoded and transformed one at a time; `load` gives a PIL image."""

    def __init__(self, load: Callable[[int], object], labels: np.ndarray, transform: transforms.Compose) -> None:
        self.load, self.labels, self.transform = load, labels, transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[int, Tensor, int]:
        return index, self.transform(self.load(index)), int(self.labels[index])

    def of_classes(self, classes: Sequence[int]) -> "Pictures":
        """Return the images of some classes, labelled by their places in the list."""
        chosen = np.concatenate([np.flatnonzero(self.labels == label) for label in classes])
        labels = np.repeat(np.arange(len(classes)), [int((self.labels == label).sum()) for label in classes])
        return Pictures(lambda index: self.load(int(chosen[index])), labels, self.transform)


def train_transform(size: int) -> transforms.Compose:
    """Return the field's augmentation."""
    crop = transforms.RandomResizedCrop(size, scale=(0.05, 1.0), ratio=(3 / 4, 4 / 3))
    return transforms.Compose([crop, transforms.RandomHorizontalFlip(), transforms.ToTensor()])


def test_transform(size: int, resize: int) -> transforms.Compose:
    """Return the field's test transform."""
    bicubic = transforms.InterpolationMode.BICUBIC
    return transforms.Compose([transforms.Resize(resize, bicubic), transforms.CenterCrop(size), transforms.ToTensor()])


class Adapter(nn.Module):
    """A bottleneck beside the MLP."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, hidden), nn.Linear(hidden, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        return 0.1 * self.up(F.dropout(F.relu(self.down(x)), 0.1, self.training))


class Block(nn.Module):
    """A timm block with an adapter."""

    def __init__(self, block: nn.Module, width: int, hidden: int) -> None:
        super().__init__()
        self.block, self.adapter = block, Adapter(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        block = self.block
        x = x + block.attn(block.norm1(x))
        return x + block.mlp(block.norm2(x)) + self.adapter(x)


class Network(nn.Module):
    """The frozen ViT with adapters and a cosine head."""

    def __init__(self, vit: VisionTransformer, hidden: int, num_classes: int) -> None:
        super().__init__()
        vit.requires_grad_(False)
        for index, block in enumerate(list(vit.blocks)):
            vit.blocks[index] = Block(block, int(vit.embed_dim), hidden)
        self.vit = vit
        self.rows = nn.Parameter(torch.randn(num_classes, int(vit.embed_dim)) * 0.02)
        self.sigma = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.sigma * F.linear(F.normalize(self.vit(images), dim=1), F.normalize(self.rows, dim=1))


def train_task(network: Network, data: Pictures, batch_size: int, epochs: int, num_workers: int, device: str) -> float:
    """Train one task and return images per second, loaders included."""
    started = time.perf_counter()
    loader = DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=num_workers)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=5e-4)
    network.train()
    for _ in range(epochs):
        losses, correct = 0.0, 0
        for _, images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            logits = network(images)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += loss.item()
            correct += int(logits.argmax(1).eq(labels).cpu().sum())
    return epochs * len(data) / (time.perf_counter() - started)


@torch.no_grad()
def evaluate(network: Network, data: Pictures, batch_size: int, num_workers: int, device: str) -> float:
    """Predict every image and return images per second, loaders included."""
    started = time.perf_counter()
    loader = DataLoader(data, batch_size=batch_size, shuffle=False, num_workers=num_workers)
    network.eval()
    predicted = []
    for _, images, _ in loader:
        predicted.append(network(images.to(device)).topk(5, dim=1).indices.cpu().numpy())
    return len(np.concatenate(predicted)) / (time.perf_counter() - started)
