"""Training and evaluation speed of clare beside the field's loop, data and augmentation included, in one run.

Usage: python benchmarks/throughput.py [--model NAME] [--batch-sizes 32,256] [--compile off,graph] [--out FILE.json]
Without --model: ViT-B/16 at 224 pixels from 32-pixel colour images on a GPU, the embedded drawing ViT on a CPU.
Weights are random: speed does not depend on them.
"""

import argparse
import os
import time
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import reference
import timm
import torch
from machine import device_name, find_device, peak_memory, reset_peak_memory, synchronise, versions, write_json
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.nn.attention import sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from clare.backbones.vit import EMBEDDED, EMBEDDED_ARCHITECTURE, BackboneSettings, load_backbone
from clare.data.store import ImageStore, LabelledImages
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.attention import ORDER
from clare.engine.commit import source_commit
from clare.engine.context import Context, Silence
from clare.engine.images import ImageSource, drawn_batches
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.train import PhaseRun, Place
from clare.methods.clare import Clare, ClareSettings
from clare.sparse.select import budget_of, select_random
from clare.steps import Group

NUM_CLASSES = 10
ATTENTION = ("engine", "cudnn")


def matmul_rate(device: torch.device) -> float:
    """Return the measured rate of large matrix products in FLOP/s: bf16 on a GPU, fp32 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    synchronise(device)
    started, num = time.perf_counter(), 20
    for _ in range(num):
        a @ b
    synchronise(device)
    return 2 * size**3 * num / (time.perf_counter() - started)


class Ours(Silence):
    """CLARE's Stage 2 and evaluation through the package's engine."""

    def __init__(
        self, model: str, images: np.ndarray, labels: np.ndarray, transforms: TransformSettings, **engine: Any
    ) -> None:
        settings = EngineSettings(**engine)
        self.notices: list[str] = []
        backbone = load_backbone(BackboneSettings(name=model, weights="random"))
        ranks = Ranks(settings)
        self.context = Context(ranks, Transforms(transforms, backbone.mean, backbone.std), settings, 0, self)
        self.method = Clare(backbone, ClareSettings(), 0).to(ranks.device)
        store = ImageStore.from_array(images).to(ranks.device)
        self.images = LabelledImages(store, torch.arange(len(labels)), torch.from_numpy(labels).to(ranks.device))
        self.method.head.open_block(NUM_CLASSES, torch.Generator().manual_seed(0))
        free = self.method.ledger.free
        self.mask = select_random(free, budget_of(len(free), 0.05), torch.Generator().manual_seed(0))

    def notice(self, text: str) -> None:
        """Keep what the engine says, such as that a compiled step was not trusted."""
        self.notices.append(text)

    def train(self, batch_size: int, epochs: int) -> float:
        """Run Stage 2 and return its seconds."""
        groups = [Group(self.method.adapter.values, mask=self.mask), Group(self.method.head.block)]
        phase = self.method.phase("train", epochs, groups)
        phase = type(phase)(**{**vars(phase), "batch_size": batch_size})
        started = time.perf_counter()
        PhaseRun(self.context, self.method, phase, self.images, Place(0, 0)).run(0, lambda *_: None)
        synchronise(self.context.ranks.device)
        return time.perf_counter() - started

    def repeats(self, batch_size: int) -> bool:
        """Tell whether an epoch of Stage 2 from one state ends in the same bits twice."""
        trained = (self.method.adapter.values.data, self.method.head.block.data)
        starts, ends = [tensor.clone() for tensor in trained], []
        for _ in range(2):
            for tensor, start in zip(trained, starts, strict=True):
                tensor.copy_(start)
            self.train(batch_size, 1)
            ends.append(torch.cat([tensor.flatten() for tensor in trained]))
        return torch.equal(*ends)

    def draw(self, batch_size: int) -> float:
        """Gather and augment every image once, as an epoch does, and return the seconds."""
        ranks = self.context.ranks
        source = ImageSource(self.context, self.images, augmented=True)
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(0))
        started = time.perf_counter()
        source.begin_epoch(torch.Generator().manual_seed(0))
        for _ in drawn_batches(source, order, batch_size, ranks):
            pass
        synchronise(ranks.device)
        return time.perf_counter() - started

    def evaluate(self) -> float:
        """Predict every image and return the seconds it took."""
        if self.method.head.num_classes == 0:
            self.method.head.append(torch.randn(NUM_CLASSES, self.method.head.num_features))
            self.method.tasks.append(tuple(f"class {number}" for number in range(NUM_CLASSES)))
        started = time.perf_counter()
        predict_logits(self.context, self.method, self.images)
        return time.perf_counter() - started

    def flops(self) -> tuple[float, float]:
        """Count the operations of one training step and one evaluation per image, by an eager pass."""
        source = torch.zeros(4, *self._input_shape(), device=self.context.ranks.device)
        labels = torch.zeros(4, dtype=torch.int64, device=source.device)
        parameters = [self.method.adapter.values.requires_grad_(True), self.method.head.block.requires_grad_(True)]
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(self.method.loss(source, labels).sum(), parameters)
        train = counter.get_total_flops() / 4
        for parameter in parameters:
            parameter.requires_grad_(False)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.method.features(source)
        return train, counter.get_total_flops() / 4

    def _input_shape(self) -> tuple[int, int, int]:
        size = self.context.transforms.settings.image_size
        return self.images.store.channels, size, size


def reference_rates(
    model: str,
    images: np.ndarray,
    labels: np.ndarray,
    transforms: TransformSettings,
    device: str,
    epochs: int,
    num_workers: int,
) -> tuple[float, float]:
    """Return images per second of the reference loop at batch 32, training and evaluation."""
    if model == EMBEDDED:
        vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, **EMBEDDED_ARCHITECTURE)
    else:
        vit = timm.create_model(model, num_classes=0)
    network = reference.Network(vit, 64, NUM_CLASSES).to(device)
    pictures = [Image.fromarray(image.transpose(1, 2, 0).squeeze()) for image in images]
    size = transforms.image_size
    train = reference.Pictures(pictures.__getitem__, labels, reference.train_transform(size))
    test = reference.Pictures(pictures.__getitem__, labels, reference.test_transform(size, transforms.resize))
    reference.train_task(network, train, 32, 1, num_workers, device)
    return (
        reference.train_task(network, train, 32, epochs, num_workers, device),
        reference.evaluate(network, test, 32, num_workers, device),
    )


def measure_ours(
    ours: Ours, attention: str, batch_sizes: list[int], epochs: int, rate: float, reference_rates: tuple[float, float]
) -> list[dict[str, Any]]:
    """Return one row for each batch size of training, and one for evaluation, with a choice of attention's kernel."""
    num_images = len(ours.images)
    train_flops, eval_flops = ours.flops()

    def row(kind: str, batch_size: int, speed: float, flops: float, reference_speed: float) -> dict[str, Any]:
        return {
            "kind": kind,
            "compile": ours.context.programs.mode,
            "attention": attention,
            "batch_size": batch_size,
            "images_per_second": round(speed, 1),
            "ratio": round(speed / reference_speed, 2),
            "gflop_per_image": round(flops / 1e9, 2),
            "share_of_matmul_rate": round(speed * flops / rate, 4),
        }

    rows = []
    for batch_size in batch_sizes:
        first = ours.train(batch_size, 1)
        speed = epochs * num_images / ours.train(batch_size, epochs)
        ours.draw(batch_size)
        drawing = num_images / ours.draw(batch_size)
        made = row("train", batch_size, speed, train_flops, reference_rates[0])
        seconds = {"first_epoch_seconds": round(first, 1), "repeats": ours.repeats(batch_size)}
        rows.append({**made, **seconds, "data_alone_images_per_second": round(drawing, 1)})
        print(rows[-1], flush=True)
    ours.evaluate()
    speed = num_images / ours.evaluate()
    rows.append(row("evaluation", ours.context.settings.eval_batch_size, speed, eval_flops, reference_rates[1]))
    return rows


