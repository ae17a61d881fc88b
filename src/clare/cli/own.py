"""The commands for people with pictures of their own; what needs more than a few lines is beside them."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from clare.cli import options
from clare.cli.console import console, first_of, leave_if, say

if TYPE_CHECKING:
    from clare.model.records import Mode


def learn(
    model: Annotated[Path, typer.Argument(help="The model folder; made if it does not exist.", show_default=False)],
    pictures: options.Pictures,
    quick: options.Quick = False,
    best: options.Best = False,
    minutes: options.Minutes = None,
    update: Annotated[
        bool, typer.Option("--update", help="Give known classes more pictures: rows and statistics only.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(help="Measure again, after learning, on these pictures of any known classes.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help=f"For a new model: {options.BACKBONE}; the drawing model when left out.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="For a new model: a method's name, frozen features (linear) when left out, or "
            "path/to/file.py:Class, to be named with every lesson."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="For a new model: a setting of its method; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="For a new model: seed of every draw.")] = None,
    keep: Annotated[
        int | None, typer.Option(min=1, help="For a new model: how many changes can be undone; 5 when left out.")
    ] = None,
    skip_bad_images: Annotated[
        bool, typer.Option("--skip-bad-images", help="Leave out unreadable images and name them.")
    ] = False,
    skip_suspects: options.SkipSuspects = False,
    no_wait: options.NoWait = False,
    device: options.Device = "auto",
) -> None:
    """Teach a model the classes of a folder of pictures; the pictures of earlier classes are not needed."""
    from clare.classifier.labels import check_known
    from clare.classifier.sources import find_source
    from clare.cli.learn import Bar, open_or_make, print_report, say_read, settle, wish_of, without_suspects

    wish = wish_of(quick, best, minutes, update, bool(method or set_))
    mode: Mode = "quick" if quick else "update" if update else "learn"
    creation = {"backbone": backbone, "method": method, "set": set_, "seed": seed, "keep": keep, "best": best or None}
    source = find_source(pictures)
    to_check = find_source(check) if check else source if {"val", "test"} <= source.parts.keys() else None
    bar = Bar(console)
    with bar:
        taught = open_or_make(bar, model, mode, creation, device)
        check_known(list(source.to_learn), [info.name for info in taught.classes], mode, str(model))
        if skip_suspects:
            source = without_suspects(bar, taught, source, pictures)
        is_open = not (taught.classes or method or set_)
        mode = settle(bar, taught, source, mode, wish, minutes, is_open)
        read = taught.reader(skip_bad_images).to_teach(source)
        say_read(bar, taught, read)
        change = taught.learn(read, mode=mode, listener=bar, wait=not no_wait)
        checked = None if to_check is None else taught.evaluate(to_check)
    print_report(console, taught, change, checked)


def predict(
    model: options.Model,
    images: Annotated[
        list[str],
        typer.Argument(help="Images, folders, tables, archives or patterns; - is standard input.", show_default=False),
    ],
    top: Annotated[int, typer.Option(min=1, help="How many classes to name for each image.")] = 5,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Score from which an image is none of these; the model's when left out."),
    ] = None,
    unknown_rate: Annotated[
        float | None,
        typer.Option(help="Set that score by the share of pictures of known classes that may be lost, such as 0.05."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="Also name the smallest set that holds the right name in this share of cases, such as 0.95."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each image.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write a table to this file instead.")] = None,
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Name images with probabilities, and say which are probably none of the known classes."""
    from clare.classifier.classifier import load
    from clare.cli.predict import answer

    opened = load(model, method=method, device=device)
    leave_if(answer(opened, images, top, opened.thresholds(threshold, unknown_rate, coverage), json, csv))


def inspect(
    model: options.Model,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the capacity used per task and per layer to this PNG file.")
    ] = None,
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Show a model: classes with task and date, capacity, backbone, sizes and history."""
    from clare.cli.model import inspect_command

    inspect_command(console, model, plot, method, device)


def check(
    pictures: options.Pictures,
    model: Annotated[Path | None, typer.Option(help="The model whose features are looked with.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help=f"Without a model: {options.BACKBONE}; the drawing model when left out.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and the table.")] = Path("suspects"),
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Look at pictures before you teach them: broken files, copies, wrong labels, outliers, odd classes."""
    from clare.cli.suspects import suspects_command

    suspects_command(console, pictures, model, backbone, out, method, device)


def evaluate(
    model: options.Model,
    pictures: options.Pictures,
    plot: Annotated[Path, typer.Option(help="PNG file for the confusion matrix.")] = Path("confusion.png"),
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Measure a model on pictures: accuracy per class, and the confusion matrix as a picture."""
    from clare.cli.model import evaluate_command

    evaluate_command(console, model, pictures, plot, method, device)


def undo(
    model: options.Model,
    no_wait: options.NoWait = False,
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Take back the last change of a model exactly."""
    from clare.classifier.classifier import load

    opened = load(model, method=method, device=device)
    change = opened.undo(wait=not no_wait)
    say(
        console,
        f"took back change {change.report['undone']} ({change.report['kind']}: {first_of(change.classes)}); "
        f"{len(opened.classes)} classes; changes that can still be undone: {opened.num_undoable}",
    )


def rename(
    model: options.Model,
    old: Annotated[str, typer.Argument(help="The class's name now.", show_default=False)],
    new: Annotated[str, typer.Argument(help="The name it shall have.", show_default=False)],
    no_wait: options.NoWait = False,
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Give a class of a model another name."""
    from clare.classifier.classifier import load

    load(model, method=method, device=device).rename(old, new, wait=not no_wait)
    say(console, f"'{old}' is now '{new}'; clare undo {quote(str(model))} takes it back")


def merge(
    models: Annotated[list[Path], typer.Argument(help="Two or more model folders.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder of the new model.")],
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Make one model of several that see with the same frozen features; no picture is needed."""
    from clare.cli.model import merge_command

    merge_command(console, models, out, method, device)


def remove(
    model: options.Model,
    name: Annotated[str, typer.Argument(help="The class to forget.", show_default=False)],
    no_wait: options.NoWait = False,
    method: options.OwnMethod = None,
    device: options.Device = "auto",
) -> None:
    """Make a model forget a class; the coordinates of its task stay claimed."""
    from clare.classifier.classifier import load

    opened = load(model, method=method, device=device)
    opened.remove(name, wait=not no_wait)
    number = len(opened.classes)
    left = "1 class is" if number == 1 else f"{number} classes are"
    say(console, f"'{name}' is removed, {left} left; clare undo {quote(str(model))} takes it back")
