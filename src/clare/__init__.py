"""Class-incremental continual learning with sparse, disjoint adapter updates on a frozen vision transformer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clare.version import __version__

if TYPE_CHECKING:
    from clare.classifier.taught import TaughtModel
    from clare.learner import Learner, create, load, teach

__all__ = ["Learner", "TaughtModel", "__version__", "create", "load", "teach"]


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first asked for, so that `clare doctor` starts without them."""
    if name in ("Learner", "TaughtModel", "create", "load", "teach"):
        from clare import learner

        return getattr(learner, name)
    if name == "results":
        return import_module("clare.results")
    raise AttributeError(f"module 'clare' has no attribute '{name}'")
