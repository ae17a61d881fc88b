"""Work done ahead of its use by background threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


def map_ahead(
    pool: ThreadPoolExecutor, function: Callable[[Given], Made], items: Iterable[Given], num_ahead: int
) -> Iterator[Made]:
    """Yield the function's values in order; at most `num_ahead` of them are made before they are asked for."""
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == num_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def prefetched(
    items: Iterable[Given], fill: Callable[[Given, Made], object], slots: Sequence[Made]
) -> Iterator[tuple[Given, Made]]:
    """Fill slots with items in order, in a background thread; each slot is lent until the next one is asked for."""

    def filled(lent: tuple[Given, Made]) -> tuple[Given, Made]:
        fill(*lent)
        return lent

    with ThreadPoolExecutor(1, "clare-prefetch") as pool:
        yield from map_ahead(pool, filled, zip(items, cycle(slots), strict=False), len(slots))
