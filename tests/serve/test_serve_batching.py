"""Requests that are predicted together, each with its own answer."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from clare.serve.batching import Batcher
from clare.serve.limits import Limits, Refusal


class Predictor:
    """Answers an image with its first pixel, notes the batches, and waits while it is held."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.tops: list[int] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, images: list[Any], top: int) -> tuple[int, list[int]]:
        self.go.wait()
        self.batches.append([int(image.flat[0]) for image in images])
        self.tops.append(top)
        if 13 in self.batches[-1]:
            raise ValueError("unlucky")
        return len(self.batches), self.batches[-1]


def image(value: int) -> Any:
    """Return an image of one pixel."""
    return np.full((1, 1, 1), value, np.uint8)


def images(*values: int) -> list[Any]:
    """Return images of one pixel."""
    return [image(value) for value in values]


def run(use: Callable[["Batcher[int]", Predictor], Awaitable[None]], **limits: Any) -> Predictor:
    """Use a batcher at work."""
    predictor = Predictor()

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(predictor, executor, Limits(**limits))
            try:
                await use(batcher, predictor)
            finally:
                predictor.go.set()
        assert batcher.num_waiting == 0

    asyncio.run(main())
    return predictor


async def answers(batcher: "Batcher[int]", requests: Sequence[Sequence[int]]) -> list[Any]:
    """Ask for several requests at once and return what each one gets."""
    asked = [batcher.ask(images(*values), len(values)) for values in requests]
    return await asyncio.gather(*asked, return_exceptions=True)


def test_requests_that_come_together_are_predicted_together() -> None:
    async def use(batcher: "Batcher[int]", _: Predictor) -> None:
        assert await answers(batcher, [[1], [2, 3], [4]]) == [(1, [1]), (1, [2, 3]), (1, [4])]

    predictor = run(use, batch_seconds=1, batch_images=4)
    assert predictor.batches == [[1, 2, 3, 4]]
    assert predictor.tops == [2]


def test_a_batch_is_bounded_and_a_request_is_never_divided() -> None:
    async def use(batcher: "Batcher[int]", _: Predictor) -> None:
        requests = [[1], [2, 3], [4, 5], [6, 7, 8, 9], [10]]
        found = await answers(batcher, requests)
        assert [values for _, values in found] == requests

    predictor = run(use, batch_seconds=0.05, batch_images=3)
    assert predictor.batches == [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]


def test_requests_gather_while_the_thread_is_busy() -> None:
    async def use(batcher: "Batcher[int]", predictor: Predictor) -> None:
        predictor.go.clear()
        first = asyncio.create_task(batcher.ask(images(1), 1))
        await asyncio.sleep(0.05)
        others = asyncio.create_task(answers(batcher, [[2], [3], [4]]))
        await asyncio.sleep(0.01)
        predictor.go.set()
        assert await first == (1, [1])
        assert await others == [(2, [2]), (2, [3]), (2, [4])]

    run(use, batch_seconds=0)


def test_too_many_waiting_images_are_refused_and_their_places_come_back() -> None:
    async def use(batcher: "Batcher[int]", predictor: Predictor) -> None:
        predictor.go.clear()
        waiting = [asyncio.create_task(batcher.ask(images(1, 2), 1)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as caught:
            await batcher.ask(images(3), 1)
        assert caught.value.status == 429
        predictor.go.set()
        await asyncio.gather(*waiting)
        assert (await batcher.ask(images(3), 1))[1] == [3]

    run(use, waiting_images=4)


def test_the_places_of_one_who_left_come_back_only_when_the_work_ends() -> None:
    async def use(batcher: "Batcher[int]", predictor: Predictor) -> None:
        predictor.go.clear()
        working = asyncio.create_task(batcher.ask(images(1, 2), 1))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(batcher.ask(images(3), 1))
        await asyncio.sleep(0.01)
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
        # One is still held by the thread, the other by nobody.
        assert batcher.num_waiting == 2
        predictor.go.set()
        while batcher.num_waiting:
            await asyncio.sleep(0.01)

    assert run(use, batch_seconds=0).batches == [[1, 2]]


def test_a_request_that_fails_spoils_no_other() -> None:
    async def use(batcher: "Batcher[int]", _: Predictor) -> None:
        found = await answers(batcher, [[1], [13], [2]])
        assert [found[0][1], found[2][1]] == [[1], [2]]
        assert isinstance(found[1], ValueError)

    run(use, batch_seconds=0.5, batch_images=3)


def test_nothing_is_computed_for_those_who_have_left() -> None:
    async def use(batcher: "Batcher[int]", predictor: Predictor) -> None:
        predictor.go.clear()
        first = asyncio.create_task(batcher.ask(images(1), 1))
        await asyncio.sleep(0.05)
        left = asyncio.create_task(batcher.ask(images(2), 1))
        await asyncio.sleep(0.01)
        left.cancel()
        await asyncio.sleep(0.01)
        predictor.go.set()
        await first
        assert await batcher.ask(images(3), 1) == (2, [3])

    assert run(use, batch_seconds=0).batches == [[1], [3]]
