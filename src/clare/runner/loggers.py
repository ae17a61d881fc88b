"""Scalars of a run for TensorBoard and Weights & Biases, through Fabric's loggers."""

import hashlib
import importlib
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from clare.engine.context import Listener, Silence
from clare.errors import RunError, SettingsError
from clare.files import write_json
from clare.identity import flatten
from clare.metrics.accuracy import forgetting, matrix_from_rows
from clare.position import RECORD
from clare.presets.schema import Experiment
from clare.record import PhaseEvent, TaskEvent, read_events
from clare.sealed import read_object, seal

SECONDS_TO_CONNECT = 10
SECONDS_TO_START = 60
MAX_REASON = 160
LOGGED = "logged.json"
REMOVE = "restore it from a copy, or remove its folder to log the run anew"
WANDB_ADDRESS = "https://api.wandb.ai"


class TensorBoardSink:
    """Event files for TensorBoard: one folder counts epochs, one counts tasks."""

    name = "tensorboard"

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger

        self.settings = settings
        self.writers = {
            axis: TensorBoardLogger(folder / self.name, name="", version=f"{axis}s", default_hp_metric=False)
            for axis in ("epoch", "task")
        }

    def write(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Write the values; the settings go with the next task, for TensorBoard wants a figure beside them."""
        writer, values = self.writers[axis], dict(values)
        if axis == "task" and self.settings:
            writer.log_hyperparams(dict(self.settings), {"task/seen": values.pop("task/seen")}, step)
            self.settings = {}
        writer.log_metrics(values, step)
        writer.save()

    def close(self, failed: bool) -> None:
        """Close the files."""
        for writer in self.writers.values():
            writer.finalize("failed" if failed else "success")


class WandbSink:
    """A run at Weights & Biases, or in an offline folder when WANDB_MODE=offline, begun or gone on with."""

    name = "wandb"

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        import wandb
        from lightning.pytorch.loggers import WandbLogger

        # A run that goes on is known by the first line of the record.
        first = (folder / RECORD).read_bytes().partition(b"\n")[0]
        logger = WandbLogger(
            name=name,
            save_dir=folder,
            id=hashlib.sha256(first).hexdigest()[:16],
            project=os.environ.get("WANDB_PROJECT", "clare"),
            settings=wandb.Settings(console="off", init_timeout=SECONDS_TO_START),
        )
        try:
            run = logger.experiment
        except wandb.errors.Error as error:
            reason = str(error).strip().rstrip(".").partition("\n")[0][:MAX_REASON]
            raise RunError(
                f"wandb does not start ({reason}); run `wandb login`, or set WANDB_MODE=offline and send it later "
                "with `wandb sync`"
            ) from error
        for axis in ("epoch", "task"):
            run.define_metric(axis)
        for pattern, axis in (("loss/*", "epoch"), ("rate/*", "epoch"), ("task/*", "task")):
            run.define_metric(pattern, step_metric=axis)
        logger.log_hyperparams(dict(settings))
        self.logger = logger

    def write(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Hand the values over, beside their place on the axis."""
        self.logger.log_metrics({**values, axis: step})

    def close(self, failed: bool) -> None:
        """Finish the run; what is still on its way is sent or written before the program ends."""
        self.logger.experiment.finish(exit_code=int(failed))


Sink = TensorBoardSink | WandbSink
"""Where scalars go: once it is made it is ready for those of a run, or for the rest of them."""


class Scalars(ExitStack, Silence):
    """A listener that hands over loss and rate of every epoch and the figures of every task, each once."""

    def __init__(self, sink_of: Callable[..., Sink], name: str, experiment: Experiment, folder: Path) -> None:
        super().__init__()
        self.sink_of, self.folder, self.experiment = sink_of, folder, experiment
        self.logged_path = folder / name / LOGGED
        self.sink: Sink | None = None
        self.logged = {"epoch": 0, "task": 0}
        self.num_epochs, self.epochs_of_step = 0, 0
        self.rows: list[Sequence[float]] = []

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Open the sink before the first task of this process; the record tells what went before."""
        if self.sink is not None:
            return
        events = list(read_events(self.folder / RECORD))
        self.num_epochs = sum(event.epochs or 0 for event in events if isinstance(event, PhaseEvent))
        experiment = self.experiment
        name = f"{experiment.name}/{experiment.method_label}-{experiment.seed}"
        sink = self.sink = self.sink_of(self.folder, name, flatten(experiment.model_dump(mode="json")))
        self.push(lambda kind, *_: sink.close(failed=kind is not None))
        if self.logged_path.exists():
            known = read_object(self.logged_path, RunError, REMOVE)
            if not all(isinstance(known.get(axis), int) for axis in self.logged):
                raise RunError(f"{self.logged_path} does not tell how many epochs and tasks were logged; {REMOVE}")
            self.logged = {axis: known[axis] for axis in self.logged}
        # A crash between a task's commit and its telling would leave a gap; what was told is not told again.
        for event in events:
            if isinstance(event, TaskEvent):
                self.measured(event)

    def step(self, name: str, num_epochs: int) -> None:
        """Note how many epochs the phase has."""
        self.epochs_of_step = num_epochs

    def trained(self, phase: str, epoch: int, loss: float, rate: float) -> None:
        """Hand over an epoch's loss and rate; epochs count over all phases of all tasks, from 1."""
        self._write("epoch", self.num_epochs + epoch + 1, {f"loss/{phase}": loss, f"rate/{phase}": rate})
        if epoch + 1 == self.epochs_of_step:
            self.num_epochs += self.epochs_of_step

    def measured(self, task: TaskEvent) -> None:
        """Hand over the figures of a task; tasks count from 1."""
        self.rows.append(task.per_task)
        values = {
            "seen": task.seen,
            "new": task.new,
            "first": task.first,
            "task_given": task.given,
            "task_right": task.task_right,
            "forgetting": forgetting(matrix_from_rows(self.rows)),
            "capacity_used": task.capacity_used,
            "learn_seconds": task.learn_seconds,
            "evaluate_seconds": task.evaluate_seconds,
            "stored": task.num_stored,
            "pictures": task.num_pictures or None,
            "peak_memory_bytes": task.peak_memory,
        }
        known = {
            f"task/{name}": float(value)
            for name, value in values.items()
            if value is not None and not math.isnan(value)
        }
        self._write("task", task.task + 1, known)

    def _write(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Hand over a step unless that was done before an interruption: done again, it has the same values."""
        if self.sink is not None and step > self.logged[axis]:
            self.sink.write(axis, step, values)
            self.logged[axis] = step
            write_json(self.logged_path, seal(self.logged))


def together(listeners: Sequence[Listener]) -> Listener:
    """Return several listeners as one, of which each is told everything."""
    one = Silence()
    for name in (name for name in vars(Listener) if not name.startswith("_")):
        setattr(one, name, partial(_tell, [getattr(each, name) for each in listeners]))
    return one


def _tell(hearing: Sequence[Callable[..., None]], *words: Any) -> None:
    """Tell all."""
    for hear in hearing:
        hear(*words)


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers whose package is missing, or whose server is out of reach."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SettingsError(
                f"--{name} needs the package {name}, which is missing; run pip install 'clare[{name}]'"
            ) from error
    if WandbSink.name in names:
        check_address()


def open_loggers(names: Sequence[str], experiment: Experiment, folder: Path, stack: ExitStack) -> list[Listener]:
    """Return listeners for the named loggers, which the stack closes."""
    kinds: tuple[type[Sink], ...] = (TensorBoardSink, WandbSink)
    sinks = [kind for name in names for kind in kinds if kind.name == name]
    return [stack.enter_context(Scalars(sink, sink.name, experiment, folder)) for sink in sinks]


def check_address() -> None:
    """Refuse at once to go online where the server of Weights & Biases cannot be reached."""
    # Behind a proxy only the client knows the way.
    if os.environ.get("WANDB_MODE", "online") not in ("online", "shared") or getproxies():
        return
    address = os.environ.get("WANDB_BASE_URL", WANDB_ADDRESS)
    parts = urlsplit(address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise RunError(
            f"--wandb cannot reach {address} ({error.strerror or error}); check the network, or set WANDB_MODE=offline "
            "and send the run later with `wandb sync`"
        ) from error
