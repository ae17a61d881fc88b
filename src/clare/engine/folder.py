"""A run's folder: preset, environment, record, predictions, and the checkpoint from which the run goes on."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from clare.engine.appended import Appended, GrowingRows, split_lists
from clare.engine.journal import Journal
from clare.errors import RunError
from clare.files import RESTORE, bytes_of, no_empty_folder, read_tensors, write_json, write_tensors
from clare.identity import flatten, identity
from clare.locks import LOCK, holding
from clare.methods.state import Snapshot
from clare.position import (
    ENVIRONMENT,
    FINISHED,
    POSITION,
    PRESET,
    RECORD,
    ROWS,
    Epoch,
    Line,
    Position,
    check_files,
    checkpoint_files,
    committed,
    predictions_file,
    read_position,
    upgraded,
)
from clare.presets.schema import completed
from clare.record import Event, NoticeEvent, PhaseEvent
from clare.registry import how_to_name, is_file_name
from clare.sealed import read_object, seal
from clare.steps import Phase, num_trained

BEGINNING = {PRESET, ENVIRONMENT, RECORD, "checkpoint", "log.txt", LOCK}
"""Names in a folder whose run has not committed anything."""
LASTING = {Path(name).name for name in (POSITION, FINISHED, ROWS)}
"""Names in checkpoint/ that stay."""
PREDICTIONS = "predictions/"
TEMPORARY = ".*.tmp"
"""Names of files that are being written."""


@contextmanager
def working_alone(folder: Path) -> Iterator[None]:
    """Keep other processes from making a run in the same folder; one that stays empty is removed again."""

    def refuse(holder: str) -> None:
        raise RunError(f"{holder} is at the run in {folder}; wait until it is done, or choose another --out")

    _check_is_folder(folder)
    with no_empty_folder(folder), ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(holding(folder / LOCK, refuse))
        except OSError as error:
            raise RunError(f"could not write {folder}: {error.strerror or error}; choose another --out") from error
        yield


def _check_is_folder(path: Path) -> None:
    """Refuse a file in the place of a run's folder."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file and cannot hold a run; choose another --out")


