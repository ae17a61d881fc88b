"""A figure as SVG within the page, which lends it its colours and its type."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D, Transform

from clare.report.plots import COLOURS, FAINT, INK, POINTS

OWN = {INK: "var(--quiet)", FAINT: "var(--faint)"} | {each: f"var(--c{place})" for place, each in enumerate(COLOURS)}
"""The page's names of the colours that follow its theme."""
BACKGROUND = {"#ffffff": "var(--paper)"}
LETTERS = {Outline.MOVETO: "M", Outline.LINETO: "l", Outline.CURVE3: "q", Outline.CURVE4: "c"}
ANCHORS = {"center": "middle", "right": "end"}


class PageRenderer(RendererBase):
    """Collects what matplotlib draws as elements without ids and without type; named artists become groups."""

    def __init__(self, width: float, height: float, groups: Mapping[str, str]) -> None:
        super().__init__()
        self.width, self.height, self.groups = width, height, groups
        self.parts: list[str] = []
        self._flip = Affine2D().scale(1, -1).translate(0, height)
        self._is_open: list[bool] = []
        self._style = ""

    def get_canvas_width_height(self) -> tuple[float, float]:
        """The size in points."""
        return self.width, self.height

    def open_group(self, s: str, gid: str | None = None) -> None:
        """Begin a group if this artist has attributes."""
        attributes = self.groups.get(gid or "")
        self._is_open.append(attributes is not None)
        if attributes is not None:
            self._share("")
            self.parts.append(f"<g {attributes}>")

    def close_group(self, s: str) -> None:
        """End what was begun last."""
        if self._is_open.pop():
            self._share("")
            self.parts.append("</g>")

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        """Write a text from, to or around its place, since the page's type is of another width."""
        if mtext is not None:
            x = mtext.get_transform().transform(mtext.get_unitless_position())[0]
        anchor = ANCHORS.get(mtext.get_horizontalalignment() if mtext is not None else "left", "start")
        colour = to_hex(gc.get_rgb())
        style = (
            f'text-anchor="{anchor}" font-size="{prop.get_size_in_points():g}" style="fill:{OWN.get(colour, colour)}"'
        )
        self._share(style)
        self.parts.append(f'<text x="{_short(x)}" y="{_short(y)}">{escape(s)}</text>')

    def whole(self) -> str:
        """All that was drawn."""
        self._share("")
        return "".join(self.parts)

    def _share(self, style: str) -> None:
        """Begin a group of elements that look the same, after the end of the one before."""
        if style != self._style:
            self.parts += ["</g>"] * bool(self._style) + [f"<g {style}>"] * bool(style)
            self._style = style

    def draw_path(self, gc: GraphicsContextBase, path: Outline, transform: Transform, rgbFace: Any = None) -> None:
        """Draw an outline in its colours, unless nothing of it would be seen."""
        outline, last = "", np.zeros(2)
        # Each point is written relative to the one before; what is not a number leaves a gap.
        for points, code in path.iter_segments(transform + self._flip, simplify=False):
            if code == Outline.CLOSEPOLY:
                outline += "z"
                continue
            places = np.round(points.reshape(-1, 2), 1)
            steps = places if code == Outline.MOVETO else places - last
            outline += LETTERS[code] + " ".join(map(_short, steps.ravel()))
            last = places[-1]
        styles = ["fill:none"] if rgbFace is None else [_colour("fill", rgbFace)]
        has_line = bool(gc.get_linewidth() and gc.get_rgb()[3])
        if has_line:
            styles += [_colour("stroke", gc.get_rgb()), f"stroke-width:{gc.get_linewidth():.3g}"]
            dashes = gc.get_dashes()[1]
            if dashes is not None:
                styles.append(f"stroke-dasharray:{' '.join(f'{each:.3g}' for each in np.asarray(dashes))}")
        if outline and (has_line or rgbFace is not None):
            kind = ' class="line"' if rgbFace is None else ""
            self._share(f'style="{";".join(styles)}"')
            self.parts.append(f'<path{kind} d="{outline}"/>')


def page_svg(
    figure: Figure,
    kind: str,
    label: str,
    groups: Mapping[str, str] | None = None,
    data: str = "",
    is_decoration: bool = False,
) -> str:
    """A figure as an element of the page; `groups` gives attributes to artists by their names."""
    width, height = POINTS * figure.get_size_inches()
    renderer = PageRenderer(width, height, groups or {})
    figure.draw(renderer)
    role = 'aria-hidden="true"' if is_decoration else f'role="img" aria-label="{escape(label)}"'
    box = f'viewBox="0 0 {width:g} {height:g}"'
    return f'<svg class="{kind}" {box} {role}{data}>{renderer.whole()}</svg>'


def as_data(**values: Any) -> str:
    """Values as attributes for the page's script."""
    data = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for name, value in values.items()
    }
    return "".join(f' data-{name}="{escape(value, quote=True)}"' for name, value in data.items())


def places_in(figure: Figure, points: Sequence[tuple[float, float]], which: int = 0) -> list[list[float]]:
    """Where points of one of a figure's axes are in its element, from the left and from the top."""
    axes = figure.axes[which]
    # Otherwise the axes would get their ends only when they are drawn.
    axes.autoscale_view()
    found = axes.transData.transform(points)
    height = POINTS * figure.get_size_inches()[1]
    return [[round(float(x), 1), round(float(height - y), 1)] for x, y in found]


def _colour(what: str, colour: Any) -> str:
    """A colour by the page's name of it, and how far it is transparent."""
    name = to_hex(colour[:3])
    is_solid = len(colour) < 4 or colour[3] == 1
    return f"{what}:{(OWN | BACKGROUND).get(name, name)}" + ("" if is_solid else f";{what}-opacity:{colour[3]:.2g}")


def _short(number: float) -> str:
    """A number with at most one digit after the point."""
    return f"{number:.1f}".removesuffix(".0")
