"""A tiny frozen backbone, a tiny learnable stream and a quiet CPU context, each made by a factory."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

import clare
from clare.backbones.vit import Backbone, BackboneSettings, build_embedded, freeze
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Stream, Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Listener, Silence
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.files import write_tensors

# No test asserts a duration, and the same commit draws the same examples everywhere.
hypothesis.settings.register_profile("clare", deadline=None, derandomize=True)
hypothesis.settings.load_profile("clare")

IMAGE_SIZE = 28
# Gentle, since the patterns of the classes repeat from patch to patch and a large shift would mix them up.
AUGMENTATION = {"rotation": 3.0, "zoom": 0.03, "shift": 0.02, "shear": 2.0, "flip": 0.0}


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
                {
                    **AUGMENTATION,
                    "image_size": IMAGE_SIZE,
                    "resize": IMAGE_SIZE,
                    "train": train,
                    "normalise": "backbone",
                }
            ),
            (0.5,),
            (0.5,),
        )
        return Context(Ranks(settings), transforms, settings, seed, listener or Silence())

    return make


@pytest.fixture(scope="session")
def tiny_preset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a TOML preset of three tasks of two classes of drawings, on a tiny ViT: a run takes half a second."""
    folder = tmp_path_factory.mktemp("preset")
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        write_tensors(folder / "tiny.safetensors", build_embedded(**sizes).state_dict())
    (folder / "tiny.toml").write_text(f"""
        description = "three tiny tasks"
        data = {{dataset = "quickdraw"}}
        transforms = {{image_size = 28, resize = 28, train = "affine", normalise = "backbone"}}
        stream = {{num_classes = 6, increment = 2, train_per_class = 6}}
        engine = {{device = "cpu", threads = 1}}

        [backbone]
        weights = "{folder / "tiny.safetensors"}"
        architecture = {{{", ".join(f"{name} = {size}" for name, size in sizes.items())}}}

        [method]
        epochs = 2
        batch_size = 8
        learning_rate = 0.01
        adapter = {{bottleneck = 4}}
        head = {{align_epochs = 2, align_samples = 4}}

        [methods.clare]
        probe_epochs = 2
    """)
    return folder / "tiny.toml"


@pytest.fixture
def start_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return start(*arguments, cwd=None): a Python process on one thread that outlives no test, its output piped."""
    processes: list[subprocess.Popen[str]] = []
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    sources = str(Path(clare.__file__).parents[1])
    environment = {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": sources, "COLUMNS": "120"}

    def start(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=cwd,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
