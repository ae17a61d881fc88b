"""The one registry: names written once, wrong names answered with the nearest right one.

A registry of classes also takes those of other packages, by entry point, and of any file, by `path/to/file.py:Class`.
"""

import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from clare.errors import SettingsError, nearest

T = TypeVar("T")
C = TypeVar("C")


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

    def __init__(self, kind: str, base: type[Any], group: str) -> None:
        super().__init__(kind)
        self.base, self.group = base, group
        self._own: dict[str, type[C]] = {}

    def get(self, name: str) -> type[C]:
        """Return the class of this name, of an entry point, or of a file."""
        if is_file_name(name):
            if name not in self._own:
                self._own[name] = self._checked(self._class_in(name), f"'{name}'")
            return self._own[name]
        if name not in self._items and name in self._entries:
            self.add(name, self._from_entry(self._entries[name]))
        return super().get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._items, *self._entries]))

    def name_of(self, item: type[C]) -> str:
        """Return the name by which `get` finds this class, as the user gave it."""
        names = (name for found in (self._own, self._items) for name, known in found.items() if known is item)
        return next(names, str(getattr(item, "name", item.__name__)))

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
            raise SettingsError(f"{where} cannot be loaded: {_in_words(error)}; correct or uninstall it") from error
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
            found = [key for key, value in vars(module).items() if self._is_own(value, module)]
            holds = f"it holds {', '.join(found)}" if found else f"it holds no {self.kind}"
            raise SettingsError(f"{path} has no class '{name}'{nearest(name, found)}; {holds}")
        return getattr(module, name)

    def _is_own(self, value: object, module: ModuleType) -> bool:
        """Tell whether a value is a class of this registry's kind that a module defines itself."""
        return isinstance(value, type) and issubclass(value, self.base) and value.__module__ == module.__name__

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
        others = [known for found in (self._own, self._items) for known in found.values() if known is not item]
        if name in [getattr(known, "name", "") for known in others]:
            raise SettingsError(f"{where} is named '{name}' as another {self.kind} is; give its class another `name`")
        return cast(type[C], item)


def is_file_name(name: str) -> bool:
    """Tell whether a name means a class in a file."""
    return name.endswith(".py") or ".py:" in name


def load_file(path: Path, purpose: str) -> ModuleType:
    """Run a Python file as a module, once, and say what is wrong with it, where, and why it was wanted."""
    if not path.is_file():
        raise SettingsError(f"there is no file {path}, {purpose}; give its path from here")
    resolved = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:12]}"
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
        raise SettingsError(f"{path} line {line} raises {_in_words(error)}; correct the file") from error
    return module


def line_in(path: Path, error: Exception) -> int:
    """Return the line of a file at which an error came up, 1 when it came from elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return (lines[-1] if lines else None) or 1


def _in_words(error: Exception) -> str:
    """Return an error's type and message on one line."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(message.split())}"


def _package(entry: EntryPoint) -> str:
    """Return the name of the package that brings an entry point."""
    return entry.dist.name if entry.dist else "an unknown package"
