"""Every registered method keeps the same promises; nothing here knows which method it holds."""

from pathlib import Path

import pytest
from tiers import CORE

from clare.methods import METHODS
from clare.testing import promises
from clare.testing.promises import FOR_EACH_HEAD, FOR_EACH_METHOD, FOR_EACH_REFUSED_HEAD, Promise
from clare.testing.world import HEADS, Case, heads_of

NAMES = list(METHODS)
PAIRS = [(name, head) for name in NAMES for head in HEADS]
ACCEPTED = [(name, head) for name in NAMES for head in heads_of(name)]
REFUSED = [pair for pair in PAIRS if pair not in ACCEPTED]
# The two solved heads differ in their sums alone, which know nothing of the method; one of them meets every method.
RIDGE = ("clare", "clare-plus", "aper-adapter", "sdlora", "ranpac")
CASES = [(name, head) for name, head in ACCEPTED if head != "ridge" or name in RIDGE]

# What `make test` tries: each core method with its own head, and each head on the first two of these that accept it.
# Of the other methods it asks what takes no time, and whether they learn at all.
HOSTS = ("clare", "sdlora", "aper-adapter")
HOSTED = [pair for head in HEADS for pair in [(name, head) for name in HOSTS if (name, head) in CASES][:2]]
QUICK = (
    promises.it_learns_every_task,
    promises.every_setting_is_typed_explained_and_bounded,
    promises.a_wrong_setting_is_named,
)


def named(value: object) -> str:
    """Return a promise's name, or a method's or head's."""
    return getattr(value, "__name__", str(value))


def slow(is_slow: bool) -> list[pytest.MarkDecorator]:
    """Return the mark of what is left to `make test-all`."""
    return [pytest.mark.slow] if is_slow else []


# Core methods keep every promise with every head. Each other method learns with every head that it accepts, and keeps
# with each of them two more promises in turn, so that every head meets every promise on methods outside the core too.
OTHERS = FOR_EACH_HEAD[1:]


def tried(name: str, head: str) -> tuple[Promise, ...]:
    """Return the promises that a method is held to with a head."""
    hosts = [each for each, kind in CASES if kind == head and each not in CORE]
    if name in CORE or len(hosts) < len(OTHERS):
        return FOR_EACH_HEAD
    first = 2 * hosts.index(name)
    return (FOR_EACH_HEAD[0], *(OTHERS[place % len(OTHERS)] for place in (first, first + 1)))


WITH_EACH_HEAD = [
    pytest.param(promise, *pair, marks=slow(pair not in HOSTED), id=f"{named(promise)}-{pair[0]}-{pair[1]}")
    for pair in CASES
    for promise in tried(*pair)
]
WITH_ITS_OWN = [
    pytest.param(promise, name, marks=slow(name not in CORE and promise not in QUICK), id=f"{named(promise)}-{name}")
    for name in NAMES
    for promise in (*FOR_EACH_HEAD, *FOR_EACH_METHOD)
]


@pytest.mark.parametrize(("promise", "name", "head"), WITH_EACH_HEAD)
def test_with_each_head(tiny_preset: Path, tmp_path: Path, promise: Promise, name: str, head: str) -> None:
    promise(Case(name, head, tiny_preset, tmp_path))


@pytest.mark.parametrize(("promise", "name"), WITH_ITS_OWN)
def test_with_its_own_head(tiny_preset: Path, tmp_path: Path, promise: Promise, name: str) -> None:
    promise(Case(name, None, tiny_preset, tmp_path))


@pytest.mark.parametrize(("name", "head"), REFUSED)
@pytest.mark.parametrize("promise", FOR_EACH_REFUSED_HEAD, ids=named)
def test_with_each_head_that_does_not_fit(
    tiny_preset: Path, tmp_path: Path, promise: Promise, name: str, head: str
) -> None:
    promise(Case(name, head, tiny_preset, tmp_path))


def test_each_head_meets_each_promise_outside_the_core() -> None:
    met = {(head, promise) for name, head in CASES if name not in CORE for promise in tried(name, head)}
    assert met == {(head, promise) for head, _ in met for promise in FOR_EACH_HEAD}


def test_each_head_has_two_hosts() -> None:
    assert [[pair[1] for pair in HOSTED].count(head) for head in HEADS] == [2] * len(HEADS)
    assert set(CORE) <= set(NAMES)
