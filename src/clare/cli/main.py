"""The command line; a command's signature is its interface.

Commands import what they need when they run, so that `clare doctor` works where torchvision cannot be imported.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from clare.cli import experiments, options, own
from clare.cli.console import console, errors, leave_if, say_error
from clare.errors import ClareError, SettingsError
from clare.version import __version__

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")


def _say_version(is_wanted: bool) -> None:
    """Print the version and end, if that was asked for."""
    if is_wanted:
        console.print(f"clare {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def clare(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Say the version and end.")
    ] = False,
) -> None:
    """Class-incremental learning on a frozen vision transformer: train, compare and look at methods."""


def presets(
    name: Annotated[str | None, typer.Argument(help="Show all settings of this preset.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Show it with this method, a name or path/to/file.py:Class, not the preset's own."),
    ] = None,
    backbone: options.Backbone = None,
    set_: options.Overrides = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of each setting what decided it: preset, overlay, command line.")
    ] = False,
) -> None:
    """List the presets, or show one with every setting."""
    from clare.cli.listing import explain_preset, list_presets, resolved
    from clare.presets.load import with_backbone

    if name is None:
        list_presets(console)
    elif explain:
        explain_preset(console, with_backbone(name, backbone), method, set_ or [])
    else:
        console.print_json(data=resolved(with_backbone(name, backbone), method, set_ or []))


def methods(name: Annotated[str | None, typer.Argument(help="Show all settings of this method.")] = None) -> None:
    """List the methods, or show one with every setting, its default, its bounds and what it means."""
    from clare.cli.listing import list_methods

    list_methods(console, name)


def data(
    preset: options.Preset,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Download what is missing, or unpack what you have downloaded.")
    ] = False,
    method: Annotated[
        str | None, typer.Option(help="The method of the run, where the preset asks for path/to/file.py:Class.")
    ] = None,
    backbone: options.Backbone = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as data.root=/mnt; repeatable."),
    ] = None,
) -> None:
    """Say which data and weights a preset needs, what of it is here, where the rest comes from, and fetch it."""
    from clare.runner.supplies import data_command

    problems, is_ready = data_command(console, preset, method, backbone, set_ or [], fetch)
    leave_if(problems)
    raise typer.Exit(int(not is_ready))


def doctor() -> None:
    """Check that everything clare needs is installed and works together, and say what to do if not."""
    from clare.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(console))


def pretrain(
    out: Annotated[Path, typer.Option(help="File for the weights, ending in .safetensors.")],
    set_: options.Overrides = None,
    device: options.Device = "auto",
) -> None:
    """Train the embedded drawing backbone on the 145 classes outside the embedded stream."""
    import torch

    from clare.backbones.pretrain import PretrainSettings
    from clare.backbones.pretrain import pretrain as train_backbone
    from clare.data.sources import DataSettings, load_dataset
    from clare.engine.ranks import resolve_device
    from clare.files import write_json, write_tensors
    from clare.presets.load import values_of
    from clare.settings import build_settings

    if out.suffix != ".safetensors":
        raise SettingsError(f"--out got '{out}'; give a file name that ends in .safetensors")
    settings = build_settings(PretrainSettings, values_of(set_ or []), "")
    dataset = load_dataset(DataSettings(dataset="quickdraw-pretrain", channels=1))
    every = max(1, settings.epochs // 20)

    def report(epoch: int, loss: float) -> None:
        if (epoch + 1) % every == 0 or epoch + 1 == settings.epochs:
            console.print(f"epoch {epoch + 1} of {settings.epochs}: loss {loss:.3f}", highlight=False)

    chosen = resolve_device(device)
    result = train_backbone(dataset, settings, torch.device(chosen), report)
    write_tensors(out, result.weights)
    facts = {
        "settings": settings.model_dump(mode="json"),
        "num_classes": len(dataset.classes),
        "num_train": len(dataset.train),
        "num_test": len(dataset.test),
        "test_accuracy": round(result.accuracy, 4),
        "seconds": round(result.seconds, 1),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if chosen == "cuda" else "cpu",
    }
    write_json(out.with_suffix(".json"), facts)
    console.print(f"{out}: {result.accuracy:.1%} of the held-out drawings of its {len(dataset.classes)} classes")


def export(
    model: options.Model,
    format_: Annotated[
        Literal["onnx", "timm"],
        typer.Option("--format", help="One ONNX file, or adapter and head with a loader for plain timm."),
    ] = "timm",
    out: Annotated[
        Path | None, typer.Option(help="The folder, or an .onnx file; MODEL-FORMAT beside the model when left out.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="A folder of pictures on which the export is set against the model.")
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Half the size: rows in half precision; the check says what that costs.")
    ] = False,
    method: options.OwnMethod = None,
) -> None:
    """Write a model for use without clare, with a model card, after checking that it answers as the original."""
    from clare.export.export import export_model

    made = export_model(model, format_, out, check, method, compact)
    for path in (made.folder / name for name in made.names):
        num_bytes = path.stat().st_size
        size = f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:.1f} kB"
        console.print(f"{path} ({size})", soft_wrap=True, highlight=False)
    console.print(made.agreement.sentence(), soft_wrap=True, highlight=False)
    if not made.agreement.pictures.are_real:
        console.print("no real pictures were at hand; --check FOLDER checks with yours", soft_wrap=True)


def serve(
    model: options.Model,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 can be reached from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="CLARE_TOKEN", help="What a client must send to change the model.")
    ] = None,
    device: options.Device = "auto",
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another name of this server, as a proxy passes it on.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change a limit, such as predict_images=8.")
    ] = None,
    method: options.OwnMethod = None,
    runtime: Annotated[
        Literal["torch", "onnx"], typer.Option(help="What computes features to answer with; onnx: ONNX Runtime.")
    ] = "torch",
) -> None:
    """Answer over HTTP, with a page to draw or drop images on, and learn new classes while answering."""
    try:
        from clare.cli.serve import serve_command
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"`clare serve` needs the package {error.name}, which is missing; run pip install 'clare[serve]'"
        ) from error
    serve_command(console, errors, model, host, port, token, device, allow_host or [], limit or [], method, runtime)


COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Your own pictures": (
        *(own.learn, own.predict, own.inspect, own.check, own.evaluate, own.undo, own.rename, own.merge, own.remove),
        *(export, serve),
    ),
    "Experiments": (
        *(experiments.train, experiments.compare, experiments.tune, presets, methods),
        *(experiments.check_method, experiments.show, experiments.report, experiments.sweep),
    ),
    "The paper": (experiments.reproduce,),
    "This machine": (data, doctor, pretrain),
}
"""The commands by the headings of the help, in its order."""
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def main() -> None:
    """Run the command line; an error the user can act on is one sentence and exit code 2."""
    try:
        app()
    except ClareError as error:
        say_error(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        # Disks, rights and limits of the system, where nobody nearer could say more.
        about = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error) or type(error).__name__
        say_error(f"{about}{reason}; make room or make it accessible, and run again")
        sys.exit(ClareError.exit_code)
    except (ImportError, RuntimeError) as error:
        if "torchvision" not in str(error):
            raise
        say_error("torchvision does not work with this torch; `clare doctor` says what to do")
        sys.exit(ClareError.exit_code)
    except SystemExit as leaving:
        # Typer turns Ctrl-C into this code before it can be seen here.
        if leaving.code == 130:
            errors.print("interrupted; run the same command again to go on")
        raise
