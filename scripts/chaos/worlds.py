"""Small folders to attack: a preset, pictures, and models that know some of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from chaos.folders import BrokenPromise
from chaos.forks import clare, in_process

NUM_PICTURES = 6
LESSONS = {"first": ("cat", "dog"), "second": ("bus", "van"), "third": ("sun", "cup")}


def build(folder: Path) -> Path:
    """Make the world of all trials: tiny.toml, pictures/LESSON/CLASS, a model of two lessons and one of the third."""
    folder.mkdir(parents=True)
    for lesson, classes in LESSONS.items():
        write_pictures(folder / "pictures" / lesson, classes)
    done(in_process(folder, lambda: _write_preset(folder)))
    new = ["--backbone", "tiny.backbone.toml", "--method", "simplecil", "--keep", "3"]
    for model, lesson, words in (("model", "first", new), ("model", "second", []), ("other", "third", new)):
        done(clare(folder, "learn", model, f"pictures/{lesson}", *words))
    done(clare(folder, "train", "tiny.toml", "--method", "finetune", "--out", "run"))
    return folder


def done(ended: "object") -> None:
    """Make sure that a step of the preparation went well."""
    if getattr(ended, "code", 1) != 0:
        raise BrokenPromise(f"the world could not be made: {ended}")


def _write_preset(folder: Path) -> None:
    """Write a preset on a tiny backbone, and that backbone for models."""
    from clare.testing.world import SIZES, write_preset

    write_preset(folder)
    architecture = ", ".join(f"{name} = {size}" for name, size in SIZES.items())
    weights = folder / "tiny.safetensors"
    text = f'description = "tiny"\n[backbone]\nweights = "{weights}"\narchitecture = {{{architecture}}}\n'
    (folder / "tiny.backbone.toml").write_text(text)


def write_pictures(folder: Path, classes: Sequence[str], number: int = NUM_PICTURES) -> None:
    """Write pictures that show a pattern of their class under noise, one folder per class."""
    for name in classes:
        random = np.random.RandomState(sum(map(ord, name)))
        tile = 200 * random.randint(0, 2, (7, 7))
        (folder / name).mkdir(parents=True)
        for place in range(number):
            pixels = (np.tile(tile, (4, 4)) + random.randint(0, 55, (28, 28))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{place}.png")
