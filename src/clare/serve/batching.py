"""Images of many requests predicted together: a first one waits a moment for company, then all go at once."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from clare.data.images import Pixels
from clare.serve.limits import Limits, Refusal

Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class Waiting(Generic[Answer]):
    """One request: its images and where its answer goes."""

    images: Sequence[Pixels]
    top: int
    answer: "asyncio.Future[tuple[int, list[Answer]]]"


class Batcher(Generic[Answer]):
    """Collects requests while the one thread that predicts is busy, and for a few milliseconds when it was not."""

    def __init__(
        self, predict: Callable[[list[Pixels], int], tuple[int, list[Answer]]], executor: Executor, limits: Limits
    ) -> None:
        """Take a function from images and the number of names to a model's version and an answer for each image."""
        self.predict, self.executor, self.limits = predict, executor, limits
        self.num_waiting = 0
        self._queue: deque[Waiting[Answer]] = deque()
        self._changed = threading.Condition()
        self._is_at_work = False

    async def ask(self, images: Sequence[Pixels], top: int) -> tuple[int, list[Answer]]:
        """Return the version of the model and its answers to these images, all from the same model."""
        if self.num_waiting + len(images) > self.limits.waiting_images:
            raise Refusal(429, f"{self.num_waiting} images are waiting already; try again in a second", 1)
        waiting = Waiting(images, top, asyncio.get_running_loop().create_future())
        self.num_waiting += len(images)
        with self._changed:
            self._queue.append(waiting)
            self._changed.notify()
            was_at_work, self._is_at_work = self._is_at_work, True
        if not was_at_work:
            self.executor.submit(self._work, self.limits.batch_seconds)
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            # The slots of what is being predicted already come back when that ends.
            with self._changed:
                if waiting in self._queue:
                    self._queue.remove(waiting)
                    self.num_waiting -= len(images)
            raise

    def _work(self, seconds: float) -> None:
        """Answer one batch, for which requests are collected so long, and go on with those that came meanwhile."""
        with self._changed:
            enough = self.limits.batch_images
            self._changed.wait_for(lambda: sum(len(each.images) for each in self._queue) >= enough, seconds)
            batch = self._take()
        if batch:
            self._answer(batch)
        with self._changed:
            self._is_at_work = bool(self._queue)
        # From this thread, so that the next batch does not wait until the loop has sent the answers to this one, and
        # through the executor, so that other work for this thread has its turn, unless the server has ended meanwhile.
        if self._is_at_work:
            with suppress(RuntimeError):
                self.executor.submit(self._work, 0)

    def _take(self) -> list[Waiting[Answer]]:
        """Remove the requests of one batch from the queue."""
        batch: list[Waiting[Answer]] = []
        num_images = 0
        while self._queue:
            num_images += len(self._queue[0].images)
            if batch and num_images > self.limits.batch_images:
                break
            batch.append(self._queue.popleft())
        return batch

    def _answer(self, batch: list[Waiting[Answer]]) -> None:
        """Predict a batch and hand out the answers; if that fails, every request is tried alone."""
        images = [image for waiting in batch for image in waiting.images]
        loop = batch[0].answer.get_loop()
        try:
            version, answers = self.predict(images, max(waiting.top for waiting in batch))
        except Exception as error:
            if len(batch) > 1:
                for waiting in batch:
                    self._answer([waiting])
            else:
                _tell(loop, self._fail, batch[0], error)
        else:
            _tell(loop, self._hand_out, batch, version, answers)

    def _hand_out(self, batch: list[Waiting[Answer]], version: int, answers: list[Answer]) -> None:
        """Give every request of a batch its part of the answers."""
        start = 0
        for waiting in batch:
            end = start + len(waiting.images)
            self.num_waiting -= len(waiting.images)
            if not waiting.answer.done():
                waiting.answer.set_result((version, answers[start:end]))
            start = end

    def _fail(self, waiting: Waiting[Answer], error: Exception) -> None:
        """Give a request the reason why it has no answer."""
        self.num_waiting -= len(waiting.images)
        if not waiting.answer.done():
            waiting.answer.set_exception(error)


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *values: object) -> None:
    """Call a function on the loop, unless the server has ended meanwhile."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *values)
