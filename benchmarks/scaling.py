"""Time, memory and checkpoint size of CLARE over short and long streams: does the last task cost more than the first?

Usage: python benchmarks/scaling.py [--tasks 1,10,100,300] [--heads prototype,aligned] [--compile off|graph] [--small]
                                    [--out results/FILE.json]
Tasks of two classes of drawings on the embedded backbone: all 345 classes as they are, turned by 90 degrees, and for
more than 345 tasks turned further and mirrored. Every stream runs in a process of its own, through a run folder, as
`clare train` does; what it learns is not looked at. A whole task is learning, its head included, an evaluation of
always as many images, and the commit of it all. --small takes a tiny network and few pictures, for a CPU.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from drawings import load_drawings
from machine import (
    compile_choices,
    device_name,
    find_device,
    peak_memory,
    reset_peak_memory,
    synchronise,
    used_memory,
    versions,
    write_json,
)
from rich.console import Console
from rich.table import Table
from torch import Tensor

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.data.sources import Dataset
from clare.data.stream import Stream, StreamSettings, make_stream
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.commit import source_commit
from clare.engine.context import Context, Silence
from clare.engine.folder import RunFolder
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.methods.clare import Clare, ClareSettings
from clare.methods.state import snapshot_of
from clare.model.folder import save_model
from clare.position import POSITION

HEADS = ("trained", "prototype", "discriminant", "aligned")
PARTS = {
    "adapter_and_ledger": ("adapter.", "ledger."),
    "head_rows": ("head.rows",),
    "class_statistics": ("head.means", "head.factors"),
}
"""Parts of a checkpoint by how the names of their tensors begin; all others are the rest."""
SLOPES = ("align", "commit")
NUM_FINAL_IMAGES = 1000
NUM_DRAWN_CLASSES = 345
SMALL = {
    "backbone": {"weights": "random", "architecture": {"embed_dim": 24, "depth": 2, "num_heads": 2}},
    "train_per_class": 4,
    "align_samples": 4,
}


@dataclass(frozen=True)
class Conditions:
    """What all streams have in common."""

    classes_per_task: int = 2
    train_per_class: int = 16
    probe_epochs: int = 1
    epochs: int = 2
    sparsity: float = 0.99
    """Higher than usual: at 0.95 the pool would run out before task 300, and tasks without a probe are cheaper."""
    batch_size: int = 16
    learning_rate: float = 0.1
    penalty_weight: float = 0.0
    """None: a probe of two steps moves every coordinate only then, and a task claims its full share of what moved."""
    align_epochs: int = 2
    align_samples: int = 16
    images_per_evaluation: int = 32
    seed: int = 0
    compile: str = "off"
    backbone: dict[str, Any] = field(default_factory=dict)


class Clock(Silence):
    """A listener that reads the clocks when the alignment of the head begins, which is a task's last step."""

    def __init__(self) -> None:
        self.alignment: Reading | None = None

    def step(self, name: str, num_epochs: int) -> None:
        """Note when the alignment begins."""
        if name == "align":
            self.alignment = Reading.now()


