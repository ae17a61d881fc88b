"""Runs on the machines of a Ray cluster: each is one Ray task, and Ray alone decides where and when."""

import contextlib
import importlib
import os
import platform
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.files import write_text
from clare.locks import take
from clare.methods import METHODS
from clare.presets.schema import Experiment, Job
from clare.runner.jobs import SECONDS_BETWEEN_LOOKS, Reasons, attempt, open_log
from clare.runner.progress import Board, progress_of

SECONDS_TO_CONNECT = 5.0
SECONDS_TO_ANSWER = 60.0
NUM_RETRIES = 3
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"


def run_ray_jobs(console: Console, jobs: Sequence[Job], address: str, root: Path) -> Reasons:
    """Make all runs that are not done as Ray tasks, and return why the others did not come to their end."""
    for job in jobs:
        num_devices = job.experiment.engine.num_devices
        if num_devices > 1:
            raise SettingsError(
                f"`engine.num_devices` is {num_devices}, but a run through Ray has one GPU; leave out that or --ray"
            )
    finished = {job.label for job in jobs if job.is_done}
    if len(finished) == len(jobs):
        return {}
    ray = load_ray()
    connect(ray, address)
    try:
        with Board(console, [job.label for job in jobs]) as board, _marker(root) as marker:
            for job in jobs:
                board.show(job.label, "done" if job.label in finished else "waiting")
            return _run_tasks(ray, [job for job in jobs if job.label not in finished], marker, board)
    finally:
        ray.shutdown()


def load_ray() -> Any:
    """Import Ray, which only this part of the program needs."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise SettingsError("--ray needs the package ray, which is missing; run pip install 'clare[ray]'") from error


def connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one of this machine alone for the address `local`."""
    if address == "local":
        ray.init(address="local", include_dashboard=False, **QUIET)
        return
    check_address(address, SECONDS_TO_ANSWER)
    ray.init(address=address, **QUIET)


def check_address(address: str, seconds: float) -> None:
    """Refuse an address where no Ray answers in time."""
    if address != "auto":
        _check_port(address)
    # Ray's own attempt takes minutes and cannot be interrupted, so another process makes it first.
    try:
        probe = subprocess.run(
            [sys.executable, "-c", PROBE, address], capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(
            f"no Ray answered at '{address}' within {seconds:.0f} seconds; give the address of a running cluster, "
            "or use --ray local"
        ) from None
    if probe.returncode:
        lines = probe.stderr.strip().splitlines() or ["it said nothing"]
        raise SettingsError(
            f"could not join a Ray cluster at '{address}' ({lines[-1]}); start one with `ray start --head`, call this "
            "on one of its machines with the cluster's RAY_AUTH_MODE, or use --ray local"
        )


def _check_port(address: str) -> None:
    """Refuse an address at which nothing listens, or that is none."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"--ray got '{address}'; write HOST:PORT, ray://HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise SettingsError(
            f"nothing answers at '{address}' ({error.strerror or error}); start Ray there with `ray start --head`, "
            "or use --ray local"
        ) from error


@contextlib.contextmanager
def _marker(root: Path) -> Iterator[Path]:
    """Write a file by which a machine can tell that it sees this folder; its new name is in nobody's cache."""
    path = root.resolve() / f".sweep-{secrets.token_hex(8)}"
    write_text(path, "")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _run_tasks(ray: Any, jobs: Sequence[Job], marker: Path, board: Board) -> Reasons:
    """Hand all runs to Ray and follow them by their records."""
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    # A process of its own for each run, as everywhere: nothing of one run is left over for the next.
    task = ray.remote(max_calls=1, max_retries=NUM_RETRIES)(run_task)
    reasons: Reasons = {}
    before = {job.label: progress_of(job.folder) for job in jobs}
    pending: dict[Any, Job] = {}
    try:
        for job in jobs:
            wish = task.options(**resources_for(job.experiment, has_gpus), name=job.label)
            text, folder = job.experiment.model_dump_json(), str(job.folder.resolve())
            pending[wish.remote(text, folder, os.getcwd(), str(marker))] = job
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
            for reference in ready:
                job = pending.pop(reference)
                reason = _outcome(ray, reference)
                if reason is not None:
                    reasons[job.label] = reason
                board.show(job.label, "done" if reason is None else "failed")
            for job in pending.values():
                now = progress_of(job.folder)
                # A run that goes on has a record from before, so only what has changed tells that it is at work.
                if now != before[job.label]:
                    board.show(job.label, now)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
    return reasons


def resources_for(experiment: Experiment, has_gpus: bool) -> dict[str, int]:
    """Return what a run asks Ray for: a GPU where there are some, and as many CPUs as it has threads."""
    num_gpus = 1 if has_gpus and experiment.engine.device != "cpu" else 0
    return {"num_cpus": max(1, experiment.engine.threads), "num_gpus": num_gpus}


def _outcome(ray: Any, reference: Any) -> str | None:
    """Return why a task failed, if it did: its own sentence, or Ray's."""
    try:
        reason: str | None = ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # The error of a task ends with its cause, one of Ray itself begins with it.
        return lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else f"Ray says: {lines[0]}"
    return reason


def run_task(experiment: str, folder: str, home: str, marker: str) -> str | None:
    """Make one run, or the rest of it, on the machine that Ray chose, and return why it failed, if it did."""
    if not Path(marker).is_file():
        return (
            f"the machine {platform.node()} does not see the folder {Path(marker).parent}; "
            "give an --out that all machines share"
        )
    if not Path(home).is_dir():
        return (
            f"the machine {platform.node()} has no folder {home}; call the command in a folder that all machines share"
        )
    # Paths in settings are relative to where the user called the command, and this process runs one task alone.
    with contextlib.chdir(home), open_log(Path(folder)) as log:
        take(log, wait=True)
        return attempt(lambda: _run(Experiment.model_validate_json(experiment), Path(folder)), Path(folder))


def _run(experiment: Experiment, folder: Path) -> None:
    """Make one run with the method that the user named on the machine where the command was called."""
    METHODS.named(experiment.method_name)
    run_experiment(experiment, folder, Silence())
