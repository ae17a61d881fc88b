"""What a pool that is expanded costs: width, stored numbers, budgets and images/s of CLARE after many tasks.

Usage: python benchmarks/pool.py [--tasks 100,300,1000] [--out results/FILE.json]
Tasks of two classes of drawings on the embedded backbone; classes come back under other names. Claims are drawn at
random and each task is one step long, since claims of a budget weigh the same however they came about: what it
learns is not looked at.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import device_name, find_device, versions, write_json

from clare.backbones.vit import BackboneSettings, load_backbone
from clare.data.settings import DataSettings
from clare.data.sources import load_dataset
from clare.data.store import LabelledImages
from clare.data.stream import Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.commit import source_commit
from clare.engine.context import Context, Silence
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.methods.clare import Clare, ClareSettings
from clare.methods.state import learnt_tensors

WAYS = ("none", "fresh", "wider")
CLASSES_PER_TASK, TRAIN_PER_CLASS, NUM_IMAGES, NUM_ROUNDS = 2, 2, 512, 5
SETTINGS: dict[str, Any] = {
    "mask": "random",
    "epochs": 1,
    "batch_size": CLASSES_PER_TASK * TRAIN_PER_CLASS,
    "adapter": {"bottleneck": 16},
    "head": {"kind": "prototype"},
}


def task_of(drawings: LabelledImages, num_classes: int, index: int) -> Task:
    """Return a task of classes that come back, each time under other names and with other drawings."""
    first = CLASSES_PER_TASK * index
    parts, again = [], first // num_classes
    for label in range(first, first + CLASSES_PER_TASK):
        found = (drawings.labels == label % num_classes).nonzero().squeeze(1)
        parts.append(found.roll(-TRAIN_PER_CLASS * again)[:TRAIN_PER_CLASS])
    positions = torch.cat(parts)
    labels = torch.arange(CLASSES_PER_TASK).repeat_interleave(TRAIN_PER_CLASS)
    train = LabelledImages(drawings.store, drawings.indices[positions], labels)
    return Task(index, tuple(f"class {label}" for label in range(first, first + CLASSES_PER_TASK)), train)


def images_per_second(context: Context, method: Clare, images: LabelledImages) -> float:
    """Return how many images are classified in a second, in the fastest of some rounds."""
    seconds = []
    for _ in range(NUM_ROUNDS):
        started = time.perf_counter()
        predict_logits(context, method, images)
        seconds.append(time.perf_counter() - started)
    return round(len(images) / min(seconds), 1)


def measure(expand: str, stops: list[int]) -> list[dict[str, Any]]:
    """Learn tasks in one way, and measure after these numbers of them."""
    backbone, engine = load_backbone(BackboneSettings()), EngineSettings()
    size = backbone.image_size
    transforms = Transforms(TransformSettings(image_size=size, resize=size), backbone.mean, backbone.std)
    context = Context(Ranks(engine), transforms, engine, 0, Silence())
    data = load_dataset(DataSettings(dataset="quickdraw", channels=backbone.channels))
    method = Clare(backbone, ClareSettings.model_validate({**SETTINGS, "expand": expand}), 0)
    asked = data.test.select(torch.arange(NUM_IMAGES) % len(data.test))
    rows, started = [], time.perf_counter()
    for index in range(max(stops)):
        learn_task(context, method, task_of(data.train, len(data.classes), index))
        if index + 1 in stops:
            budgets, learnt = method.ledger.lengths, learnt_tensors(method)
            rows.append(
                {
                    "expand": expand,
                    "num_tasks": index + 1,
                    "bottleneck": sum(method.adapter.bottlenecks),
                    "num_expansions": len(method.adapter.bottlenecks) - 1,
                    "num_adapter": method.adapter.values.numel(),
                    "num_stored": sum(tensor.numel() for tensor in learnt.values()),
                    "median_budget_of_first_50": median(budgets[:50]),
                    "median_budget_of_last_50": median(budgets[-50:]),
                    "least_budget_from_100": min(budgets[99:]),
                    "images_per_second": images_per_second(context, method, asked),
                    "seconds_so_far": round(time.perf_counter() - started, 1),
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure every way, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="100,300,1000")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    stops = [int(number) for number in arguments.tasks.split(",")]
    rows = [row for way in WAYS for row in measure(way, stops)]
    result = {
        "what": "width, stored numbers, budgets and images/s after many tasks, without and with expansion",
        "command": f"python benchmarks/pool.py --tasks {arguments.tasks}",
        "commit": source_commit(),
        "settings": {**SETTINGS, "sparsity": ClareSettings().sparsity, "seed": 0},
        "num_images": NUM_IMAGES,
        "rounds": NUM_ROUNDS,
        "device": device_name(find_device()),
        "versions": versions(),
        "rows": rows,
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
