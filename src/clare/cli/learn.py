"""`clare learn`."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import inf
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from clare.classifier.choice import MANY, Way, Wish, choose, find_ways
from clare.classifier.classifier import Classifier, load
from clare.classifier.pictures import Pictures, num_held_back
from clare.classifier.sources import Source
from clare.classifier.suspects import find_suspects, without
from clare.cli.console import plain_table, say
from clare.data.images import image_size
from clare.engine.context import Silence
from clare.errors import SettingsError
from clare.model.folder import MANIFEST, read_manifest
from clare.model.records import UNKNOWN_DATE, Change, ClassReport, Evaluation, Mode
from clare.presets.load import values_of
from clare.report.tables import duration, percent
from clare.runner.progress import Drawn, bars_on

NAMED = {"backbone": "backbone", "method": "method", "seed": "seed", "keep": "num_kept"}
"""Options for a new model, and what Python calls them."""
NUM_LOOKED_AT = 20
MOST_LISTED = 200
"""Classes that the report of a lesson lists; `clare inspect` lists all."""
LARGEST_DRAWING = 128
"""Pictures with a longer side than this are hardly drawings of 28 by 28 pixels."""


class Bar(Drawn, Silence):
    """A listener with one bar that says which step is under way; without a terminal, a line now and then."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:<12}"), BarColumn(bar_width=32), TimeElapsedColumn())
        self.progress = bars_on(console, *columns)
        super().__init__(console, self.progress, self._line)
        self.bar = self.progress.add_task("reading", total=None)
        self.num_epochs = 1

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

    def _line(self) -> str:
        """Which step is under way, and how much of it is done where that is known."""
        (step,) = self.progress.tasks
        done = "" if step.total is None else f", {step.percentage:.0f} % done"
        return f"{step.description}, after {duration(step.elapsed or 0)}{done}"

    def notice(self, text: str) -> None:
        """Print a notice above the bar."""
        self.console.print(f"[yellow]notice:[/] {escape(text)}", soft_wrap=True, highlight=False)


def without_suspects(bar: Bar, model: Classifier, source: Source, pictures: Path) -> Source:
    """Return pictures without those that are probably wrong, and say how many those were."""
    suspects = find_suspects(model.parts, source)
    counts = Counter(each.kind for each in suspects if each.is_left_out)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "nothing"
    bar.notice(f"left out as suspicious: {said}; clare check {quote(str(pictures))} shows which")
    return without(source, suspects)


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
    settings = values_of(given.get("set", []))
    named = {name: given[key] for key, name in NAMED.items() if key in given}
    model = Classifier(path, **named, settings=settings or None, device=device)
    if not is_there and model.is_drawing_model and "backbone" not in given:
        bar.notice(
            f"the new model uses {model.backbone_name}, the small backbone for drawings that comes with the package "
            "and needs no network; for photos give --backbone, such as vit_base_patch16_224.augreg_in21k"
        )
    return model


def wish_of(quick: bool, best: bool, minutes: float | None, update: bool, is_settled: bool) -> Wish:
    """Return what is wished for; refuse words that contradict each other, or a method and settings that are given."""
    if quick and update:
        raise SettingsError("--quick is for new classes and --update for known ones; give one of them")
    if quick + best + (minutes is not None) > 1:
        raise SettingsError("--quick, --best and --minutes each say how long a lesson may take; give one of them")
    if minutes is not None and not 0 < minutes < inf:
        raise SettingsError(f"--minutes is {minutes:g}; give a number above 0, such as 5")
    if best and is_settled:
        raise SettingsError("--best chooses method and settings itself; leave it out, or --method and --set")
    return "quick" if quick else "best" if best else "usual"


