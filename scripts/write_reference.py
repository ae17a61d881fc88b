"""Write the pages of docs/reference from the code: python scripts/write_reference.py."""

import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from reference_python import python_pages
from typer.models import ArgumentInfo, CommandInfo, OptionInfo

from clare.cli.listing import allowed_values, families, leaves
from clare.cli.main import app
from clare.methods import METHODS
from clare.methods.base import Method, MethodSettings
from clare.presets.schema import Experiment
from clare.settings import Settings

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
SECTIONS = ("data", "stream", "transforms", "backbone", "engine")
NOTE = "<!-- Written by scripts/write_reference.py; change the code, not this page. -->"
SETTINGS_HEAD = f"""{NOTE}

# Settings

Every setting is a key for `--set KEY=VALUE` and, in a preset, a key in the table of its section. `clare presets NAME`
shows the values that a preset ends up with; `clare methods NAME` shows a method's settings in the terminal.
A value outside the bounds, or a key that does not exist, is refused with one sentence.
"""
COMMANDS_HEAD = f"""{NOTE}

# Commands

`clare COMMAND --help` says the same in the terminal. A mistake you can correct ends in one sentence and exit code 2.
"""
NUMBERS: dict[object, str] = {int: "whole number", float: "number", str: "text", bool: "true | false", Path: "path"}

Row = tuple[str, ...]


