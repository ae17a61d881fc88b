"""Class-incremental continual learning with sparse, disjoint adapter updates on a frozen vision transformer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clare.version import __version__

if TYPE_CHECKING:
    from clare.classifier.classifier import Classifier, load

__all__ = ["Classifier", "__version__", "load"]

GONE = {
    "Learner": "clare.Classifier(), which learns in memory or in a folder",
    "TaughtModel": "clare.Classifier(folder), and clare.load(folder) for one that must be there",
    "create": "clare.Classifier(backbone=..., method=...)",
    "teach": "clare.Classifier(folder).learn(pictures)",
}
"""Names of 0.1, and what to type instead."""


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first asked for, so that `clare doctor` starts without them."""
    if name in ("Classifier", "load"):
        return getattr(import_module("clare.classifier.classifier"), name)
    if name == "results":
        return import_module("clare.results")
    if name in GONE:
        raise AttributeError(f"clare.{name} has become {GONE[name]}")
    raise AttributeError(f"module 'clare' has no attribute '{name}'")
