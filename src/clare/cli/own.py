"""The signatures of the commands for people with pictures of their own."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from clare.cli.words import BACKBONE, OWN, PICTURES
from clare.errors import SettingsError

Model = Annotated[Path, typer.Argument(help="The model folder.", show_default=False)]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
OwnMethod = Annotated[
    str | None,
    typer.Option("--method", help="The model's method, needed where it is path/to/file.py:Class, which then runs."),
]
Pictures = Annotated[Path, typer.Argument(help=f"Pictures: {PICTURES}.", show_default=False)]
SkipBad = Annotated[bool, typer.Option("--skip-bad-images", help="Leave out unreadable images and name them.")]
SkipSuspects = Annotated[
    bool, typer.Option("--skip-suspects", help="Leave out unreadable images, copies and probably wrong labels.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Give up when another process is teaching the model, instead of waiting.")
]


def add_own_commands(app: typer.Typer, console: Console, errors: Console) -> None:
    """Add learn, predict, inspect, check, undo, rename, merge, remove and evaluate."""
    _add_learn(app, console)
    _add_predict(app, console, errors)
    _add_looks(app, console)
    _add_changes(app, console)


def _add_learn(app: typer.Typer, console: Console) -> None:
    """Add `clare learn`."""

    @app.command(rich_help_panel=OWN)
    def learn(
        model: Annotated[Path, typer.Argument(help="The model folder; made if it does not exist.", show_default=False)],
        pictures: Pictures,
        quick: Annotated[
            bool,
            typer.Option("--quick", help="Rows out of statistics alone, whatever the method would train: seconds."),
        ] = False,
        update: Annotated[
            bool, typer.Option("--update", help="Give known classes more pictures: rows and statistics only.")
        ] = False,
        check: Annotated[
            Path | None, typer.Option(help="Measure again, after learning, on these pictures of any known classes.")
        ] = None,
        backbone: Annotated[
            str | None,
            typer.Option(help=f"For a new model: {BACKBONE}; the drawing model when left out."),
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
        seed: Annotated[
            int | None, typer.Option(min=0, max=2**32 - 1, help="For a new model: seed of every draw.")
        ] = None,
        keep: Annotated[
            int | None, typer.Option(min=1, help="For a new model: how many changes can be undone; 5 when left out.")
        ] = None,
        skip_bad_images: SkipBad = False,
        skip_suspects: SkipSuspects = False,
        no_wait: NoWait = False,
        device: Device = "auto",
    ) -> None:
        """Teach a model the classes of a folder of pictures; the pictures of earlier classes are not needed."""
        from clare.cli.learn import learn_command

        if quick and update:
            raise SettingsError("--quick is for new classes and --update for known ones; give one of them")
        learn_command(
            console,
            model,
            pictures,
            mode="quick" if quick else "update" if update else "learn",
            creation={"backbone": backbone, "method": method, "set": set_, "seed": seed, "keep": keep},
            check=check,
            skip_bad_images=skip_bad_images,
            skip_suspects=skip_suspects,
            wait=not no_wait,
            device=device,
        )


def _add_predict(app: typer.Typer, console: Console, errors: Console) -> None:
    """Add `clare predict`."""

    @app.command(rich_help_panel=OWN)
    def predict(
        model: Model,
        images: Annotated[
            list[str], typer.Argument(help="Images, folders, tables, archives or patterns; - is standard input.")
        ],
        top: Annotated[int, typer.Option(min=1, help="How many classes to name for each image.")] = 5,
        threshold: Annotated[
            float | None,
            typer.Option(min=0, max=1, help="Score from which an image is none of these; the model's when left out."),
        ] = None,
        json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each image.")] = False,
        csv: Annotated[Path | None, typer.Option(help="Write a table to this file instead.")] = None,
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Name images with probabilities, and say which are probably none of the known classes."""
        from clare.cli.predict import predict_command

        problems = predict_command(
            console,
            model,
            images,
            top=top,
            threshold=threshold,
            as_json=json,
            csv_file=csv,
            method=method,
            device=device,
        )
        for problem in problems:
            errors.print(f"[bold red]error:[/] {escape(problem)}", soft_wrap=True, highlight=False)
        if problems:
            raise typer.Exit(1)


def _add_looks(app: typer.Typer, console: Console) -> None:
    """Add `clare inspect`, `clare check` and `clare evaluate`."""

    @app.command(rich_help_panel=OWN)
    def inspect(
        model: Model,
        plot: Annotated[
            Path | None, typer.Option(help="Draw the capacity used per task and per layer to this PNG file.")
        ] = None,
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Show a model: classes with task and date, capacity, backbone, sizes and history."""
        from clare.cli.model import inspect_command

        inspect_command(console, model, plot, method, device)

    @app.command(rich_help_panel=OWN)
    def check(
        pictures: Pictures,
        model: Annotated[Path | None, typer.Option(help="The model whose features are looked with.")] = None,
        backbone: Annotated[
            str | None, typer.Option(help=f"Without a model: {BACKBONE}; the drawing model when left out.")
        ] = None,
        out: Annotated[Path, typer.Option(help="Folder for the page and the table.")] = Path("suspects"),
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Look at pictures before you teach them: broken files, copies, wrong labels, outliers, odd classes."""
        from clare.cli.suspects import suspects_command

        suspects_command(console, pictures, model, backbone, out, method, device)

    @app.command(rich_help_panel=OWN)
    def evaluate(
        model: Model,
        pictures: Pictures,
        plot: Annotated[Path, typer.Option(help="PNG file for the confusion matrix.")] = Path("confusion.png"),
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Measure a model on pictures: accuracy per class, and the confusion matrix as a picture."""
        from clare.cli.model import evaluate_command

        evaluate_command(console, model, pictures, plot, method, device)


def _add_changes(app: typer.Typer, console: Console) -> None:
    """Add `clare undo`, `clare rename`, `clare merge` and `clare remove`."""

    @app.command(rich_help_panel=OWN)
    def undo(model: Model, no_wait: NoWait = False, method: OwnMethod = None, device: Device = "auto") -> None:
        """Take back the last change of a model exactly."""
        from clare.cli.model import undo_command

        undo_command(console, model, not no_wait, method, device)

    @app.command(rich_help_panel=OWN)
    def rename(
        model: Model,
        old: Annotated[str, typer.Argument(help="The class's name now.", show_default=False)],
        new: Annotated[str, typer.Argument(help="The name it shall have.", show_default=False)],
        no_wait: NoWait = False,
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Give a class of a model another name."""
        from clare.cli.model import rename_command

        rename_command(console, model, old, new, not no_wait, method, device)

    @app.command(rich_help_panel=OWN)
    def merge(
        models: Annotated[list[Path], typer.Argument(help="Two or more model folders.", show_default=False)],
        out: Annotated[Path, typer.Option(help="The folder of the new model.")],
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Make one model of several that see with the same frozen features; no picture is needed."""
        from clare.cli.merge import merge_command

        merge_command(console, models, out, method, device)

    @app.command(rich_help_panel=OWN)
    def remove(
        model: Model,
        name: Annotated[str, typer.Argument(help="The class to forget.", show_default=False)],
        no_wait: NoWait = False,
        method: OwnMethod = None,
        device: Device = "auto",
    ) -> None:
        """Make a model forget a class; the coordinates of its task stay claimed."""
        from clare.cli.model import remove_command

        remove_command(console, model, name, not no_wait, method, device)