def settle(
    bar: Bar, model: Classifier, source: Source, mode: Mode, wish: Wish, minutes: float | None, is_open: bool
) -> Mode:
    """Make a new model that is open to choice what its first lesson asks for, and return how the lesson is taught."""
    counts = source.to_learn
    num_images, num_classes = sum(map(len, counts.values())), len(counts)
    seconds = model.estimate_seconds(num_images, num_classes, mode)
    if is_open:
        ways = find_ways(model.parts.backbone, num_images, num_classes, seconds)
        chosen = choose(ways, wish, minutes)
        if chosen.wish != "usual":
            model.set_params(method=chosen.method, settings=chosen.settings)
        seconds = chosen.seconds
        if len(ways) > 1 or wish != "usual":
            say(bar.console, ways_in_words(chosen, ways, wish))
    elif minutes is not None and seconds > 60 * minutes and mode == "learn":
        quick_seconds = model.estimate_seconds(num_images, num_classes, "quick")
        if quick_seconds < seconds:
            bar.notice(f"training would take about {duration(seconds)}, so this lesson goes by statistics, as --quick")
            seconds, mode = quick_seconds, "quick"
    if minutes is not None and seconds > 60 * minutes:
        bar.notice(f"there is no way within {minutes:g} minutes; the quickest is taken")
    say_before(bar, model, source, seconds)
    return mode


def ways_in_words(chosen: Way, ways: Sequence[Way], wish: Wish) -> str:
    """Say what was chosen, and what the other choices would cost."""
    others = [
        f"{'without' if way.wish == 'usual' else f'--{way.wish}'}: about {duration(way.seconds)}, {way.words}"
        for way in ways
        if way is not chosen
    ]
    if wish == "best" and chosen.wish != "best":
        others.append(f"no adapter, which pays with photos from {MANY} pictures a class on")
    return "; ".join([f"chosen: {chosen.words}, about {duration(chosen.seconds)}", *others])


def say_before(bar: Bar, model: Classifier, source: Source, seconds: float) -> None:
    """Say what will be taught, how long it will take and how much room there is."""
    counts, held = source.to_learn, source.held_back
    num_images = sum(map(len, counts.values()))
    num_held = 0 if held is not None else sum(num_held_back(len(images)) for images in counts.values())
    part = "val" if "val" in source.parts else "test"
    lines = [
        f"{model.path}: {len(counts)} classes, {num_images} pictures, of which {num_held} are held back"
        if held is None
        else f"{model.path}: {len(counts)} classes, {num_images} pictures to learn from, {part}/ is held back",
        f"this will take about {duration(seconds)}",
        capacity_line(model),
    ]
    say(bar.console, *lines)
    if model.is_drawing_model:
        files = [path for images in counts.values() for path in images[:NUM_LOOKED_AT] if isinstance(path, Path)]
        sizes = map(image_size, files)
        sides = [max(size) for size in islice(sizes, NUM_LOOKED_AT) if size is not None]
        if sides and median(sides) > LARGEST_DRAWING:
            bar.notice(
                f"pictures of {median(sides):.0f} pixels look like photos, but this model sees 28 by 28 grey pixels; "
                "for photos make a model with --backbone, of which clare doctor suggests some for this machine"
            )


def say_read(bar: Bar, model: Classifier, read: Pictures) -> None:
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
    new, known = set(change.classes), model.classes
    # Of very many classes some are listed, the new ones first.
    places = sorted(range(len(known)), key=lambda place: known[place].name not in new)[:MOST_LISTED]
    console.print(class_table(model, sorted(places), new, checked, is_full=False))
    num_more = len(known) - MOST_LISTED
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
    say(console, *lines)


def class_table(
    model: Classifier, places: Sequence[int], new: set[str], checked: Evaluation | None, is_full: bool
) -> Table:
    """Return the newest accuracy of classes with its date, and that of a check; a full one has the day they came."""
    before, after = ["taught"] * is_full, ["check (%)", "of"] if checked else []
    headings = ["class", "task", *before, "pictures", "accuracy (%)", "of", "measured", *after]
    table, known, reports = plain_table(headings, left=("class", "taught", "measured")), model.classes, model.reports
    for place, info in ((place, known[place]) for place in places):
        row = [escape(info.name), str(info.task), *([day(info.taught_at)] * is_full), str(info.num_images or "-")]
        row += accuracy_cells(reports.get(info.name))
        if checked is not None:
            count = checked.counts[place]
            row += [percent(checked.correct[place] / count), str(count)] if count else ["-", "-"]
        table.add_row(*row, style="bold" if info.name in new else None)
    return table


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
