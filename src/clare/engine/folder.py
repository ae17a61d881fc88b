"""A run's folder: preset, environment, record, predictions, and the checkpoint from which the run goes on."""

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from clare.errors import RunError
from clare.files import read_tensors, write_json, write_tensors
from clare.methods.base import Snapshot
from clare.presets.schema import completed
from clare.registry import how_to_name, is_file_name
from clare.steps import Phase, num_trained

START: dict[str, Any] = {
    "task": 0,
    "learner": None,
    "structure": None,
    "record_bytes": 0,
    "task_bytes": 0,
    "steps": [],
    "epoch": None,
    "ended": False,
}
BEGINNING = {"preset.json", "environment.json", "record.jsonl", "checkpoint", "log.txt"}
"""Names in a folder whose run has not committed anything."""
TEMPORARY = ".*.tmp"
"""Names of files that are being written."""


class RunFolder:
    """The folder of one run; rank zero writes, every rank reads.

    `checkpoint/position.json` is the commit point: it names the files that make up the state, and only what it
    names counts. A crash before its rename leaves the position before.
    """

    def __init__(self, path: Path, writes: bool) -> None:
        self.path = path
        self.writes = writes
        self.has_begun = False
        self.position: dict[str, Any] = dict(START)

    def look(self, preset: dict[str, Any]) -> None:
        """Find out where the run of this folder stands; refuse a run of another preset. Nothing is written."""
        entries, position = self._entries(), self._checkpoint("position.json")
        self.has_begun = "preset.json" in entries and position.exists()
        if self.has_begun:
            self._check_preset(preset)
            self.position = json.loads(position.read_text())
        elif entries - BEGINNING:
            raise RunError(f"{self.path} is not empty and holds no run; choose another --out or empty it")

    def begin(self, preset: dict[str, Any], environment: dict[str, Any]) -> None:
        """Begin a new run, or clear away what was written after the last commit."""
        if not self.writes:
            return
        # A run that was cut off before its first commit may begin again with other settings.
        if not self.has_begun:
            write_json(self.path / "preset.json", preset)
            write_json(self.path / "environment.json", environment)
        for temporary in self.path.rglob(TEMPORARY):
            temporary.unlink()
        self._cut_record()

    def _entries(self) -> set[str]:
        """Return the names in the folder, without the temporary files of a write that was cut off."""
        if not self.path.exists():
            return set()
        if not self.path.is_dir():
            raise RunError(f"{self.path} is a file and cannot hold a run; choose another --out")
        return {entry.name for entry in self.path.iterdir() if not entry.match(TEMPORARY)}

    def _check_preset(self, preset: dict[str, Any]) -> None:
        """Refuse to go on with settings other than those the run began with; one that came later had its default."""
        begun = completed(json.loads((self.path / "preset.json").read_text()))
        saved, came = (_settings(values) for values in (begun, preset))
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
        num_bytes = self.position["record_bytes"]
        try:
            with (self.path / "record.jsonl").open("ab") as record:
                if record.tell() < num_bytes:
                    raise RunError(
                        f"the record of {self.path} has {record.tell()} bytes where the checkpoint counts {num_bytes}; "
                        "restore the file or choose another --out"
                    )
                record.truncate(num_bytes)
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
        """Forget the steps of the current task and what was recorded of them."""
        self._commit(steps=[], epoch=None, record_bytes=self.position["task_bytes"])
        if self.writes:
            self._cut_record()

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
            "phase",
            task=self.next_task,
            phase=phase.name,
            epochs=phase.epochs,
            trained=num_trained(phase),
            loss=losses,
            seconds=round(seconds, 3),
        )

    def notice(self, text: str) -> None:
        """Record a notice."""
        self.event("notice", task=self.next_task, text=text)

    def _commit(self, **changes: Any) -> None:
        """Move to a new position and remove the files it no longer names."""
        if not self.writes:
            self.position = {**self.position, **changes}
            return
        num_bytes = (self.path / "record.jsonl").stat().st_size
        self.position = {**self.position, "record_bytes": num_bytes, **changes}
        steps, epoch = self.position["steps"], self.position["epoch"]
        if not steps and not epoch:
            self.position["task_bytes"] = self.position["record_bytes"]
        write_json(self._checkpoint("position.json"), self.position)
        named = {"position.json", self.position["learner"], *steps, epoch and epoch["file"]}
        for file in self._checkpoint("").iterdir():
            if file.name not in named:
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


def _settings(preset: dict[str, Any]) -> dict[str, str]:
    """Return all settings under dotted keys; how they were written and where images are kept make no other run."""
    values = _flatten({key: value for key, value in preset.items() if key not in ("overrides", "description")})
    return {key: text for key, text in values.items() if key not in ("data.store", "data.cache")}


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested values under dotted keys, each as JSON text."""
    if isinstance(value, dict) and value:
        return {key: text for name, part in value.items() for key, text in _flatten(part, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): json.dumps(value)}
