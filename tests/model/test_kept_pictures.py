"""Pictures that a method keeps: in a run's checkpoints, in no model folder, and refused for models of one's own."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from own_worlds import tiny_weights

from clare import Classifier
from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context, Silence
from clare.engine.learn import learn_task
from clare.engine.run import run_experiment
from clare.errors import ModelError
from clare.files import read_tensors
from clare.methods.derpp import DarkExperienceReplay, DerppSettings
from clare.methods.state import learnt_tensors
from clare.model.folder import load_model, save_model
from clare.presets.load import make_experiment
from clare.report.record import read_run


def test_a_model_folder_leaves_them_behind_and_the_method_has_them_still(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    tmp_path: Path,
) -> None:
    run, stream = context(), tiny_stream()
    settings = DerppSettings.model_validate({"epochs": 1, "memory": {"pictures": 5}})
    method = DarkExperienceReplay(tiny_backbone(), settings, 0)
    for task in stream.tasks[:2]:
        learn_task(run, method, task)
    before = {name: tensor.clone() for name, tensor in learnt_tensors(method).items()}
    save_model(tmp_path, method, tiny_backbone(), run.transforms.settings)
    assert all(
        torch.equal(tensor.nan_to_num(), before[name].nan_to_num()) for name, tensor in learnt_tensors(method).items()
    )
    (saved,) = tmp_path.glob("tensors-*.safetensors")
    assert not [name for name, tensor in read_tensors(saved).items() if tensor.dtype == torch.uint8 and len(tensor)]
    loaded, _, _ = load_model(tmp_path, tiny_backbone())
    with pytest.raises(ModelError, match=r"learns from pictures that it kept .* model folders never carry any"):
        learn_task(run, loaded, stream.tasks[2])


def test_a_run_records_them_and_keeps_them_with_its_checkpoint_alone(tiny_preset: Path, tmp_path: Path) -> None:
    experiment = make_experiment(str(tiny_preset), "er")
    run_experiment(experiment, tmp_path, Silence())
    tasks = read_run(tmp_path).tasks
    assert [task.num_pictures for task in tasks] == [12, 12, 12]
    assert [task.picture_bytes for task in tasks] == [12 * 28 * 28] * 3
    with_pictures = {
        path.parent.name
        for path in tmp_path.rglob("*.safetensors")
        if any(tensor.dtype == torch.uint8 and len(tensor) for tensor in read_tensors(path).values())
    }
    assert with_pictures == {"checkpoint"}


def test_a_model_of_ones_own_never_keeps_any(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the method 'er' learns from pictures that it keeps"):
        Classifier(tmp_path / "model", backbone=tiny_weights(tmp_path), method="er", device="cpu").learn({})
