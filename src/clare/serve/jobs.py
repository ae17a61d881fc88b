"""Learning as jobs: one child process at a time teaches the folder and tells how far it is."""

import asyncio
import json
import logging
import os
import shutil
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clare.model.records import Mode
from clare.serve.limits import Budget

logger = logging.getLogger(__name__)

LONGEST_LINE = 1 << 26
NUM_KEPT = 100
"""Ended jobs that can still be asked about."""

State = Literal["waiting", "running", "done", "failed"]


@dataclass
class Job:
    """A request to learn, and how far it is."""

    folder: Path
    mode: Mode
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: State = "waiting"
    progress: float = 0.0
    step: str = "waiting"
    seconds_left: float | None = None
    error: str | None = None
    change: dict[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in ("done", "failed")

    def shown(self) -> dict[str, Any]:
        """Return what a client is told."""
        names = ("id", "state", "progress", "step", "seconds_left", "error", "change")
        return {name: getattr(self, name) for name in names}

    def take(self, report: dict[str, Any]) -> None:
        """Note what the child process says."""
        for name in ("progress", "step", "seconds_left", "error", "change"):
            if name in report:
                setattr(self, name, report[name])


class Jobs:
    """The queue of jobs and the process of the one that is running."""

    def __init__(self, command: Sequence[str], num_waiting: int, committed: Callable[[], Awaitable[None]]) -> None:
        """Take the child's command without folder and mode, and what to do when it may have changed the model."""
        self.command, self.committed = list(command), committed
        self.slots = Budget(num_waiting + 1, "the queue of jobs is full; try again when the running one is done")
        self.all: dict[str, Job] = {}
        self.process: asyncio.subprocess.Process | None = None
        self._queue: asyncio.Queue[tuple[Job, Callable[[], object]]] = asyncio.Queue()

    @property
    def current(self) -> Job | None:
        """The job that is running or will be next."""
        return next((job for job in self.all.values() if not job.has_ended), None)

    @property
    def retry_after(self) -> int:
        """Seconds after which asking again may help."""
        job = self.current
        return max(1, round(job.seconds_left)) if job is not None and job.seconds_left else 5

    def add(self, job: Job, ended: Callable[[], object]) -> None:
        """Queue a job; `ended` gives back its slot."""
        old = [job.id for job in self.all.values() if job.has_ended]
        for name in old[: max(0, len(old) - NUM_KEPT + 1)]:
            del self.all[name]
        self.all[job.id] = job
        self._queue.put_nowait((job, ended))

    async def run(self) -> None:
        """Work on jobs, one after another, until cancelled."""
        while True:
            job, ended = await self._queue.get()
            try:
                await self._learn(job)
            finally:
                try:
                    await asyncio.to_thread(shutil.rmtree, job.folder, ignore_errors=True)
                finally:
                    ended()

    async def _learn(self, job: Job) -> None:
        """Run one job in a process of its own."""
        job.state, job.step = "running", "starting"
        try:
            code = await self._run_child(job)
            await self.committed()
        except Exception as error:
            logger.exception("job %s failed", job.id)
            job.error = job.error or f"learning failed ({type(error).__name__}); see the server's log"
        else:
            if job.change is None and job.error is None:
                reason = f"signal {-code}" if code < 0 else f"exit code {code}"
                job.error = f"the learning process ended early ({reason}); the model is the last whole one"
        job.state = "failed" if job.error else "done"
        job.seconds_left = None
        if job.state == "done":
            job.progress, job.step = 1.0, "done"

    async def _run_child(self, job: Job) -> int:
        """Start the child, follow what it says, and return its exit code."""
        # The child ends itself when its input closes, so it never outlives a server that was killed;
        # a session of its own keeps the terminal's Ctrl-C from it.
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            str(job.folder),
            job.mode,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LONGEST_LINE,
            env=os.environ | {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")},
        )
        assert self.process.stdout is not None
        try:
            async for line in self.process.stdout:
                job.take(json.loads(line))
            return await self.process.wait()
        finally:
            if self.process.returncode is None:
                self.process.kill()
