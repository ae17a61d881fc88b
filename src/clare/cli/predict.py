"""`clare predict`."""

import glob
import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rich.markup import escape

from clare.classifier.answers import Thresholds
from clare.classifier.classifier import Classifier
from clare.classifier.sources import find_source, holds_many
from clare.cli.console import console
from clare.data.images import IMAGE_SUFFIXES, Pixels
from clare.data.pictures import Stored
from clare.errors import DataError
from clare.files import write_text
from clare.model.records import Answer
from clare.report.tables import csv_text

BATCH = 256


def answer(
    model: Classifier, images: list[str], top: int, thresholds: Thresholds, as_json: bool, csv_file: Path | None
) -> list[str]:
    """Name pictures, and return a sentence for each that could not be read."""
    reader = model.reader()
    problems: list[str] = []
    rows: list[list[str]] = []
    files = expand(images, problems)
    # In batches, so that not all pictures are in memory at once.
    for start in range(0, len(files), BATCH):
        names: list[str] = []
        pixels: list[Pixels] = []
        for file in files[start : start + BATCH]:
            try:
                pixels.append(reader.image(file))
                names.append(str(file))
            except DataError as error:
                # One that cannot be read is named and does not stop the rest.
                problems.append(str(error).replace(", or pass --skip-bad-images", ""))
        for found in model.guess_pixels(names, pixels, top, thresholds):
            if as_json:
                console.out(json.dumps(found.as_json(), ensure_ascii=False), highlight=False)
            elif csv_file is None:
                console.print(as_line(found), soft_wrap=True, highlight=False)
            cells = [cell for guess in found.guesses for cell in (guess.name, f"{guess.probability:.6f}")]
            names = [] if found.one_of is None else ["; ".join(found.one_of)]
            rows.append([found.image, f"{found.unknown:.6f}", str(found.is_unknown).lower(), *names, *cells])
    if csv_file is not None:
        write_text(csv_file, as_csv(rows, top, thresholds.least_probability is not None))
        console.print(f"{csv_file}: {len(rows)} pictures", soft_wrap=True, highlight=False)
    return problems


def expand(given: Iterable[str], problems: list[str]) -> list[Path | Stored]:
    """Return the pictures that names, folders, tables, archives and patterns stand for, in their order."""
    found: list[Path | Stored] = []
    for text in given:
        path = Path(text)
        if text == "-":
            content = sys.stdin.buffer.read()
            found.append(Stored("standard input", partial(bytes, content)))
        elif holds_many(text):
            parts = find_source(text).parts.values()
            found += [image for part in parts for pictures in part.values() for image in pictures]
        elif path.is_dir():
            files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
            inside = sorted(file for file in files if file.suffix.lower() in IMAGE_SUFFIXES)
            if not inside:
                problems.append(f"the folder '{text}' has no images; give another one")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            matching = [Path(name) for name in sorted(glob.glob(text, recursive=True)) if Path(name).is_file()]
            if not matching:
                problems.append(f"there is no file '{text}'; check its name")
            found += matching
    return found


def as_line(answer: Answer) -> str:
    """Return an answer as a line of text, with markup."""
    text = ", ".join(f"{escape(guess.name)} {100 * guess.probability:.1f} %" for guess in answer.guesses)
    score = f"(unknown {answer.unknown:.2f})"
    said = f"[bold yellow]none of these?[/] {score}; if it is one of them: {text}" if answer.is_unknown else text
    names = "" if answer.one_of is None else f"; one of: {', '.join(escape(name) for name in answer.one_of)}"
    return f"{escape(answer.image)}: {said}{'' if answer.is_unknown else f' {score}'}{names}"


def as_csv(rows: list[list[str]], top: int, has_sets: bool) -> str:
    """Return file, score, verdict, then names and probabilities in turn; no wider than the number of classes."""
    heading = ["image", "unknown", "is_unknown", *(["one_of"] if has_sets else [])]
    num_guesses = max(((len(row) - len(heading)) // 2 for row in rows), default=top)
    for number in range(1, num_guesses + 1):
        heading += [f"name_{number}", f"probability_{number}"]
    return csv_text([heading, *rows])
