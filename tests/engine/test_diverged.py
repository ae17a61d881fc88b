"""A loss that stops being a number ends the run with one sentence, and the task has left no trace."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from run_outcome import events, outcome
from torch import Tensor

from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.errors import DivergedError
from clare.methods.clare import Clare
from clare.position import read_position
from clare.presets.load import make_experiment

StartPython = Callable[..., "subprocess.Popen[str]"]


def position(folder: Path) -> dict[str, Any]:
    """Return the committed position of a run."""
    saved: dict[str, Any] = json.loads((folder / "checkpoint" / "position.json").read_text())
    return saved


def test_the_command_line_says_so(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    settings = ["method.learning_rate=100", "method.weight_decay=1", "method.batch_size=2"]
    options = [word for setting in settings for word in ("--set", setting)]
    process = start_python(
        "-m", "clare", "train", tiny_preset, "--method", "clare", *options, "--out", tmp_path / "run"
    )
    output, messages = process.communicate()
    assert process.returncode == 2
    assert output == "clare: task 1 of 3\n"
    assert len(messages.splitlines()) == 1
    assert messages.startswith("error: the loss of task 1 became ")
    assert "of 'probe'; the model is back where the task began: lower the learning rate (now 100.0)" in messages
    saved = position(tmp_path / "run")
    assert (saved["task"], saved["learner"], saved["steps"], saved["epoch"]) == (0, None, [], None)
    assert [event["event"] for event in events(tmp_path / "run")] == ["start"]


class Saboteur(Silence):
    """A listener that knows when the second task is in its second phase."""

    def __init__(self) -> None:
        self.task_index = 0
        self.is_on = False

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Note the task."""
        self.task_index = index

    def step(self, name: str, num_epochs: int) -> None:
        """Note the phase."""
        self.is_on = self.task_index == 1 and name == "train"


def test_a_later_task_is_forgotten_and_can_be_learnt_again(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = make_experiment(str(tiny_preset), "clare")
    run_experiment(experiment, tmp_path / "straight", Silence())
    saboteur, loss = Saboteur(), Clare.loss

    def sabotaged(self: Clare, images: Tensor, labels: Tensor) -> Tensor:
        losses = loss(self, images, labels)
        return losses * torch.nan if saboteur.is_on else losses

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Clare, "loss", sabotaged)
        with pytest.raises(DivergedError, match="the loss of task 2 became nan in epoch 1 of 'train'"):
            run_experiment(experiment, folder, saboteur)
    saved = position(folder)
    assert (saved["task"], saved["steps"], saved["epoch"]) == (1, [], None)
    assert len(read_position(folder).whole_structure["claims"]) == 1
    names = sorted(path.name for path in (folder / "checkpoint").iterdir())
    assert names == ["finished.jsonl", "position.json", saved["learner"]]
    assert {event.get("task", 0) for event in events(folder)} == {0}
    run_experiment(experiment, folder, Silence())
    assert outcome(folder) == outcome(tmp_path / "straight")
