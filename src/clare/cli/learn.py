"""`clare learn`."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from statistics import median
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from clare.classifier.classifier import Classifier, load
from clare.classifier.pictures import Pictures, is_split, num_held_back
from clare.data.folders import image_paths, subfolders
from clare.data.images import image_size
from clare.engine.context import Silence
from clare.errors import DataError, SettingsError
from clare.model.folder import MANIFEST, read_manifest
from clare.model.records import UNKNOWN_DATE, Change, ClassInfo, ClassReport, Evaluation, Mode
from clare.presets.load import parse_override
from clare.report.tables import duration, percent
from clare.settings import merge

NAMED = {"backbone": "backbone", "method": "method", "seed": "seed", "keep": "num_kept"}
"""Options for a new model, and what Python calls them."""
NUM_LOOKED_AT = 20
MOST_LISTED = 200
"""Classes that the report of a lesson lists; `clare inspect` lists all."""
LARGEST_DRAWING = 128
"""Pictures with a longer side than this are hardly drawings of 28 by 28 pixels."""


class Bar(Silence):
    """A listener with one bar that says which step is under way."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=32),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.bar = self.progress.add_task("reading", total=None)
        self.num_epochs = 1

    def __enter__(self) -> "Bar":
        """Start drawing."""
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self.progress.stop()

    def step(self, name: str, num_epochs: int) -> None:
        """Show which phase or pass runs."""
        self.num_epochs = num_epochs
        self.progress.reset(self.bar, description=name)

    def epoch(self, epoch: int, num_batches: int) -> None:
        """Count the batches of all epochs of the step."""
        self.progress.update(self.bar, total=self.num_epochs * num_batches, completed=epoch * num_batches)

    def batch(self) -> None:
        """Show one more batch."""
        self.progress.advance(self.bar)

    def notice(self, text: str) -> None:
        """Print a notice above the bar."""
        self.console.print(f"[yellow]notice:[/] {escape(text)}", soft_wrap=True, highlight=False)


def learn_command(
    console: Console,
    path: Path,
    pictures: Path,
    *,
    mode: Mode,
    creation: dict[str, Any],
    check: Path | None,
    skip_bad_images: bool,
    wait: bool,
    device: str,
) -> None:
    """Teach a folder of pictures to a model folder, which is made if there is none."""
    counts = count_pictures(pictures)
    if check is not None:
        count_pictures(check)
    with Bar(console) as bar:
        model = open_or_make(bar, path, mode, creation, device)
        _say_before(bar, model, counts, pictures, mode)
        read = model.reader(skip_bad_images).to_teach(pictures)
        _say_read(bar, model, read)
        change = model.learn(read, mode=mode, listener=bar, wait=wait)
        checked = None if check is None else model.evaluate(check)
    print_report(console, model, change, checked)


def count_pictures(folder: Path) -> dict[str, list[Path]]:
    """Return the picture files of each class of a folder; nothing is decoded yet."""
    root = folder / "train" if is_split(folder) else folder
    if not root.is_dir():
        raise DataError(f"there is no folder {folder}; give a folder that has one folder per class")
    found = {name: image_paths(root / name) for name in subfolders(root)}
    if not found:
        raise DataError(f"{folder} has no class folders; put the images of each class into a folder of its own")
    return found


def open_or_make(bar: Bar, path: Path, mode: Mode, creation: dict[str, Any], device: str) -> Classifier:
    """Open the model, or make it; how a model is made cannot be changed once it knows classes."""
    given = {key: value for key, value in creation.items() if value not in (None, [])}
    is_there = (path / MANIFEST).exists()
    if is_there and read_manifest(path).state["classes"]:
        model = load(path, method=given.pop("method", None), device=device)
        if given:
            option = next(iter(given))
            raise SettingsError(
                f"{path} knows classes already, and --{option} counts only for a new model; leave it out or choose "
                "another folder"
            )
        return model
    if mode == "update":
        raise SettingsError(f"{path} knows no classes that could get more pictures; leave out --update")
    settings: dict[str, Any] = {}
    for override in given.get("set", []):
        settings = merge(settings, parse_override(override))
    named = {name: given[key] for key, name in NAMED.items() if key in given}
    model = Classifier(path, **named, settings=settings or None, device=device)
    if not is_there and model.is_drawing_model and "backbone" not in given:
        bar.notice(
            f"the new model uses {model.backbone_name}, the small backbone for drawings that comes with the package "
            "and needs no network; for photos give --backbone, such as vit_base_patch16_224.augreg_in21k"
        )
    return model


