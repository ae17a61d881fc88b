"""Every registered method keeps the same promises; nothing here knows which method it holds."""

from pathlib import Path

import pytest

from clare.methods import METHODS
from clare.testing.promises import FOR_EACH_METHOD, FOR_EACH_REFUSED_STRATEGY, FOR_EACH_STRATEGY, Promise
from clare.testing.world import STRATEGIES, Case, accepts

NAMES = list(METHODS)
PAIRS = [(name, strategy) for name in NAMES for strategy in STRATEGIES]
ACCEPTED = [pair for pair in PAIRS if accepts(*pair)]
REFUSED = [pair for pair in PAIRS if pair not in ACCEPTED]
# The two solved heads differ in their sums alone, which know nothing of the method; one of them meets every method.
PROJECTED = ("clare", "clare-plus", "aper-adapter", "sdlora")
CASES = [(name, strategy) for name, strategy in ACCEPTED if strategy != "projected" or name in PROJECTED]


def named(value: object) -> str:
    """Return a promise's name, or a method's or strategy's."""
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("name", "strategy"), CASES)
@pytest.mark.parametrize("promise", FOR_EACH_STRATEGY, ids=named)
def test_with_each_head(tiny_preset: Path, tmp_path: Path, promise: Promise, name: str, strategy: str) -> None:
    promise(Case(name, strategy, tiny_preset, tmp_path))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("promise", FOR_EACH_METHOD, ids=named)
def test_with_its_own_head(tiny_preset: Path, tmp_path: Path, promise: Promise, name: str) -> None:
    promise(Case(name, None, tiny_preset, tmp_path))


@pytest.mark.parametrize(("name", "strategy"), REFUSED)
@pytest.mark.parametrize("promise", FOR_EACH_REFUSED_STRATEGY, ids=named)
def test_with_each_head_that_does_not_fit(
    tiny_preset: Path, tmp_path: Path, promise: Promise, name: str, strategy: str
) -> None:
    promise(Case(name, strategy, tiny_preset, tmp_path))
