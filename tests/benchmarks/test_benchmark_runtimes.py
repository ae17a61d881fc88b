"""The benchmark of runtimes on a few batches: both sides answer alike, and each has its figures."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.slow
def test_both_runtimes_are_measured(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    runtimes = script("runtimes")
    monkeypatch.setattr(runtimes.torch, "set_num_threads", lambda number: None)
    out = tmp_path / "found.json"
    words = ["--batches", "1,2", "--rounds", "1", "--least-seconds", "0", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["runtimes.py", *words])
    runtimes.main()
    found = json.loads(out.read_text())
    assert [row["batch_size"] for row in found["rows"]] == [1, 2]
    for row in found["rows"]:
        for clock in ("wall", "processor"):
            seconds = row[f"{clock}_ms"]
            assert set(seconds) == {"pytorch", "pytorch_bf16", "onnxruntime"}
            assert min(row[f"{clock}_ratio"], row[f"{clock}_bf16_ratio"]) > 0
