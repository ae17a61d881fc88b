"""What is wrong with a method of one's own, in one sentence each."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from inspect import get_annotations
from pathlib import Path

import torch

from clare.errors import ClareError, ModelError, SettingsError
from clare.growth import Growing
from clare.methods import protocols
from clare.registry import in_words, line_in

PROTOCOLS = [
    Growing,
    *(each for each in vars(protocols).values() if isinstance(each, type) and each.__module__ == protocols.__name__),
]
MEMBERS = {
    member: protocol
    for protocol in reversed(PROTOCOLS)
    if not is_dataclass(protocol)
    for member in [*vars(protocol), *get_annotations(protocol)]
    if not member.startswith("_")
}
"""What only some methods have, and the first protocol under which it is read."""
GONE = {
    "bare_features": "the function bare_features(self, images) of clare.methods.base",
    "check_new": "the function check_new(method, classes) of clare.engine.learn",
    "features_are_fixed": "the protocol CachesFeatures",
    "features_grow": "the protocol GrowsFeatures",
    "fixed_features": "`features` under the protocol CachesFeatures, or `queries` under CachesQueries",
    "fixed_version": "`features_version` of the protocol CachesFeatures",
    "generator": "task.generator(purpose)",
    "merges_tasks": "the protocol LearnsAllAtOnce",
    "num_features": "self.head.num_features",
    "num_fixed_parts": "`num_parts` of the protocol GrowsFeatures",
    "passes_per_look": "`num_passes` of the protocol PassesSeveralTimes",
    "reads_blocks": "settings that inherit HeadOnlySettings, for a method that makes features of its own",
    "restore": "the function restore(method, snapshot) of clare.methods.state",
    "snapshot": "the function snapshot_of(method) of clare.methods.state",
    "tensors": "the function learnt_tensors(method) of clare.methods.state",
}
"""What the base class of clare 0.1.0 had, and what took its place."""


def check_members(kind: type, where: str) -> None:
    """Refuse a class that sets what is not read of it, and say what would be."""
    own = {name for each in kind.__mro__ if not is_ours(each) for name in vars(each)}
    for name in sorted(own & GONE.keys()):
        raise SettingsError(f"{where} has `{name}`, which is no longer read; use {GONE[name]}")
    for name in sorted(own & MEMBERS.keys()):
        protocol = MEMBERS[name]
        if not issubclass(kind, protocol):
            raise SettingsError(
                f"{where} has `{name}`, which only the protocol {protocol.__name__} has; "
                f"inherit that from {protocol.__module__} as well, or choose another name"
            )


def is_ours(kind: type) -> bool:
    """Tell whether a class is of this package or of a library."""
    return kind.__module__.partition(".")[0] in ("clare", "torch", "abc", "builtins")


@contextmanager
def in_one_sentence(kind: type) -> Iterator[None]:
    """Say what code of others raises, and where; an error of a method of this package keeps its traceback."""
    try:
        yield
    except (ClareError, OSError, AssertionError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if is_ours(kind):
            raise
        file = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "?")
        gone = GONE.get(getattr(error, "name", None) or "")
        hint = f"instead of `{error.name}` use {gone}" if gone and isinstance(error, AttributeError) else "correct it"
        line = line_in(file, error)
        raise ModelError(
            f"the method {kind.__name__} raises {in_words(error)} ({file.name} line {line}); {hint}"
        ) from error
