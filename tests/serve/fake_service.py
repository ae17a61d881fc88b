"""A model of the same shape as the real one that needs no backbone, and forms to send."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from fake_teacher import commit
from PIL import Image

from clare.classifier.pictures import Reader
from clare.data.images import Pixels
from clare.errors import ModelError
from clare.methods.protocols import Capacity
from clare.model.records import Answer, Change, ClassInfo, Guess


class FakeModel:
    """Knows two classes, dark and bright, and a version; the folder's model.json is all there is to it."""

    channels, image_size, is_drawing_model = 1, 28, True
    capacity, tasks_left = Capacity(1000, 750, 10), 3
    reports: ClassVar[dict[str, object]] = {}

    def __init__(self, path: Path) -> None:
        state = json.loads((path / "model.json").read_text())
        self.path, self.version, self.names = path, state["version"], state["names"]
        self.classes = [ClassInfo(name, 1, "2026-01-01T00:00:00+00:00", 10) for name in self.names]
        self.history = [Change(self.version, "learn", "2026-01-01T00:00:00+00:00", tuple(self.names), {})]

    def reader(self) -> Reader:
        """Return what reads images."""
        return Reader(1, 28, 0)

    def guess_pixels(self, names: Sequence[str], images: Sequence[Pixels], top: int = 5) -> list[Answer]:
        """Call an image bright in proportion to its mean."""
        if not self.names:
            raise ModelError("the model knows no classes yet; teach it some")
        guesses = []
        for name, image in zip(names, images, strict=True):
            bright = float(image.mean() / 255)
            ranked = sorted([Guess("bright", bright), Guess("dark", 1 - bright)], key=lambda guess: -guess.probability)
            guesses.append(Answer(name, tuple(ranked[:top]), 0.4, False))
        return guesses

    def undo(self, *, wait: bool = True) -> Change:
        """Take back the last change down to version 1."""
        if self.version < 2:
            raise ModelError("there is nothing to undo")
        commit(self.path, self.version + 1, self.names[:2])
        return Change(self.version + 1, "undo", "2026-01-01T00:00:00+00:00", (), {})


def form(*fields: tuple[str, str, bytes], boundary: bytes = b"xyz") -> tuple[bytes, dict[str, str]]:
    """Return a multipart body of (field, file name, content) and its headers."""
    parts = []
    for field, filename, content in fields:
        named = f'; filename="{filename}"' if filename else ""
        head = f'Content-Disposition: form-data; name="{field}"{named}\r\n\r\n'.encode()
        parts.append(b"--" + boundary + b"\r\n" + head + content + b"\r\n")
    body = b"".join(parts) + b"--" + boundary + b"--\r\n"
    return body, {"content-type": f"multipart/form-data; boundary={boundary.decode()}"}


def png(value: int = 0, size: tuple[int, int] = (28, 28), kind: str = "PNG") -> bytes:
    """Return an even grey image, width by height."""
    file = io.BytesIO()
    Image.fromarray(np.full(size[::-1], value, np.uint8)).save(file, kind)
    return file.getvalue()


def bomb(side: int) -> bytes:
    """Return a few bytes that say they are a square image of many pixels, in a format without compression."""
    content = bytearray(png(0, (3, 3), "BMP"))
    content[18:26] = np.array([side, side], "<i4").tobytes()
    return bytes(content)


def many_scans(num_scans: int) -> bytes:
    """Return a progressive JPEG with so many empty scans after its own, each of which passes over the whole image."""
    file = io.BytesIO()
    Image.fromarray(np.full((28, 28), 7, np.uint8)).save(file, "JPEG", progressive=True)
    empty = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00"
    return file.getvalue().removesuffix(b"\xff\xd9") + num_scans * empty + b"\xff\xd9"
