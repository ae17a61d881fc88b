"""`clare predict`."""

import csv
import glob
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from clare.classifier.taught import TaughtModel
from clare.data.images import IMAGE_SUFFIXES, Pixels
from clare.errors import DataError
from clare.files import write_text
from clare.model.records import Guess, answer_of

BATCH = 256


def predict_command(
    console: Console,
    path: Path,
    images: list[str],
    *,
    top: int,
    threshold: float | None,
    as_json: bool,
    csv_file: Path | None,
    method: str | None,
    device: str,
) -> list[str]:
    """Name pictures, and return a sentence for each that could not be read."""
    model = TaughtModel.open(path, device=device, method=method)
    problems: list[str] = []
    rows: list[list[str]] = []
    found = expand(images, problems)
    for batch in _batches(found):
        read = _read(model, batch, problems)
        guesses = model.predict_pixels([pixels for _, pixels in read], top, threshold)
        for (name, _), guess in zip(read, guesses, strict=True):
            if as_json:
                console.out(json.dumps(answer_of(name, guess), ensure_ascii=False), highlight=False)
            elif csv_file is None:
                console.print(as_line(name, guess), soft_wrap=True, highlight=False)
            rows.append(as_row(name, guess))
    if csv_file is not None:
        write_text(csv_file, as_csv(rows, top))
        console.print(f"{csv_file}: {len(rows)} pictures", soft_wrap=True, highlight=False)
    return problems


def expand(given: Iterable[str], problems: list[str]) -> list[Path]:
    """Return the files that names, folders and patterns stand for, in their order."""
    found: list[Path] = []
    for text in given:
        path = Path(text)
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if _is_image(file))
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


def _is_image(file: Path) -> bool:
    """Tell whether a file in a folder is meant to be an image."""
    return file.is_file() and file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith(".")


def _batches(paths: list[Path]) -> Iterator[list[Path]]:
    """Yield the files in batches, so that not all pictures are in memory at once."""
    for start in range(0, len(paths), BATCH):
        yield paths[start : start + BATCH]


def _read(model: TaughtModel, paths: list[Path], problems: list[str]) -> list[tuple[str, Pixels]]:
    """Read pictures; one that cannot be read is named and does not stop the rest."""
    reader = model.reader()
    read = []
    for path in paths:
        try:
            read.append((str(path), reader.image(path)))
        except DataError as error:
            problems.append(str(error).replace(", or pass --skip-bad-images", ""))
    return read


def as_line(name: str, guess: Guess) -> str:
    """Return a guess as a line of text, with markup."""
    named = zip(guess.names, guess.probabilities, strict=True)
    text = ", ".join(f"{escape(label)} {100 * probability:.1f} %" for label, probability in named)
    verdict = "  [bold yellow]none of these?[/]" if guess.is_unknown else ""
    return f"{escape(name)}: {text} (unknown {guess.unknown:.2f}){verdict}"


def as_row(name: str, guess: Guess) -> list[str]:
    """Return a guess as a row of a table: file, score, verdict, then names and probabilities in turn."""
    named = zip(guess.names, guess.probabilities, strict=True)
    cells = [cell for label, probability in named for cell in (label, f"{probability:.6f}")]
    return [name, f"{guess.unknown:.6f}", str(guess.is_unknown).lower(), *cells]


def as_csv(rows: list[list[str]], top: int) -> str:
    """Return rows as CSV with a heading; no wider than the number of classes."""
    num_guesses = max(((len(row) - 3) // 2 for row in rows), default=top)
    heading = ["image", "unknown", "is_unknown"]
    for number in range(1, num_guesses + 1):
        heading += [f"name_{number}", f"probability_{number}"]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heading, *rows])
    return text.getvalue()
