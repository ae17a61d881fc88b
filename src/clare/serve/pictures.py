"""What is said of uploaded bytes that are no real images of a bounded size."""

import numpy as np

from clare.data.images import FORMATS, Pixels
from clare.serve.decoding import MOST_SCANS, Answer, Outcome, judge
from clare.serve.limits import Limits, Refusal


def check_image(content: bytes, name: str, limits: Limits) -> int:
    """Return the pixels of an image by its header; what is no image or too large is refused, without decoding any."""
    found = judge(content, limits.image_pixels)
    if found.outcome is not Outcome.DECODED:
        raise refusal_of(found, name, limits)
    return found.size[0] * found.size[1]


def check_pixels(num_pixels: int, most_pixels: int) -> None:
    """Refuse a request whose images have too many pixels together."""
    if num_pixels > most_pixels:
        raise Refusal(
            413, f"the images have more than {most_pixels} pixels in all; send fewer or smaller images at a time"
        )


def refusal_of(answer: Answer, name: str, limits: Limits) -> Refusal:
    """Return why an image is refused."""
    width, height = answer.size
    shown = f"{width} x {height} pixels, more than {limits.image_pixels} in all" if width else "far too many pixels"
    reasons = {
        Outcome.NO_IMAGE: (422, f"is no image of a known format ({', '.join(FORMATS)}); leave it out"),
        Outcome.TOO_MANY_PIXELS: (413, f"has {shown}; send a smaller image"),
        Outcome.TOO_MANY_SCANS: (422, f"is a JPEG of more than {MOST_SCANS} scans; save it anew"),
        Outcome.DAMAGED: (422, "cannot be read to its end as an image; send an undamaged one"),
        Outcome.TOO_SLOW: (422, f"took more than {limits.image_seconds:g} seconds to decode; send a smaller image"),
    }
    status, reason = reasons[answer.outcome]
    return Refusal(status, f"'{name}' {reason}")


def as_array(pixels: Pixels) -> Pixels:
    """Return (channels, height, width) as (height, width) or (height, width, channels)."""
    return np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
