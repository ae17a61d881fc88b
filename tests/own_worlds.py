"""A tiny backbone in a file, pictures of made-up classes, and model folders that know some of them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from clare.backbones.vit import BackboneSettings, build_embedded
from clare.classifier.classifier import Classifier, load
from clare.data.images import Pixels
from clare.files import write_tensors
from clare.model.records import Answer

SIZES = {"embed_dim": 24, "depth": 2, "num_heads": 2}
FAST: dict[str, Any] = {
    "epochs": 2,
    "probe_epochs": 1,
    "learning_rate": 0.1,
    "batch_size": 8,
    "adapter": {"bottleneck": 4},
    "head": {"align_epochs": 2, "align_samples": 8},
}


def tiny_weights(folder: Path, seed: int = 0) -> BackboneSettings:
    """Write the weights of a tiny random ViT, and return the settings that load it."""
    path = folder / f"tiny-{seed}.safetensors"
    if not path.exists():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            write_tensors(path, build_embedded(**SIZES).state_dict())
    return BackboneSettings(weights=str(path), architecture=SIZES)


def drawings(*classes: str, number: int = 10, seed: int = 0) -> dict[str, list[Pixels]]:
    """Return pictures that show a pattern of their class, which depends on its name alone, under noise."""
    found = {}
    for name in classes:
        tile = 200 * np.random.RandomState(sum(map(ord, name))).randint(0, 2, (7, 7))
        noise = np.random.RandomState([seed, len(name)])
        found[name] = [(np.tile(tile, (4, 4)) + noise.randint(0, 55, (28, 28))).astype(np.uint8) for _ in range(number)]
    return found


def write_pictures(folder: Path, *classes: str, number: int = 10, seed: int = 0) -> Path:
    """Write pictures as PNG files, one folder per class."""
    for name, images in drawings(*classes, number=number, seed=seed).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for place, image in enumerate(images):
            Image.fromarray(image).save(folder / name / f"{place:02d}.png")
    return folder


def new_model(folder: Path, method: str = "clare", **settings: Any) -> Classifier:
    """Make an empty model on the tiny backbone, which trains for a moment only."""
    fast = {key: value for key, value in FAST.items() if method in ("clare", "finetune") and key != "probe_epochs"}
    fast |= {"probe_epochs": 1} if method == "clare" else {}
    made = Classifier(backbone=tiny_weights(folder), method=method, settings={**fast, **settings}, device="cpu")
    made.save(folder / "model")
    return load(folder / "model", device="cpu")


def taught_model(folder: Path, method: str = "clare", **settings: Any) -> Classifier:
    """Make a model that knows cat and dog, and then bus and van."""
    model = new_model(folder, method, **settings)
    model.learn(drawings("cat", "dog"))
    model.learn(drawings("bus", "van"))
    return model


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def odds(answer: Answer) -> dict[str, float]:
    """Return the probabilities of an answer by name."""
    return {guess.name: guess.probability for guess in answer.guesses}


def answers(model: Classifier) -> list[Any]:
    """Return what a model says to some pictures, to the last bit."""
    return model.guess([image for images in drawings("cat", "van", seed=5).values() for image in images], top=9)
