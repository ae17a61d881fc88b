"""The paper's longest run of its main table, from a cold folder of JPEGs to the last evaluation.

Usage: python benchmarks/paper_run.py [--methods clare,sdlora,ease] [--compile graph,fused] [--plain-tasks 5] [--small]
                                      [--out results/FILE.json]
Preset imagenet-a-50x4 with the recipes that it gives: 50 tasks of 4 classes, ViT-B/16 at 224 pixels. ImageNet-A itself
cannot be had everywhere, so pictures of its shape are made: 200 classes, 5,981 for training and 1,519 for testing, of
500 x 375 pixels. Weights are random: speed does not depend on them. Beside the methods the field's plain loop learns
its first tasks, from which the whole is reckoned. --small is 12 classes, a tiny network and an epoch, for a CPU.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import reference
import torch
from jpegs import ADAPTER_WIDTH, labelled_pictures
from machine import device_name, drop_from_cache, find_device, seconds_of, versions, write_json
from pictures import write_tree
from rich.console import Console
from rich.table import Table

from clare.backbones.vit import load_backbone
from clare.data.stream import class_order, task_sizes
from clare.engine.commit import source_commit
from clare.engine.context import Silence
from clare.engine.run import run_experiment
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.report.record import read_run

PRESET = "imagenet-a-50x4"
SMALL = {
    "stream.num_classes": "12",
    "backbone.name": "quickdraw-vit",
    "backbone.architecture.in_chans": "3",
    "backbone.architecture.depth": "2",
    "transforms.image_size": "28",
    "transforms.resize": "32",
    "engine.device": "cpu",
    "method.epochs": "1",
}


@dataclass(frozen=True)
class Plan:
    """The pictures, and what every experiment has in common."""

    root: Path
    settings: Mapping[str, str]
    num_workers: int

    def experiment(self, method: str, settings: Mapping[str, str]) -> Experiment:
        """Return the experiment of a method."""
        fixed = {"data.root": str(self.root), "backbone.weights": "random"}
        words = [f"{key}={value}" for key, value in {**fixed, **self.settings, **settings}.items()]
        return make_experiment(PRESET, method, words)

    def files(self, part: str) -> list[Path]:
        """Return the pictures for training or testing, class by class."""
        return sorted((self.root / "imagenet-a" / part).glob("*/*.jpg"))


class Clock(Silence):
    """A listener that notes when the first task begins, and what the engine had to say."""

    def __init__(self) -> None:
        self.first_task: float | None = None
        self.notices: list[str] = []

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Note the beginning of the first task."""
        if self.first_task is None:
            self.first_task = time.perf_counter()

    def notice(self, text: str) -> None:
        """Keep a notice."""
        self.notices.append(text)


