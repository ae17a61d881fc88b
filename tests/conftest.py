"""A tiny frozen backbone, a tiny learnable stream and a quiet CPU context, each made by a factory."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from clare.backbones.vit import Backbone, BackboneSettings, build_embedded, freeze
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Stream, Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Listener, Silence
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings

IMAGE_SIZE = 28


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute on one thread: tiny tensors are faster so on a busy machine, and sums have one order."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture
def tiny_backbone() -> Callable[..., Backbone]:
    """Return make(seed=0, **sizes): a frozen random ViT for grey 28x28 images; a seed always gives the same one."""

    def make(seed: int = 0, **sizes: int) -> Backbone:
        architecture = {"embed_dim": 24, "depth": 2, "num_heads": 2, **sizes}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            vit = build_embedded(**architecture)
        return freeze(vit, BackboneSettings(weights="random", architecture=architecture))

    return make


@pytest.fixture
def tiny_stream() -> Callable[..., Stream]:
    """Return make(num_tasks=3, classes_per_task=2, num_train=12, num_test=6, seed=0): noisy copies of class patterns.

    Classes are named "class 00", "class 01", ... in the order of the stream; the images of a class do not
    depend on how many tasks there are.
    """

    def make(
        num_tasks: int = 3, classes_per_task: int = 2, num_train: int = 12, num_test: int = 6, seed: int = 0
    ) -> Stream:
        num_classes, num_images = num_tasks * classes_per_task, num_train + num_test
        images = np.concatenate([_noisy_copies(num_images, seed, label) for label in range(num_classes)])
        store = ImageStore.from_array(images)
        labels = torch.arange(num_classes).repeat_interleave(num_images)
        is_train = torch.arange(len(labels)) % num_images < num_train
        names = tuple(f"class {label:02d}" for label in range(num_classes))

        def part(chosen: torch.Tensor, first_label: int) -> LabelledImages:
            indices = chosen.nonzero().squeeze(1)
            return LabelledImages(store, indices, labels[indices] - first_label)

        tasks = []
        for index in range(num_tasks):
            first = index * classes_per_task
            chosen = is_train & (labels >= first) & (labels < first + classes_per_task)
            tasks.append(Task(index, names[first : first + classes_per_task], part(chosen, first)))
        return Stream(names, tuple(tasks), part(~is_train, 0))

    return make


def _noisy_copies(num_images: int, seed: int, label: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw the pattern of a class, a random tile, and copies of it with noise, shape (N, 1, 28, 28)."""
    random = np.random.RandomState([seed, label])
    # A tile fills one patch, so all patches agree and even a random ViT tells the classes apart.
    pattern = np.tile(255 * random.randint(0, 2, (7, 7)), (4, 4))
    noise = random.normal(0, 25, (num_images, 1, IMAGE_SIZE, IMAGE_SIZE))
    return np.clip(pattern + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def context() -> Callable[..., Context]:
    """Return make(seed=0, train="none", listener=Silence(), **engine): a CPU context for grey 28x28 images.

    `train` is the augmentation, "none" or "affine"; `engine` are fields of EngineSettings.
    """

    def make(seed: int = 0, train: str = "none", listener: Listener | None = None, **engine: Any) -> Context:
        settings = EngineSettings(**{"device": "cpu", **engine})
        transforms = Transforms(
            TransformSettings.model_validate(
                {"image_size": IMAGE_SIZE, "resize": IMAGE_SIZE, "train": train, "normalise": "backbone"}
            ),
            (0.5,),
            (0.5,),
        )
        return Context(Ranks(settings), transforms, settings, seed, listener or Silence())

    return make
