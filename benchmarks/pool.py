"""What a pool that is expanded costs and is worth: budgets, accuracy, width, stored numbers and images/s of CLARE.

Usage: python benchmarks/pool.py [--tasks 100,300] [--classes 2] [--drawings 5] [--out results/FILE.json]
Tasks of one or two classes of drawings on the embedded backbone; classes come back under other names and with other
drawings, and an answer is right if it names the drawn class under any of them. Tasks are short and of few drawings, so
that a processor gets through a thousand of them: accuracies compare the three ways, and say nothing of the method.
Run it with OMP_NUM_THREADS=1: seconds are those of the processor, which do not run while others have the machine.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
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
from clare.metrics.bootstrap import Evaluations, Pair, paired_intervals

WAYS = ("none", "fresh", "wider")
SEED, NUM_IMAGES, NUM_ROUNDS = 0, 1000, 3
SETTINGS: dict[str, Any] = {
    "probe_epochs": 1,
    "epochs": 2,
    "learning_rate": 0.05,
    "batch_size": 10,
    "penalty_weight": 0.0,
    "contrast": "seen",
    "adapter": {"bottleneck": 8},
    "head": {"kind": "prototype"},
}
"""The loss is over all classes so far, since one class alone has none; few steps under a penalty would claim less."""


def task_of(drawings: LabelledImages, num_classes: int, index: int, size: int, per_class: int) -> Task:
    """Return a task of classes that come back, each time under other names and with other drawings."""
    first, parts = size * index, []
    for label in range(first, first + size):
        found = (drawings.labels == label % num_classes).nonzero().squeeze(1)
        parts.append(found.roll(-per_class * (label // num_classes))[:per_class])
    positions = torch.cat(parts)
    labels = torch.arange(size).repeat_interleave(per_class)
    train = LabelledImages(drawings.store, drawings.indices[positions], labels)
    return Task(index, tuple(f"class {label}" for label in range(first, first + size)), train)


def answers(context: Context, method: Clare, asked: LabelledImages, num_classes: int) -> tuple[Evaluations, float]:
    """Return which class is named for each image of classes learnt so far, and the most images/s of a core."""
    images = asked.select((asked.labels < len(method.classes)).nonzero().squeeze(1))
    seconds = []
    for _ in range(NUM_ROUNDS):
        started = time.process_time()
        predicted = predict_logits(context, method, images).argmax(1) % num_classes
        seconds.append(time.process_time() - started)
    found = Evaluations([predicted.numpy()], [images.labels.numpy()], np.zeros(num_classes, dtype=np.int64))
    return found, len(images) / min(seconds)


def measure(expand: str, stops: list[int], size: int, per_class: int) -> tuple[list[dict[str, Any]], list[Evaluations]]:
    """Learn tasks of so many classes in one way, and measure after these numbers of them."""
    backbone, engine = load_backbone(BackboneSettings()), EngineSettings(threads=torch.get_num_threads())
    side = backbone.image_size
    transforms = Transforms(
        TransformSettings(image_size=side, resize=side, train="affine", normalise="backbone"),
        backbone.mean,
        backbone.std,
    )
    context = Context(Ranks(engine), transforms, engine, SEED, Silence())
    data = load_dataset(DataSettings(dataset="quickdraw", channels=backbone.channels))
    method = Clare(backbone, ClareSettings.model_validate({**SETTINGS, "expand": expand}), SEED)
    method.prepare(max(stops), size)
    asked = data.test.select(torch.arange(len(data.test))[:: len(data.test) // NUM_IMAGES])
    rows, evaluations, started = [], [], time.process_time()
    for index in range(max(stops)):
        learn_task(context, method, task_of(data.train, len(data.classes), index, size, per_class))
        if index + 1 not in stops:
            continue
        budgets, learnt, seconds = method.ledger.lengths, learnt_tensors(method), time.process_time() - started
        found, speed = answers(context, method, asked, len(data.classes))
        evaluations.append(found)
        first = median(budgets[:50])
        rows.append(
            {
                "expand": expand,
                "num_tasks": index + 1,
                "accuracy": float((found.predicted[0] == found.target[0]).mean()),
                "bottleneck": sum(method.adapter.bottlenecks),
                "num_expansions": len(method.adapter.bottlenecks) - 1,
                "num_adapter": method.adapter.values.numel(),
                "num_free": method.ledger.num_free,
                "num_stored": sum(tensor.numel() for tensor in learnt.values() if tensor.dtype != torch.bool),
                "median_budget_of_first_50": first,
                "median_budget_of_last_50": median(budgets[-50:]),
                "least_budget_from_100": min(budgets[99:], default=None),
                "tasks_from_100_below_half": sum(budget < first / 2 for budget in budgets[99:]),
                "images_per_core_second": round(speed, 1),
                "processor_seconds_so_far": round(seconds, 1),
            }
        )
        print(rows[-1], flush=True)
    return rows, evaluations


def compared(ways: dict[str, list[Evaluations]], stops: list[int]) -> list[dict[str, Any]]:
    """Return the accuracy of each way minus that without expansion, with intervals over the images asked about."""
    found = []
    for way in [way for way in ways if way != "none"]:
        for stop, run, other in zip(stops, ways[way], ways["none"], strict=True):
            pair = Pair(run, other, [str(label) for label in range(len(run.task_of_class))])
            random = np.random.RandomState(SEED)
            interval = paired_intervals([pair], ["final_accuracy"], random=random)["final_accuracy"]
            found.append({"expand": way, "num_tasks": stop, **asdict(interval)})
    return found


def main() -> None:
    """Measure every way, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="100,300")
    parser.add_argument("--classes", type=int, choices=(1, 2), default=2)
    parser.add_argument("--drawings", type=int, default=5, help="Training drawings of a class.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    stops = sorted(int(number) for number in arguments.tasks.split(","))
    commit, measured = (
        source_commit(),
        {way: measure(way, stops, arguments.classes, arguments.drawings) for way in WAYS},
    )
    result = {
        "what": "budgets, accuracy, width, stored numbers and images/s after many tasks, without and with expansion",
        "command": f"python benchmarks/pool.py --tasks {arguments.tasks} --classes {arguments.classes} "
        f"--drawings {arguments.drawings}",
        "commit": commit,
        "settings": {**SETTINGS, "sparsity": ClareSettings().sparsity},
        "seed": SEED,
        "classes_per_task": arguments.classes,
        "train_per_class": arguments.drawings,
        "num_images": NUM_IMAGES,
        "rounds": NUM_ROUNDS,
        "device": device_name(find_device()),
        "versions": versions(),
        "rows": [row for rows, _ in measured.values() for row in rows],
        "beside_none": compared({way: evaluations for way, (_, evaluations) in measured.items()}, stops),
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