@dataclass(frozen=True)
class Reading:
    """Both clocks at one moment; the processor's does not run while others have the machine."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> "Reading":
        """Read the clocks."""
        return cls(time.perf_counter(), time.process_time())


class Run:
    """One stream being learnt in a folder, with the seconds of everything each task does."""

    def __init__(self, folder: Path, num_tasks: int, head: str, conditions: Conditions) -> None:
        self.conditions = conditions
        engine = EngineSettings.model_validate({"compile": conditions.compile})
        ranks = Ranks(engine)
        self.device = ranks.device
        self.backbone = load_backbone(BackboneSettings(**conditions.backbone))
        size = self.backbone.image_size
        self.transforms = TransformSettings(image_size=size, resize=size, train="affine", normalise="backbone")
        transforms = Transforms(self.transforms, self.backbone.mean, self.backbone.std)
        self.clock = Clock()
        self.context = Context(ranks, transforms, engine, conditions.seed, self.clock)
        self.stream = _make_stream(self.backbone, num_tasks, conditions, self.device)
        self.method = Clare(self.backbone, method_settings(head, conditions), conditions.seed).to(self.device)
        self.method.head.reserve(conditions.classes_per_task)
        self.folder = RunFolder(folder, writes=True)
        self.folder.begin({}, {})
        self.folder.commit()

    def task(self, index: int) -> dict[str, float]:
        """Learn a task, evaluate and commit it, and return the seconds of each; `learn` is without an alignment."""
        self.clock.alignment = None
        started = Reading.now()
        learn_task(self.context, self.method, self.stream.tasks[index], self.folder)
        synchronise(self.device)
        learnt = Reading.now()
        predicted = self.evaluate(index, self.conditions.images_per_evaluation).argmax(1)
        evaluated = Reading.now()
        self.folder.predictions(index, predicted, predicted)
        self.folder.advance(snapshot_of(self.method))
        done, aligning = Reading.now(), self.clock.alignment or learnt
        return {
            "whole": done.wall - started.wall,
            "whole_processor": done.processor - started.processor,
            "learn": aligning.wall - started.wall,
            "align": learnt.wall - aligning.wall,
            "align_processor": learnt.processor - aligning.processor,
            "evaluate": evaluated.wall - learnt.wall,
            "commit": done.wall - evaluated.wall,
            "commit_processor": done.processor - evaluated.processor,
        }

    def evaluate(self, index: int, num_images: int) -> Tensor:
        """Predict so many test images, spread over the classes seen so far and repeated where they are too few."""
        seen = (self.stream.test.labels.cpu() < self.stream.num_seen(index)).nonzero().squeeze(1)
        chosen = torch.arange(num_images) * len(seen) // num_images
        return predict_logits(self.context, self.method, self.stream.test.select(seen[chosen]))


def _make_stream(backbone: Backbone, num_tasks: int, conditions: Conditions, device: torch.device) -> Stream:
    """Cut the drawings into tasks of the same number of classes and images."""
    per_task = conditions.classes_per_task
    settings = StreamSettings(
        increment=per_task, num_classes=num_tasks * per_task, train_per_class=conditions.train_per_class
    )
    drawings = load_drawings(backbone.channels, max(2, -(-num_tasks * per_task // NUM_DRAWN_CLASSES)))
    placed = Dataset(drawings.name, drawings.classes, drawings.train.to(device), drawings.test.to(device))
    return make_stream(placed, settings, conditions.seed)


def method_settings(head: str, conditions: Conditions) -> ClareSettings:
    """Return CLARE's settings under these conditions."""
    names = ("probe_epochs", "epochs", "sparsity", "batch_size", "learning_rate", "penalty_weight")
    aligning = ("align_epochs", "align_samples") if head == "aligned" else ()
    align = {name: getattr(conditions, name) for name in aligning}
    values = {name: getattr(conditions, name) for name in names}
    return ClareSettings.model_validate({**values, "head": {"kind": head, **align}})


def measure_stream(num_tasks: int, head: str, conditions: Conditions) -> dict[str, Any]:
    """Learn one stream and return what it cost."""
    with TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run", num_tasks, head, conditions)
        before = used_memory(run.device)
        seconds, peaks = [], []
        for index in range(num_tasks):
            can_reset = reset_peak_memory(run.device)
            seconds.append(run.task(index))
            peaks.append(peak_memory(run.device) if can_reset else None)
        started = time.perf_counter()
        run.evaluate(num_tasks - 1, NUM_FINAL_IMAGES)
        evaluation = time.perf_counter() - started
        save_model(Path(folder) / "model", run.method, run.backbone, run.transforms)
        return {
            "num_tasks": num_tasks,
            "num_classes": run.method.head.num_classes,
            "head": head,
            "seconds": {kind: first_median_last([task[kind] for task in seconds]) for kind in seconds[0]},
            "flat": flatness([task["whole"] for task in seconds]),
            "flat_processor": flatness([task["whole_processor"] for task in seconds]),
            "flat_but_align": flatness([task["whole_processor"] - task["align_processor"] for task in seconds]),
            "slope_ms": slope_ms([task["whole_processor"] for task in seconds]),
            **{f"{part}_slope_ms": slope_ms([task[f"{part}_processor"] for task in seconds]) for part in SLOPES},
            "evaluation_seconds_per_1000_images": round(evaluation * 1000 / NUM_FINAL_IMAGES, 3),
            "memory_mb": memory_figures(before, peaks),
            "checkpoint_bytes": checkpoint_parts(snapshot_of(run.method).tensors),
            "model_folder_bytes": sum(file.stat().st_size for file in (Path(folder) / "model").iterdir()),
            "last_commit_bytes": last_commit_bytes(run.folder),
            "free_share": round(run.method.ledger.num_free / run.method.ledger.num_coordinates, 4),
            "num_compiled_steps": len(run.context.programs.captured),
            "device": device_name(run.device),
            "precision": run.context.ranks.precision,
        }


def last_commit_bytes(folder: RunFolder) -> int:
    """Return what the commit of the last task wrote: what changed of the learner, the rows that came, the position."""
    learner = folder.path / "checkpoint" / str(folder.position.learner)
    return sum(file.stat().st_size for file in (learner, folder.path / POSITION)) + folder.position.finished.rows[-1]


