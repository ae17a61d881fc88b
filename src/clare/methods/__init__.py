"""One file per method; importing this package registers them all."""

from clare.methods import clare, finetune, linear, simplecil  # noqa: F401
from clare.methods.base import METHODS

__all__ = ["METHODS"]
