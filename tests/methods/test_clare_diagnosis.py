"""What CLARE tells the record about a task: how far Stage 1 moved the candidates, and where its claim lies."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import learn, make_clare, mask_of, watch
from run_outcome import Stop, events

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context, Silence
from clare.engine.folder import RunFolder
from clare.engine.run import run_experiment
from clare.methods.finetune import FineTune
from clare.methods.protocols import diagnosis_of
from clare.methods.simplecil import SimpleCil
from clare.presets.load import make_experiment
from clare.report.record import read_run
from clare.sparse.diagnosis import movement_histogram

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def test_it_is_what_stage_one_found_and_what_was_claimed(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone())
    assert method.diagnosis() == {}
    moments = watch(method)
    for task in tiny_stream().tasks:
        free = method.ledger.free.clone()
        learn(context(), method, [task])
        found, mask = method.diagnosis(), mask_of(method, task.index)
        scores = (moments[3 * task.index].after["values"] - method.adapter.initial).abs()
        threshold = float(scores[mask].min())
        assert found["movement"] == movement_histogram(scores[free], threshold)
        assert sum(found["movement"]["counts"]) + found["movement"]["num_unmoved"] == int(free.sum())
        # Stage 2 moves coordinates too; it is not what the mask was chosen by.
        assert int((scores[free] >= threshold).sum()) == int(mask.sum()) > 0
        assert found["claimed_per_block"] == mask.view(2, -1).sum(1).tolist()
        assert found["coordinates_per_block"] == 220
        assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("mask", ["random", "none"])
def test_nothing_is_said_about_movement_where_none_was_scored(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, mask: str
) -> None:
    method = make_clare(tiny_backbone(), mask=mask)
    learn(context(), method, tiny_stream().tasks[:1])
    found = method.diagnosis()
    assert set(found) == {"claimed_per_block", "coordinates_per_block"}
    assert sum(found["claimed_per_block"]) == method.ledger.lengths[-1]


def test_an_empty_pool_tells_nothing_of_the_task_before(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), sparsity=0.0, learning_rate=0.005, select_unmoved=True)
    first, second, _ = tiny_stream().tasks
    learn(context(), method, [first])
    assert method.diagnosis()["movement"]["threshold"] == 0
    learn(context(), method, [second])
    assert method.diagnosis() == {"claimed_per_block": [0, 0], "coordinates_per_block": 220}


def test_other_methods_have_nothing_to_say(tiny_backbone: MakeBackbone) -> None:
    for kind in (FineTune, SimpleCil):
        assert diagnosis_of(kind(tiny_backbone(), kind.settings_type(), 0)) == {}


def diagnoses(folder: Path) -> list[dict[str, Any]]:
    """Return what the record of a run tells of each task."""
    return [event["diagnosis"] for event in events(folder) if event["event"] == "task"]


def test_the_record_holds_it_and_a_run_stopped_in_stage_two_tells_the_same(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = make_experiment(str(tiny_preset), "clare", ["stream.num_classes=4", "method.epochs=3"])
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run_experiment(experiment, straight, Silence())
    saves, original = itertools.count(1), RunFolder.save_epoch

    def save_epoch(self: RunFolder, step: int, epoch: int, tensors: dict[str, torch.Tensor]) -> None:
        original(self, step, epoch, tensors)
        # The probe saves one epoch and the training two.
        if next(saves) == 2:
            assert (self.position.task, step, epoch) == (0, 1, 1)
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_epoch", save_epoch)
        with pytest.raises(Stop):
            run_experiment(experiment, stopped, Silence())
    run_experiment(experiment, stopped, Silence())
    assert diagnoses(stopped) == diagnoses(straight)
    first, second = diagnoses(straight)
    assert first["movement"] != second["movement"]
    assert sum(first["movement"]["counts"]) > 0
    read = read_run(straight)
    assert [task.diagnosis for task in read.tasks] == [first, second]
    assert [sum(task.diagnosis["claimed_per_block"]) for task in read.tasks] == [t.num_claimed for t in read.tasks]
