"""Processes that decode untrusted pictures, killed and replaced when one takes too long."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

from clare.classifier.pictures import Reader
from clare.data.images import Pixels
from clare.serve.decoding import Answer, Outcome, Wanted, read_answer, send_request
from clare.serve.limits import Limits
from clare.serve.pictures import check_pixels, refusal_of

COMMAND = (sys.executable, "-m", "clare.serve.decoding")


class Decoder:
    """One process that decodes; it is started when it is needed, and anew after it was killed."""

    def __init__(self, seconds: float) -> None:
        """Take the time that one picture may need."""
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._busy = threading.Lock(), threading.Lock()
        self._is_closed = False

    def __enter__(self) -> "Decoder":
        """Use it for a while."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process."""
        self.close()

    def start(self) -> "subprocess.Popen[bytes] | None":
        """Return the process, started if there is none at work; after closing there is never one."""
        with self._lock:
            if self._is_closed:
                return None
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    _clear(self._process)
                # A session of its own keeps the terminal's Ctrl-C from it, and what libraries say about
                # pictures of strangers has no place in the log.
                self._process = subprocess.Popen(
                    COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            return self._process

    def stop(self) -> None:
        """Kill the process, whatever it is doing; the next picture gets a new one."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            with self._busy:
                _clear(process)

    def close(self) -> None:
        """Kill the process for good."""
        with self._lock:
            self._is_closed = True
        self.stop()

    def decode(self, content: bytes, wanted: Wanted) -> Answer:
        """Return what became of a picture, which may be that it took too long."""
        with self._busy:
            process = self.start()
            if process is None:
                return Answer(Outcome.GIVEN_UP)
            answer, is_late = self._exchange(process, content, wanted)
            if answer is not None and not is_late:
                return answer
            with self._lock:
                was_stopped = self._process is not process
                if not was_stopped:
                    self._process = None
            _clear(process)
        if is_late:
            return Answer(Outcome.TOO_SLOW)
        return Answer(Outcome.GIVEN_UP if was_stopped else Outcome.DAMAGED)

    def _exchange(
        self, process: "subprocess.Popen[bytes]", content: bytes, wanted: Wanted
    ) -> tuple[Answer | None, bool]:
        """Send a picture and wait for the answer; tell what came, and whether the process was killed for its time."""
        assert process.stdin is not None
        assert process.stdout is not None
        has_ended = is_late = False

        def end_late() -> None:
            nonlocal is_late
            with self._lock:
                if not has_ended:
                    is_late = True
                    process.kill()

        timer = threading.Timer(self.seconds, end_late)
        timer.daemon = True
        timer.start()
        answer = None
        # Writing fails where the process has ended already.
        with suppress(OSError):
            send_request(process.stdin, content, wanted)
            answer = read_answer(process.stdout)
        timer.cancel()
        with self._lock:
            has_ended = True
        return answer, is_late


def _clear(process: "subprocess.Popen[bytes]") -> None:
    """End a process and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        # What could not be sent to it is lost.
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


class Decoders:
    """A few processes that decode for all requests, each one picture at a time."""

    def __init__(self, num_processes: int, limits: Limits) -> None:
        self.limits = limits
        self._all = [Decoder(limits.image_seconds) for _ in range(num_processes)]
        self._threads = ThreadPoolExecutor(num_processes, "decode")
        self._idle: asyncio.LifoQueue[Decoder] = asyncio.LifoQueue()
        for decoder in self._all:
            self._idle.put_nowait(decoder)

    def start(self) -> None:
        """Start all processes, without waiting for them."""
        for decoder in self._all:
            self._threads.submit(decoder.start)

    def close(self) -> None:
        """Kill all processes, whatever they are doing."""
        for decoder in self._all:
            decoder.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def decode_all(self, contents: Sequence[tuple[str, bytes]], reader: Reader) -> list[Pixels]:
        """Check and read the images of a request, given with their names."""
        wanted = Wanted(self.limits.image_pixels, reader.channels, reader.shorter_side)
        images, num_pixels = [], 0
        for name, content in contents:
            answer = await self._decode(content, wanted)
            if answer.pixels is None:
                raise refusal_of(answer, name, self.limits)
            num_pixels += answer.size[0] * answer.size[1]
            check_pixels(num_pixels, self.limits.predict_pixels)
            images.append(answer.pixels)
        return images

    async def _decode(self, content: bytes, wanted: Wanted) -> Answer:
        """Have one picture decoded as soon as a process is free; who leaves meanwhile leaves nothing behind."""
        decoder = await self._idle.get()
        work = asyncio.get_running_loop().run_in_executor(self._threads, decoder.decode, content, wanted)
        work.add_done_callback(lambda _: self._idle.put_nowait(decoder))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            decoder.stop()
            raise
