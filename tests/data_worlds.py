"""Data sets in the layouts in which they are published, with a few tiny images."""

import hashlib
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image


def write_tree(root: Path, num_classes: int = 3, num_train: int = 3, num_test: int = 2, size: int = 8) -> Path:
    """Write root/{train,test}/<class>/<image>; a class has its own colour, and its images differ in noise."""
    random = np.random.RandomState(0)
    for number in range(num_classes):
        colour = random.randint(0, 200, 3)
        for part, num_images in (("train", num_train), ("test", num_test)):
            folder = root / part / f"n{number:08d}"
            folder.mkdir(parents=True)
            for place in range(num_images):
                pixels = colour + random.randint(0, 55, (size, size + place, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{place}.png")
    return root


def write_cifar(folder: Path, num_classes: int = 3) -> Path:
    """Write small files in CIFAR-100's format."""
    folder.mkdir(parents=True)
    labels = list(range(num_classes)) * 2
    for part in ("train", "test"):
        content = {"data": np.zeros((len(labels), 3072), np.uint8), "fine_labels": labels}
        (folder / part).write_bytes(pickle.dumps(content, 2))
    names = [f"class {number:02d}" for number in range(num_classes)]
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, 2))
    return folder


def pack_tar(folder: Path, archive: Path) -> bytes:
    """Pack a folder under its own name and return the archive's bytes."""
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    return archive.read_bytes()


def pack_zip(folder: Path, archive: Path) -> bytes:
    """Pack a folder under its own name and return the archive's bytes."""
    shutil.make_archive(str(archive.with_suffix("")), "zip", folder.parent, folder.name)
    return archive.read_bytes()


def md5_of(content: bytes) -> str:
    """Return the sum that publishers give with an archive."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
