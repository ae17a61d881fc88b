"""The one registry: names written once, wrong names answered with the nearest right one.

A registry of classes also takes those of other packages, by entry point, and of any file that a person names as
`path/to/file.py:Class`. A name that was read, from a folder or a preset, never makes a file run.
"""

import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from clare.errors import SettingsError, nearest
from clare.sealed import digest_of

T = TypeVar("T")
C = TypeVar("C")
Source = tuple[str, str]
"""Where a class is: its file, or its module where it has none, and its name there."""


class Registry(Generic[T]):
    """An ordered map from names to things of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Register an item under a name that is not taken."""
        if name in self._items:
            raise SettingsError(f"the {self.kind} '{name}' is registered twice; choose another name")
        self._items[name] = item

    def get(self, name: str) -> T:
        """Return the item of this name, or say which names there are."""
        if name not in self._items:
            raise SettingsError(f"there is no {self.kind} '{name}'{nearest(name, self)}; known: {', '.join(self)}")
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


class ClassRegistry(Registry[type[C]]):
    """A registry of classes that packages and files may add to without a change to this one."""

    def __init__(
        self, kind: str, base: type[Any], group: str, check: Callable[[type[Any], str], None] | None = None
    ) -> None:
        """Take subclasses of a base, from the entry points of a group too; `check` refuses others' that do not fit."""
        super().__init__(kind)
        self.base, self.group, self.check = base, group, check
        self._own: dict[Source, tuple[str, type[C]]] = {}
        """What a person has named in this process, and under which name."""

    def get(self, name: str, reader: str = "what was read") -> type[C]:
        """Return the class of this name, of an entry point, or of what a person has named; no file is run."""
        is_file = is_file_name(name)
        source = _source_of_file(name) if is_file else None
        for known, (given, kind) in self._own.items():
            if known == source or (given == name and not is_file):
                return kind
        if is_file:
            raise SettingsError(
                f"{reader} asks for the {self.kind} {shown(name)}, a file, and no folder or preset makes a file run; "
                f"if you trust that file, {how_to_name(self.kind, name)}"
            )
        if name not in self._items and name in self._entries:
            self.add(name, self._from_entry(self._entries[name]))
        return super().get(name)

    def named(self, given: str | type[C], read: str | None = None) -> type[C]:
        """Return what a person names, running the file if it is in one; `read` is what a folder calls it."""
        if not isinstance(given, str):
            return self._named_class(given, read)
        if not is_file_name(given):
            return self.get(given)
        source = _source_of_file(given)
        if source not in self._own:
            self._own[source] = read or given, self._checked(self._class_in(given), f"'{given}'")
        return self._own[source][1]

    def _named_class(self, given: type[C], read: str | None) -> type[C]:
        """Remember a class that a person gives; one that was defined again takes the place of the one before."""
        name, home = str(getattr(given, "name", given.__name__)), _source_of_class(given)
        if name in self and self.get(name) is given:
            return given
        called = read or _file_name_of(home) or name
        source = _source_of_file(called) if is_file_name(called) else home
        for known, (_, kind) in list(self._own.items()):
            if kind is not given and (known == source or _source_of_class(kind) == home):
                del self._own[known]
        kind = self._checked(given, f"the class {given.__qualname__}")
        self._own.setdefault(source, (called, kind))
        return kind

    def is_same(self, read: str, given: str | type[C]) -> bool:
        """Tell whether what a person names is what was read; nothing is run."""
        if isinstance(given, str):
            are_files = is_file_name(read) and is_file_name(given)
            return read == given or (are_files and _source_of_file(read) == _source_of_file(given))
        # A class is at hand, so a file of its name may lie elsewhere than it did for whoever made the folder.
        path, name = _source_of_class(given)
        own = (str(getattr(given, "name", "")), self.name_of(given))
        return read in own or (is_file_name(read) and Path(read).name == f"{Path(path).name}:{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._items, *self._entries]))

    def name_of(self, item: type[C]) -> str:
        """Return the name by which `get` finds this class, as the user gave it."""
        own = (name for name, known in self._own.values() if known is item)
        names = (name for name, known in self._items.items() if known is item)
        return next(own, next(names, str(getattr(item, "name", item.__name__))))

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        """The entry points of other packages, none of which may have a name that is taken."""
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self._items or entry.name in found:
                raise SettingsError(
                    f"the {self.kind} '{entry.name}' of the package {_package(entry)} has a name that is taken; "
                    "uninstall the package or give its entry point another name"
                )
            found[entry.name] = entry
        return found

    def _from_entry(self, entry: EntryPoint) -> type[C]:
        """Load the class that an entry point names."""
        where = f"the {self.kind} '{entry.name}' of the package {_package(entry)}"
        try:
            item = entry.load()
        except Exception as error:
            raise SettingsError(f"{where} cannot be loaded: {in_words(error)}; correct or uninstall it") from error
        kind = self._checked(item, where)
        if getattr(kind, "name", "") != entry.name:
            raise SettingsError(f"{where} calls itself '{getattr(kind, 'name', '')}'; make the two names equal")
        return kind

    def _class_in(self, given: str) -> object:
        """Return what `path/to/file.py:Class` names."""
        path, _, name = given.rpartition(":")
        if not path or not name:
            raise SettingsError(f"'{given}' names no class; write it as {path or given.rstrip(':')}:Class")
        module = load_file(Path(path), f"which holds the {self.kind} '{given}'")
        if not hasattr(module, name):
            classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
            found = [
                key
                for key, each in classes.items()
                if issubclass(each, self.base) and each.__module__ == module.__name__
            ]
            holds = f"it holds {', '.join(found)}" if found else f"it holds no {self.kind}"
            raise SettingsError(f"{path} has no class '{name}'{nearest(name, found)}; {holds}")
        return getattr(module, name)

    def _checked(self, item: object, where: str) -> type[C]:
        """Refuse what is not a whole class of the right kind, or has a name that is taken."""
        base = f"{self.base.__module__}.{self.base.__qualname__}"
        if not (isinstance(item, type) and issubclass(item, self.base)):
            raise SettingsError(f"{where} is no {self.kind} but {item!r}; make it a subclass of {base}")
        missing = sorted(getattr(item, "__abstractmethods__", ()))
        missing += [key for key in ("name", "summary") if not hasattr(item, key)]
        if missing:
            raise SettingsError(f"{where} has no `{missing[0]}`; a {self.kind} needs one, see {base}")
        name = str(getattr(item, "name", ""))
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise SettingsError(f"{where} is named '{name}'; a name is made of letters, digits, '.', '_' and '-'")
        others = [*(known for _, known in self._own.values()), *self._items.values()]
        if name in [getattr(known, "name", "") for known in others if known is not item]:
            raise SettingsError(f"{where} is named '{name}' as another {self.kind} is; give its class another `name`")
        if self.check is not None:
            self.check(item, where)
        return cast(type[C], item)


def is_file_name(name: str) -> bool:
    """Tell whether a name means a class in a file."""
    return name.endswith(".py") or ".py:" in name


def how_to_name(kind: str, name: str) -> str:
    """Say in a clause how a person names a file that is to run."""
    text = shown(name)
    return f"name it: --{kind} {quote(text)}, or in Python {kind}={text!r}"


def shown(name: str) -> str:
    """Return a name that was read as a terminal may have it."""
    return name if name.isprintable() else ascii(name)


def _source_of_file(given: str) -> Source:
    """Return where `path/to/file.py:Class` leads from here."""
    path, _, name = given.rpartition(":")
    try:
        return os.path.realpath(path), name
    except ValueError:  # what was read may hold what no path can
        return path, name


def _source_of_class(item: type[Any]) -> Source:
    """Return where a class was defined; in a notebook that is no file."""
    path = getattr(sys.modules.get(item.__module__), "__file__", None)
    return os.path.realpath(path) if path else item.__module__, item.__qualname__


def _file_name_of(source: Source) -> str:
    """Return a source as `path/to/file.py:Class`, from here where it is below; nothing where it has no such name."""
    path, name = source
    if not path.endswith(".py") or "." in name:
        return ""
    near = os.path.relpath(path)
    return f"{path if near.startswith(os.pardir) else near}:{name}"


def load_file(path: Path, purpose: str) -> ModuleType:
    """Run a Python file as a module, once, and say what is wrong with it, where, and why it was wanted."""
    if not path.is_file():
        raise SettingsError(f"there is no file {path}, {purpose}; give its path from here")
    resolved = path.resolve()
    name = f"{path.stem}_{digest_of(str(resolved).encode())[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path}, {purpose}, is no Python file; give one that ends in .py")
    # Settings classes look up the names in their annotations here.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = line_in(resolved, error)
        raise SettingsError(f"{path} line {line} raises {in_words(error)}; correct the file") from error
    return module


def line_in(path: Path, error: Exception) -> int:
    """Return the line of a file at which an error came up, 1 when it came from elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return (lines[-1] if lines else None) or 1


def in_words(error: Exception) -> str:
    """Return an error's type and message on one line."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(message.split())}"


def _package(entry: EntryPoint) -> str:
    """Return the name of the package that brings an entry point."""
    return entry.dist.name if entry.dist else "an unknown package"
