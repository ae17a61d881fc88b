"""Many runs for one command: one after another in this process, or several processes at a time."""

import math
import os
import re
import subprocess
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from rich.console import Console

from clare.engine.context import Silence
from clare.engine.ranks import is_first_rank
from clare.engine.run import run_experiment
from clare.errors import ClareError, SettingsError
from clare.locks import take
from clare.presets.schema import Experiment, Job
from clare.report.standings import Failure
from clare.runner.loggers import open_loggers, together
from clare.runner.progress import Board, ProgressBars, progress_of

LOG = "log.txt"
HELD = "waiting for a process that an earlier command left at it"
NO_MEMORY = "waiting for memory of a GPU"
NO_ROOM = re.compile(r"out of memory|OutOfMemory|_ALLOC_FAILED")
"""What CUDA and its libraries say where a GPU's memory is full."""
SECONDS_BETWEEN_LOOKS = 0.1


Reasons = dict[str, str]
"""Why runs failed, by their labels."""


def failures_of(jobs: Sequence[Job], reasons: Reasons) -> list[Failure]:
    """Return what failed, in the order of the jobs."""
    return [Failure(job.label, job.experiment.head_label, reasons[job.label]) for job in jobs if job.label in reasons]


def run_jobs(
    console: Console, jobs: Sequence[Job], num_processes: int, done: Callable[[Job], None] = lambda job: None
) -> Reasons:
    """Make all runs that are not done, and return why some failed; of runs of this process `done` tells one by one."""
    # A folder that holds another run is told before any time is spent.
    finished = {job.label for job in jobs if job.is_done}
    if num_processes > 1:
        return _run_processes(console, jobs, finished, num_processes)
    reasons: Reasons = {}
    for job in jobs:
        reason = None if job.label in finished else _run_here(console, job)
        if reason is not None:
            reasons[job.label] = reason
            console.print(f"{job.label} failed; the other runs go on", style="red", highlight=False)
        elif is_first_rank():
            done(job)
    return reasons


def check_processes(num_processes: int) -> None:
    """Refuse to start processes from within one of several ranks."""
    if num_processes > 1 and "LOCAL_RANK" in os.environ:
        raise SettingsError(
            f"--jobs {num_processes} starts processes of its own; leave it out or start without torchrun"
        )


def num_at_a_time(jobs: int | None, per_gpu: int | None) -> int:
    """Return how many runs go at a time when the user says it, for all together or for each GPU."""
    if per_gpu is None:
        return jobs or 1
    if jobs not in (None, 1):
        raise SettingsError(f"--jobs {jobs} and --per-gpu {per_gpu} were both given; leave one of them out")
    num_gpus = len(visible_gpus())
    if not num_gpus:
        raise SettingsError("--per-gpu needs a GPU, and PyTorch sees none; use --jobs, or run `clare doctor`")
    return per_gpu * num_gpus


def num_processes_for(experiments: Sequence[Experiment]) -> int:
    """Return how many runs go at a time when nobody says: one for each GPU, or for each group that a run asks for."""
    if "LOCAL_RANK" in os.environ or any(each.engine.device == "cpu" for each in experiments):
        return 1
    return max(1, len(visible_gpus()) // max(each.engine.num_devices for each in experiments))


def visible_gpus() -> list[str]:
    """Return the GPUs that this process sees, each as CUDA_VISIBLE_DEVICES names it."""
    num_gpus = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = named.split(",") if named else [str(index) for index in range(num_gpus)]
    return [name.strip() for name in names[:num_gpus]]


def choose_gpus(
    gpus: Sequence[str], num_devices: int, taken: Sequence[str], most: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Return so many GPUs, those on which the fewest processes are at work, or none where too few take one more."""
    load, most = Counter(taken), most or {}
    gpus = [gpu for gpu in gpus if load[gpu] < most.get(gpu, math.inf)]
    if len(gpus) < num_devices:
        return ()
    chosen = sorted(gpus, key=lambda gpu: load[gpu])[:num_devices]
    return tuple(gpu for gpu in gpus if gpu in chosen)


def run_with_bars(
    console: Console, experiment: Experiment, folder: Path, title: str, loggers: Sequence[str] = ()
) -> None:
    """Run an experiment with progress bars and the named loggers on the first rank."""
    if not is_first_rank():
        run_experiment(experiment, folder, Silence())
        return
    with ExitStack() as stack:
        listeners = open_loggers(loggers, experiment, folder, stack)
        bars = stack.enter_context(ProgressBars(console, title))
        run_experiment(experiment, folder, together([bars, *listeners]))


def _run_here(console: Console, job: Job) -> str | None:
    """Run a job in this process and return why it failed, if it did."""
    if (job.folder / LOG).exists():
        with open_log(job.folder) as log:
            if not take(log):
                console.print(f"{job.label}: {HELD}", highlight=False)
                take(log, wait=True)
    return attempt(lambda: run_with_bars(console, job.experiment, job.folder, job.label), job.folder)


def attempt(run: Callable[[], None], folder: Path) -> str | None:
    """Make a run and return why it failed, if it did; the trace of what nobody foresaw goes to the folder's log."""
    try:
        run()
    except Exception as error:
        # A method of one's own may raise anything; the other methods are worth finishing all the same.
        is_unforeseen = not isinstance(error, ClareError) or error.__cause__ is not None
        if is_unforeseen and is_first_rank() and folder.is_dir():
            with (folder / LOG).open("a") as log:
                traceback.print_exc(file=log)
        if isinstance(error, ClareError):
            return str(error)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(frame.filename).name} line {frame.lineno})"
    return None


