"""A tiny frozen backbone, a tiny learnable stream and a quiet CPU context, in which a method learns in a second."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clare.backbones.vit import Backbone, BackboneSettings, build_embedded, freeze
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Stream, Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Listener, Silence
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.files import write_tensors, write_text
from clare.methods import METHODS
from clare.methods.base import Method, MethodSettings, prepare
from clare.methods.protocols import tiny_settings
from clare.presets.layers import table_lines
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.settings import tables_of

IMAGE_SIZE = 28
SIZES = {"embed_dim": 24, "depth": 2, "num_heads": 2}
HEADS: tuple[str, ...] = tuple(tables_of(MethodSettings.model_fields["head"]))
"""Every kind of head."""
# Gentle, since the patterns of the classes repeat from patch to patch and a large shift would mix them up.
AUGMENTATION = {"rotation": 3.0, "zoom": 0.03, "shift": 0.02, "shear": 2.0, "flip": 0.0}


def tiny_backbone(seed: int = 0, **sizes: int) -> Backbone:
    """Return a frozen random ViT for grey 28x28 images; a seed always gives the same one."""
    architecture = {**SIZES, **sizes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vit = build_embedded(**architecture)
    return freeze(vit, BackboneSettings(weights="random", architecture=architecture))


def tiny_stream(
    num_tasks: int = 3, classes_per_task: int = 2, num_train: int = 12, num_test: int = 6, seed: int = 0
) -> Stream:
    """Return noisy copies of class patterns.

    Classes are named "class 00", "class 01", ... in the order of the stream; the images of a class do not
    depend on how many tasks there are.
    """
    num_classes, num_images = num_tasks * classes_per_task, num_train + num_test
    images = np.concatenate([_noisy_copies(num_images, seed, label) for label in range(num_classes)])
    store = ImageStore.from_array(images)
    labels = torch.arange(num_classes).repeat_interleave(num_images)
    is_train = torch.arange(len(labels)) % num_images < num_train
    names = tuple(f"class {label:02d}" for label in range(num_classes))

    def part(chosen: Tensor, first_label: int) -> LabelledImages:
        indices = chosen.nonzero().squeeze(1)
        return LabelledImages(store, indices, labels[indices] - first_label)

    tasks = []
    for index in range(num_tasks):
        first = index * classes_per_task
        chosen = is_train & (labels >= first) & (labels < first + classes_per_task)
        tasks.append(Task(index, names[first : first + classes_per_task], part(chosen, first)))
    return Stream(names, tuple(tasks), part(~is_train, 0))


def _noisy_copies(num_images: int, seed: int, label: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw the pattern of a class, a random tile, and copies of it with noise, shape (N, 1, 28, 28)."""
    random = np.random.RandomState([seed, label])
    # A tile fills one patch, so all patches agree and even a random ViT tells the classes apart.
    pattern = np.tile(255 * random.randint(0, 2, (7, 7)), (4, 4))
    noise = random.normal(0, 25, (num_images, 1, IMAGE_SIZE, IMAGE_SIZE))
    return np.clip(pattern + noise, 0, 255).astype(np.uint8)


def tiny_context(seed: int = 0, train: str = "none", listener: Listener | None = None, **engine: Any) -> Context:
    """Return a CPU context for grey 28x28 images.

    `train` is the augmentation, "none" or "affine"; `engine` are fields of EngineSettings.
    """
    settings = EngineSettings(**{"device": "cpu", **engine})
    size = {"image_size": IMAGE_SIZE, "resize": IMAGE_SIZE}
    values = {**AUGMENTATION, **size, "train": train, "normalise": "backbone"}
    transforms = Transforms(TransformSettings.model_validate(values), (0.5,), (0.5,))
    return Context(Ranks(settings), transforms, settings, seed, listener or Silence())


def write_preset(folder: Path, methods: Sequence[str] = ()) -> Path:
    """Write a preset of three tasks of two classes of drawings on a tiny ViT, for all methods and those of one's own.

    A run takes half a second.
    """
    weights = folder / "tiny.safetensors"
    write_tensors(weights, tiny_backbone().vit.state_dict())
    architecture = ", ".join(f"{name} = {size}" for name, size in SIZES.items())
    backbone = f'[backbone]\nweights = "{weights}"\narchitecture = {{{architecture}}}'
    lines = [(files("clare.testing") / "tiny.toml").read_text(), backbone]
    for name in dict.fromkeys([*METHODS, *methods]):
        lines += table_lines(name, tiny_settings(METHODS.get(name)))
    write_text(folder / "tiny.toml", "\n".join(lines) + "\n")
    return folder / "tiny.toml"


def heads_of(name: str) -> list[str]:
    """Return the kinds of heads that a method can have."""
    return list(tables_of(METHODS.get(name).settings_type.model_fields["head"]))


@dataclass(frozen=True)
class Case:
    """A method with one of its kinds of heads, the tiny world, and an empty folder for one promise."""

    name: str
    head: str | None
    preset: Path
    folder: Path
    listener: Listener | None = None

    @cached_property
    def stream(self) -> Stream:
        """Three tasks of two classes."""
        return tiny_stream()

    @cached_property
    def context(self) -> Context:
        """One CPU thread's world, whose batches do not divide the images evenly."""
        return tiny_context(train="affine", listener=self.listener, eval_batch_size=7)

    @property
    def kind(self) -> type[Method]:
        """The method's class."""
        return METHODS.get(self.name)

    def experiment(self, *overrides: str, seed: int | None = None) -> Experiment:
        """Return a run of the method over the tiny preset."""
        head = [f"method.head.kind={self.head}"] if self.head else []
        return make_experiment(str(self.preset), self.name, [*head, *overrides], seed)

    def method(self, *overrides: str) -> Method:
        """Return a method that has learnt nothing, on a backbone of its own, ready for the stream."""
        method = self.kind(tiny_backbone(), self.experiment(*overrides).method_settings(), 0)
        prepare(method, len(self.stream.tasks), max(len(task.classes) for task in self.stream.tasks))
        return method

    def learn(self, method: Method, *tasks: int, context: Context | None = None) -> Method:
        """Teach a method some tasks of the stream."""
        for task in tasks:
            learn_task(context or self.context, method, self.stream.tasks[task])
        return method

    def logits(self, method: Method) -> Tensor:
        """Return the logits of all test images of the stream."""
        return predict_logits(self.context, method, self.stream.test)