def table(headings: Row, rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table; a bar within a cell is escaped."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def settings_page() -> str:
    """Return the page of all settings."""
    parts = [SETTINGS_HEAD]
    for name in SECTIONS:
        field = Experiment.model_fields[name]
        parts += [f"## {name}\n", f"{field.description}\n", _table_of(_rows(_kind_of(field), f"{name}.")) + "\n"]
    seed = Experiment.model_fields["seed"]
    parts += ["## seed\n", _table_of([_row("seed", seed, seed.get_default(), seed.description or "")]) + "\n"]
    shared = list(_rows(MethodSettings, "method."))
    parts += ["## method: what most methods have\n", _table_of(shared) + "\n"]
    for family, kinds in families().items():
        for kind in kinds:
            parts += list(_method_parts(family, METHODS.get(kind["name"]), shared))
    return "\n".join(parts)


def _method_parts(family: str, kind: type[Method], shared: list[Row]) -> Iterator[str]:
    """Yield the section of one method: what it has beside the shared settings, or otherwise than they are."""
    yield f"## method: {kind.name}\n"
    has_page = (FOLDER.parent / "methods" / f"{kind.name}.md").is_file()
    label = f"[{kind.name}](../methods/{kind.name}.md)" if has_page else kind.name
    yield f"{label} ({family}): {kind.summary}.\n"
    rows = list(_rows(kind.settings_type, "method."))
    own, keys = [row for row in rows if row not in shared], [row[0] for row in rows]
    missing = [row[0] for row in shared if row[0] not in keys]
    if missing:
        yield f"Of the shared settings it has no {', '.join(missing)}.\n"
    yield (_table_of(own) if own else "It has the shared settings alone.") + "\n"


def _table_of(rows: Iterable[Row]) -> str:
    return table(("setting", "default", "allowed", "what it is"), rows)


def _rows(kind: type[Settings], prefix: str) -> Iterator[Row]:
    """Yield a row for every setting, nested ones included."""
    for key, field, default, description in leaves(kind, prefix):
        yield _row(key, field, default, description)


def _row(key: str, field: FieldInfo, default: Any, description: str) -> Row:
    """Return key, default, allowed values and description of one setting."""
    shown = "required" if default is PydanticUndefined else f"`{_shown(default)}`"
    return f"`{key}`", shown, _allowed(field), description


def _allowed(field: FieldInfo) -> str:
    """Say what a field accepts, a type in words where it has no bounds."""
    text = allowed_values(field)
    plain = text == str(getattr(field.annotation, "__name__", field.annotation))
    return _type_in_words(field.annotation) if plain else text


def _kind_of(field: FieldInfo) -> type[Settings]:
    kind = field.annotation
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        raise TypeError(f"{kind} is no class of settings; leave its section out of SECTIONS")
    return kind


def _shown(value: object) -> str:
    """Return a value as a preset has it."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "none"
        case "":
            return '""'
        case tuple():
            return f"[{', '.join(f'{item:.4g}' if isinstance(item, float) else str(item) for item in value)}]"
        case _:
            return str(value)


def _type_in_words(annotation: Any) -> str:
    """Name a type for someone who types values."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, members))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_in_words(member) for member in members if member is not type(None))
    if origin in (tuple, list):
        return ", ".join(_type_in_words(member) for member in members if member is not Ellipsis)
    if origin is dict:
        return "table"
    return NUMBERS.get(annotation, str(getattr(annotation, "__name__", annotation)))


def commands_page() -> str:
    """Return the page of all commands."""
    parts = [COMMANDS_HEAD]
    for command in sorted(app.registered_commands, key=_name):
        parts += list(_command_parts(command))
    return "\n".join(parts)


def _name(command: CommandInfo) -> str:
    callback = command.callback
    if callback is None:
        raise TypeError("a command has no function; register one")
    return command.name or callback.__name__.replace("_", "-")


def _command_parts(command: CommandInfo) -> Iterator[str]:
    """Yield the section of one command: usage, what it does, arguments and options."""
    callback = command.callback
    assert callback is not None
    arguments, options = [], []
    hints = typing.get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        hint, *metadata = typing.get_args(hints[name])
        info = next(item for item in metadata if isinstance(item, ArgumentInfo | OptionInfo))
        if isinstance(info, ArgumentInfo):
            arguments.append(_argument(name, hint, info, parameter.default))
        elif not info.hidden:
            options.append(_option(name, hint, info, parameter.default))
    usage = " ".join(["clare", _name(command), *(word for word, _ in arguments), *(["[OPTIONS]"] if options else [])])
    yield f"## clare {_name(command)}\n"
    yield f"{inspect.getdoc(callback)}\n"
    yield f"```\n{usage}\n```\n"
    if arguments:
        yield table(("argument", "what it is"), [(f"`{word}`", text) for word, text in arguments]) + "\n"
    if options:
        yield table(("option", "default", "allowed", "what it is"), options) + "\n"


def _argument(name: str, hint: Any, info: ArgumentInfo, default: object) -> tuple[str, str]:
    """Return an argument as the usage line has it, and what it is."""
    word = (info.metavar or name).upper()
    many = "…" if typing.get_origin(hint) is list else ""
    optional = default is not inspect.Parameter.empty
    return f"[{word}{many}]" if optional else f"{word}{many}", info.help or ""


def _option(name: str, hint: Any, info: OptionInfo, default: object) -> Row:
    """Return the row of an option."""
    # In an annotation Typer takes the first flag for a default.
    given = [str(flag) for flag in (info.default, *(info.param_decls or ())) if str(flag).startswith("-")]
    flags = given or [f"--{name.replace('_', '-')}"]
    value = f" {info.metavar}" if info.metavar else ""
    if default is inspect.Parameter.empty:
        shown = "required"
    else:
        shown = "" if default is None or default is False else f"`{_shown(default)}`"
    env = f" Also from the variable `{info.envvar}`." if info.envvar else ""
    return f"`{', '.join(flags)}{value}`", shown, _bounds(hint, info), f"{info.help or ''}{env}"


def _bounds(hint: Any, info: OptionInfo) -> str:
    """Say what an option accepts."""
    if hint is bool:
        return "a switch"
    limits = [f"{sign} {bound}" for sign, bound in (("≥", info.min), ("≤", info.max)) if bound is not None]
    words = _type_in_words(hint) + (", repeatable" if _is_repeatable(hint) else "")
    return ", ".join([words, *limits])


def _is_repeatable(hint: Any) -> bool:
    """Tell whether an option may be given several times."""
    return any(typing.get_origin(member) is list for member in (hint, *typing.get_args(hint)))


def pages() -> dict[Path, str]:
    """Return the text of every page that is written here."""
    texts = {"settings.md": settings_page(), "commands.md": commands_page(), **python_pages(NOTE)}
    return {FOLDER / name: text.rstrip() + "\n" for name, text in texts.items()}


def main() -> None:
    """Write the pages that the code has outgrown."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
