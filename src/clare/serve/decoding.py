"""A process that decodes one picture after another; whoever started it ends it when a picture takes too long."""

import struct
import sys
from enum import IntEnum
from io import BytesIO
from typing import IO, NamedTuple

import numpy as np
from PIL import Image

from clare.data.images import FORMATS, Pixels, decode_image, quiet_pillow, shrink_image
from clare.errors import DataError
from clare.serve.parent import die_with_parent

GREATEST_RATIO = 2
"""The longer side of a kept image by its shorter one; the rest lies outside the square that the backbone sees."""
MOST_SCANS = 100
"""Passes over a JPEG; encoders write about ten, and each one costs as much as a whole picture."""
REQUEST = struct.Struct("<QQBI")
ANSWER = struct.Struct("<B5I")


class Outcome(IntEnum):
    """What became of a picture."""

    DECODED = 0
    NO_IMAGE = 1
    TOO_MANY_PIXELS = 2
    TOO_MANY_SCANS = 3
    DAMAGED = 4
    TOO_SLOW = 5
    GIVEN_UP = 6


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


def send_request(file: IO[bytes], content: bytes, wanted: Wanted) -> None:
    """Write a picture and what it shall become."""
    file.write(REQUEST.pack(len(content), *wanted))
    file.write(content)
    file.flush()


def read_request(file: IO[bytes]) -> tuple[bytes, Wanted] | None:
    """Read a picture and what it shall become, or nothing at the end."""
    header = file.read(REQUEST.size)
    if len(header) < REQUEST.size:
        return None
    length, *wanted = REQUEST.unpack(header)
    content = file.read(length)
    return (content, Wanted(*wanted)) if len(content) == length else None


def send_answer(file: IO[bytes], answer: Answer) -> None:
    """Write what became of a picture."""
    shape = (0, 0, 0) if answer.pixels is None else answer.pixels.shape
    file.write(ANSWER.pack(answer.outcome, *answer.size, *shape))
    if answer.pixels is not None:
        file.write(answer.pixels.data)
    file.flush()


def read_answer(file: IO[bytes]) -> Answer | None:
    """Read what became of a picture, or nothing where the other side ended before it had told."""
    header = file.read(ANSWER.size)
    if len(header) < ANSWER.size:
        return None
    outcome, width, height, *shape = ANSWER.unpack(header)
    if outcome != Outcome.DECODED:
        return Answer(Outcome(outcome), (width, height))
    content = file.read(shape[0] * shape[1] * shape[2])
    if len(content) < shape[0] * shape[1] * shape[2]:
        return None
    return Answer(Outcome.DECODED, (width, height), np.frombuffer(content, np.uint8).reshape(shape))


def main() -> None:
    """Decode what comes in until the input closes."""
    die_with_parent()
    while (request := read_request(sys.stdin.buffer)) is not None:
        send_answer(sys.stdout.buffer, decode(*request))


if __name__ == "__main__":
    main()
