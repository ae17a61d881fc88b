"""The one registry class: names written once, wrong names answered with the nearest right one."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from clare.errors import SettingsError, nearest

T = TypeVar("T")


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
            raise SettingsError(
                f"there is no {self.kind} '{name}'{nearest(name, self._items)}; known: {', '.join(self._items)}"
            )
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)
