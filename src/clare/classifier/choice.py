"""What a new model shall be: one rule over its first lesson, its backbone, the device and the time there is.

It follows what was measured (`scripts/measure_choices.py`, `scripts/measure_lessons.py`): more views of a photo help,
of a drawing they do not, and an adapter pays where a class has very many pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clare.backbones.vit import Backbone
from clare.classifier.defaults import DEFAULT_METHOD, default_settings, is_drawing_backbone
from clare.classifier.teaching import num_passes
from clare.methods import METHODS

Wish = Literal["quick", "usual", "best"]

MANY = 500
"""Pictures a class from which an adapter was measured to pay; with thirty it cost accuracy."""
ADAPTED = "clare-plus"


@dataclass(frozen=True)
class Way:
    """A way in which a new model can see pictures and learn from them, and about how long its first lesson takes."""

    wish: Wish
    words: str
    method: str
    settings: dict[str, Any]
    seconds: float


def find_ways(backbone: Backbone, num_images: int, num_classes: int, seconds: float) -> list[Way]:
    """Return what there is to choose from, the quickest first, if the default settings take so many seconds here."""
    default = default_settings(backbone, DEFAULT_METHOD, {})
    num_views = default.reading.views
    kinds: list[tuple[Wish, str, str, dict[str, Any]]] = [("usual", "frozen features", DEFAULT_METHOD, {})]
    if num_views > 1:
        kinds = [
            ("quick", "frozen features of one view of each picture", DEFAULT_METHOD, {"features": {"views": 1}}),
            ("usual", f"frozen features of {num_views} views of each picture", DEFAULT_METHOD, {}),
        ]
    if num_images >= MANY * num_classes and not is_drawing_backbone(backbone.settings):
        kinds.append(("best", f"an adapter is trained ({ADAPTED})", ADAPTED, {}))
    a_pass = seconds / (num_views * num_passes(METHODS.get(DEFAULT_METHOD), default))
    ways = []
    for wish, words, method, settings in kinds:
        built = default_settings(backbone, method, settings)
        passes = built.reading.views * num_passes(METHODS.get(method), built)
        ways.append(Way(wish, words, method, settings, a_pass * passes))
    return ways


def choose(ways: Sequence[Way], wish: Wish, minutes: float | None) -> Way:
    """Return what was wished for, or the nearest to it; with a limit the most accurate that keeps within it."""
    if minutes is not None:
        return next((way for way in reversed(ways) if way.seconds <= 60 * minutes), ways[0])
    ends = {"quick": ways[0], "best": ways[-1]}
    return ends.get(wish) or next(way for way in ways if way.wish == "usual")
