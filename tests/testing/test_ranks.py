"""Two real processes learn as one: the same tensors on both, and padding counts nowhere."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from run_outcome import events
from two_ranks import experiments, teach

from clare.engine.ranks import Ranks
from clare.files import read_tensors
from clare.methods import METHODS

StartPython = Callable[..., "subprocess.Popen[str]"]


def write_preset(tiny_preset: Path, folder: Path) -> Path:
    """Write the tiny preset with batch sizes that divide neither by the ranks nor into the images of a task."""
    preset = folder / "odd.toml"
    preset.write_text(
        f'extends = "{tiny_preset}"\nstream = {{num_classes = 4}}\nengine = {{eval_batch_size = 7}}\n'
        "method = {batch_size = 7, epochs = 1}\nmethods.clare = {probe_epochs = 1}\n"
    )
    return preset


@pytest.mark.slow
def test_every_method_ends_alike_on_two_ranks(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    preset = write_preset(tiny_preset, tmp_path)
    # Standalone: the launcher finds a port itself, which no other process can take in between.
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    process = start_python(*launcher, Path(__file__).with_name("two_ranks.py"), preset, tmp_path)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["world_size"] == 2
    assert {label.rpartition("-")[0] for label in first if label != "world_size"} == set(METHODS)
    assert first == second

    # Without augmentation by rank, one process must find the same class means and the same accuracies.
    label = "simplecil-prototype"
    experiment = experiments(str(preset))[label]
    alone, together = teach(experiment, Ranks(experiment.engine)), read_tensors(tmp_path / f"{label}.safetensors")
    torch.testing.assert_close(together["rows"], alone.method.head.rows.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(together["logits"], alone.logits, rtol=0, atol=1e-6)
    assert first[label]["accuracies"] == alone.accuracies


@pytest.mark.slow
def test_the_command_line_starts_two_ranks(tiny_preset: Path, tmp_path: Path, start_python: StartPython) -> None:
    preset, run = write_preset(tiny_preset, tmp_path), tmp_path / "run"
    process = start_python(
        "-m", "clare", "train", preset, "--method", "simplecil", "--set", "engine.num_devices=2", "--out", run
    )
    output, messages = process.communicate()
    assert process.returncode == 0, messages
    assert output.count("run folder:") == 1
    assert json.loads((run / "environment.json").read_text())["world_size"] == 2
    assert [event["event"] for event in events(run)] == ["start", "task", "task", "end"]
    experiment = experiments(str(preset))["simplecil-prototype"]
    results = teach(experiment, Ranks(experiment.engine)).accuracies
    recorded = [event["accuracy"] for event in events(run) if event["event"] == "task"]
    assert len(recorded) == len(results)
    assert all(found.items() <= kept.items() for found, kept in zip(results, recorded, strict=True))
    assert (run / "model" / "model.json").is_file()
