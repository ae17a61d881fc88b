"""The rendering of strokes once more in Python, and the real drawings it is compared with."""

import json
import math
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Stroke = list[tuple[float, float]]
Picture = NDArray[np.uint8]
SIDE, BOX, LONGEST, TOLERANCE = 28, 256, 255, 2.0
DRAWINGS: dict[str, Any] = json.loads(Path(__file__).with_name("drawings.json").read_text())


def embedded_picture(word: str, drawing: int) -> Picture:
    """One of the drawings that come with the package."""
    with resources.files("clare.data").joinpath("embedded/quickdraw.npz").open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        picture: Picture = archive["images"][archive["classes"].tolist().index(word), drawing]
    return picture


def simplify(strokes: list[Stroke]) -> list[Stroke]:
    """Raw strokes as the simplified files of Quick, Draw! hold them."""
    points = np.concatenate([np.array(stroke, dtype=float) for stroke in strokes])
    start, scale = points.min(axis=0), LONGEST / np.ptp(points, axis=0).max()
    simplified = []
    for stroke in strokes:
        sampled = _resample((np.array(stroke, dtype=float) - start) * scale)
        simplified.append([(float(math.floor(x + 0.5)), float(math.floor(y + 0.5))) for x, y in _thin(sampled)])
    return simplified


def _resample(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points one unit apart along a stroke, and its end."""
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    places = np.append(np.arange(0.0, lengths[-1]), lengths[-1])
    return np.stack([np.interp(places, lengths, points[:, axis]) for axis in (0, 1)], axis=1)


def _thin(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ramer, Douglas and Peucker's simplification, by recursion."""
    start, direction = points[0], points[-1] - points[0]
    squared = direction @ direction
    share = np.clip((points - start) @ direction / squared, 0, 1) if squared else np.zeros(len(points))
    distances = np.hypot(*(points - start - share[:, None] * direction).T)
    farthest = int(distances.argmax())
    if distances[farthest] <= TOLERANCE:
        return points[[0, -1]]
    return np.concatenate([_thin(points[: farthest + 1])[:-1], _thin(points[farthest:])])


def render(strokes: list[Stroke]) -> Picture:
    """Simplified strokes as antialiased lines of one pixel that add up."""
    ink = np.zeros((2 * SIDE, 2 * SIDE))
    for stroke in strokes:
        points = np.array(stroke, dtype=float) * SIDE / BOX
        for start, end in pairwise(points):
            _add_line(ink, start, end)
    picture: Picture = np.floor(np.minimum(ink[:SIDE, :SIDE], 1) * 255 + 0.5).astype(np.uint8)
    return picture


def _add_line(ink: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]) -> None:
    """Walk along the longer direction and share each step's ink between two neighbours across it."""
    width, height = np.abs(end - start)
    if width == height == 0:
        return
    axis = 1 if height > width else 0
    if start[axis] > end[axis]:
        start, end = end, start
    steps = range(math.floor(start[axis] + 0.5), math.floor(end[axis] + 0.5) + 1)
    weights = [(start[axis] + 0.5) % 1, *[0.0] * (len(steps) - 2), 1 - (end[axis] + 0.5) % 1]
    # A line within one pixel has its two ends there, and both leave ink.
    places = [*steps] if len(steps) > 1 else [steps[0], steps[0]]
    for along, weight in zip(places, weights, strict=True):
        share = (along - start[axis]) / (end[axis] - start[axis])
        across = float(start[1 - axis] + share * (end[1 - axis] - start[1 - axis]))
        beyond = (across % 1) * (1 - weight)
        near = math.floor(abs(across))
        for place, amount in ((near, 1 - beyond), (near + 1, beyond)):
            ink[(along, place) if axis else (place, along)] += amount