class RunFolder(Journal):
    """The folder of one run; rank zero writes, every rank reads.

    `checkpoint/position.json` is the commit point: it names the files that make up the state, and only what it
    names counts. A crash before its rename leaves the position before. What finished tasks leave is appended to files
    of which it counts the bytes, so that a commit costs the same after many tasks as after few.
    """

    def __init__(self, path: Path, writes: bool) -> None:
        self.path = path
        self.writes = writes
        self.has_begun = False
        self.position = Position()
        self._digests: dict[str, str] = {}
        """Of the files that were written since the last commit."""
        self._record, self._finished, self._rows = (Appended(path, name) for name in (RECORD, FINISHED, ROWS))
        self._growing = GrowingRows()
        self._start: Snapshot | None = None

    def inspect(self, preset: dict[str, Any]) -> None:
        """Find out where the run of this folder stands; refuse damage and another preset. Nothing is written."""
        entries = self._entries()
        self.has_begun = PRESET in entries and (self.path / POSITION).exists()
        if self.has_begun:
            position = upgraded(self.path, read_position(self.path))
            check_files(self.path, position)
            committed(self.path, position, RECORD)
            committed(self.path, position, ROWS)
            self._check_preset(preset)
            self.position = position
        elif entries - BEGINNING:
            raise RunError(f"{self.path} is not empty and holds no run; choose another --out or empty it")

    def begin(self, preset: dict[str, Any], environment: dict[str, Any]) -> None:
        """Begin a new run, or clear away what was written after the last commit."""
        if not self.writes:
            return
        # A run that was cut off before its first commit may begin again with other settings.
        if not self.has_begun:
            for name, values in ((PRESET, preset), (ENVIRONMENT, environment)):
                self._digests[name] = write_json(self.path / name, values)
        for temporary in self.path.rglob(TEMPORARY):
            temporary.unlink()
        self._cut_record()
        for file, name in ((self._finished, FINISHED), (self._rows, ROWS)):
            if file.path.exists():
                file.cut(committed(self.path, self.position, name))

    def _entries(self) -> set[str]:
        """Return the names in the folder, without the temporary files of a write that was cut off."""
        if not self.path.exists():
            return set()
        _check_is_folder(self.path)
        return {entry.name for entry in self.path.iterdir() if not entry.match(TEMPORARY)}

    def _check_preset(self, preset: dict[str, Any]) -> None:
        """Refuse to go on with settings other than those the run began with; one that came later had its default."""
        begun = completed(read_object(self.path / PRESET, RunError, RESTORE))
        saved, came = (flatten(identity(values)) for values in (begun, preset))
        different = sorted(key for key, _ in saved.items() ^ came.items())
        if different:
            # The method first, since its other settings follow from it.
            key = "method.name" if "method.name" in different else different[0]
            raise RunError(
                f"{self.path} holds a run of another preset: {key} is {saved.get(key)} there and {came.get(key)} here; "
                f"choose another --out or remove that folder{_naming(begun) if key == 'method.name' else ''}"
            )

    def _cut_record(self) -> None:
        """Forget the events after the checkpoint: they will happen again."""
        self._record.cut(committed(self.path, self.position, RECORD))

    def snapshot(self) -> Snapshot | None:
        """Return the learner as it was when the next task began, unless that is how it is made."""
        position = self.position
        if position.learner is None:
            return None
        rows, name = committed(self.path, position, ROWS), self.path / ROWS
        tensors = self._growing.read(name, rows, position.finished.rows, position.outdated)
        tensors |= read_tensors(self._checkpoint(position.learner))
        self._start = Snapshot(position.whole_structure, tensors)
        return self._start

    def start(self) -> Snapshot | None:
        """Return the state in which the task before was committed, of which nobody needs another copy."""
        return self._start

    def event(self, event: str, **values: Any) -> None:
        """Append one line to the record."""
        if self.writes:
            self._record.append(json.dumps({"event": event, **values}).encode() + b"\n")

    def tell(self, event: Event) -> None:
        """Record what happened."""
        self.event(event.kind, **event.as_json())

    def predictions(self, task: int, predicted: Tensor, target: Tensor) -> None:
        """Keep what was predicted for every test image after a task."""
        self._write(predictions_file(task), {"predicted": predicted.int(), "target": target.int()})

    def advance(self, snapshot: Snapshot) -> None:
        """Commit a finished task: the next one starts from this snapshot."""
        task = self.position.task + 1
        name = f"task-{task:04d}.safetensors"
        changes = self._write_learner(name, snapshot) if self.writes else {"structure": snapshot.structure}
        self._start = snapshot
        self.commit(task=task, learner=name, **changes, steps=[], epoch=None)

    def _write_learner(self, name: str, snapshot: Snapshot) -> dict[str, Any]:
        """Append what came to learner and files, write what else changed, and return what the position says of it."""
        before = self._start.tensors if self._start else {}
        rows, changed = self._growing.split(before, snapshot.tensors)
        self._write(f"checkpoint/{name}", changed)
        data = bytes_of(rows) if rows else b""
        if data:
            self._rows.append(data)
        # As it will be read: a method may go on with its own lists, and JSON has no tuples.
        structure = json.loads(json.dumps(snapshot.structure))
        more, others = split_lists(self.position.finished.structure, structure)
        digests = {**self.position.files, **self._digests}
        lasting = {file: digest for file, digest in digests.items() if file.startswith(PREDICTIONS)}
        line = Line(files=lasting, structure=more, rows=len(data))
        self._finished.append(json.dumps(line.model_dump()).encode() + b"\n")
        self.position.finished.add(line)
        lists = {key: len(structure[key]) for key in more}
        return {"structure": others, "lists": lists, "outdated": sorted(self._growing.outdated)}

    @property
    def has_ended(self) -> bool:
        """Whether every task is done and recorded."""
        return self.position.ended

    def rewind(self) -> None:
        """Forget the steps of the current task and what was recorded of them."""
        start = self.position
        self.commit(steps=[], epoch=None, record_bytes=start.task_bytes, record_digest=start.task_digest)
        if self.writes:
            self._cut_record()

    def finished(self, step: int) -> dict[str, Tensor] | None:
        """Return what a finished step of the current task left."""
        steps = self.position.steps
        if step >= len(steps):
            return None
        return read_tensors(self._checkpoint(steps[step])) if steps[step] else {}

    def finish(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Commit a finished step of the current task."""
        name = f"task-{self.position.task:04d}-step-{step:02d}.safetensors" if tensors else ""
        if tensors:
            self._write(f"checkpoint/{name}", tensors)
        self.commit(steps=[*self.position.steps, name], epoch=None)

    def epoch(self, step: int) -> tuple[int, dict[str, Tensor]] | None:
        """Return the epoch at which a step goes on, and its state."""
        saved = self.position.epoch
        if saved is None or saved.step != step:
            return None
        return saved.epoch, read_tensors(self._checkpoint(saved.file))

    def save_epoch(self, step: int, epoch: int, tensors: dict[str, Tensor]) -> None:
        """Commit the state from which an epoch starts."""
        name = f"task-{self.position.task:04d}-step-{step:02d}-epoch-{epoch:04d}.safetensors"
        self._write(f"checkpoint/{name}", tensors)
        self.commit(epoch=Epoch(step=step, epoch=epoch, file=name))

    def phase_done(self, phase: Phase, losses: list[float], seconds: float) -> None:
        """Record a finished phase."""
        event = PhaseEvent(
            task=self.position.task,
            phase=phase.name,
            epochs=phase.epochs,
            num_trained=num_trained(phase),
            loss=tuple(losses),
            seconds=round(seconds, 3),
        )
        self.tell(event)

    def notice(self, text: str) -> None:
        """Record a notice."""
        self.tell(NoticeEvent(task=self.position.task, text=text))

    def _write(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Write tensors that count from the next commit on."""
        if self.writes:
            self._digests[name] = write_tensors(self.path / name, tensors)

    def commit(self, **changes: Any) -> None:
        """Move to a new position, with the events so far, and remove the files it no longer names."""
        if not self.writes:
            self.position = self.position.model_copy(update=changes)
            return
        grown = {"record": self._record, "finished": self._finished, "rows": self._rows}
        counts = {f"{name}_bytes": file.num_bytes for name, file in grown.items()}
        counted = {f"{name}_digest": file.digest for name, file in grown.items()}
        position = self.position.model_copy(update={**counts, **counted, **changes})
        named = checkpoint_files(position)
        digests = {**position.files, **self._digests}
        # All files count but those in checkpoint/ that the position does not name; a line names those of earlier tasks.
        counting = {f"checkpoint/{name}" for name in named}
        position.files = {
            name: digest
            for name, digest in digests.items()
            if name in counting or not (name.startswith("checkpoint/") or name in position.finished.files)
        }
        if not position.steps and not position.epoch:
            position.task_bytes, position.task_digest = position.record_bytes, position.record_digest
        write_json(self.path / POSITION, seal(position.model_dump()))
        self.position, self._digests = position, {}
        for file in self._checkpoint("").iterdir():
            if file.name not in {*named, *LASTING}:
                file.unlink()

    def _checkpoint(self, name: str) -> Path:
        """Return the path of a file of the checkpoint."""
        return self.path / "checkpoint" / name


def _naming(begun: dict[str, Any]) -> str:
    """Say how a run goes on whose method is in a file, which its folder alone does not make run."""
    method = begun.get("method")
    name = str(method.get("name")) if isinstance(method, dict) else ""
    return (
        f"; to go on with that run, if you trust its file, {how_to_name('method', name)}" if is_file_name(name) else ""
    )