def _say_before(bar: Bar, model: Classifier, counts: dict[str, list[Path]], pictures: Path, mode: Mode) -> None:
    """Say what will be taught, how long it will take and how much room there is."""
    num_images = sum(map(len, counts.values()))
    num_held = 0 if is_split(pictures) else sum(num_held_back(len(paths)) for paths in counts.values())
    seconds = model.estimate_seconds(num_images - num_held, len(counts), mode)
    lines = [
        f"{model.path}: {len(counts)} classes, {num_images} pictures, of which {num_held} are held back"
        if not is_split(pictures)
        else f"{model.path}: {len(counts)} classes, {num_images} pictures to learn from, test/ is held back",
        f"this will take about {duration(seconds)}",
        capacity_line(model),
    ]
    for line in lines:
        bar.console.print(escape(line), soft_wrap=True, highlight=False)
    if model.is_drawing_model:
        sizes = [image_size(path) for paths in counts.values() for path in paths[:NUM_LOOKED_AT]]
        sides = [max(size) for size in sizes[:NUM_LOOKED_AT] if size is not None]
        if sides and median(sides) > LARGEST_DRAWING:
            bar.notice(
                f"pictures of {median(sides):.0f} pixels look like photos, but this model sees 28 by 28 grey pixels; "
                "for photos make a model with --backbone"
            )


def _say_read(bar: Bar, model: Classifier, read: Pictures) -> None:
    """Say what was left out, and what will hardly work."""
    for name in read.skipped:
        bar.notice(f"'{name}' cannot be read as an image and was left out")
    few = [name for name, images in read.held_back.items() if not images]
    if few:
        some = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
        bar.notice(
            f"nothing is held back of {some}: the accuracy of classes with fewer than 5 pictures is not measured"
        )
    images = [image for group in read.train.values() for image in group]
    num_inverted = model.count_inverted(images)
    if num_inverted:
        bar.notice(
            f"{num_inverted} of {len(images)} drawings have a bright ground and are inverted, since the drawing model "
            "knows bright ink on dark; pictures are treated alike when they are named"
        )


def capacity_line(model: Classifier) -> str:
    """Say how much of the adapter is free, and for how long."""
    capacity = model.capacity
    if capacity is None:
        return f"capacity: no limit; the method '{model.parts.method.name}' claims no coordinates"
    share = percent(capacity.num_free / capacity.num_coordinates)
    left = "" if model.tasks_left is None else f", enough for about {model.tasks_left} more tasks"
    return f"capacity: {share} % of the coordinates are free{left}"


def print_report(console: Console, model: Classifier, change: Change, checked: Evaluation | None) -> None:
    """Print accuracies of new and old classes, the capacity left, and what to type next."""
    console.print(report_table(model, change.classes, checked))
    num_more = len(model.classes) - MOST_LISTED
    if num_more > 0:
        console.print(f"and {num_more} more classes; clare inspect {quote(str(model.path))} lists all", markup=False)
    accuracy = change.report["accuracy"]
    measured = (
        "nothing was held back, so nothing was measured"
        if accuracy is None
        else f"{percent(accuracy)} % of {change.report['num_held_back']} held-back pictures are named rightly"
    )
    lines = [
        f"{measured}; taught in {duration(change.report['seconds'])}",
        capacity_line(model),
        "next: clare predict {0} IMAGE…   clare learn {0} MORE   clare undo {0}".format(quote(str(model.path))),
    ]
    if not change.report["is_calibrated"]:
        lines.insert(1, "'none of these' is off until two classes and four pictures were held back")
    for line in lines:
        console.print(escape(line), soft_wrap=True, highlight=False)


def report_table(model: Classifier, new: Sequence[str], checked: Evaluation | None) -> Table:
    """Return the newest accuracy of every class with its date, and that of a check where there was one."""
    table = Table(box=None, pad_edge=False)
    headings = (
        "class",
        "task",
        "pictures",
        "accuracy (%)",
        "of",
        "measured",
        *(["check (%)", "of"] if checked else []),
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("class", "measured") else "right")
    reports, just_learnt = model.reports, set(new)
    for place, info in listed(model.classes, just_learnt):
        row = [escape(info.name), str(info.task), str(info.num_images or "-"), *accuracy_cells(reports.get(info.name))]
        if checked is not None:
            count = checked.counts[place]
            row += [percent(checked.correct[place] / count), str(count)] if count else ["-", "-"]
        table.add_row(*row, style="bold" if info.name in just_learnt else None)
    return table


def listed(classes: Sequence[ClassInfo], first: set[str]) -> list[tuple[int, ClassInfo]]:
    """Return the classes that a report lists, with their places; of very many some, the new ones first."""
    chosen = sorted(range(len(classes)), key=lambda place: classes[place].name not in first)[:MOST_LISTED]
    return [(place, classes[place]) for place in sorted(chosen)]


def accuracy_cells(report: ClassReport | None) -> tuple[str, str, str]:
    """Return a class's accuracy in percent, on how many held-back pictures, and the day it was measured."""
    if report is None or report.num_held_back == 0:
        return "-", "-", "never"
    about = "about " if report.is_estimate else ""
    share = percent(report.num_correct / report.num_held_back)
    return about + share, str(report.num_held_back), day(report.measured_at)


def day(at: str) -> str:
    """Return the day of a date."""
    return at[:10] or UNKNOWN_DATE
