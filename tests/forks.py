"""Python processes forked from one that has imported torch and clare and has computed nothing.

A fresh process imports torch for four seconds; a fork has it at once and is a real process all the same, with a
number, an environment, a folder and an end of its own. It is the child of the process that asked for it.
"""

import array
import atexit
import ctypes
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import process as multiprocessing_process
from typing import Any, NoReturn

import numpy as np
import torch

# What the commands import, besides the parts of the package that these import by themselves.
WARM = ("lightning.fabric", "clare.cli.main", "clare.engine.run", "clare.runner.compare")
SET_CHILD_SUBREAPER = 36


@contextmanager
def adopting() -> Iterator[None]:
    """Become the parent of descendants whose own parent ends meanwhile, as Linux allows it."""
    control = ctypes.CDLL(None, use_errno=True).prctl
    if control(SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt others")
    try:
        yield
    finally:
        control(SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class ForkServer:
    """The process that is forked, started when the first fork is asked for."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.channel: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def fork(self, request: dict[str, Any], outputs: Sequence[int]) -> int:
        """Return the number of a process that runs what is asked for and writes to the outputs."""
        if self.channel is None:
            self.start()
        assert self.channel is not None
        with adopting():
            packet = array.array("i", outputs)
            self.channel.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packet)])
            answer = self.channel.recv(64)
        assert answer, "the process that is forked has ended"
        return int(answer)

    def start(self) -> None:
        """Start the process with its end of the channel."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )

    def close(self) -> None:
        """End the process, which has nothing to clear away."""
        if self.channel is not None and self.process is not None:
            self.channel.close()
            self.process.kill()
            self.process.wait()


class Forked(subprocess.Popen[str]):
    """A process as any other, but forked from the server in place of started anew."""

    def __init__(self, server: ForkServer, arguments: Sequence[str], **options: Any) -> None:
        self.server = server
        super().__init__(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def _execute_child(self, *arguments: Any) -> None:  # type: ignore[override]
        # The one place where the standard library starts a process; reading, waiting and killing stay as they are.
        given = inspect.signature(super()._execute_child).bind(*arguments).arguments  # type: ignore[misc]
        request = {
            "arguments": list(given["args"]),
            "cwd": str(given["cwd"] or os.getcwd()),
            "environment": given["env"],
        }
        outputs = given["c2pwrite"], given["errwrite"]
        self.pid = self.server.fork(request, outputs)
        self._child_created = True
        for output in outputs:
            os.close(output)


def requests(channel: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield what is asked for, with the descriptors to write to, until the asking end is closed."""
    while True:
        message, packets, _, _ = channel.recvmsg(1 << 20, socket.CMSG_SPACE(2 * array.array("i").itemsize))
        if not message:
            return
        descriptors = array.array("i")
        for _, _, data in packets:
            descriptors.frombytes(data)
        yield json.loads(message), list(descriptors)


def fork_on_request(channel: socket.socket) -> dict[str, Any] | None:
    """Return what is asked for in each forked process, and nothing in the server when it is to end."""
    for request, outputs in requests(channel):
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            # The process in between ends at once, so that the one who asked becomes the parent of the forked one.
            parent, forked = os.getpid(), os.fork()
            if forked:
                os.write(writing, str(forked).encode())
                os._exit(0)
            for descriptor, output in enumerate(outputs, 1):
                os.dup2(output, descriptor)
            for descriptor in (*outputs, reading, writing):
                os.close(descriptor)
            channel.close()
            while os.getppid() == parent:
                time.sleep(0.001)
            return request
        os.waitpid(between, 0)
        channel.send(os.read(reading, 64))
        for descriptor in (*outputs, reading, writing):
            os.close(descriptor)
    return None


def become(request: dict[str, Any]) -> None:
    """Run what `python ARGUMENTS` would run, in this process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    multiprocessing_process.ORIGINAL_DIR = request["cwd"]
    # No two fresh processes draw the same numbers unless a seed says so.
    torch.default_generator.seed()
    np.random.seed()
    first, *words = request["arguments"]
    if first == "-u":
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        first, *words = words
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if first == "-m":
        sys.path[0], sys.argv = os.getcwd(), words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path[0], sys.argv = "", ["-c", *words[1:]]
        exec(compile(words[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path[0], sys.argv = os.path.dirname(first), [first, *words]
        runpy.run_path(first, run_name="__main__")


def serve() -> dict[str, Any] | None:
    """Import what takes long, then be forked; no thread may run by then, since a fork has the first one alone."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in WARM:
        __import__(name)
    assert len(os.listdir("/proc/self/task")) == 1, "an import has started a thread"
    return fork_on_request(channel)


def end(request: dict[str, Any]) -> NoReturn:
    """Run what is asked for and end as the interpreter would, but for taking apart what was imported.

    That takes nearly as long as the imports, and the memory that both processes share would be copied for it.
    """
    code = 0
    try:
        become(request)
    except SystemExit as raised:
        code = raised.code if isinstance(raised.code, int) else int(raised.code is not None)
        if not isinstance(raised.code, int | None):
            print(raised.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


if __name__ == "__main__":
    found = serve()
    if found is not None:
        end(found)
