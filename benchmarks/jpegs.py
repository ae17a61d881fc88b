"""From a cold folder of JPEGs to a trained task: clare, which decodes once, beside the field's loop, which does always.

Usage: python benchmarks/jpegs.py [--model NAME] [--num-images N] [--store-size 256,0] [--store auto] [--out FILE]
The pictures, 500 x 375 in 10 classes, are made for the purpose in a temporary folder: a stand-in for ImageNet-R.
Without --model: ViT-B/16 at 224 pixels on a GPU, the embedded ViT's architecture in colour on a CPU.
Weights are random: speed does not depend on them.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import reference
import torch
from machine import (
    compile_choices,
    device_name,
    drop_from_cache,
    growth_mb,
    peak_memory,
    reset_peak_memory,
    seconds_of,
    synchronise,
    used_memory,
    versions,
    write_json,
)
from pictures import NUM_CLASSES, SIZE, write_pictures
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.optim.optimizer import register_optimizer_step_post_hook

from clare.backbones.vit import EMBEDDED, BackboneSettings, load_backbone
from clare.data.images import decode_image, shrink_image
from clare.data.placement import this_machine
from clare.data.sources import DataSettings, load_dataset
from clare.data.store import LabelledImages
from clare.data.stream import Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.commit import source_commit
from clare.engine.context import Context, Silence
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks, resolve_device
from clare.engine.settings import EngineSettings
from clare.methods.clare import Clare, ClareSettings

ADAPTER_WIDTH = 64
BATCH_SIZE = 32
NUM_COMPARED = 10


@dataclass(frozen=True)
class Plan:
    """What is measured, for both sides alike."""

    root: Path
    backbone: BackboneSettings
    transforms: TransformSettings
    epochs: int
    num_workers: int

    def files(self, part: str) -> list[Path]:
        """Return the pictures for training or testing, class by class."""
        return sorted((self.root / part).glob("*/*.jpg"))


@dataclass(frozen=True)
class Seconds:
    """What one side took; "cold" counts from files that are not in memory."""

    load: float
    """Reading the whole set, training and test pictures, before the first step"""
    cold_to_first_step: float
    cold_to_first_epoch: float
    """To the end of the first epoch"""
    first_epoch: float
    """The first epoch itself, which for the reference reads the cold files"""
    later_epoch: float
    """Mean of the epochs after the first"""
    evaluation: float
    """The second of two sweeps over the test pictures"""


class Clock(Silence):
    """A listener that notes when the first step ends and when epochs begin."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.first_step: float | None = None
        self.epochs: list[float] = []

    def epoch(self, epoch: int, num_batches: int) -> None:
        """Note the beginning of an epoch."""
        self.epochs.append(time.perf_counter())

    def batch(self) -> None:
        """Note the end of the first step."""
        if self.first_step is None:
            synchronise(self.device)
            self.first_step = time.perf_counter()


def measure_ours(plan: Plan, data: DataSettings, engine: EngineSettings) -> tuple[Seconds, dict[str, Any]]:
    """Load the pictures and run CLARE's Stage 2 over them through the engine; return seconds and circumstances."""
    backbone = load_backbone(plan.backbone)
    ranks = Ranks(engine)
    device, clock = ranks.device, Clock(ranks.device)
    transforms = Transforms(plan.transforms, backbone.mean, backbone.std)
    context = Context(ranks, transforms, engine, 0, clock)
    # With a random mask and rows as trained, a task is Stage 2 and nothing else.
    settings = ClareSettings(mask="random", epochs=plan.epochs, batch_size=BATCH_SIZE)
    settings = settings.model_copy(update={"head": settings.head.model_copy(update={"kind": "trained"})})
    method = Clare(backbone, settings, 0).to(device)
    with torch.no_grad(), ranks.autocast():
        method.features(_blank_batch(plan, device))
    cold_share = drop_from_cache(plan.files("train") + plan.files("test"))
    before = used_memory(device)
    can_reset = reset_peak_memory(device)
    started = time.perf_counter()
    dataset = load_dataset(data, this_machine(device))
    synchronise(device)
    loaded = time.perf_counter()
    learn_task(context, method, Task(0, dataset.classes, dataset.train), Journal())
    synchronise(device)
    marks = [*clock.epochs, time.perf_counter()]
    assert clock.first_step is not None
    seconds = Seconds(
        load=loaded - started,
        cold_to_first_step=clock.first_step - started,
        cold_to_first_epoch=marks[1] - started,
        first_epoch=marks[1] - marks[0],
        later_epoch=mean([end - start for start, end in pairwise(marks[1:])]),
        evaluation=[seconds_of(partial(predict_logits, context, method, dataset.test)) for _ in range(2)][-1],
    )
    peak = peak_memory(device) if can_reset else None
    return seconds, {
        "cold_share": cold_share,
        "pixel_difference": pixel_difference(dataset.test, plan.files("test"), data),
        "store_mb": round((dataset.train.store.num_bytes + dataset.test.store.num_bytes) / 1e6, 1),
        "peak_memory_minus_before_mb": growth_mb(before, peak),
        "precision": ranks.precision,
        "num_compiled_steps": len(context.programs.captured),
    }


