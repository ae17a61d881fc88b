"""A service around a fake model, asked in this process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fake_teacher
import pytest
from fake_service import FakeModel
from fake_teacher import commit
from fastapi.testclient import TestClient

from clare.serve.app import make_app
from clare.serve.limits import Limits
from clare.serve.service import Options

TEACHER = Path(fake_teacher.__file__)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a fake model, version 1."""
    path = tmp_path / "model"
    path.mkdir()
    commit(path, 1, ["dark", "bright"])
    return path


@pytest.fixture
def options(folder: Path) -> Callable[..., Options]:
    """Return make(token=None, hosts=None, **limits): the options of a service around the fake model."""

    def make(token: str | None = None, hosts: tuple[str, ...] | None = None, **limits: Any) -> Options:
        command = (sys.executable, str(TEACHER), str(folder))
        return Options(folder, FakeModel, command, token, hosts, Limits(**limits))  # type: ignore[arg-type]

    return make


@pytest.fixture
def client(options: Callable[..., Options]) -> Iterator[Callable[..., TestClient]]:
    """Return make(**options): a client of a running service."""
    with ExitStack() as stack:

        def make(**values: Any) -> TestClient:
            return stack.enter_context(TestClient(make_app(options(**values))))

        yield make
