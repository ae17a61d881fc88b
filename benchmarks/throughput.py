"""Training and evaluation speed of clare beside the field's loop, data and augmentation included, in one run.

Usage: python benchmarks/throughput.py [--model NAME] [--batch-sizes 32,256] [--num-images N] [--out results/FILE.json]
Without --model: ViT-B/16 at 224 pixels from 32-pixel colour images on a GPU, the embedded drawing ViT on a CPU.
Weights are random: speed does not depend on them.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import reference
import timm
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from clare.backbones.vit import EMBEDDED, EMBEDDED_ARCHITECTURE, BackboneSettings, load_backbone
from clare.data.store import ImageStore, LabelledImages
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Silence
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.train import PhaseRun, Place
from clare.methods.clare import Clare, ClareSettings
from clare.sparse.select import budget_of, select_random
from clare.steps import Group
from clare.version import __version__

NUM_CLASSES = 10


def synchronise(device: torch.device) -> None:
    """Wait until all queued work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


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


class Ours:
    """CLARE's Stage 2 and evaluation through the package's engine."""

    def __init__(
        self, model: str, images: np.ndarray, labels: np.ndarray, transforms: TransformSettings, **engine: Any
    ) -> None:
        settings = EngineSettings(**engine)
        backbone = load_backbone(BackboneSettings(name=model, weights="random"))
        ranks = Ranks(settings)
        self.context = Context(ranks, Transforms(transforms, backbone.mean, backbone.std), settings, 0, Silence())
        self.method = Clare(backbone, ClareSettings(), 0).to(ranks.device)
        store = ImageStore.from_array(images).to(ranks.device)
        self.images = LabelledImages(store, torch.arange(len(labels)), torch.from_numpy(labels).to(ranks.device))
        self.method.head.open_block(NUM_CLASSES, torch.Generator().manual_seed(0))
        free = self.method.ledger.free
        self.mask = select_random(free, budget_of(len(free), 0.05), torch.Generator().manual_seed(0))

    def train(self, batch_size: int, epochs: int) -> float:
        """Run Stage 2 and return its seconds."""
        groups = [Group(self.method.adapter.values, mask=self.mask), Group(self.method.head.block)]
        phase = self.method.phase("train", epochs, groups)
        phase = type(phase)(**{**vars(phase), "batch_size": batch_size})
        started = time.perf_counter()
        PhaseRun(self.context, self.method, phase, self.images, Place(0, 0)).run(0, lambda *_: None)
        synchronise(self.context.ranks.device)
        return time.perf_counter() - started

    def evaluate(self) -> float:
        """Predict every image and return the seconds it took."""
        if self.method.head.num_classes == 0:
            self.method.head.append(torch.randn(NUM_CLASSES, self.method.head.num_features))
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
    ours: Ours, batch_sizes: list[int], epochs: int, rate: float, reference_rates: tuple[float, float]
) -> list[dict[str, Any]]:
    """Return one row for each batch size of training, and one for evaluation."""
    num_images = len(ours.images)
    train_flops, eval_flops = ours.flops()

    def row(kind: str, batch_size: int, speed: float, flops: float, reference_speed: float) -> dict[str, Any]:
        return {
            "kind": kind,
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
        made = row("train", batch_size, speed, train_flops, reference_rates[0])
        rows.append({**made, "first_epoch_seconds": round(first, 1)})
        print(rows[-1], flush=True)
    ours.evaluate()
    speed = num_images / ours.evaluate()
    rows.append(row("evaluation", ours.context.settings.eval_batch_size, speed, eval_flops, reference_rates[1]))
    print(rows[-1], flush=True)
    return rows


def parse() -> argparse.Namespace:
    """Read the arguments; what is left out depends on the device."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224" if on_gpu else EMBEDDED)
    parser.add_argument("--batch-sizes", default="32,256" if on_gpu else "32")
    parser.add_argument("--num-images", type=int, default=4096 if on_gpu else 2048)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--eval-batch-size", type=int, default=256)
    parser.add_argument("--compile", default="off", choices=["off", "graph"])
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure, print, write JSON."""
    arguments = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_small = arguments.model == EMBEDDED
    side, channels, size = (28, 1, 28) if is_small else (32, 3, 224)
    images = np.random.RandomState(0).randint(0, 256, (arguments.num_images, channels, side, side), dtype=np.uint8)
    labels = np.arange(arguments.num_images) % NUM_CLASSES
    transforms = TransformSettings(image_size=size, resize=size if is_small else 256)
    num_workers = min(8, os.cpu_count() or 1)
    rate = matmul_rate(device)
    rates = reference_rates(arguments.model, images, labels, transforms, str(device), 1, num_workers)
    print(f"reference: train {rates[0]:.0f}, evaluation {rates[1]:.0f} images/s", flush=True)
    engine = {"eval_batch_size": arguments.eval_batch_size, "compile": arguments.compile}
    ours = Ours(arguments.model, images, labels, transforms, **engine)
    batch_sizes = [int(part) for part in arguments.batch_sizes.split(",")]
    rows = measure_ours(ours, batch_sizes, arguments.epochs, rate, rates)
    is_gpu = device.type == "cuda"
    result = {
        "model": arguments.model,
        "image_size": size,
        "num_images": arguments.num_images,
        "device": torch.cuda.get_device_name()
        if is_gpu
        else f"{platform.machine()}, {torch.get_num_threads()} threads",
        "precision": ours.context.ranks.precision,
        "compile": arguments.compile,
        "num_compiled_steps": len(ours.context.steps.kinds),
        "matmul_tflops": round(rate / 1e12, 3),
        "peak_memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if is_gpu else None,
        "reference": {"train": round(rates[0], 1), "evaluation": round(rates[1], 1), "num_workers": num_workers},
        "rows": rows,
        "train_ratio": rows[0]["ratio"],
        "eval_ratio": rows[-1]["ratio"],
        "versions": {"clare": __version__, "torch": torch.__version__, "timm": timm.__version__},
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
