"""The style of each method, the same in every figure: a colour, a marker and a dash."""

from collections.abc import Sequence
from dataclasses import dataclass

from clare.report.groups import DEFAULT_REFERENCE, Group

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow, which is too faint on white.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#4d4d4d")
COLOURS_ON_DARK = ("#ff8a3d", "#4a9fe0", "#2cc79b", "#f2b632", "#9ad7ff", "#e8a0c8", "#c4c9d1")
EMPHASIS = COLOURS[0]
NUM_MARKERS = 7
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2.5), (1.6, 2), (7, 2, 1.6, 2))
"""Lengths of strokes and gaps in units of the line, one pattern after another; the first is solid."""


@dataclass(frozen=True)
class Style:
    """How a method is drawn; CLARE is strong."""

    colour: int
    marker: int
    dash: int
    is_strong: bool


def styles_of(groups: Sequence[Group]) -> dict[str, Style]:
    """Give each group its style by label: CLARE has the first colour, the others are told apart by three means."""
    styles: dict[str, Style] = {}
    own = [group.label for group in groups if group.method == DEFAULT_REFERENCE]
    others = [group.label for group in groups if group.method != DEFAULT_REFERENCE]
    for place, label in enumerate(own):
        styles[label] = Style(0, place % NUM_MARKERS, place % len(DASHES), True)
    for place, label in enumerate(others):
        # Six colours and seven markers: a pair comes again only after forty-two methods.
        turn, colour = divmod(place, len(COLOURS) - 1)
        styles[label] = Style(1 + colour, (place + 1) % NUM_MARKERS, turn % len(DASHES), False)
    return {group.label: styles[group.label] for group in groups}