def open_log(folder: Path) -> IO[bytes]:
    """Open a run's log; who takes it as a lock is alone at the run, and so is a child whose output it is."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / LOG).open("ab")


@dataclass
class _Running:
    """A process at work on a job and its GPUs; what it says comes after `log_start` in the log."""

    job: Job
    process: "subprocess.Popen[bytes]"
    log_start: int
    gpus: tuple[str, ...]
    had_company: bool
    """Whether another process was on one of its GPUs at any time."""


def _run_processes(console: Console, jobs: Sequence[Job], finished: set[str], num_processes: int) -> Reasons:
    """Keep a number of processes at work until every job has had its turn."""
    waiting = deque(job for job in jobs if job.label not in finished)
    running: list[_Running] = []
    reasons: Reasons = {}
    most: dict[str, int] = {}
    with Board(console, [job.label for job in jobs]) as board:
        for job in jobs:
            board.show(job.label, "done" if job.label in finished else "waiting")
        try:
            while waiting or running:
                _start_some(waiting, running, num_processes, board, most)
                time.sleep(SECONDS_BETWEEN_LOOKS)
                for each in list(running):
                    if each.process.poll() is None:
                        board.show(each.job.label, progress_of(each.job.folder))
                        continue
                    running.remove(each)
                    reason = _reason(each) if each.process.returncode else None
                    if reason and each.had_company and NO_ROOM.search(reason):
                        # It goes on from its last epoch, and with no more runs beside it than had room.
                        load = Counter(gpu for other in running for gpu in other.gpus)
                        most.update({gpu: max(1, load[gpu]) for gpu in each.gpus})
                        waiting.append(each.job)
                        board.show(each.job.label, NO_MEMORY)
                        continue
                    if reason:
                        reasons[each.job.label] = reason
                    board.show(each.job.label, "failed" if reason else "done")
        finally:
            for each in running:
                each.process.terminate()
                each.process.wait()
    return reasons


def _start_some(
    waiting: deque[Job], running: list[_Running], num_processes: int, board: Board, most: Mapping[str, int]
) -> None:
    """Start waiting jobs as long as there is room; one that an older process is at goes to the end of the queue."""
    for _ in range(len(waiting)):
        if len(running) == num_processes:
            return
        job = waiting.popleft()
        with open_log(job.folder) as log:
            # The lock goes over to the child and ends with it, even when we are killed.
            if not take(log):
                board.show(job.label, HELD)
                waiting.append(job)
                continue
            if job.is_done:
                board.show(job.label, "done")
                continue
            engine, taken = job.experiment.engine, [gpu for each in running for gpu in each.gpus]
            own_gpus = [] if engine.device == "cpu" else visible_gpus()
            gpus = choose_gpus(own_gpus, engine.num_devices, taken, most)
            if not gpus and choose_gpus(own_gpus, engine.num_devices, taken):
                waiting.append(job)
                continue
            # Its share of the CPU's threads, unless the user has set them.
            share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_processes))}
            own = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
            process = subprocess.Popen(
                job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**share, **os.environ, **own}
            )
            company = [each for each in running if set(each.gpus) & set(gpus)]
            for each in company:
                each.had_company = True
            running.append(_Running(job, process, log.tell(), gpus, bool(company)))
        board.show(job.label, "started")


def _reason(ended: _Running) -> str:
    """Return the sentence with which a process ended."""
    with (ended.job.folder / LOG).open("rb") as log:
        log.seek(ended.log_start)
        lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    sentences = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if sentences:
        return sentences[-1]
    if ended.process.returncode < 0:
        return f"the process was ended by signal {-ended.process.returncode}; run the same command again to go on"
    return f"{lines[-1] if lines else 'the process said nothing'} (see {ended.job.folder / LOG})"
