"""Work done ahead of its use by a background thread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Slot = TypeVar("Slot")


class _End(NamedTuple):
    """The last thing that the thread says: all is done, or what went wrong."""

    error: BaseException | None


def prefetched(
    items: Iterable[Item], fill: Callable[[Item, Slot], object], slots: Sequence[Slot]
) -> Iterator[tuple[Item, Slot]]:
    """Fill slots with items in order, in a background thread; each slot is lent until the next one is asked for."""
    free: SimpleQueue[Slot | None] = SimpleQueue()
    full: SimpleQueue[tuple[Item, Slot] | _End] = SimpleQueue()
    is_over = Event()
    for slot in slots:
        free.put(slot)

    def work() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                slot = free.get()
                if slot is None or is_over.is_set():
                    break
                fill(item, slot)
                full.put((item, slot))
        except BaseException as caught:
            error = caught
        full.put(_End(error))

    thread = Thread(target=work, name="clare-prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(got := full.get(), _End):
            yield got
            free.put(got[1])
        if got.error is not None:
            raise got.error
    finally:
        is_over.set()
        free.put(None)
        thread.join()