def make_table(result: dict[str, Any]) -> Table:
    """Return one line for the reference and one for each of our rows."""
    table = Table(title=f"{result['model']} at {result['image_size']} on {result['device']}, {result['precision']}")
    for name in ("loop", "kind", "batch", "images/s", "ratio", "share of matmul rate", "data alone, images/s"):
        table.add_column(name, justify="left" if name in ("loop", "kind") else "right")
    for kind, speed in ((kind, result["reference"][kind]) for kind in ("train", "evaluation")):
        table.add_row("reference, fp32", kind, "32", f"{speed:,.0f}", "1.00", "", "")
    for row in result["rows"]:
        data = row.get("data_alone_images_per_second")
        table.add_row(
            f"clare, compile {row['compile']}" + f", attention {row['attention']}" * (row["attention"] != ATTENTION[0]),
            row["kind"],
            str(row["batch_size"]),
            f"{row['images_per_second']:,.0f}",
            f"{row['ratio']:.2f}",
            f"{row['share_of_matmul_rate']:.0%} of {result['matmul_tflops']:,.3g} TFLOP/s",
            "" if data is None else f"{data:,.0f}",
        )
    return table


def parse() -> argparse.Namespace:
    """Read the arguments; what is left out depends on the device."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224" if on_gpu else EMBEDDED)
    parser.add_argument("--batch-sizes", default="32,256" if on_gpu else "32")
    parser.add_argument("--num-images", type=int, default=4096 if on_gpu else 2048)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--eval-batch-size", type=int, default=256)
    parser.add_argument("--compile", default="off,graph,fused" if on_gpu else "off", help="modes, best last")
    parser.add_argument(
        "--attention",
        default=",".join(ATTENTION) if on_gpu else ATTENTION[0],
        help="kernels: those that the engine takes, and cuDNN's in training too, with its price and whether it repeats",
    )
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure, print, write JSON."""
    arguments = parse()
    device = find_device()
    is_small = arguments.model == EMBEDDED
    side, channels, size = (28, 1, 28) if is_small else (32, 3, 224)
    images = np.random.RandomState(0).randint(0, 256, (arguments.num_images, channels, side, side), dtype=np.uint8)
    labels = np.arange(arguments.num_images) % NUM_CLASSES
    transforms = TransformSettings(image_size=size, resize=size if is_small else 256)
    num_workers = min(8, os.cpu_count() or 1)
    rate = matmul_rate(device)
    rates = reference_rates(arguments.model, images, labels, transforms, str(device), 1, num_workers)
    print(f"reference: train {rates[0]:.0f}, evaluation {rates[1]:.0f} images/s", flush=True)
    batch_sizes = [int(part) for part in arguments.batch_sizes.split(",")]
    rows = []
    for mode, attention in product(arguments.compile.split(","), arguments.attention.split(",")):
        reset_peak_memory(device)
        engine = {"eval_batch_size": arguments.eval_batch_size, "compile": mode}
        ours = Ours(arguments.model, images, labels, transforms, **engine)
        with sdpa_kernel(ORDER, set_priority=True) if attention == "cudnn" else nullcontext():
            rows += measure_ours(ours, attention, batch_sizes, arguments.epochs, rate, rates)
    peak = peak_memory(device) if device.type == "cuda" else None
    best = [row for row in rows if (row["compile"], row["attention"]) == (rows[-1]["compile"], ATTENTION[0])]
    result = {
        "model": arguments.model,
        "image_size": size,
        "num_images": arguments.num_images,
        "device": device_name(device),
        "commit": source_commit(),
        "precision": ours.context.ranks.precision,
        "compile": arguments.compile,
        "num_recorded_programs": len(ours.context.programs.captured),
        "notices": ours.notices,
        "matmul_tflops": round(rate / 1e12, 3),
        "peak_memory_gb": None if peak is None else round(peak / 1e9, 2),
        "reference": {"train": round(rates[0], 1), "evaluation": round(rates[1], 1), "num_workers": num_workers},
        "rows": rows,
        "train_ratio": best[0]["ratio"],
        "eval_ratio": best[-1]["ratio"],
        "versions": versions(),
    }
    Console(width=160).print(make_table(result))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
