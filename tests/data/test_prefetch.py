"""Work done ahead is the same work in the same order, and its thread never outlives the loop."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clare.data.prefetch import prefetched


def threads() -> list[threading.Thread]:
    """Return the threads that work ahead."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("clare-prefetch")]


def put(item: int, slot: list[int]) -> None:
    """Leave an item in a slot."""
    slot[:] = [item]


@given(items=st.lists(st.integers(), max_size=20), num_slots=st.integers(1, 4))
def test_every_item_comes_in_order_in_its_slot(items: list[int], num_slots: int) -> None:
    slots: list[list[int]] = [[] for _ in range(num_slots)]
    seen = [(item, list(slot)) for item, slot in prefetched(items, put, slots)]
    assert seen == [(item, [item]) for item in items]
    assert threads() == []


def test_a_slot_is_not_filled_while_it_is_lent() -> None:
    lent: list[int] | None = None

    def fill(item: int, slot: list[int]) -> None:
        assert slot is not lent
        put(item, slot)

    for item, slot in prefetched(range(50), fill, [[], []]):
        lent = slot
        assert slot == [item]
        lent = None


def test_the_work_is_done_by_another_thread_ahead_of_the_loop() -> None:
    filled = threading.Semaphore(0)
    names = set()

    def fill(item: int, slot: list[int]) -> None:
        names.add(threading.current_thread().name)
        put(item, slot)
        filled.release()

    loop = prefetched(range(10), fill, [[], [], []])
    next(loop)
    # The slot of the first item is lent; the two others are filled though nobody asked for them.
    assert all(filled.acquire(timeout=60) for _ in range(3))
    assert not filled.acquire(blocking=False)
    assert names == {thread.name for thread in threads()}
    loop.close()  # type: ignore[attr-defined]


def test_what_goes_wrong_ahead_is_raised_in_its_place() -> None:
    def fill(item: int, slot: list[int]) -> None:
        if item == 3:
            raise ValueError("the third")
        put(item, slot)

    loop = prefetched(range(9), fill, [[], []])
    assert [next(loop)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(loop)
    assert threads() == []


def test_items_that_fail_are_raised_too() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        list(prefetched(items(), put, [[]]))
    assert threads() == []


def test_a_closed_loop_ends_the_thread() -> None:
    loop = prefetched(range(1000), put, [[], []])
    next(loop)
    assert len(threads()) == 1
    loop.close()  # type: ignore[attr-defined]
    assert threads() == []


def test_an_error_in_the_loop_ends_the_thread() -> None:
    def consume() -> None:
        for item, _ in prefetched(range(1000), put, [[], []]):
            if item == 2:
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        consume()
    assert threads() == []
