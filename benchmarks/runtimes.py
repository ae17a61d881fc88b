"""One classifier in PyTorch, as it serves, and in ONNX Runtime from the exported file, on the same cores in one run.

Usage: python benchmarks/runtimes.py [--model NAME] [--weights FILE] [--image-size N] [--batches 1,8,32] [--threads 1]
                                     [--rounds 9] [--out results/FILE.json]
Without --model: the embedded drawing ViT. Without --weights they are random: speed does not depend on them. All get the
same tensor and give logits and probabilities: PyTorch in fp32, PyTorch with `engine.precision=bf16`, ONNX Runtime in
fp32. They take turns, and the median of their rounds counts: seconds on the clock and of the processor, which do not
run while other programs have the core.
"""

import argparse
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import device_name, versions, write_json
from rich.console import Console
from rich.table import Table

from clare.backbones.vit import EMBEDDED, BackboneSettings, load_backbone
from clare.data.images import Pixels
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import Task
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.commit import source_commit
from clare.engine.context import Context, Silence
from clare.engine.learn import learn_task
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.export.export_check import Pictures
from clare.export.export_source import Source
from clare.export.onnx_export import INPUT, OUTPUTS, export_onnx
from clare.methods.base import METHODS, prepare
from clare.model.records import ClassInfo

NUM_CLASSES = 20
COLUMNS = ("PyTorch", "PyTorch bf16", "ONNX Runtime", "ratio")
CPU = torch.device("cpu")


def make_source(settings: BackboneSettings) -> Source:
    """Return a classifier of frozen features that has learnt some classes of noise."""
    backbone = load_backbone(settings)
    size = backbone.image_size
    transforms = TransformSettings(image_size=size, resize=size, normalise="backbone")
    store = ImageStore.from_array(noise(2 * NUM_CLASSES, backbone.channels, size))
    names = tuple(f"class {number}" for number in range(NUM_CLASSES))
    images = LabelledImages(store, torch.arange(len(store)), torch.arange(len(store)) % NUM_CLASSES)
    kind = METHODS.get("simplecil")
    method = kind(backbone, kind.settings_type(), 0)
    prepare(method, 1, NUM_CLASSES)
    engine = EngineSettings(device="cpu")
    context = Context(Ranks(engine), Transforms(transforms, backbone.mean, backbone.std), engine, 0, Silence())
    learn_task(context, method, Task(0, names, images))
    classes = tuple(ClassInfo(name, 1, "2026-01-01T00:00:00+00:00", 2) for name in names)
    return Source(method.eval(), backbone, transforms, classes, ())


def noise(num_images: int, channels: int, size: int) -> Pixels:
    """Return random images."""
    generator = torch.Generator().manual_seed(0)
    found: Pixels = torch.randint(0, 256, (num_images, channels, size, size), generator=generator).byte().numpy()
    return found


def contenders(source: Source, inputs: torch.Tensor, num_threads: int) -> dict[str, Callable[[], Any]]:
    """Return what answers a batch, by runtime and precision."""
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 3, num_threads, 1
    pictures = Pictures(ImageStore.from_array(noise(2, *inputs.shape[1:3])), "noise", are_real=False)
    data, _ = export_onnx(source, pictures)
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    mean, std = (torch.tensor(values)[:, None, None] for values in source.normalisation)

    @torch.inference_mode()
    def ours() -> torch.Tensor:
        logits: torch.Tensor = source.method((inputs - mean) / std)
        return (source.scale * logits).softmax(1)

    half = Ranks(EngineSettings(device="cpu", precision="bf16"))

    def ours_in_bf16() -> torch.Tensor:
        with half.autocast():
            return ours()

    def theirs() -> torch.Tensor:
        return torch.from_numpy(session.run(list(OUTPUTS), {INPUT: inputs.numpy()})[1])

    assert torch.allclose(ours(), theirs(), atol=1e-3)
    return {"pytorch": ours, "pytorch_bf16": ours_in_bf16, "onnxruntime": theirs}


def measure(source: Source, batch_size: int, num_threads: int, num_rounds: int, least_seconds: float) -> dict[str, Any]:
    """Let the runtimes take turns; return milliseconds for an image, and how many times PyTorch's speed."""
    size, channels = source.backbone.image_size, source.backbone.channels
    inputs = torch.from_numpy(noise(batch_size, channels, size)).float() / 255
    runtimes = contenders(source, inputs, num_threads)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runtimes}
    for _ in range(num_rounds + 1):
        for name, answer in runtimes.items():
            times[name].append(_seconds_for_one(answer, least_seconds))
    found: dict[str, Any] = {"batch_size": batch_size}
    for place, clock in enumerate(("wall", "processor")):
        # The first round warms up.
        seconds = {name: median(taken[place] for taken in rounds[1:]) / batch_size for name, rounds in times.items()}
        found[f"{clock}_ms"] = {name: round(1e3 * value, 3) for name, value in seconds.items()}
        found[f"{clock}_ratio"] = round(seconds["pytorch"] / seconds["onnxruntime"], 3)
        found[f"{clock}_bf16_ratio"] = round(seconds["pytorch"] / seconds["pytorch_bf16"], 3)
    return found


def _seconds_for_one(answer: Callable[[], Any], least_seconds: float) -> tuple[float, float]:
    """Return the seconds of an answer on the clock and of the processor, from as many as fill the given time."""
    num, started, processor = 0, time.perf_counter(), time.process_time()
    while not num or time.perf_counter() - started < least_seconds:
        answer()
        num += 1
    return (time.perf_counter() - started) / num, (time.process_time() - processor) / num


def bf16_instructions() -> list[str]:
    """Return what this processor has to multiply in bf16 with, as far as the system tells."""
    told = Path("/proc/cpuinfo")
    return sorted({"avx512_bf16", "amx_bf16"} & set(told.read_text().split())) if told.exists() else []


def make_table(result: dict[str, Any]) -> Table:
    """Return a line for each batch size."""
    table = Table(title=f"{result['model']} at {result['image_size']}: ms an image, on {result['device']}")
    for name in ("batch", *(f"{name}{clock}" for clock in ("", " cpu") for name in COLUMNS)):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        cells = [(*row[f"{clock}_ms"].values(), row[f"{clock}_ratio"]) for clock in ("wall", "processor")]
        table.add_row(str(row["batch_size"]), *(str(value) for each in cells for value in each))
    return table


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--weights", default="random")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--least-seconds", type=float, default=0.3, help="of a runtime's turn")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = BackboneSettings(name=given.model, weights=given.weights, image_size=given.image_size)
    source = make_source(settings)
    batches = [int(part) for part in given.batches.split(",")]
    result = {
        "model": given.model,
        "weights": Path(given.weights).name,
        "image_size": source.backbone.image_size,
        "device": device_name(CPU),
        "bf16_instructions": bf16_instructions(),
        "commit": source_commit(),
        "rounds": given.rounds,
        "rows": [measure(source, size, given.threads, given.rounds, given.least_seconds) for size in batches],
        "versions": {**versions(), "onnxruntime": version("onnxruntime")},
    }
    Console(width=160).print(make_table(result))
    write_json(given.out, result)


if __name__ == "__main__":
    main()
