"""Every benchmark that needs a GPU, one after another, each with its result in results/; then the tests that need one.

Usage: python benchmarks/on_gpu.py [--out results] [--only NAME,NAME] [--minutes 10] [--list]
A benchmark that runs longer than its minutes, or fails, is told at the end and does not keep the others from running.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAN: dict[str, tuple[str, ...]] = {
    "throughput_h200": ("benchmarks/throughput.py", "--num-images", "2048"),
    "throughput_again_h200": (
        *("benchmarks/throughput.py", "--num-images", "1024", "--compile", "fused"),
        *("--attention", "engine", "--batch-sizes", "256"),
    ),
    "paper_run_h200": ("benchmarks/paper_run.py",),
    "jpegs_h200": ("benchmarks/jpegs.py", "--compile", "graph"),
    "jpegs_gpu_decode_h200": ("benchmarks/jpegs.py", "--compile", "graph", "--decode", "gpu"),
    "scaling_h200": ("benchmarks/scaling.py", "--compile", "graph", "--tasks", "10,100,1000"),
    "gpu_tests": ("scripts/run_gpu_tests.py",),
}
"""What is run, by the result's name; a second start of a compiled step shows what the compiler's cache saves."""


def run_all(plan: Mapping[str, Sequence[str]], out: Path, run: Callable[[list[str]], int]) -> dict[str, str]:
    """Run everything and return how each ended, in words."""
    ended = {}
    for name, words in plan.items():
        started = time.perf_counter()
        code = run([sys.executable, *words, "--out", str(out / f"{name}.json")])
        ended[name] = f"{'done' if code == 0 else f'failed with {code}'} after {time.perf_counter() - started:.0f} s"
        print(f"== {name}: {ended[name]}", flush=True)
    return ended


def main() -> int:
    """Run the plan or a part of it; the exit code tells whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    parser.add_argument("--only", default=",".join(PLAN))
    parser.add_argument("--minutes", type=float, default=10.0, help="most that one benchmark may take")
    parser.add_argument("--list", action="store_true", help="print the commands and stop")
    given = parser.parse_args()
    plan = {name: PLAN[name] for name in given.only.split(",")}
    if given.list:
        print("\n".join(" ".join(("python", *words)) for words in plan.values()))
        return 0

    def run(command: list[str]) -> int:
        try:
            return subprocess.run(command, cwd=ROOT, timeout=60 * given.minutes, check=False).returncode
        except subprocess.TimeoutExpired:
            return 124

    ended = run_all(plan, given.out, run)
    return int(not all(words.startswith("done") for words in ended.values()))


if __name__ == "__main__":
    sys.exit(main())