def measure_method(plan: Plan, method: str, settings: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Run a method over the whole stream in this process and return its seconds."""
    experiment = plan.experiment(method, settings)
    cold_share = drop_from_cache(plan.files("train") + plan.files("test"))
    clock = Clock()
    started = time.perf_counter()
    run_experiment(experiment, folder, clock)
    seconds = time.perf_counter() - started
    run = read_run(folder)
    assert clock.first_task is not None
    return {
        "method": method,
        "settings": dict(settings),
        "seconds": round(seconds, 2),
        "to_first_task": round(clock.first_task - started, 2),
        "first_task": round(run.tasks[0].learn_seconds, 2),
        "learning": round(sum(task.learn_seconds for task in run.tasks), 2),
        "evaluating": round(sum(task.evaluate_seconds for task in run.tasks), 2),
        "num_tasks": len(run.tasks),
        "cold_share": cold_share,
        "notices": clock.notices,
    }


def measure_plain_loop(plan: Plan, num_tasks: int) -> dict[str, Any]:
    """Teach the plain loop the first tasks, and reckon from them what all would take, by the pictures that it sees."""
    experiment, device = plan.experiment("clare", {}), find_device()
    if experiment.engine.device == "cpu":
        device = torch.device("cpu")
    size, stream = experiment.transforms.image_size, experiment.stream
    epochs = experiment.method["epochs"] + experiment.method["probe_epochs"]
    train = labelled_pictures(plan.files("train"), reference.train_transform(size))
    test = labelled_pictures(plan.files("test"), reference.test_transform(size, experiment.transforms.resize))
    order = class_order(int(train.labels.max()) + 1, experiment.seed)[: stream.num_classes]
    ends = list(accumulate(task_sizes(len(order), stream.first or stream.increment, stream.increment)))
    network = reference.Network(load_backbone(experiment.backbone).vit, ADAPTER_WIDTH, len(order)).to(device)
    drop_from_cache(plan.files("train") + plan.files("test"))
    taught, asked, seconds = [], [], {"learning": 0.0, "evaluating": 0.0}
    for start, end in zip([0, *ends], ends, strict=False):
        own, seen = train.of_classes(order[start:end]), test.of_classes(order[:end])
        taught.append(len(own))
        asked.append(len(seen))
        if len(taught) <= num_tasks:
            learn = partial(reference.train_task, network, own, 32, epochs, plan.num_workers, str(device))
            seconds["learning"] += seconds_of(learn)
            seconds["evaluating"] += seconds_of(
                partial(reference.evaluate, network, seen, 32, plan.num_workers, str(device))
            )
    whole = {
        "learning": seconds["learning"] * sum(taught) / sum(taught[:num_tasks]),
        "evaluating": seconds["evaluating"] * sum(asked) / sum(asked[:num_tasks]),
    }
    return {
        "method": "plain loop",
        "settings": {"epochs": epochs, "num_workers": plan.num_workers},
        "seconds": round(sum(whole.values()), 2),
        **{name: round(value, 2) for name, value in whole.items()},
        "measured_seconds": round(sum(seconds.values()), 2),
        "measured_tasks": min(num_tasks, len(ends)),
        "num_tasks": len(ends),
    }


def make_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a line for each run."""
    table = Table(title="Seconds from a cold disk to the last evaluation")
    for name in ("method", "settings", "seconds", "to first task", "first task", "learning", "evaluating"):
        table.add_column(name, justify="left" if name in ("method", "settings") else "right")
    for row in rows:
        words = " ".join(f"{key}={value}" for key, value in row["settings"].items())
        numbers = (row.get(name, "") for name in ("seconds", "to_first_task", "first_task", "learning", "evaluating"))
        table.add_row(row["method"], words, *map(str, numbers))
    return table


def measure(plan: Plan, methods: Sequence[str], modes: Sequence[str], plain_tasks: int) -> list[dict[str, Any]]:
    """Measure every method, each run in a fresh process, and the plain loop."""
    rows = []
    with (
        TemporaryDirectory() as runs,
        ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        for method in methods:
            for mode in modes if method == methods[0] else modes[:1]:
                folder, settings = Path(runs) / f"{method}-{mode}", {"engine.compile": mode}
                rows.append(pool.submit(measure_method, plan, method, settings, folder).result())
                print(rows[-1], flush=True)
    if plain_tasks:
        rows.append(measure_plain_loop(plan, plain_tasks))
    return rows


def parse() -> argparse.Namespace:
    """Read the arguments; what is left out depends on the device."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="clare,sdlora,ease", help="the first one in every mode")
    parser.add_argument("--compile", default="graph,fused" if on_gpu else "off")
    parser.add_argument("--plain-tasks", type=int, default=5, help="tasks of the plain loop; 0 leaves it out")
    parser.add_argument("--num-workers", type=int, default=8 if on_gpu else 0, help="of the plain loop")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Make the pictures, measure, print, write JSON."""
    arguments = parse()
    num_classes, num_train, num_test = (12, 48, 24) if arguments.small else (200, 5981, 1519)
    with TemporaryDirectory() as folder:
        write_tree(Path(folder) / "imagenet-a", ["train"] * num_train + ["test"] * num_test, num_classes)
        plan = Plan(Path(folder), SMALL if arguments.small else {}, arguments.num_workers)
        rows = measure(plan, arguments.methods.split(","), arguments.compile.split(","), arguments.plain_tasks)
    Console(width=160).print(make_table(rows))
    result = {
        "preset": PRESET,
        "small": arguments.small,
        "num_classes": num_classes,
        "num_train_images": num_train,
        "num_test_images": num_test,
        "device": device_name(torch.device("cpu") if arguments.small else find_device()),
        "commit": source_commit(),
        "rows": rows,
        "versions": versions(),
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
