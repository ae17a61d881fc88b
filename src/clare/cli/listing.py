"""`clare presets` and `clare methods`; the package's own are read from its index, without their code."""

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.markup import escape

from clare.cli.console import plain_table
from clare.index import IndexedMethod, IndexedSetting, read_index
from clare.presets.layers import explain
from clare.presets.load import (
    backbone_names,
    check_acting,
    make_experiment,
    make_setup,
    preset_names,
    read_backbone,
    read_layers,
    read_preset,
    values_of,
)
from clare.registry import Registry, is_file_name
from clare.settings import TAG, Settings, condition, kinds_of, settings_of, tables_of

if TYPE_CHECKING:
    from clare.methods.base import Method

Leaf = tuple[str, FieldInfo, Any, str]
"""Key, field, default and description of a setting."""
BOUNDS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}
"""Signs of bounds, and where they are kept."""
FAMILIES = ("references", "adapters", "prompts", "LoRA", "projections", "regularisation", "replay", "masks")


def list_presets(console: Console) -> None:
    """Print one line per preset, and one per backbone to lay over it."""
    table = plain_table(("preset", "what it is"))
    for preset in preset_names():
        table.add_row(preset, str(read_preset(preset).get("description", "")))
    table.add_row("\n[bold]backbones to lay over a preset[/]")
    for backbone in backbone_names():
        table.add_row(backbone, str(read_backbone(backbone).get("description", "")))
    console.print(table)
    console.print("\n`clare presets NAME` shows all settings of one; `clare train NAME` runs it.", highlight=False)


def explain_preset(console: Console, name: str, method: str | None, overrides: Sequence[str]) -> None:
    """Print all settings of a preset, and which layer decided each of them."""
    table = plain_table(("setting", "value", "decided by"))
    for key, value, origin in explain(read_layers(name), resolved(name, method, overrides), values_of(overrides)):
        table.add_row(key, escape(json.dumps(value, ensure_ascii=False)), escape(origin))
    console.print(table)


def resolved(preset: str, method: str | None = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return all settings of a preset; what the method of one of the package's own comes to is in the index."""
    indexed = read_index()["presets"].get(preset)
    if method is not None or overrides or indexed is None:
        if method is not None:
            from clare.methods import METHODS

            METHODS.named(method)
        experiment = make_experiment(preset, method, overrides)
        check_acting([experiment])
        return experiment.model_dump(mode="json")
    return {**make_setup(preset).model_dump(mode="json"), "method": indexed, "overrides": []}


def list_methods(console: Console, name: str | None) -> None:
    """Print one line per method, family by family, or all settings of one."""
    if name is None:
        table = plain_table(("method", "what it does"))
        for family, methods in families().items():
            table.add_row(f"\n[bold]{family}[/]")
            for method in methods:
                table.add_row(method["name"], method["summary"])
        console.print(table)
        console.print("\n`clare methods NAME` shows all settings of one.", highlight=False)
        return
    method = find_method(name)
    table = plain_table(("setting", "default", "allowed", "what it is"))
    table.columns[0].no_wrap = True
    for setting in method["settings"]:
        table.add_row(setting["key"], setting["default"], setting["allowed"], setting["description"])
    console.print(f"{name}: {method['summary']}\n", highlight=False)
    console.print(table)


def families() -> dict[str, list[IndexedMethod]]:
    """Return the methods by family, the families we know in their order and any others after them."""
    methods = [*read_index()["methods"], *(find_method(name) for name in entry_names())]
    order = dict.fromkeys([*FAMILIES, *(method["family"] for method in methods)])
    found = {family: [method for method in methods if method["family"] == family] for family in order}
    return {family: members for family, members in found.items() if members}


def entry_names() -> list[str]:
    """Return the names of the methods that other packages bring."""
    return [entry.name for entry in entry_points(group="clare.methods")]


def find_method(name: str) -> IndexedMethod:
    """Return a method by its name; one of a file or of another package is imported, and so is all it needs."""
    if is_file_name(name) or name in entry_names():
        from clare.methods import METHODS

        return index_method(METHODS.named(name))
    known: Registry[IndexedMethod] = Registry("method")
    for method in read_index()["methods"]:
        known.add(method["name"], method)
    return known.get(name)


def index_method(kind: "type[Method]") -> IndexedMethod:
    """Return a method's class as the index holds it."""
    settings: list[IndexedSetting] = [
        {"key": key, "default": str(default), "allowed": allowed_values(field), "description": words}
        for key, field, default, words in leaves(kind.settings_type, "method.")
    ]
    allowed = next((each["default"] for each in settings if each["key"] == "method.memory.pictures"), "")
    mark = f" (keeps {allowed} pictures)" if allowed else ""
    return {"name": kind.name, "family": kind.family, "summary": f"{kind.summary}{mark}", "settings": settings}


def leaves(kind: type[Settings], prefix: str) -> Iterator[Leaf]:
    """Yield key, field, default and description of every setting, nested ones included."""
    for name, field in kind.model_fields.items():
        default, inner = field.get_default(call_default_factory=True), settings_of(field)
        if len(inner) > 1:
            yield from _kinds(tables_of(field), default, f"{prefix}{name}.")
        elif inner:
            found = leaves(inner[0], f"{prefix}{name}.")
            # Of a table of one kind nothing is left to say about the kind.
            named = (leaf for leaf in found if not (tables_of(field) and leaf[0] == f"{prefix}{name}.{TAG}"))
            yield from ((*leaf, _described(words, kind, name, prefix)) for *leaf, words in named)
        else:
            yield prefix + name, field, default, _described(field.description or "", kind, name, prefix)


def _described(words: str, kind: type[Settings], name: str, prefix: str, whose: str = "") -> str:
    """Return what a setting is, with whose it is and when it, or the table that it is in, acts."""
    when = condition(kind, name, prefix)
    notes = [note for note in (whose, f"acts where {when}" if when else "") if note]
    return f"{words.removesuffix('.')} ({'; '.join(notes)})." if notes else words


def _kinds(
    tables: dict[str, type[Settings]], chosen: Settings, prefix: str
) -> Iterator[tuple[str, FieldInfo, Any, str]]:
    """Yield the settings of a table of several kinds: which kind, then what each of them has."""
    words = [f"{name}: {table.model_fields[TAG].description}" for name, table in tables.items()]
    choice = FieldInfo(annotation=Literal[tuple(tables)])  # type: ignore[arg-type]
    yield prefix + TAG, choice, getattr(chosen, TAG), " ".join(words)
    for name in dict.fromkeys(name for table in tables.values() for name in table.model_fields if name != TAG):
        owners = {tag: table for tag, table in tables.items() if name in table.model_fields}
        first = next(iter(owners.values()))
        field = first.model_fields[name]
        default = getattr(chosen, name, field.get_default())
        whose = "" if len(owners) == len(tables) else ", ".join(owners)
        yield prefix + name, field, default, _described(field.description or "", first, name, prefix, whose)


def allowed_values(field: FieldInfo) -> str:
    """Say what a field accepts: its choices, or its bounds."""
    annotation: Any = field.annotation
    choices = get_args(annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(choices)
    kinds = kinds_of(field)
    if len(kinds) > 1:
        return " or ".join(map(allowed_values, kinds))
    bounds = [
        f"{sign} {getattr(item, name)}"
        for item in field.metadata
        for kind, (sign, name) in BOUNDS.items()
        if isinstance(item, kind)
    ]
    return ", ".join(bounds) or str(getattr(annotation, "__name__", annotation))
