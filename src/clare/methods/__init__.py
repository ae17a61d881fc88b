"""One file per method; importing this package registers them all."""

import importlib
import pkgutil

from clare.methods.base import METHODS

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)

__all__ = ["METHODS"]
