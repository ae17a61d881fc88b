"""Every promise on one method, with a verdict for each."""

import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from clare.errors import ClareError
from clare.methods import METHODS
from clare.testing.promises import FOR_EACH_HEAD, FOR_EACH_METHOD, FOR_EACH_REFUSED_HEAD, Promise
from clare.testing.world import HEADS, Case, heads_of, write_preset


@dataclass(frozen=True)
class Verdict:
    """Whether a method keeps a promise, and with which head and why not."""

    promise: str
    outcome: Literal["kept", "broken", "does not apply"]
    reason: str = ""


def check_method(name: str) -> Iterator[Verdict]:
    """Try every promise on a method, with every kind of head that it can have."""
    METHODS.named(name)
    accepted = heads_of(name)
    refused = [head for head in HEADS if head not in accepted]
    tried: list[tuple[Promise, Sequence[str | None]]] = [(promise, accepted) for promise in FOR_EACH_HEAD]
    tried += [(promise, [None]) for promise in FOR_EACH_METHOD]
    tried += [(promise, refused) for promise in FOR_EACH_REFUSED_HEAD]
    num_threads = torch.get_num_threads()
    # Tiny tensors are faster on one thread, and sums have one order there.
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            preset = write_preset(Path(folder), [name])
            for promise, heads in tried:
                yield _verdict(promise, name, heads, preset)
    finally:
        torch.set_num_threads(num_threads)


def _verdict(promise: Promise, name: str, heads: Sequence[str | None], preset: Path) -> Verdict:
    """Try one promise with some heads, up to the first with which it is broken."""
    words = promise.__name__.replace("_", " ")
    for head in heads:
        with tempfile.TemporaryDirectory(dir=preset.parent) as folder:
            reason = _broken(promise, Case(name, head, preset, Path(folder)))
        if reason:
            return Verdict(words, "broken", f"with the head {head} {reason}" if head else reason)
    return Verdict(words, "kept" if heads else "does not apply")


def _broken(promise: Promise, case: Case) -> str:
    """Return how a promise is broken, and nothing when it is kept."""
    try:
        promise(case)
    except (AssertionError, ClareError) as error:
        return str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"it raises {type(error).__name__}: {error} ({Path(frame.filename).name} line {frame.lineno})"
    return ""
