"""Processes that decode: their answers, their time, and what is left when they are stopped."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from fake_service import bomb, many_scans, png

from clare.classifier.pictures import Reader
from clare.serve.decoders import Decoder, Decoders
from clare.serve.decoding import REQUEST, Outcome, Wanted, decode, judge
from clare.serve.limits import Limits, Refusal

WANTED = Wanted(1_000_000, 1, 28)
READER = Reader(1, 28, 0)


def use(decoder: Decoder, work: Callable[[], Awaitable[None]]) -> None:
    """Do something with a decoder, and end it."""

    async def both() -> None:
        try:
            await work()
        finally:
            await decoder.stop()

    asyncio.run(both())


@pytest.mark.parametrize(
    "content", [png(7), png(9, (300, 40)), b"text", bomb(5_000), png(5, (90, 90))[:80], many_scans(200), b""]
)
def test_a_process_answers_as_a_call_does(content: bytes) -> None:
    expected, decoder = decode(content, WANTED), Decoder(60)

    async def work() -> None:
        for _ in range(2):
            answer = await decoder.decode(content, WANTED)
            assert answer[:2] == expected[:2]
            assert (answer.pixels is None) == (expected.pixels is None)
            assert answer.pixels is None or np.array_equal(answer.pixels, expected.pixels)

    use(decoder, work)


def test_a_decoder_needs_no_torch() -> None:
    code = "import sys, clare.serve.decoding; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_jpeg_of_very_many_scans_is_not_decoded() -> None:
    assert decode(many_scans(200), WANTED).outcome is Outcome.TOO_MANY_SCANS
    assert decode(many_scans(20), WANTED).outcome is Outcome.DECODED


def test_damaged_headers_fill_no_log_with_warnings() -> None:
    whole = png(kind="TIFF")
    for place in range(4, 200):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            judge(whole[:place] + b"\xff" + whole[place + 1 :], 1000)
        assert said == [], place


def test_a_picture_that_takes_too_long_ends_the_process_and_the_next_one_gets_another() -> None:
    decoder = Decoder(0.2)

    async def work() -> None:
        process = await decoder.ready()
        # A stopped process stands for one that decodes without end.
        os.kill(process.pid, signal.SIGSTOP)
        assert (await decoder.decode(png(7), WANTED)).outcome is Outcome.TOO_SLOW
        assert process.returncode == -signal.SIGKILL
        decoder.seconds = 60
        assert (await decoder.decode(png(7), WANTED)).outcome is Outcome.DECODED

    use(decoder, work)


def test_a_process_that_starts_slowly_takes_nothing_from_the_time_of_a_picture() -> None:
    decoder = Decoder(0.01)

    async def work() -> None:
        process = await decoder.start()
        os.kill(process.pid, signal.SIGSTOP)
        asked = asyncio.create_task(decoder.decode(png(7), WANTED))
        await asyncio.sleep(0.1)
        assert not asked.done()
        decoder.seconds = 60
        os.kill(process.pid, signal.SIGCONT)
        assert (await asked).outcome is Outcome.DECODED

    use(decoder, work)


def test_a_process_that_died_is_replaced() -> None:
    decoder = Decoder(60)

    async def work() -> None:
        process = await decoder.ready()
        process.kill()
        await process.wait()
        assert (await decoder.decode(png(7), WANTED)).outcome is Outcome.DECODED

    use(decoder, work)


def test_a_picture_at_which_the_process_dies_is_damaged_and_the_next_one_gets_another() -> None:
    decoder = Decoder(600)

    async def work() -> None:
        # So large that it is still being sent when the process dies, or small enough to have been sent.
        for content in (bytes(1 << 24), png(7)):
            process = await decoder.ready()
            os.kill(process.pid, signal.SIGSTOP)
            asked = asyncio.create_task(decoder.decode(content, WANTED))
            await asyncio.sleep(0.1)
            os.kill(process.pid, signal.SIGKILL)
            assert (await asked).outcome is Outcome.DAMAGED
        assert (await decoder.decode(png(7), WANTED)).outcome is Outcome.DECODED

    use(decoder, work)


def test_a_decoder_that_is_stopped_gives_up_at_once() -> None:
    decoder = Decoder(600)

    async def work() -> None:
        process = await decoder.ready()
        os.kill(process.pid, signal.SIGSTOP)
        asked = asyncio.create_task(decoder.decode(png(7), WANTED))
        await asyncio.sleep(0.1)
        await decoder.stop()
        assert (await asked).pixels is None
        assert process.returncode == -signal.SIGKILL

    use(decoder, work)


def test_who_leaves_while_all_are_busy_leaves_nothing_behind() -> None:
    async def work() -> None:
        decoders = Decoders(1, Limits())
        try:
            (decoder,) = decoders._all
            process = await decoder.ready()
            os.kill(process.pid, signal.SIGSTOP)
            asked = [asyncio.create_task(decoders.decode_all([("a", png(7))], READER)) for _ in range(3)]
            await asyncio.sleep(0.1)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            # Neither the busy process nor the places in the queue are lost.
            (pixels,) = await decoders.decode_all([("a", png(7))], READER)
            assert pixels.shape == (1, 28, 28)
            assert process.returncode == -signal.SIGKILL
        finally:
            await decoders.close()

    asyncio.run(work())


def test_the_pixels_of_a_request_are_bounded() -> None:
    async def work() -> None:
        decoders = Decoders(1, Limits(predict_pixels=3 * 28 * 28))
        try:
            assert len(await decoders.decode_all([("a", png(7))] * 3, READER)) == 3
            with pytest.raises(Refusal, match="2352 pixels in all") as caught:
                await decoders.decode_all([("a", png(7))] * 4, READER)
            assert caught.value.status == 413
        finally:
            await decoders.close()

    asyncio.run(work())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills the children of a process that ended")
def test_a_decoder_dies_with_its_parent_although_its_input_stays_open() -> None:
    read, write = os.pipe()
    code = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'clare.serve.decoding']\n"
        f"child = subprocess.Popen(command, stdin={read}, stdout=subprocess.PIPE)\n"
        "child.stdout.read(1)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, pass_fds=[read])
    try:
        with os.fdopen(write, "wb") as pipe:
            # An answer shows that the child is ready.
            pipe.write(REQUEST.pack(0, *WANTED))
            pipe.flush()
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            parent.kill()
            parent.wait()
            while _is_alive(child):
                time.sleep(0.02)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()  # type: ignore[union-attr]
        os.close(read)


def _is_alive(pid: int) -> bool:
    """Tell whether a process is at work."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
