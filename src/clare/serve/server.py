"""The server around the service: connections that must not idle, a log that repeats nothing, and an end in time."""

import asyncio
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_CLOSE = 2
"""Time for requests under way when the server is told to end; then they are cancelled."""
SECONDS_TO_END = 4.5
"""Time until the process ends whatever is going on."""
SECONDS_BETWEEN_SAME = 60.0
"""The same message is logged once in so long."""
HEADER_SECONDS = 10.0
"""Time for the headers of a request, and for what is left of a body whose answer was sent."""
BACKLOG = 64
"""Connections that are accepted at once, before any of them can be refused."""
SPARE_DESCRIPTORS = 128
"""Descriptors for files, pipes and children, beside those of connections."""
MOST_CONNECTIONS = 1000
HEADERS = [
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]
"""Of every answer: other sites show none in a frame, and browsers do not guess what they are."""

logger = logging.getLogger(__name__)


def most_connections() -> int:
    """Return how many connections may be open, which is less than the system's limit of descriptors."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(8, min(MOST_CONNECTIONS, allowed - BACKLOG - SPARE_DESCRIPTORS))


class GuardedProtocol(H11Protocol):
    """A connection that is closed when its headers do not come, or at once when there are too many."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._is_late: asyncio.TimerHandle | None = None
        self.most_connections = most_connections()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            logger.warning("more than %d connections are open; further ones are closed", self.most_connections)
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and see whether anything is still waited for."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Keep the time while headers are on their way, or the rest of a body that nobody reads any more."""
        state = self.conn.their_state
        is_waiting = state is h11.IDLE or (state is h11.SEND_BODY and self.conn.our_state is h11.DONE)
        if not is_waiting:
            self._forget()
        elif self._is_late is None:
            self._is_late = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _forget(self) -> None:
        """Keep the time no longer."""
        if self._is_late is not None:
            self._is_late.cancel()
            self._is_late = None


class NotAgain(logging.Filter):
    """Passes a message once in a while, so that no stranger can fill the log."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.now = now
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a message is new."""
        error = record.exc_info[1] if record.exc_info else None
        # Requests that are cancelled when the server ends did not fail.
        if isinstance(error, asyncio.CancelledError):
            return False
        text = f"{record.getMessage().partition(chr(10))[0]} {error!r}"
        now = self.now()
        self._last = {said: at for said, at in self._last.items() if now - at < SECONDS_BETWEEN_SAME}
        if text in self._last:
            return False
        self._last[text] = now
        return True


class Server(uvicorn.Server):
    """Ends in time when it is told to, whatever is going on."""

    def __init__(self, app: Any, clear_up: Callable[[], None]) -> None:
        """Take the service, and what to do before the process ends without it."""
        super().__init__(
            uvicorn.Config(
                app,
                http=GuardedProtocol,
                ws="none",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=SECONDS_TO_CLOSE,
                lifespan="on",
                backlog=BACKLOG,
                headers=HEADERS,
            )
        )
        self.clear_up = clear_up
        self.was_told_to_end = False

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to end, without logging the same again and again."""
        all_handlers = (*logging.getLogger("uvicorn").handlers, *logging.getLogger().handlers, logging.lastResort)
        filters = {handler: NotAgain() for handler in all_handlers if handler is not None}
        for handler, not_again in filters.items():
            handler.addFilter(not_again)
        try:
            with suppress(KeyboardInterrupt):
                super().run(sockets)
            if self.was_told_to_end:
                # What the interpreter would still clear away can take seconds, and no thread could end it by then.
                self._end_now()
        finally:
            for handler, not_again in filters.items():
                handler.removeFilter(not_again)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and see to it that the end comes."""
        self.was_told_to_end = True
        timer = threading.Timer(SECONDS_TO_END, self._end_now)
        timer.daemon = True
        timer.start()
        super().handle_exit(sig, frame)

    def _end_now(self) -> None:
        """End the process; the model's folder is whole at every moment, and the children end by themselves."""
        self.clear_up()
        sys.stdout.flush()
        os._exit(0)
