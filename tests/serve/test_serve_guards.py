"""Time, sites and addresses."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from clare.serve.guards import TimeLimit, is_loopback
from clare.serve.limits import Budget, Limits, Refusal


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def ask(path: str, messages: list[Message], app: Any, **limits: float) -> tuple[int, dict[str, str], Any]:
    """Send one request whose body stops coming after some messages; return status, headers and JSON."""
    sent: list[Message] = []
    left = list(messages)

    async def receive() -> Message:
        if left:
            return left.pop(0)
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(TimeLimit(app, Limits(**limits))(scope, receive, send))  # type: ignore[arg-type]
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, json.loads(sent[1]["body"])


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a body to its end, then think for a long time."""
    while (await receive())["more_body"]:
        pass
    await asyncio.sleep(60)


def test_a_body_that_comes_too_slowly_is_refused() -> None:
    part = {"type": "http.request", "body": b"x", "more_body": True}
    status, headers, answer = ask("/predict", [part, part], reading, request_seconds=0.05)
    assert (status, headers["connection"]) == (408, "close")
    assert "slowly" in answer["detail"]


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    whole = {"type": "http.request", "body": b"x", "more_body": False}
    status, _, answer = ask("/predict", [whole], reading, request_seconds=0.05)
    assert status == 503
    assert "busy" in answer["detail"]


def test_uploads_have_a_time_of_their_own() -> None:
    part = {"type": "http.request", "body": b"x", "more_body": True}
    status, _, answer = ask("/learn", [part], reading, request_seconds=60, upload_seconds=0.05)
    assert status == 408
    assert "0.05 seconds" in answer["detail"]


def test_an_answer_in_time_is_passed_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"null"})

    assert ask("/predict", [], app, request_seconds=0.5)[0] == 204


def test_a_budget_gives_back_what_was_taken() -> None:
    budget = Budget(10, "full")
    with budget.taken(7):
        with budget.taken(3), pytest.raises(Refusal, match="full") as caught, budget.taken(1, retry_after=9):
            pass
        assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "9"})
    with budget.taken(10):
        pass


def test_a_growing_part_is_held_to_the_end_and_counts_what_came() -> None:
    budget = Budget(10, "full")
    with budget.growing() as take:
        take(4)
        with budget.taken(6), pytest.raises(Refusal, match="full"):
            take(1)
        take(6)
        assert budget.free == 0
    assert budget.free == 10
