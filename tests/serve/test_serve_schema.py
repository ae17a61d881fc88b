"""Requests drawn from the service's own description never make it fail."""

import contextlib
import io
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator

import pytest
import schemathesis
import uvicorn
from fake_service import png
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from clare.serve.app import make_app
from clare.serve.service import Options


def pack(name: str, content: bytes) -> bytes:
    """Return a zip of one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


images = st.integers(0, 255).map(png)
archives = st.builds(pack, st.sampled_from(["cat/1.png", "1.png", "../1.png"]), images)
schemathesis.openapi.format("binary", st.one_of(st.binary(max_size=100), images, archives))


@pytest.fixture
def address(options: Callable[..., Options]) -> Iterator[str]:
    """Return the address of a server in a thread of this process."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = uvicorn.Server(uvicorn.Config(make_app(options()), log_level="critical", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/healthz", {200}),
        ("GET", "/model", {200}),
        ("GET", "/jobs/{number}", {404}),
        ("POST", "/predict", {200, 422}),
        ("POST", "/learn", {422}),
        ("POST", "/undo", {409}),
    ],
)
def test_every_answer_is_one_that_is_described(address: str, method: str, path: str, expected: set[int]) -> None:
    description = schemathesis.openapi.from_url(f"{address}/openapi.json")
    statuses: set[int] = set()
    # Only where there is something to get wrong can requests be drawn that do.
    modes = list(GenerationMode) if path in ("/predict", "/learn") else [GenerationMode.POSITIVE]

    @settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None, derandomize=True, deadline=None)
    @given(st.one_of([description[path][method].as_strategy(generation_mode=mode) for mode in modes]))
    def ask(case: Case) -> None:
        checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
        statuses.add(case.call_and_validate(checks=checks).status_code)

    ask()
    # Requests that are all alike would prove little.
    assert statuses >= expected
