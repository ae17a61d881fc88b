"""`clare sweep`."""

from pathlib import Path
from typing import Annotated

import typer

from clare.cli.console import console, leave_if
from clare.cli.options import Backbone, Preset, SkipBad, names_in, overrides_of
from clare.errors import SettingsError

Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE,VALUE",
        help="Values of a setting, such as method.sparsity=0.9,0.95; repeatable, all are combined with all. "
        "A comma within a list or quotes separates nothing.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; one for each GPU when left out, or one where there is none.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on the machines of a Ray cluster: HOST:PORT, ray://HOST:PORT, auto or local."
    ),
]


def sweep(
    preset: Preset,
    set_: Values = None,
    method: Annotated[str | None, typer.Option(help="A method's name, or path/to/file.py:Class.")] = None,
    methods: Annotated[str | None, typer.Option(help="Several methods, separated by commas.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas; the preset's when left out.")] = None,
    backbone: Backbone = None,
    jobs: Jobs = None,
    ray: Cluster = None,
    out: Annotated[Path | None, typer.Option(help="The folder for all runs; runs/PRESET-sweep when left out.")] = None,
    skip_bad_images: SkipBad = False,
) -> None:
    """Run every combination of listed settings with every seed, and rank them; the same command goes on."""
    from clare.presets.load import with_backbone
    from clare.runner.compare import parse_seeds
    from clare.runner.sweep import sweep_command

    if ray is not None and jobs is not None:
        raise SettingsError("--ray and --jobs were both given; leave --jobs out, Ray decides how many runs go at once")
    failures = sweep_command(
        console,
        with_backbone(preset, backbone),
        _methods(method, methods),
        overrides_of(set_, skip_bad_images) if set_ else [],
        parse_seeds(seeds, None),
        out,
        num_processes=jobs,
        ray=ray,
    )
    leave_if([f"{failure.label} failed: {failure.reason}" for failure in failures])


def _methods(method: str | None, methods: str | None) -> list[str]:
    """Read the one method or the several, each once; none means the preset's own."""
    if method is not None and methods is not None:
        raise SettingsError("--method and --methods were both given; name all methods with --methods")
    return names_in(methods) if methods is not None else [] if method is None else [method]
