"""The load of the serving benchmark: a process that starts at once and does little but wait for answers.

Usage: python benchmarks/serving_load.py PORT FOLDER CONNECTIONS SECONDS
"""

import asyncio
import json
import re
import statistics
import sys
import time
from pathlib import Path

HOST = "127.0.0.1"
BOUNDARY = b"benchmark"


def request_of(image: bytes) -> bytes:
    """Return a whole HTTP request for the prediction of one image."""
    head = b'Content-Disposition: form-data; name="images"; filename="image"\r\n\r\n'
    body = b"--" + BOUNDARY + b"\r\n" + head + image + b"\r\n--" + BOUNDARY + b"--\r\n"
    lines = [
        b"POST /predict HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: multipart/form-data; boundary=" + BOUNDARY,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send one request and read its whole answer, which must be a prediction."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    assert length is not None, head
    body = await reader.readexactly(int(length.group(1)))
    assert head.startswith(b"HTTP/1.1 200"), head + body


async def load(port: int, requests: list[bytes], num_connections: int, seconds: float) -> dict[str, float]:
    """Keep all connections busy for a time, each with one request under way; return the rate and the waits."""
    waits: list[float] = []
    started = time.perf_counter()

    async def work(offset: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        number = offset
        while (asked := time.perf_counter()) - started < seconds:
            await _ask(reader, writer, requests[number % len(requests)])
            waits.append(time.perf_counter() - asked)
            number += num_connections
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(work(offset) for offset in range(num_connections)))
    return {"images_per_second": len(waits) / (time.perf_counter() - started), **percentiles(waits)}


def percentiles(waits: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of waiting times, in milliseconds."""
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {"p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}


def ask_once(port: int, image: bytes) -> None:
    """Ask for one prediction; the kernel keeps the connection until the server takes it."""

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        await _ask(reader, writer, request_of(image))
        writer.close()
        await writer.wait_closed()

    asyncio.run(ask())


def main(port: str, folder: str, num_connections: str, seconds: str) -> None:
    """Put a server under load with the images of a folder and print what was found."""
    requests = [request_of(path.read_bytes()) for path in sorted(Path(folder).iterdir())]
    print(json.dumps(asyncio.run(load(int(port), requests, int(num_connections), float(seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
