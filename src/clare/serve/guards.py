"""What every request passes before it is looked at: its host, its origin, its time."""

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clare.serve.limits import Limits, Refusal

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_token(expected: str | None, authorization: str | None) -> None:
    """Refuse a change of the model without the token, if there is one."""
    if expected is None:
        return
    kind, _, given = (authorization or "").partition(" ")
    is_right = hmac.compare_digest(given.strip().encode(), expected.encode())
    if kind.lower() != "bearer" or not is_right:
        raise Refusal(401, "changing the model needs the server's token; send it as 'Authorization: Bearer TOKEN'")


class SiteGuard:
    """Refuses what other web sites make a visitor's browser send to a server on the visitor's machine."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None) -> None:
        """Take the names by which the server may be called; none allows all."""
        self.app = app
        self.hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            problem = self._problem(scope["method"], headers.get("host", ""), headers.get("origin"))
            if problem:
                await JSONResponse({"detail": problem}, 403)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _problem(self, method: str, host: str, origin: str | None) -> str | None:
        """Return why a request is refused, if it is."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.hosts is not None and name.lower() not in self.hosts:
            return f"the server is not called '{name[:100]}'; use its own address, or start it with --allow-host"
        if method == "POST" and origin is not None and _netloc(origin) != host.lower():
            return "the request comes from the page of another site; open the server's own page"
        return None


def _netloc(origin: str) -> str:
    """Return host and port of an origin; one that cannot be read fits no host."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return "/"


class TimeLimit:
    """Ends requests that take too long, whether the client is slow or the server."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and answer 408 or 503 if no answer has begun in time."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_body, has_begun = False, False

        async def receive_noting() -> Message:
            nonlocal has_body
            message = await receive()
            has_body = has_body or not message.get("more_body", False)
            return message

        async def send_noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        seconds = self.limits.upload_seconds if scope["path"] == "/learn" else self.limits.request_seconds
        with anyio.move_on_after(seconds) as time:
            await self.app(scope, receive_noting, send_noting)
        if time.cancelled_caught and not has_begun:
            status, problem = (503, "the server is too busy") if has_body else (408, "the request came too slowly")
            sentence = f"{problem}: it took more than {seconds:g} seconds; try again with fewer images"
            # The rest of a slow body is not waited for.
            answer = JSONResponse({"detail": sentence}, status, headers={"Connection": "close"})
            await answer(scope, receive, send)
