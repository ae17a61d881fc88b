"""A run's folder: preset, environment, record, predictions, and the checkpoint from which the run goes on."""

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from clare.errors import RunError
from clare.files import read_tensors, write_json, write_tensors
from clare.methods.base import Snapshot
from clare.steps import Phase

START: dict[str, Any] = {
    "task": 0,
    "learner": None,
    "structure": None,
    "record_bytes": 0,
    "steps": [],
    "epoch": None,
    "ended": False,
}


class RunFolder:
    """The folder of one run; rank zero writes, every rank reads.

    `checkpoint/position.json` is the commit point: it names the files that make up the state, and only what it
    names counts. A crash before its rename leaves the position before.
    """

    def __init__(self, path: Path, writes: bool) -> None:
        self.path = path
        self.writes = writes
        self.position: dict[str, Any] = dict(START)

    def open(self, preset: dict[str, Any], environment: dict[str, Any]) -> None:
        """Take up the run that this folder holds, or begin a new one; refuse a run of another preset."""
        if (self.path / "preset.json").exists():
            self._check_preset(preset)
        elif self.path.exists() and any(self.path.iterdir()):
            raise RunError(f"{self.path} is not empty and holds no run; choose another --out or empty it")
        position = self._checkpoint("position.json")
        if position.exists():
            self.position = json.loads(position.read_text())
        if self.writes:
            if not (self.path / "preset.json").exists():
                write_json(self.path / "environment.json", environment)
                write_json(self.path / "preset.json", preset)
            self._cut_record()

    def _check_preset(self, preset: dict[str, Any]) -> None:
        """Refuse to go on with settings other than those the run began with."""
        saved = json.loads((self.path / "preset.json").read_text())
        different = sorted(key for key, _ in _flatten(saved).items() ^ _flatten(preset).items())
        if different:
            key = different[0]
            came, expected = _flatten(preset).get(key), _flatten(saved).get(key)
            raise RunError(
                f"{self.path} holds a run of another preset: {key} is {expected} there and {came} here; "
                "choose another --out or remove that folder"
            )

    def _cut_record(self) -> None:
        """Forget the events after the checkpoint: they will happen again."""
        try:
            with (self.path / "record.jsonl").open("ab") as record:
                record.truncate(self.position["record_bytes"])
        except OSError as error:
            raise RunError(f"could not write {self.path}: {error.strerror}; choose another --out") from error

    @property
    def is_new(self) -> bool:
        """Whether nothing of this run has been recorded."""
        return bool(self.position["record_bytes"] == 0)

    @property
    def next_task(self) -> int:
        """The task to be learnt next."""
        return int(self.position["task"])

    def snapshot(self) -> Snapshot | None:
        """Return the learner as it was when the next task began, unless that is how it is made."""
        if self.position["learner"] is None:
            return None
        return Snapshot(self.position["structure"], read_tensors(self._checkpoint(self.position["learner"])))

    def event(self, event: str, **values: Any) -> None:
        """Append one line to the record."""
        if not self.writes:
            return
        try:
            with (self.path / "record.jsonl").open("a") as record:
                record.write(json.dumps({"event": event, **values}) + "\n")
                record.flush()
                os.fsync(record.fileno())
        except OSError as error:
            raise RunError(f"could not write {self.path}: {error.strerror}; free some space and run again") from error

    def predictions(self, task: int, predicted: Tensor, target: Tensor) -> None:
        """Keep what was predicted for every test image after a task."""
        if self.writes:
            tensors = {"predicted": predicted.int(), "target": target.int()}
            write_tensors(self.path / "predictions" / f"task-{task:04d}.safetensors", tensors)

    def advance(self, snapshot: Snapshot) -> None:
        """Commit a finished task: the next one starts from this snapshot."""
        task = self.next_task + 1
        name = f"task-{task:04d}.safetensors"
        if self.writes:
            write_tensors(self._checkpoint(name), snapshot.tensors)
        self._commit(task=task, learner=name, structure=snapshot.structure, steps=[], epoch=None)

    def end(self) -> None:
        """Commit the end of the run."""
        self._commit(ended=True)

    @property
    def has_ended(self) -> bool:
        """Whether every task is done and recorded."""
        return bool(self.position["ended"])

    def rewind(self) -> None:
        """Forget the steps of the current task."""
        self._commit(steps=[], epoch=None)

    def commit_record(self) -> None:
        """Make the events so far part of the state."""
        self._commit()

    def finished(self, step: int) -> dict[str, Tensor] | None:
        """Return what a finished step of the current task left."""
        steps = self.position["steps"]
        if step >= len(steps):
            return None
        return read_tensors(self._checkpoint(steps[step])) if steps[step] else {}

    def finish(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Commit a finished step of the current task."""
        name = f"task-{self.next_task:04d}-step-{step:02d}.safetensors" if tensors else ""
        if self.writes and tensors:
            write_tensors(self._checkpoint(name), tensors)
        self._commit(steps=[*self.position["steps"], name], epoch=None)

    def epoch(self, step: int) -> tuple[int, dict[str, Tensor]] | None:
        """Return the epoch at which a step goes on, and its state."""
        saved = self.position["epoch"]
        if saved is None or saved["step"] != step:
            return None
        return saved["epoch"], read_tensors(self._checkpoint(saved["file"]))

    def save_epoch(self, step: int, epoch: int, tensors: dict[str, Tensor]) -> None:
        """Commit the state from which an epoch starts."""
        name = f"task-{self.next_task:04d}-step-{step:02d}-epoch-{epoch:04d}.safetensors"
        if self.writes:
            write_tensors(self._checkpoint(name), tensors)
        self._commit(epoch={"step": step, "epoch": epoch, "file": name})

    def phase_done(self, phase: Phase, losses: list[float], seconds: float) -> None:
        """Record a finished phase."""
        self.event(
            "phase", task=self.next_task, phase=phase.name, epochs=phase.epochs, loss=losses, seconds=round(seconds, 3)
        )

    def notice(self, text: str) -> None:
        """Record a notice."""
        self.event("notice", task=self.next_task, text=text)

    def _commit(self, **changes: Any) -> None:
        """Move to a new position and remove the files it no longer names."""
        self.position = {**self.position, **changes}
        if not self.writes:
            return
        self.position["record_bytes"] = (self.path / "record.jsonl").stat().st_size
        write_json(self._checkpoint("position.json"), self.position)
        epoch = self.position["epoch"]
        named = {"position.json", self.position["learner"], *self.position["steps"], epoch and epoch["file"]}
        for file in self._checkpoint("").iterdir():
            if file.name not in named:
                file.unlink()

    def _checkpoint(self, name: str) -> Path:
        """Return the path of a file of the checkpoint."""
        return self.path / "checkpoint" / name


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested values under dotted keys, each as JSON text."""
    if isinstance(value, dict) and value:
        return {key: text for name, part in value.items() for key, text in _flatten(part, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): json.dumps(value)}
