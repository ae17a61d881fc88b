"""A process that decodes one picture after another; whoever started it ends it when a picture takes too long."""

import ctypes
import signal
import struct
import sys
from enum import IntEnum
from io import BytesIO
from typing import NamedTuple

import numpy as np
from PIL import Image

from clare.data.images import FORMATS, Pixels, decode_image, quiet_pillow, shrink_image
from clare.errors import DataError

GREATEST_RATIO = 2
"""The longer side of a kept image by its shorter one; the rest lies outside the square that the backbone sees."""
MOST_SCANS = 100
"""Passes over a JPEG; encoders write about ten, and each one costs as much as a whole picture."""
READY = b"r"
"""What a process says before the first picture."""
REQUEST = struct.Struct("<QQBI")
"""Before the bytes of a picture: how many there are, and what it shall become."""
ANSWER = struct.Struct("<B5I")
"""Before the pixels, if there are any: what became of it, width and height in its file, and the shape of the pixels."""


PR_SET_PDEATHSIG = 1


class Outcome(IntEnum):
    """What became of a picture."""

    DECODED = 0
    NO_IMAGE = 1
    TOO_MANY_PIXELS = 2
    TOO_MANY_SCANS = 3
    DAMAGED = 4
    TOO_SLOW = 5


class Wanted(NamedTuple):
    """What a picture shall become: at most so many pixels in its file, then so many channels and a shorter side."""

    most_pixels: int
    channels: int
    shorter_side: int


class Answer(NamedTuple):
    """What became of a picture, width and height as its file says, and its pixels if there are any."""

    outcome: Outcome
    size: tuple[int, int] = (0, 0)
    pixels: Pixels | None = None


def judge(content: bytes, most_pixels: int) -> Answer:
    """Judge a picture by its header and its markers, without decoding anything."""
    try:
        # What Pillow warns of, strangers could fill the log with.
        with quiet_pillow(), Image.open(BytesIO(content), formats=FORMATS) as image:
            size = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return Answer(Outcome.TOO_MANY_PIXELS)
    except Exception:  # headers fail with almost every kind of exception
        return Answer(Outcome.NO_IMAGE)
    if size[0] * size[1] > most_pixels:
        return Answer(Outcome.TOO_MANY_PIXELS, size)
    # Within a scan these two bytes never follow each other, so that counting them counts scans, and at most more.
    if content.startswith(b"\xff\xd8") and content.count(b"\xff\xda") > MOST_SCANS:
        return Answer(Outcome.TOO_MANY_SCANS, size)
    return Answer(Outcome.DECODED, size)


def decode(content: bytes, wanted: Wanted) -> Answer:
    """Check and read one picture as a model needs it, (channels, height, width)."""
    found = judge(content, wanted.most_pixels)
    if found.outcome is not Outcome.DECODED:
        return found
    try:
        pixels = cut_ends(shrink_image(decode_image(content, wanted.channels), wanted.shorter_side))
    except (DataError, MemoryError):
        return Answer(Outcome.DAMAGED, found.size)
    return Answer(Outcome.DECODED, found.size, pixels)


def cut_ends(pixels: Pixels) -> Pixels:
    """Keep the middle of a very long image, since every image of a batch takes as much memory as its largest sides."""
    height, width = pixels.shape[1:]
    longest = GREATEST_RATIO * min(height, width)
    # Whole pixels from both ends, equally many, so that the middle stays where it was.
    top, left = max(0, height - longest) // 2, max(0, width - longest) // 2
    return np.ascontiguousarray(pixels[:, top : height - top, left : width - left])


def die_with_parent() -> None:
    """Have the system kill this process when the thread that started it ends, where the system can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Decode what comes in until the input closes."""
    die_with_parent()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    target.write(READY)
    target.flush()
    while len(header := source.read(REQUEST.size)) == REQUEST.size:
        length, *wanted = REQUEST.unpack(header)
        outcome, size, pixels = decode(source.read(length), Wanted(*wanted))
        target.write(ANSWER.pack(outcome, *size, *((0, 0, 0) if pixels is None else pixels.shape)))
        if pixels is not None:
            target.write(pixels.data)
        target.flush()


if __name__ == "__main__":
    main()
