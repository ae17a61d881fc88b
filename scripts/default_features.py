"""Features of pictures as the default model reads them, computed once and kept for the measurements beside this file.

python scripts/default_features.py FOLDER --backbone FILE --out FILE.safetensors    a folder with train/ and test/
python scripts/default_features.py --drawings --out FILE.safetensors                the embedded drawings
python scripts/default_features.py --noise [--backbone FILE] --out FILE.safetensors  pixels drawn alike from 0 to 255

Where several views are averaged, the features of the whole picture alone are kept too. `--bfloat16` computes in
bfloat16, which some processors do three times faster.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure_lessons import drawings, tree
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from clare.backbones.features import views_of
from clare.classifier.defaults import DEFAULT_METHOD
from clare.classifier.parts import Parts, new_parts
from clare.data.images import Pixels
from clare.data.store import ImageStore, LabelledImages
from clare.engine.images import ImageSource
from clare.engine.passes import sweep
from clare.methods import METHODS

BATCH, NOISE_SIDE, NUM_NOISE = 250, 112, 300


@dataclass(frozen=True)
class Features:
    """Features and labels of two parts of a data set, classes by their places in `names`."""

    names: list[str]
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    facts: Mapping[str, str]


@torch.no_grad()
def seen(parts: Parts, images: Sequence[Pixels]) -> Tensor:
    """Return the features of pictures as the mean of all views and of the whole alone, shape (N, 2, D)."""
    reading, backbone, positions = parts.method.settings.reading, parts.method.backbone, torch.arange(len(images))
    source = ImageSource(parts.context, LabelledImages(ImageStore.from_images(images), positions, positions), False)

    def rows_of(inputs: Tensor, _: Tensor) -> Tensor:
        with parts.context.ranks.autocast():
            views = [reading.read(backbone, view, 1).float() for view in views_of(inputs, reading.views)]
        return torch.stack([torch.stack(views).mean(0), views[0]], 1)

    return sweep(parts.context, parts.method, source, rows_of)


def compute(parts: Parts, pictures: Mapping[str, Sequence[Any]]) -> tuple[Tensor, Tensor]:
    """Return features in half precision, and the place of each picture's class."""
    reader, found = parts.reader(), []
    given = [(place, image) for place, name in enumerate(pictures) for image in pictures[name]]
    for start in range(0, len(given), BATCH):
        images = [reader.image(image) for _, image in given[start : start + BATCH]]
        found.append(seen(parts, images).half())
        print(f"{start + len(images)} of {len(given)}", flush=True)
    return torch.cat(found), torch.tensor([place for place, _ in given])


def save(out: Path, pictures: Mapping[str, Mapping[str, Any]], backbone: str | None, name: str, precision: str) -> None:
    """Compute the features of both parts and write them."""
    parts = new_parts(backbone, METHODS.get(DEFAULT_METHOD), None, None, 0, "cpu")
    parts.context.ranks.precision = precision
    tensors: dict[str, Tensor] = {}
    for part, own in pictures.items():
        features, tensors[f"{part}_labels"] = compute(parts, own)
        tensors[part], tensors[f"{part}_whole"] = (features[:, view].contiguous() for view in range(2))
    facts = {
        "precision": precision,
        "names": "\n".join(pictures["train"]),
        "data": name,
        "backbone_hash": parts.backbone.fingerprint,
    }
    facts["features"] = parts.method.settings.features.model_dump_json()
    save_file(tensors, out, facts)


def noise() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return one class of a picture to learn from and many to ask about, of pixels that mean nothing."""
    random = np.random.RandomState(0)
    pictures = [random.randint(0, 256, (NOISE_SIDE, NOISE_SIDE, 3), np.uint8) for _ in range(NUM_NOISE)]
    return {"noise": pictures[:1]}, {"noise": pictures}


def load(path: Path, views: str = "") -> Features:
    """Read features that were kept, of all views or, with `_whole`, of the whole pictures."""
    with safe_open(path, "pt") as file:
        facts = file.metadata()
        train, train_labels, test, test_labels = (
            file.get_tensor(key) for key in (f"train{views}", "train_labels", f"test{views}", "test_labels")
        )
    return Features(facts.pop("names").split("\n"), train.float(), train_labels, test.float(), test_labels, facts)


def main(arguments: Sequence[str]) -> None:
    """Compute the features of one data set."""
    parser = argparse.ArgumentParser(description="Keep the features of pictures as the default model reads them.")
    parser.add_argument("pictures", type=Path, nargs="?")
    parser.add_argument("--drawings", action="store_true")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--backbone")
    parser.add_argument("--classes", type=int, help="So many classes, evenly spread by name; all when left out.")
    parser.add_argument("--train", type=int, default=75, help="Training pictures of a class at the most.")
    parser.add_argument("--test", type=int, default=30, help="Test pictures of a class at the most.")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    if given.drawings + given.noise + (given.pictures is not None) != 1:
        parser.error("give one of --drawings, --noise and a folder")
    name = "drawings" if given.drawings else "noise" if given.noise else given.pictures.name
    train, test = drawings() if given.drawings else noise() if given.noise else tree(given.pictures)
    step = len(train) // (given.classes or len(train))
    chosen = list(train)[::step][: given.classes]
    parts = {
        part: {name: pictures[name][:most] for name in chosen}
        for part, pictures, most in (("train", train, given.train), ("test", test, given.test))
    }
    save(given.out, parts, given.backbone, name, "bf16" if given.bfloat16 else "fp32")


if __name__ == "__main__":
    main(sys.argv[1:])
