"""`clare presets` and `clare methods`."""

from collections.abc import Iterator
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Table

from clare.methods import METHODS
from clare.methods.base import Method
from clare.presets.load import backbone_names, make_experiment, preset_names, read_backbone, read_preset
from clare.settings import Settings, kinds_of

FAMILIES = ("references", "adapters", "prompts", "LoRA", "projections")


def list_presets(console: Console, name: str | None, method: str | None) -> None:
    """Print one line per preset, or all settings of one with a method."""
    if name is None:
        table = Table("preset", "what it is", box=None, pad_edge=False)
        for preset in preset_names():
            table.add_row(preset, str(read_preset(preset).get("description", "")))
        table.add_row("\n[bold]backbones to lay over a preset[/]")
        for backbone in backbone_names():
            table.add_row(backbone, str(read_backbone(backbone).get("description", "")))
        console.print(table)
        console.print("\n`clare presets NAME` shows all settings of one; `clare train NAME` runs it.", highlight=False)
        return
    if method is not None:
        METHODS.named(method)
    console.print_json(make_experiment(name, method).model_dump_json())


def list_methods(console: Console, name: str | None) -> None:
    """Print one line per method, family by family, or all settings of one."""
    if name is None:
        table = Table("method", "what it does", box=None, pad_edge=False)
        for family, kinds in families().items():
            table.add_row(f"\n[bold]{family}[/]")
            for kind in kinds:
                table.add_row(kind.name, kind.summary)
        console.print(table)
        console.print("\n`clare methods NAME` shows all settings of one.", highlight=False)
        return
    method = METHODS.named(name)
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "default", "allowed", "what it is"):
        table.add_column(heading, no_wrap=heading == "setting")
    for key, default, allowed, description in describe(method.settings_type, "method."):
        table.add_row(key, default, allowed, description)
    console.print(f"{name}: {method.summary}\n", highlight=False)
    console.print(table)


def families() -> dict[str, list[type[Method]]]:
    """Return the methods by family, the families we know in their order and any others after them."""
    kinds = [METHODS.get(name) for name in METHODS]
    order = dict.fromkeys([*FAMILIES, *(kind.family for kind in kinds)])
    found = {family: [kind for kind in kinds if kind.family == family] for family in order}
    return {family: members for family, members in found.items() if members}


def describe(kind: type[Settings], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, default, allowed values and description of every setting, nested ones included."""
    for name, field in kind.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Settings):
            yield from describe(annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, str(field.get_default()), allowed_values(field), field.description or ""


def allowed_values(field: FieldInfo) -> str:
    """Say what a field accepts: its choices, or its bounds."""
    annotation: Any = field.annotation
    choices = get_args(annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(choices)
    kinds = kinds_of(field)
    if len(kinds) > 1:
        return " or ".join(map(allowed_values, kinds))
    bounds = [text for item in field.metadata for text in _bounds(item)]
    return ", ".join(bounds) or str(getattr(annotation, "__name__", annotation))


def _bounds(item: object) -> Iterator[str]:
    """Yield the bounds that one piece of a field's metadata sets."""
    match item:
        case Ge(ge=bound):
            yield f"≥ {bound}"
        case Gt(gt=bound):
            yield f"> {bound}"
        case Le(le=bound):
            yield f"≤ {bound}"
        case Lt(lt=bound):
            yield f"< {bound}"
