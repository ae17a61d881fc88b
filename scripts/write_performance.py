"""Write the measured tables of docs/performance.md from results/: python scripts/write_performance.py."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"


def read(name: str) -> dict[str, Any]:
    """Read a result."""
    result: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return result


def cpu_table() -> str:
    """Return training and evaluation on a CPU beside the reference."""
    result = read("throughput_cpu")
    reference = result["reference"]
    train, evaluation = (next(row for row in result["rows"] if row["kind"] == kind) for kind in ("train", "evaluation"))
    cells = [f"{row['images_per_second']:,.0f} ({row['ratio']:.2f}x)" for row in (train, evaluation)]
    shares = [f"{row['share_of_matmul_rate']:.0%}" for row in (train, evaluation)]
    return "\n".join(
        [
            f"On {result['device']}, torch {result['versions']['torch'].split('+')[0]}:",
            "",
            "| loop | training, batch 32 | evaluation |",
            "| --- | --- | --- |",
            f"| reference, {reference['num_workers']} workers | {reference['train']:,.0f} images/s "
            f"| {reference['evaluation']:,.0f} images/s |",
            f"| clare | {' | '.join(cells)} |",
            f"| share of the measured {1000 * result['matmul_tflops']:,.0f} GFLOP/s | {' | '.join(shares)} |",
        ]
    )


def scaling_table(name: str) -> str:
    """Return what tasks cost on streams of different lengths."""
    result = read(name)
    lines = [
        f"On {result['device']}; seconds of a task without its alignment, and MB:",
        "",
        "| head | tasks | median task | last tenth by first | peak memory above start | adapter, ledger | rows "
        "| statistics |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["rows"]:
        sizes = row["checkpoint_bytes"]
        flat = row["flat"]
        cells = [
            row["head"],
            str(row["num_tasks"]),
            f"{row['seconds']['learn']['median']:.2f}",
            "" if flat is None else f"{flat:.2f}",
            f"{row['memory_mb']['peak_minus_before']:.0f}",
            *(f"{sizes[part] / 1e6:.2f}" for part in ("adapter_and_ledger", "head_rows", "class_statistics")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def whole_tasks_table() -> str:
    """Return what whole tasks cost a processor as a stream goes on."""
    result, slopes = read("scaling_whole_cpu"), ("slope_ms", "align_slope_ms", "commit_slope_ms")
    lines = [
        f"On {result['device']}, commit {result['commit'][:7]}, a tiny network; time of the processor:",
        "",
        "| head | tasks | median task, ms | last tenth by first | without the alignment | growth over 100 tasks, ms "
        "| of that the alignment's | the commit's | last commit, kB | statistics, kB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["rows"]:
        cells = [
            row["head"],
            str(row["num_tasks"]),
            f"{1e3 * row['seconds']['whole_processor']['median']:.1f}",
            *(f"{row[name]:.2f}" for name in ("flat_processor", "flat_but_align")),
            *(f"{row[name]:.1f}" if row["num_tasks"] >= 100 else "" for name in slopes),
            *(f"{num / 1e3:.0f}" for num in (row["last_commit_bytes"], row["checkpoint_bytes"]["class_statistics"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def thousand_words() -> str:
    """Return what a thousand tasks were like."""
    result = read("scaling_1000_cpu")
    (row,) = result["rows"]
    head, seconds = row["head"], row["seconds"]["whole_processor"]
    return "\n".join(
        [
            f"A thousand tasks with {head} rows (`--small --heads {head} --tasks {row['num_tasks']} --out",
            f"results/scaling_1000_cpu.json`, commit {result['commit'][:7]}): {1e3 * seconds['median']:.1f} ms in the",
            f"median, the last tenth {row['flat_processor']:.2f} of the first, {row['slope_ms']:.1f} ms more in a",
            f"hundred tasks, {row['commit_slope_ms']:.1f} of it the commit's; the last commit wrote "
            f"{row['last_commit_bytes'] / 1e3:.0f} kB.",
        ]
    )


def runtimes_table(name: str) -> str:
    """Return how long PyTorch in both precisions and ONNX Runtime take for an image."""
    result = read(name)
    versions = result["versions"]
    instructions = " and ".join(result["bf16_instructions"]) or "no instructions for bf16"
    lines = [
        f"{result['model']} at {result['image_size']} pixels, on {result['device']} ({instructions}), "
        f"torch {versions['torch'].split('+')[0]}, onnxruntime {versions['onnxruntime']}, "
        f"commit {result['commit'][:7]}; milliseconds of the processor for an image:",
        "",
        "| batch | PyTorch fp32 | PyTorch bf16 | ONNX Runtime fp32 | fp32 by bf16 | PyTorch fp32 by ONNX Runtime |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["rows"]:
        times = [f"{row['processor_ms'][name]:.2f}" for name in ("pytorch", "pytorch_bf16", "onnxruntime")]
        ratios = [f"{row[f'processor_{name}']:.2f}" for name in ("bf16_ratio", "ratio")]
        lines.append(f"| {row['batch_size']} | {' | '.join([*times, *ratios])} |")
    return "\n".join(lines)


def gpu_tests_words() -> str:
    """Return how the tests that need a GPU ended."""
    result = read("gpu_tests")
    counts, versions = result["counts"], result["versions"]
    where = f"{result['device']}, torch {versions['torch'].split('+')[0]}, {result['at'][:10]}"
    words = f"The last outcome kept there ({where}): {counts['passed']} passed, {counts['failed']} failed."
    failed = [test["test"].partition("::")[2] for test in result["tests"] if test["outcome"] == "failed"]
    return "\n".join([words, *(f"Failed: `{name}`." for name in failed)])


def main() -> None:
    """Put each table between its marks."""
    page = PAGE.read_text()
    parts = {
        "cpu": cpu_table(),
        "scaling": scaling_table("scaling_cpu"),
        "scaling gpu": scaling_table("scaling_h200"),
        "scaling whole": whole_tasks_table(),
        "runtimes": runtimes_table("runtimes_cpu"),
        "scaling thousand": thousand_words(),
        "runtimes vit-s": runtimes_table("runtimes_vits14_cpu"),
        "gpu tests": gpu_tests_words(),
    }
    for mark, table in parts.items():
        pattern = rf"<!-- {mark} -->.*?<!-- end -->"
        page, num_found = re.subn(pattern, f"<!-- {mark} -->\n{table}\n<!-- end -->", page, flags=re.DOTALL)
        assert num_found == 1, mark
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