def pixel_difference(images: LabelledImages, files: Sequence[Path], data: DataSettings) -> float:
    """Return by how many of 255 levels the pixels of the first test pictures are off those of Pillow in the mean."""
    found, _ = images.batch(torch.arange(NUM_COMPARED))
    differences = []
    for path, pixels in zip(files, found.pixels.cpu(), strict=False):
        expected = shrink_image(decode_image(path, images.store.channels), data.store_size).astype(int)
        own = pixels[:, : expected.shape[1], : expected.shape[2]].numpy()
        differences.append(float(np.abs(own - expected).mean()))
    return round(mean(differences), 3)


def measure_reference(plan: Plan, device: torch.device) -> tuple[Seconds, dict[str, Any]]:
    """Run the reference loop over the same pictures; return seconds and circumstances."""
    network = reference.Network(load_backbone(plan.backbone).vit, ADAPTER_WIDTH, NUM_CLASSES).to(device)
    with torch.no_grad():
        network(_blank_batch(plan, device))
    size, resize = plan.transforms.image_size, plan.transforms.resize
    train = labelled_pictures(plan.files("train"), reference.train_transform(size))
    test = labelled_pictures(plan.files("test"), reference.test_transform(size, resize))
    steps: list[float] = []

    def note_step(*_: object) -> None:
        if not steps:
            synchronise(device)
            steps.append(time.perf_counter())

    def run_epochs(num: int) -> float:
        return seconds_of(partial(reference.train_task, network, train, BATCH_SIZE, num, plan.num_workers, str(device)))

    def sweep() -> float:
        return seconds_of(partial(reference.evaluate, network, test, BATCH_SIZE, plan.num_workers, str(device)))

    cold_share = drop_from_cache(plan.files("train") + plan.files("test"))
    hook = register_optimizer_step_post_hook(note_step)
    started = time.perf_counter()
    first_epoch = run_epochs(1)
    hook.remove()
    later_epoch = run_epochs(plan.epochs - 1) / (plan.epochs - 1)
    seconds = Seconds(
        load=0.0,
        cold_to_first_step=steps[0] - started,
        cold_to_first_epoch=first_epoch,
        first_epoch=first_epoch,
        later_epoch=later_epoch,
        evaluation=[sweep() for _ in range(2)][-1],
    )
    return seconds, {"cold_share": cold_share, "num_workers": plan.num_workers, "precision": "fp32"}


def labelled_pictures(files: Sequence[Path], transform: Any) -> reference.Pictures:
    """Return a data set that decodes a file whenever it is asked for."""
    names = sorted({path.parent.name for path in files})
    labels = np.array([names.index(path.parent.name) for path in files])
    return reference.Pictures(partial(_open, files), labels, transform)


def _open(files: Sequence[Path], index: int) -> Image.Image:
    """Decode one file."""
    with Image.open(files[index]) as picture:
        return picture.convert("RGB")


def _blank_batch(plan: Plan, device: torch.device) -> torch.Tensor:
    """Return a batch for an untimed forward pass, so that loading kernels does not count as reading pictures."""
    return torch.zeros(BATCH_SIZE, 3, plan.transforms.image_size, plan.transforms.image_size, device=device)


def figures(plan: Plan, seconds: Seconds) -> dict[str, Any]:
    """Return seconds and images per second as the result has them."""
    return {
        "seconds": {name: round(value, 3) for name, value in asdict(seconds).items()},
        "train_images_per_second": round(len(plan.files("train")) / seconds.later_epoch, 1),
        "evaluation_images_per_second": round(len(plan.files("test")) / seconds.evaluation, 1),
    }


def ratios(ours: Seconds, other: Seconds) -> dict[str, float]:
    """Return how many times as long the reference takes, for all that both do."""
    taken = asdict(ours)
    return {name: round(value / taken[name], 2) for name, value in asdict(other).items() if name != "load"}


