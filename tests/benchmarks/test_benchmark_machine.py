"""Memory, the page cache and results on disk."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

CPU = torch.device("cpu")
NUM_BYTES = 200_000_000


@pytest.fixture
def machine(script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module under test."""
    return script("machine")


def test_the_peak_counts_memory_that_was_given_back_until_it_is_reset(machine: ModuleType) -> None:
    if machine.used_memory(CPU) is None or not machine.reset_peak_memory(CPU):
        pytest.skip("this system does not tell the peak memory of a process")
    before = machine.used_memory(CPU)
    block = np.ones(NUM_BYTES, dtype=np.uint8)
    del block
    assert machine.peak_memory(CPU) - before > 0.9 * NUM_BYTES
    assert machine.reset_peak_memory(CPU)
    assert machine.peak_memory(CPU) - before < 0.5 * NUM_BYTES


def test_memory_is_unknown_where_the_system_keeps_no_account(
    machine: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "PROCESS", tmp_path / "nothing")
    assert machine.used_memory(CPU) is None
    assert machine.peak_memory(CPU) is None
    assert not machine.reset_peak_memory(CPU)


def test_growth_is_unknown_where_a_part_of_it_is(machine: ModuleType) -> None:
    assert machine.growth_mb(1_000_000, 3_500_000) == 2.5
    assert machine.growth_mb(None, 1) is None
    assert machine.growth_mb(1, None) is None


def test_a_file_that_was_read_is_seen_in_the_cache_and_dropping_is_measured(
    machine: ModuleType, tmp_path: Path
) -> None:
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("this system cannot drop files from the page cache")
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_bytes(b"x" * 10_000)
    share = machine.drop_from_cache(files)
    assert share == sum(not machine._is_cached(file) for file in files) / 2
    files[0].read_bytes()
    assert machine._is_cached(files[0])


def test_dropping_says_none_where_the_system_cannot(
    machine: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    assert machine.drop_from_cache([tmp_path]) is None


def test_a_result_is_written_where_a_path_is_given(machine: ModuleType, tmp_path: Path) -> None:
    machine.write_json(None, {"a": 1})
    machine.write_json(tmp_path / "new" / "result.json", {"a": 1})
    assert json.loads((tmp_path / "new" / "result.json").read_text()) == {"a": 1}


def test_the_processor_is_named_with_its_threads(machine: ModuleType) -> None:
    assert machine.device_name(CPU).endswith(f", {torch.get_num_threads()} threads")
