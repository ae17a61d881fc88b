"""`clare check`."""

import base64
import io
from collections import Counter
from pathlib import Path
from shlex import quote

import numpy as np
from PIL import Image
from rich.console import Console

from clare.classifier.classifier import Classifier, load
from clare.classifier.sources import find_source
from clare.classifier.suspects import Suspect, find_suspects
from clare.cli.options import say
from clare.data.images import Pixels
from clare.errors import SettingsError
from clare.files import write_text
from clare.report.tables import csv_text
from clare.templates import fill

THUMBNAIL = 96
MOST_SHOWN = 200
"""Pictures of a kind that the page shows; the table has all."""


def suspects_command(
    console: Console,
    pictures: Path,
    model: Path | None,
    backbone: str | None,
    out: Path,
    method: str | None,
    device: str,
) -> None:
    """Look at pictures before they are taught, and write what is suspicious as a page and as a table."""
    if model is not None and backbone is not None:
        raise SettingsError(
            "--model and --backbone were both given; a model sees with its own, so leave out --backbone"
        )
    source = find_source(pictures)
    looks = Classifier(backbone=backbone, device=device) if model is None else load(model, method=method, device=device)
    found = find_suspects(looks.parts, source)
    page, table = out / "suspects.html", out / "suspects.csv"
    rows = [[each.kind, each.name, each.label, each.about, f"{each.score:.4f}"] for each in found]
    write_text(table, csv_text([["kind", "name", "label", "about", "score"], *rows]))
    write_text(page, as_page(found, str(pictures)))
    counts = Counter(each.kind for each in found)
    num_pictures = sum(len(images) for part in source.parts.values() for images in part.values())
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "nothing suspicious"
    lines = [
        f"{pictures}: {num_pictures} pictures seen with {looks.backbone_name}: {said}",
        f"page: {page}   table: {table}",
    ]
    num_left_out = sum(each.is_left_out for each in found)
    if num_left_out:
        lines.append(
            f"next: look at the page; clare learn MODEL {quote(str(pictures))} --skip-suspects leaves out the "
            f"{num_left_out} that are surest"
        )
    say(console, *lines)


def as_page(found: list[Suspect], title: str) -> str:
    """Return a page that needs nothing but itself, the surest of each kind first."""
    kinds = [
        (kind, number, sorted((each for each in found if each.kind == kind), key=lambda each: -each.score)[:MOST_SHOWN])
        for kind, number in Counter(each.kind for each in found).items()
    ]
    return fill("report/assets/suspects.html", title=title, kinds=kinds, png=_png)


def _png(pixels: Pixels) -> str:
    """Return a small picture as text."""
    image = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
