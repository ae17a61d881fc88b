"""The throughput benchmark on a few images: every choice of kernels has its rows, and training repeats."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_a_tiny_measurement_is_whole(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    throughput = script("throughput")
    monkeypatch.setattr(throughput, "matmul_rate", lambda device: 1e11)
    monkeypatch.setattr(throughput, "reference_rates", lambda *_: (100.0, 200.0))
    out = tmp_path / "found.json"
    words = ["--model", "quickdraw-vit", "--num-images", "64", "--batch-sizes", "32", "--epochs", "1"]
    engine = ["--compile", "off", "--attention", "engine,cudnn"]
    monkeypatch.setattr("sys.argv", ["throughput.py", *words, *engine, "--out", str(out)])
    throughput.main()
    found = json.loads(out.read_text())
    kinds = [(row["attention"], row["kind"]) for row in found["rows"]]
    assert kinds == [(name, kind) for name in ("engine", "cudnn") for kind in ("train", "evaluation")]
    assert all(row["repeats"] for row in found["rows"] if row["kind"] == "train")
    assert (found["train_ratio"], found["eval_ratio"]) == tuple(row["ratio"] for row in found["rows"][:2])
