"""`clare serve`: one process that answers over HTTP."""

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from clare.classifier.classifier import Classifier, load
from clare.errors import SettingsError
from clare.serve.app import make_app
from clare.serve.guards import LOOPBACK_NAMES, is_loopback
from clare.serve.limits import Limits
from clare.serve.server import Server
from clare.serve.service import Options
from clare.settings import build_settings


def serve_command(
    console: Console,
    errors: Console,
    model: Path,
    host: str,
    port: int,
    token: str | None,
    device: str,
    allow_host: Sequence[str],
    limits: Sequence[str],
    method: str | None,
    runtime: str = "torch",
) -> None:
    """Serve a model folder until interrupted."""
    built = build_settings(Limits, dict(map(_pair, limits)), "limit")
    if token is not None and not token.strip():
        raise SettingsError("the token is empty; give --token some characters, or leave it out")
    is_local = is_loopback(host)
    if not is_local and token is None and not allow_host:
        raise SettingsError(
            f"at {host} other machines can reach the server, under any name; give --token, "
            "or --allow-host with the name that it is called by"
        )
    share_threads()
    options = Options(
        path=model,
        open_model=opener(method, device, runtime),
        teach_command=(sys.executable, "-m", "clare.serve.teach", str(model), device, method or ""),
        token=token,
        hosts=(*LOOPBACK_NAMES, host, *allow_host) if is_local or allow_host else None,
        limits=built,
    )
    app = make_app(options)
    with listen(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        if not is_local and token is None:
            errors.print(
                f"[yellow]warning:[/] everyone who can reach {address} can change the model; give a --token",
                soft_wrap=True,
                highlight=False,
            )
        told = f"{model} is served at {address} (interface: {address}/docs); Ctrl-C ends"
        console.print(told, soft_wrap=True, highlight=False, markup=False)
        with settled():
            Server(app, app.state.clear_up).run(sockets=[listener])


def opener(method: str | None, device: str, runtime: str) -> Callable[[Path], Classifier]:
    """Return what opens the model that answers; one that computes with ONNX Runtime does so on the CPU."""
    if runtime == "torch":
        return partial(load, method=method, device=device)
    if device == "cuda":
        raise SettingsError("--runtime onnx computes on the CPU; leave out --device cuda, or the runtime")
    # Only now: whoever serves with PyTorch needs none of its packages.
    from clare.export.onnx_features import OnnxFeatures

    features = OnnxFeatures()
    return lambda path: features.serve(load(path, method=method, device="cpu"))


@contextmanager
def settled() -> Iterator[None]:
    """Keep the garbage collector from all that is there already, since looking through it takes a quarter second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def share_threads() -> None:
    """Leave half of the cores to the network and to learning, unless the user has set the number of threads."""
    if "OMP_NUM_THREADS" not in os.environ:
        num_threads = max(1, (os.cpu_count() or 1) // 2)
        torch.set_num_threads(num_threads)
        os.environ["OMP_NUM_THREADS"] = str(num_threads)


def _pair(text: str) -> tuple[str, str]:
    """Read KEY=VALUE."""
    key, sign, value = text.partition("=")
    if not sign:
        raise SettingsError(f"a limit reads '{text}'; write it as KEY=VALUE, such as predict_images=8")
    return key.strip(), value.strip()


def listen(host: str, port: int) -> socket.socket:
    """Open the address; one that is taken or not ours is told in a sentence."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol named, asyncio sends small packets at once; they would wait for 40 milliseconds otherwise.
        with ExitStack() as held:
            listener = held.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
            held.pop_all()
            return listener
    except OSError as error:
        raise SettingsError(
            f"cannot listen at {host} port {port} ({error.strerror or error}); choose another with --host or --port"
        ) from None
