"""The peak of memory that a task took."""

import json
from pathlib import Path

import pytest
import torch

from clare.engine.context import Silence
from clare.engine.run import peak_memory, reset_peak_memory, run_experiment
from clare.presets.load import make_experiment
from clare.report.record import read_run


def test_the_peak_of_a_process_never_falls() -> None:
    device = torch.device("cpu")
    reset_peak_memory(device)
    before = peak_memory(device)
    assert before > 10_000_000
    held = torch.ones(60_000_000, dtype=torch.uint8)
    during = peak_memory(device)
    assert during >= before
    del held
    assert peak_memory(device) >= during


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_peak_of_a_gpu_counts_from_the_last_reset() -> None:
    device = torch.device("cuda")
    # Other tests of the same process may still hold some.
    before = torch.cuda.memory_allocated(device)
    held = torch.ones(50_000_000, dtype=torch.uint8, device=device)
    assert peak_memory(device) >= before + 50_000_000
    del held
    reset_peak_memory(device)
    assert peak_memory(device) < before + 50_000_000


def test_the_record_has_the_peak_of_every_task(tiny_preset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_experiment(make_experiment(str(tiny_preset), "simplecil"), folder, Silence())
    peaks = [task.peak_memory for task in read_run(folder).tasks]
    assert len(peaks) == 3
    assert all(peak is not None and peak > 10_000_000 for peak in peaks)
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    assert [line["memory"]["peak"] for line in lines if line["event"] == "task"] == peaks
