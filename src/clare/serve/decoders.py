"""Processes that decode untrusted pictures, killed and replaced when one takes too long."""

import asyncio
import math
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from clare.classifier.pictures import Reader
from clare.data.images import Pixels
from clare.serve.decoding import ANSWER, READY, REQUEST, Answer, Outcome, Wanted
from clare.serve.limits import Limits
from clare.serve.pictures import check_pixels, refusal_of

COMMAND = (sys.executable, "-m", "clare.serve.decoding")
MOST_ANSWERED = 1 << 26
"""Bytes of an answer that are taken before they are asked for; of a process whose pipe is full the end is not seen."""


class Decoder:
    """One process that decodes; it is started when it is needed, and anew after it was killed."""

    def __init__(self, seconds: float) -> None:
        """Take the time that one picture may need."""
        self.seconds = seconds
        self._process: Process | None = None
        self._is_ready = False

    async def start(self) -> Process:
        """Return the process, started if there is none at work."""
        if self._process is None or self._process.returncode is not None:
            # A session of its own keeps the terminal's Ctrl-C from it, and what libraries say about
            # pictures of strangers has no place in the log.
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MOST_ANSWERED, start_new_session=True
            )
            self._is_ready = False
        return self._process

    async def ready(self) -> Process:
        """Return the process as soon as it can decode, which on a busy machine takes longer than a picture may."""
        process = await self.start()
        if not self._is_ready:
            assert process.stdout is not None
            await process.stdout.readexactly(len(READY))
            self._is_ready = True
        return process

    async def stop(self) -> None:
        """Kill the process, whatever it is doing; the next picture gets a new one."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def decode(self, content: bytes, wanted: Wanted) -> Answer:
        """Return what became of a picture, which may be that it took too long; if the caller leaves, it is given up."""
        is_whole = False
        try:
            process = await self.ready()
            async with asyncio.timeout(self.seconds):
                answer = await _exchange(process, content, wanted)
            is_whole = True
        except TimeoutError:
            return Answer(Outcome.TOO_SLOW)
        except (OSError, asyncio.IncompleteReadError):
            return Answer(Outcome.DAMAGED)
        finally:
            if not is_whole:
                await self.stop()
        return answer


async def _exchange(process: Process, content: bytes, wanted: Wanted) -> Answer:
    """Send a picture to a process and wait for what became of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(REQUEST.pack(len(content), *wanted))
    process.stdin.write(content)
    await process.stdin.drain()
    outcome, width, height, *shape = ANSWER.unpack(await process.stdout.readexactly(ANSWER.size))
    if outcome != Outcome.DECODED:
        return Answer(Outcome(outcome), (width, height))
    pixels = np.frombuffer(await process.stdout.readexactly(math.prod(shape)), np.uint8)
    return Answer(Outcome.DECODED, (width, height), pixels.reshape(shape))


class Decoders:
    """A few processes that decode for all requests, each one picture at a time."""

    def __init__(self, num_processes: int, limits: Limits) -> None:
        self.limits = limits
        self._all = [Decoder(limits.image_seconds) for _ in range(num_processes)]
        self._idle: asyncio.LifoQueue[Decoder] = asyncio.LifoQueue()
        for decoder in self._all:
            self._idle.put_nowait(decoder)

    async def start(self) -> None:
        """Start all processes, without waiting until they are ready."""
        await asyncio.gather(*(decoder.start() for decoder in self._all))

    async def close(self) -> None:
        """Kill all processes, whatever they are doing."""
        await asyncio.gather(*(decoder.stop() for decoder in self._all))

    async def decode_all(self, contents: Sequence[tuple[str, bytes]], reader: Reader) -> list[Pixels]:
        """Check and read the images of a request, given with their names."""
        wanted = Wanted(self.limits.image_pixels, reader.channels, reader.shorter_side)
        images, num_pixels = [], 0
        for name, content in contents:
            # As soon as a process is free.
            decoder = await self._idle.get()
            try:
                answer = await decoder.decode(content, wanted)
            finally:
                self._idle.put_nowait(decoder)
            if answer.pixels is None:
                raise refusal_of(answer, name, self.limits)
            num_pixels += answer.size[0] * answer.size[1]
            check_pixels(num_pixels, self.limits.predict_pixels)
            images.append(answer.pixels)
        return images
