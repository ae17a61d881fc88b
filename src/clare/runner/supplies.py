"""`clare data`: what a preset needs, what is here, and how the rest gets here."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from clare.backbones.settings import BackboneSettings
from clare.backbones.weights import fetch_weights, find_weights, weights_size
from clare.data.catalogue import CATALOGUE, Facts
from clare.data.fetch import Fetcher, Progress
from clare.data.inventory import differences, folder_of, layout_of, take_inventory
from clare.data.settings import DRAWINGS, DataSettings
from clare.disk import free_space, readable_size
from clare.errors import ClareError, DataError
from clare.hub import cache_folder, without_connection
from clare.presets.load import make_experiment, make_setup, parse_override, with_backbone

COLOURS = {"ready": "green", "differs": "yellow", "missing": "red"}


@dataclass(frozen=True)
class Supply:
    """One thing that a preset needs: how it stands, what it is, more lines about it, and what to do."""

    state: Literal["ready", "differs", "missing"]
    what: str
    details: list[str] = field(default_factory=list)
    remedy: str = ""


def data_command(
    console: Console, preset: str, method: str | None, backbone: str | None, overrides: list[str], fetch: bool
) -> tuple[list[str], bool]:
    """Print what a preset needs and how that stands; return what went wrong in fetching and whether all is ready."""
    name = with_backbone(preset, backbone)
    setup = make_setup(name, overrides)
    if method is not None:
        from clare.methods import METHODS

        METHODS.named(method)
    if method is not None or any("method" in parse_override(text) for text in overrides):
        # What a preset needs does not depend on its method, but only the method's code knows its settings.
        make_experiment(name, method, overrides)
    problems = _fetch_missing(console, setup.data, setup.backbone) if fetch else []
    chosen = [] if method is None else ["--method", method]
    words = [*chosen, *(word for text in overrides for word in ("--set", text))]
    command = shlex.join(["clare", "data", name, *words, "--fetch"])
    supplies = [data_supply(setup.data, command), weights_supply(setup.backbone, command)]
    title = f"[bold]{escape(setup.name)}[/]: {escape(setup.description)}"
    console.print(title, highlight=False, soft_wrap=True)
    for supply in supplies:
        more = [*supply.details, *([f"→ {supply.remedy}"] if supply.remedy else [])]
        lines = [f"[{COLOURS[supply.state]}]{supply.state:<7}[/] {escape(supply.what)}", *map(escape, more)]
        console.print("\n        ".join(lines), highlight=False, soft_wrap=True)
    return problems, all(supply.state == "ready" for supply in supplies)


def data_supply(settings: DataSettings, command: str) -> Supply:
    """Find out whether the images are here and as many as expected."""
    facts = CATALOGUE.get(settings.dataset)
    title = "your images" if facts is None else facts.title
    try:
        found = take_inventory(settings)
    except DataError as error:
        return Supply("missing", f"{title}: {error}", _origin(settings, facts))
    if found is None:
        remedy = _remedy(settings, facts, command)
        return Supply("missing", f"{title}: nothing in '{folder_of(settings)}'", _origin(settings, facts), remedy)
    if settings.dataset in DRAWINGS:
        return Supply("ready", f"{title} comes with the package: {found.summary}")
    others = [] if facts is None else differences(found, facts)
    if not others:
        return Supply("ready", f"{title}: {found.summary}")
    details = [
        difference.text + ("" if difference.is_certain else ", but that number is quoted and may be off")
        for difference in others
    ]
    details += [facts.remark] if facts and facts.remark else []
    state: Literal["ready", "differs"] = "differs" if any(other.is_certain for other in others) else "ready"
    remedy = "results will not be those of the protocol; get the images again" if state == "differs" else ""
    return Supply(state, f"{title}: {found.summary}", details, remedy)


def _origin(settings: DataSettings, facts: Facts | None) -> list[str]:
    """Say where a data set comes from, under which terms, how large it is and how it is to lie."""
    layout = f"layout:  {layout_of(settings)}"
    if facts is None:
        return [layout]
    folder = folder_of(settings)
    needed = "size not known" if facts.num_bytes is None else f"about {readable_size(facts.num_bytes)} of images"
    return [
        f"from:    {facts.page}",
        f"licence: {facts.licence}",
        *([f"note:    {facts.remark}"] if facts.remark else []),
        f"holds:   {_expected(facts)}",
        f"space:   {needed}; {readable_size(free_space(folder))} free at '{folder.parent}'",
        layout,
    ]


def _expected(facts: Facts) -> str:
    """Say what a data set holds, as far as that is known."""
    numbers = (facts.num_classes, facts.num_train, facts.num_test, facts.num_images)
    kinds = ("classes", "training images", "test images", "images in all")
    known = [f"{number:,} {what}" for number, what in zip(numbers, kinds, strict=True) if number is not None]
    return ", ".join(known) + (" (as quoted)" if facts.is_quoted else "") if known else "not known"


def _remedy(settings: DataSettings, facts: Facts | None, command: str) -> str:
    """Say what to do about a data set that is not here."""
    if settings.dataset == "cifar100":
        path = folder_of(settings).parent / "cifar-100-python.tar.gz"
        return f"`{command}` downloads it, or checks and unpacks '{path}' if you put it there"
    if facts is None or facts.archive is None:
        return "put your images there"
    if facts.archive.hub is not None:
        return f"`{command}` downloads {facts.archive.hub.page}"
    path = folder_of(settings).parent / facts.archive.name
    return (
        f"download {facts.archive.name} from {facts.archive.where} and put it at '{path}'; "
        f"`{command}` checks and unpacks it"
    )


def weights_supply(settings: BackboneSettings, command: str) -> Supply:
    """Find out whether the backbone can be built without a connection."""
    weights = find_weights(settings)
    name = settings.name
    if weights.kind == "package":
        return Supply("ready", f"the weights of {name} come with the package")
    if weights.kind == "random":
        return Supply("ready", f"{name} starts from random weights")
    if weights.kind == "file":
        if weights.are_here:
            return Supply("ready", f"the weights of {name}: '{weights.path}'")
        remedy = "put the file there or set `backbone.weights` to another safetensors file, or to pretrained"
        return Supply("missing", f"the weights of {name} are not at '{weights.path}'", remedy=remedy)
    if weights.hub is None:
        return Supply("missing", f"the weights of {name} are not on the Hub; timm fetches them when a run begins")
    if weights.are_here:
        return Supply("ready", f"the weights of {name}, in the Hub's cache: '{weights.path}'")
    needed, free = (readable_size(size) for size in (weights_size(name), free_space(cache_folder())))
    details = [f"from:    {weights.hub.page}", f"space:   about {needed}; {free} free at '{cache_folder()}'"]
    remedy = f"`{command}` downloads them; without a connection {without_connection(weights.hub)}"
    return Supply("missing", f"the weights of {name} are not in the Hub's cache", details, remedy)


def _fetch_missing(console: Console, data: DataSettings, backbone: BackboneSettings) -> list[str]:
    """Fetch what has a source and is not here, the weights first, and return what went wrong, a sentence each."""
    problems: list[str] = []
    with _noting(problems):
        weights = find_weights(backbone)
        if weights.hub is not None and not weights.are_here:
            fetch_weights(weights.hub)
    with _noting(problems):
        facts = CATALOGUE.get(data.dataset)
        if facts is not None and take_inventory(data) is None:
            with _bars(console) as progress:
                Fetcher(progress).fetch(data, facts)
    return problems


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Go on after an error, which is noted."""
    try:
        yield
    except ClareError as error:
        problems.append(str(error))


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    """Draw a bar for each thing that is being done."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield show
