"""Run the tests that need a GPU and keep their outcome in results/gpu_tests.json, or where --out says."""

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from clare.engine.commit import source_commit
from clare.files import write_json
from clare.version import __version__


def outcomes(report: Path) -> list[dict[str, Any]]:
    """Return each test's name and what became of it, from pytest's XML."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        skipped = case.find("skipped")
        state = "failed" if bad is not None else "skipped" if skipped is not None else "passed"
        reason = bad if bad is not None else skipped
        text = "" if reason is None else str(reason.get("message", "")).split("\n")[0]
        found.append({"test": f"{case.get('classname')}::{case.get('name')}", "outcome": state, "reason": text})
    return found


def gpu_test_files() -> list[str]:
    """Return the test modules with tests for a GPU: the others may need packages that a machine with one lacks."""
    return sorted(str(path) for path in Path("tests").rglob("test_*.py") if "mark.gpu" in path.read_text())


def main() -> int:
    """Run, write, and end as pytest ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/gpu_tests.json"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU here, so there is nothing to run; use a machine with one", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *gpu_test_files(), "-m", "gpu", "-q", f"--junitxml={report}"]
        ended = subprocess.run(command, check=False).returncode
        tests = outcomes(report)
    counts = {state: sum(test["outcome"] == state for test in tests) for state in ("passed", "failed", "skipped")}
    write_json(
        arguments.out,
        {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": torch.cuda.get_device_name(),
            "commit": source_commit(),
            "versions": {"clare": __version__, "torch": torch.__version__},
            "counts": counts,
            "tests": tests,
        },
    )
    print(counts)
    return ended


if __name__ == "__main__":
    sys.exit(main())
