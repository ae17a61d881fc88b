"""CIFAR-100's own files are read, and no other pickle is."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clare.data.cifar import read_cifar100
from clare.errors import DataError

NAMES = ["bear", "apple", "cup"]


class Malicious:
    """A pickle that would create a file when it is read carelessly."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def write_cifar(folder: Path, protocol: int = 2) -> dict[str, np.ndarray]:
    """Write small files in CIFAR-100's format and return their images."""
    folder.mkdir()
    random = np.random.RandomState(0)
    images = {}
    for part, labels in (("train", [0, 1, 2, 2]), ("test", [2, 0, 1])):
        images[part] = random.randint(0, 256, (len(labels), 3072)).astype(np.uint8)
        content = {"data": images[part], "fine_labels": labels, "filenames": ["x.png"] * len(labels)}
        (folder / part).write_bytes(pickle.dumps(content, protocol))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": NAMES}, protocol))
    return images


def python2_pickle(data: np.ndarray) -> bytes:
    """Return a pickle of images and labels, operation by operation as Python 2 and an old NumPy wrote it."""
    raw = data.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    shape = b"K" + bytes([len(data)]) + b"M\x00\x0c\x86"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    pixels = b"T" + len(raw).to_bytes(4, "little") + raw
    labels = b"](" + b"K\x00" * len(data) + b"e"
    state = b"(K\x01" + shape + dtype + b"\x89" + pixels + b"tb"
    return b"\x80\x02}q\x00(U\x04data" + array + state + b"U\x0bfine_labels" + labels + b"u."


@pytest.mark.parametrize("protocol", [2, 4])
def test_labels_follow_the_alphabet(tmp_path: Path, protocol: int) -> None:
    images = write_cifar(tmp_path / "cifar", protocol)
    classes, train, test = read_cifar100(tmp_path / "cifar")
    assert classes == ("apple", "bear", "cup")
    assert train.labels == [1, 0, 2, 2]
    assert test.labels == [2, 1, 0]
    assert np.array_equal(train.images, images["train"].reshape(-1, 3, 32, 32))
    assert np.array_equal(test.images, images["test"].reshape(-1, 3, 32, 32))


def test_files_written_by_python_2_are_read(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar")
    data = np.random.RandomState(1).randint(0, 256, (2, 3072)).astype(np.uint8)
    (tmp_path / "cifar/train").write_bytes(python2_pickle(data))
    _, train, _ = read_cifar100(tmp_path / "cifar")
    assert np.array_equal(train.images, data.reshape(-1, 3, 32, 32))
    assert train.labels == [1, 1]


def test_a_malicious_pickle_is_refused(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar")
    victim = tmp_path / "victim"
    (tmp_path / "cifar/meta").write_bytes(pickle.dumps(Malicious(victim)))
    with pytest.raises(DataError, match=r"meta' is not a CIFAR-100 file \(it asks for pathlib.*not allowed\)"):
        read_cifar100(tmp_path / "cifar")
    assert not victim.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(tR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0bdtype.fields\x93.",
        b"c_codecs\nencode\n(Vx\nVzlib\ntR.",
        b"garbage",
        b"",
        pickle.dumps([1, 2]),
        pickle.dumps({"coarse_label_names": []}),
    ],
)
def test_other_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    write_cifar(tmp_path / "cifar")
    (tmp_path / "cifar/meta").write_bytes(content)
    with pytest.raises(DataError, match=r"torchvision\.datasets\.CIFAR100"):
        read_cifar100(tmp_path / "cifar")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0]}, "for 1 labels"),
        ({"data": np.zeros((1, 3072), np.float32), "fine_labels": [0]}, "float32"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [3]}, r"outside 0\.\.2"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": ["bear"]}, r"outside 0\.\.2"),
    ],
)
def test_contents_that_do_not_fit_are_refused(tmp_path: Path, content: dict[str, Any], reason: str) -> None:
    write_cifar(tmp_path / "cifar")
    (tmp_path / "cifar/train").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(DataError, match=reason):
        read_cifar100(tmp_path / "cifar")