def first_median_last(values: Sequence[float]) -> dict[str, float]:
    """Return three figures of a sequence."""
    return {"first": round(values[0], 4), "median": round(median(values), 4), "last": round(values[-1], 4)}


def flatness(seconds: Sequence[float]) -> float | None:
    """Return the median of the last tenth by that of the first, without task 0, which warms up; none for few tasks."""
    if len(seconds) < 3:
        return None
    num = max(1, len(seconds) // 10)
    return round(median(seconds[-num:]) / median(seconds[1 : num + 1]), 3)


def slope_ms(seconds: Sequence[float]) -> float | None:
    """Return by how many milliseconds a task is longer than one a hundred tasks before it; none for few tasks."""
    return None if len(seconds) < 10 else round(1e5 * linear_regression(range(1, len(seconds)), seconds[1:]).slope, 2)


def memory_figures(before: int | None, peaks: Sequence[int | None]) -> dict[str, float] | None:
    """Return in MB what was in use before the first task, and the peaks; none where the system does not tell."""
    known = [peak for peak in peaks if peak is not None]
    if before is None or len(known) < len(peaks):
        return None
    figures = {
        "before_first_task": before,
        "peak": max(known),
        "peak_minus_before": max(known) - before,
        "first_task_minus_before": known[0] - before,
        "last_task_minus_before": known[-1] - before,
    }
    return {name: round(value / 1e6, 1) for name, value in figures.items()}


def checkpoint_parts(tensors: dict[str, Tensor]) -> dict[str, int]:
    """Return the bytes of a snapshot's tensors by what they are."""
    sizes = dict.fromkeys([*PARTS, "rest"], 0)
    for name, tensor in tensors.items():
        part = next((part for part, starts in PARTS.items() if name.startswith(starts)), "rest")
        sizes[part] += tensor.numel() * tensor.element_size()
    return sizes


def by_stream(rows: Sequence[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    """Return one figure of every stream, by head and number of tasks."""
    heads = dict.fromkeys(row["head"] for row in rows)
    return {head: {str(row["num_tasks"]): row[name] for row in rows if row["head"] == head} for head in heads}


def make_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return one line for each stream."""
    table = Table(title="Seconds of a task, evaluation of 1,000 images, and MB")
    names = ("head", "tasks", "first", "median", "last", "flat", "flat cpu", "slope", "align last", "eval")
    for name in (*names, "commit last", "memory", "adapter", "rows", "statistics", "model"):
        table.add_column(name, justify="right")
    for row in rows:
        seconds, parts, memory = row["seconds"], row["checkpoint_bytes"], row["memory_mb"]
        table.add_row(
            row["head"],
            str(row["num_tasks"]),
            *(f"{seconds['whole'][name]:.2f}" for name in ("first", "median", "last")),
            *("" if row[name] is None else f"{row[name]:.2f}" for name in ("flat", "flat_processor", "slope_ms")),
            f"{seconds['align']['last']:.2f}",
            f"{row['evaluation_seconds_per_1000_images']:.2f}",
            f"{seconds['commit']['last']:.2f}",
            "" if memory is None else f"{memory['peak_minus_before']:.0f}",
            *(f"{parts[part] / 1e6:.2f}" for part in PARTS),
            f"{row['model_folder_bytes'] / 1e6:.2f}",
        )
    return table


def parse() -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="1,10,100,300")
    parser.add_argument("--heads", default=",".join(HEADS))
    parser.add_argument("--compile", default="off", choices=compile_choices())
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure every stream in a fresh process, print, write JSON."""
    arguments = parse()
    conditions = Conditions(compile=arguments.compile, **(SMALL if arguments.small else {}))
    rows = []
    # A fresh process each: memory that an earlier stream has freed, but not given back, would hide a later one's peak.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for head in arguments.heads.split(","):
            for num_tasks in map(int, arguments.tasks.split(",")):
                rows.append(pool.submit(measure_stream, num_tasks, head, conditions).result())
                print(rows[-1], flush=True)
    Console(width=160).print(make_table(rows))
    device = find_device()
    result = {
        "model": BackboneSettings(**conditions.backbone).name,
        "method": {"name": Clare.name, **method_settings(HEADS[0], conditions).model_dump(exclude={"head"})},
        "device": rows[0]["device"],
        "commit": source_commit(),
        "precision": rows[0]["precision"],
        "compile": arguments.compile,
        "memory_kind": "allocated on the GPU" if device.type == "cuda" else "resident size of the process",
        "num_final_images": NUM_FINAL_IMAGES,
        "conditions": asdict(conditions),
        **{name: by_stream(rows, name) for name in ("flat", "flat_processor", "flat_but_align", "slope_ms")},
        "rows": rows,
        "versions": versions(),
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