def make_table(rows: Sequence[dict[str, Any]], yardstick: dict[str, Any]) -> Table:
    """Return one line for each measure, in seconds, with the ratios in brackets."""
    table = Table(title="Seconds (in brackets: how many times as long the reference takes)")
    table.add_column("")
    table.add_column("reference", justify="right")
    for row in rows:
        table.add_column(f"clare, {row['store']}, store size {row['store_size']}", justify="right")
    for name, value in yardstick["seconds"].items():
        cells = [
            f"{row['seconds'][name]:.2f}" + (f" ({row['ratios'][name]:.2f})" if name in row["ratios"] else "")
            for row in rows
        ]
        table.add_row(name.replace("_", " "), f"{value:.2f}", *cells)
    for name in ("train_images_per_second", "evaluation_images_per_second"):
        table.add_row(name.replace("_", " "), str(yardstick[name]), *(str(row[name]) for row in rows))
    return table


def backbone_settings(model: str) -> BackboneSettings:
    """Return a backbone for colour pictures, with random weights."""
    architecture = {"in_chans": 3} if model == EMBEDDED else {}
    return BackboneSettings(name=model, weights="random", architecture=architecture)


def transform_settings(image_size: int) -> TransformSettings:
    """Return the field's transforms; the border cut off in testing is as wide as at 224 of 256 pixels."""
    return TransformSettings(image_size=image_size, resize=image_size * 256 // 224)


def measure(
    plan: Plan, stores: Sequence[str], store_sizes: Sequence[int], decode: str, engine: EngineSettings
) -> dict[str, Any]:
    """Measure the reference once and clare for every store and store size."""
    device = torch.device(resolve_device(engine.device))
    other, circumstances = measure_reference(plan, device)
    yardstick = {**figures(plan, other), **circumstances}
    print(yardstick, flush=True)
    rows = []
    for store, store_size in product(stores, store_sizes):
        settings = DataSettings.model_validate(
            {
                "dataset": "folder",
                "root": str(plan.root),
                "cache": str(plan.root / "cache"),
                "store_size": store_size,
                "store": store,
                "decode": decode,
            }
        )
        ours, circumstances = measure_ours(plan, settings, engine)
        kept = settings.model_dump(include={"store_size", "store", "decode"})
        rows.append({**kept, **figures(plan, ours), "ratios": ratios(ours, other), **circumstances})
        print(rows[-1], flush=True)
    Console(width=160).print(make_table(rows, yardstick))
    files = plan.files("train") + plan.files("test")
    return {
        "picture_size": list(SIZE),
        "num_train_images": len(plan.files("train")),
        "num_test_images": len(plan.files("test")),
        "mean_file_kb": round(mean([file.stat().st_size for file in files]) / 1e3, 1),
        "image_size": plan.transforms.image_size,
        "batch_size": BATCH_SIZE,
        "eval_batch_size": engine.eval_batch_size,
        "epochs": plan.epochs,
        "device": device_name(device),
        "num_processors": os.cpu_count(),
        "compile": engine.compile,
        "reference": yardstick,
        "rows": rows,
        "versions": versions(),
    }


def parse() -> argparse.Namespace:
    """Read the arguments; what is left out depends on the device."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224" if on_gpu else EMBEDDED)
    parser.add_argument("--num-images", type=int, default=3000 if on_gpu else 600)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--store-size", default="256,0")
    parser.add_argument("--store", default="auto,encoded", help="places, with commas between")
    parser.add_argument("--decode", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--compile", default="off", choices=compile_choices())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error("--epochs must be 2 or more, since the later epochs are measured apart from the first")
    if arguments.num_images < 5 * NUM_CLASSES:
        parser.error(f"--num-images must be {5 * NUM_CLASSES} or more, so that every class has a test picture")
    return arguments


def main() -> None:
    """Make the pictures, measure, print, write JSON."""
    arguments = parse()
    settings = backbone_settings(arguments.model)
    transforms = transform_settings(load_backbone(settings).image_size)
    engine = EngineSettings.model_validate({"compile": arguments.compile})
    store_sizes = [int(part) for part in arguments.store_size.split(",")]
    with TemporaryDirectory() as folder:
        root = Path(folder) / "pictures"
        write_pictures(root, arguments.num_images)
        plan = Plan(root, settings, transforms, arguments.epochs, min(8, os.cpu_count() or 1))
        rows = measure(plan, arguments.store.split(","), store_sizes, arguments.decode, engine)
        result = {"model": arguments.model, "commit": source_commit(), **rows}
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
