"""The Python reference as plain Markdown, made of signatures and docstrings; write_reference.py writes it.

A page is a text of scripts/reference in which a line `::: clare.module [NAME…]` stands for what the module says of
these names, or of all that are public there.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from clare.record import Event

SOURCES = Path(__file__).parent / "reference"
MARK = "::: "
WIDTH = 100
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_pages(note: str) -> dict[str, str]:
    """Return the pages by their names, each under a note that says where it comes from."""
    return {
        path.name: f"{note}\n\n{_filled(path.read_text(encoding='utf-8'))}" for path in sorted(SOURCES.glob("*.md"))
    }


def _filled(text: str) -> str:
    """Return a page with what its marks stand for."""
    parts: list[str] = []
    shown: set[type] = set()
    for line in text.splitlines():
        if line.startswith(MARK):
            module, *names = line.removeprefix(MARK).split()
            parts.append("\n\n".join(_module_parts(importlib.import_module(module), names, shown)))
        else:
            parts.append(line)
    return "\n".join(parts)


def _module_parts(module: ModuleType, names: list[str], shown: set[type]) -> Iterator[str]:
    """Yield the sections of a module: what it is, its functions and its classes; shown are those further up."""
    tree = ast.parse(inspect.getsource(module))
    yield f"## {module.__name__}"
    yield inspect.cleandoc(module.__doc__ or "")
    for node in tree.body:
        if isinstance(node, Definition) and (node.name in names if names else not node.name.startswith("_")):
            if isinstance(node, ast.ClassDef):
                yield from _class_parts(node, getattr(module, node.name), shown)
            else:
                yield from _function_parts(node, node.name, "###")


def _class_parts(node: ast.ClassDef, kind: type, shown: set[type]) -> Iterator[str]:
    """Yield the section of a class: how it is made, its fields and methods, with those of bases not shown before."""
    own = [base.id for base in node.bases if isinstance(base, ast.Name)]
    yield f"### {node.name}" + (f" ({', '.join(own)})" if own else "")
    yield inspect.cleandoc(ast.get_docstring(node) or "")
    bases = [base for base in kind.__mro__ if base.__module__.split(".")[0] == "clare"]
    nodes = [_node_of(base) for base in bases if base not in shown]
    shown.add(kind)
    made = next((each for base in nodes for each in base.body if _name(each) == "__init__"), None)
    if isinstance(made, ast.FunctionDef):
        yield _code(_call(node.name, made, skip=1))
    fields = dict(row for base in reversed(nodes) for row in _fields(base, kind))
    if fields:
        yield _table(list(fields.values()))
    seen: set[str] = set()
    for base in nodes:
        for each in base.body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and each.name not in seen:
                seen.add(each.name)
                yield from _function_parts(each, f"{node.name}.{each.name}", "####")


def _node_of(kind: type) -> ast.ClassDef:
    """Return the source of a class."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return node


def _name(node: ast.stmt) -> str:
    """Return the name of a definition, and nothing of other lines."""
    return node.name if isinstance(node, Definition) else ""


def _function_parts(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, level: str) -> Iterator[str]:
    """Yield the section of a function, or the line of a property."""
    is_property = any(isinstance(each, ast.Name) and each.id.endswith("property") for each in node.decorator_list)
    yield f"{level} {name}"
    if is_property:
        yield f"Property: `{ast.unparse(node.returns) if node.returns else 'Any'}`"
    else:
        skip = int("." in name and not any(getattr(each, "id", "") == "staticmethod" for each in node.decorator_list))
        yield _code(_call(name.rpartition(".")[2], node, skip))
    yield inspect.cleandoc(ast.get_docstring(node) or "")


def _call(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, skip: int) -> str:
    """Return how a function is called, on several lines where one is too long."""
    given = node.args
    places = [*given.posonlyargs, *given.args][skip:]
    num_given = min(len(given.defaults), len(places))
    defaults = [None] * (len(places) - num_given) + given.defaults[len(given.defaults) - num_given :]
    words = [_argument(each, default) for each, default in zip(places, defaults, strict=True)]
    if given.vararg:
        words.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        words.append("*")
    words += [_argument(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    words += [f"**{_argument(given.kwarg, None)}"] if given.kwarg else []
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{name}({', '.join(words)}){returns}"
    return line if len(line) <= WIDTH else f"{name}(\n    " + ",\n    ".join(words) + f",\n){returns}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    """Return an argument with its type and its default."""
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    sign = " = " if kind else "="
    return f"{argument.arg}{kind}" + (f"{sign}{ast.unparse(default)}" if default is not None else "")


def _fields(node: ast.ClassDef, kind: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield name, type, default and meaning of a class's fields."""
    texts = _descriptions(kind)
    for place, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            name, after = each.target.id, node.body[place + 1 : place + 2]
            if issubclass(kind, BaseModel) and name not in kind.model_fields:
                continue
            told, text = texts.get(name, (name, ""))
            if after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant):
                text = inspect.cleandoc(str(after[0].value.value)).replace("\n", " ")
            is_declared = each.value is None or isinstance(each.value, ast.Call)
            default = "" if is_declared or each.value is None else f"`{ast.unparse(each.value)}`"
            yield name, (f"`{told}`", f"`{ast.unparse(each.annotation)}`", default, text)


def _descriptions(kind: type) -> dict[str, tuple[str, str]]:
    """Return how a file names the fields of a model, and what they are."""
    if not issubclass(kind, BaseModel):
        return {}
    places = kind.places() if issubclass(kind, Event) else {}
    return {
        name: (".".join(places.get(name, (name,))), field.description or "")
        for name, field in kind.model_fields.items()
    }


def _table(rows: list[tuple[str, ...]]) -> str:
    """Return rows as a table without columns that are empty."""
    headings: Any = ("field", "type", "default", "what it is")
    kept = [place for place in range(4) if any(row[place] for row in rows)]
    lines = [[each[place].replace("|", "\\|") for place in kept] for each in (headings, ["---"] * 4, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    """Return Python as a block."""
    return f"```python\n{text}\n```"
