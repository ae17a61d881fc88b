"""A tiny frozen backbone, a tiny learnable stream and a quiet CPU context, each made by a factory."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from forks import Forked, ForkServer

import clare
from clare.backbones.vit import Backbone
from clare.data import sources
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.testing import world

# rich keeps for good the width that it finds here when a console is made, so that no test could ask for another one.
# A worker of pytest-xdist has a width in its environment even where no terminal is: the readline of its parent puts it.
os.environ.pop("COLUMNS", None)

# Some virtual machines announce bfloat16 instructions that end a process which uses them; results do not need them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# No test asserts a duration, and the same commit draws the same examples everywhere.
hypothesis.settings.register_profile("clare", deadline=None, derandomize=True)
hypothesis.settings.load_profile("clare")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute on one thread: tiny tensors are faster so on a busy machine, and sums have one order."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="session", autouse=True)
def _drawings_are_read_once() -> Iterator[None]:
    """Unpack the embedded drawings once for all runs of this process, which is a quarter of the time of a tiny run."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sources, "read_drawings", lru_cache(maxsize=8)(sources.read_drawings))
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Keep temporary files in one folder that goes with the tests: a process that is killed clears away nothing."""
    # Its name is short, since the sockets of Ray lie in it and their paths may have 107 characters.
    kept = tempfile.TemporaryDirectory(prefix="clare-tests-", ignore_cleanup_errors=True)
    with kept as folder, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def tiny_backbone() -> Callable[..., Backbone]:
    """Return make(seed=0, **sizes): a frozen random ViT for grey 28x28 images; a seed always gives the same one."""
    return world.tiny_backbone


@pytest.fixture
def tiny_stream() -> Callable[..., Stream]:
    """Return make(num_tasks=3, classes_per_task=2, num_train=12, num_test=6, seed=0): noisy copies of class patterns.

    Classes are named "class 00", "class 01", ... in the order of the stream; the images of a class do not
    depend on how many tasks there are.
    """
    return world.tiny_stream


@pytest.fixture
def context() -> Callable[..., Context]:
    """Return make(seed=0, train="none", listener=Silence(), **engine): a CPU context for grey 28x28 images.

    `train` is the augmentation, "none" or "affine"; `engine` are fields of EngineSettings.
    """
    return world.tiny_context


@pytest.fixture(scope="session")
def tiny_preset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a TOML preset of three tasks of two classes of drawings, on a tiny ViT: a run takes half a second.

    A method's own tiny settings are its class attribute `tiny`.
    """
    return world.write_preset(tmp_path_factory.mktemp("preset"))


@pytest.fixture(scope="session")
def process_environment() -> dict[str, str]:
    """Return the environment of the processes that tests start: one thread, and no ranks of others."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    sources = str(Path(clare.__file__).parents[1])
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": sources, "COLUMNS": "120"}


@pytest.fixture(scope="session")
def fork_server(process_environment: dict[str, str]) -> Iterator[ForkServer]:
    """Return what forks processes that have torch imported."""
    server = ForkServer(process_environment)
    yield server
    server.close()


@pytest.fixture
def start_python(
    process_environment: dict[str, str], fork_server: ForkServer
) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Return start(*arguments, cwd=None, fresh=False): a Python process that outlives no test, its output piped.

    It is forked from one that has imported torch, unless it is to be fresh.
    """
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, cwd: Path | None = None, fresh: bool = False) -> "subprocess.Popen[str]":
        words = list(map(str, arguments))
        options: dict[str, Any] = {"cwd": cwd, "env": process_environment}
        if fresh or sys.platform != "linux":
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen([sys.executable, *words], stdout=pipe, stderr=pipe, text=True, **options))
        else:
            processes.append(Forked(fork_server, words, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
