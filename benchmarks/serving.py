"""Single images over HTTP beside a plain loop over batches, in one process: images per second, and how long one waits.

Usage: python benchmarks/serving.py [--model FOLDER] [--connections 32] [--seconds 5] [--out results/FILE.json]
Without --model: the embedded drawing model, taught a few classes of the embedded drawings.
The load comes from a process of its own over loopback: so many connections, each with one request under way.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import serving_load
import torch
import uvicorn
from machine import device_name, find_device, versions, write_json
from PIL import Image
from serving_load import HOST

from clare.classifier.classifier import Classifier
from clare.cli.serve import listen, settled, share_threads
from clare.data.sources import DataSettings, load_dataset
from clare.serve.app import make_app
from clare.serve.limits import Limits
from clare.serve.service import Options

NUM_CLASSES = 20
IMAGES_PER_CLASS = 20
NUM_IMAGES = 512
ROUNDS = 5


def make_model(folder: Path) -> None:
    """Teach the embedded model some classes of drawings."""
    data = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    examples = {}
    for label, name in enumerate(data.classes[:NUM_CLASSES]):
        chosen = (data.train.labels == label).nonzero().squeeze(1)[:IMAGES_PER_CLASS]
        examples[name] = [image[0].numpy() for image in data.train.batch(chosen)[0].pixels]
    Classifier(folder, method="clare").learn(examples, mode="quick")


def make_images(model: Classifier) -> list[bytes]:
    """Return encoded test images: drawings as PNG for the drawing model, noise of the right size as JPEG otherwise."""
    if model.is_drawing_model:
        data = load_dataset(DataSettings(dataset="quickdraw", channels=1))
        pixels = data.test.batch(torch.arange(NUM_IMAGES))[0].pixels[:, 0].numpy()
    else:
        random = np.random.RandomState(0)
        pixels = random.randint(0, 256, (NUM_IMAGES, model.image_size, model.image_size, 3)).astype(np.uint8)
    return [_encoded(image, "PNG" if model.is_drawing_model else "JPEG") for image in pixels]


def _encoded(image: np.ndarray[Any, np.dtype[np.uint8]], kind: str) -> bytes:
    """Return an image as the bytes of a file."""
    file = BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def measure_loop(model: Classifier, images: list[bytes], batch_size: int, seconds: float) -> float:
    """Return images per second of a loop that decodes and predicts batch by batch."""
    num_images, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        first = num_images % len(images)
        num_images += len(model.guess(images[first : first + batch_size]))
    return num_images / elapsed


def run_load(port: int, folder: Path, num_connections: int, seconds: float) -> dict[str, float]:
    """Run the load in a process of its own and return what it found."""
    command = [sys.executable, serving_load.__file__, str(port), str(folder), str(num_connections), str(seconds)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result


@contextmanager
def serving(model: Classifier, limits: Limits) -> Iterator[int]:
    """Serve a model that is open already from this process, and give the port."""
    options = Options(model.path, lambda path: model, (sys.executable,), limits=limits)
    with settled(), listen(HOST, 0) as listener:
        server = uvicorn.Server(uvicorn.Config(make_app(options), log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def measure_start(folder: Path, image: bytes) -> float:
    """Return the seconds from the start of `clare serve` to its first prediction."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "clare", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = re.search(rf"{HOST}:(\d+)", server.stdout.readline())
        assert port is not None
        serving_load.ask_once(int(port.group(1)), image)
        elapsed = time.perf_counter() - started
        server.terminate()
    return elapsed


def measure(folder: Path, scratch: Path, num_connections: int, seconds: float) -> dict[str, Any]:
    """Measure the loop and the service in turns, so that both see the same machine."""
    limits = Limits()
    model = Classifier(folder)
    images = make_images(model)
    for number, image in enumerate(images):
        (scratch / f"{number:04d}").write_bytes(image)
    loops: list[float] = []
    loads: list[dict[str, float]] = []
    alone: list[dict[str, float]] = []
    # The loop gets the batch size of the service, and a larger one, and the better of both counts.
    loop = partial(measure_loop, model, images)
    with serving(model, limits) as port:
        for number in range(ROUNDS + 1):
            both = [loop(size, seconds / 2) for size in (limits.batch_images, 8 * limits.batch_images)]
            load = run_load(port, scratch, num_connections, seconds)
            single = run_load(port, scratch, 1, seconds / 2)
            if number:  # the first round warms everything up
                loops.append(max(both))
                loads.append(load)
                alone.append(single)
    return {**summarise(loops, loads, alone), "start_to_first_prediction_seconds": measure_start(folder, images[0])}


def summarise(loops: list[float], loads: list[dict[str, float]], alone: list[dict[str, float]]) -> dict[str, Any]:
    """Return medians over rounds; the ratio is that of each round's two figures."""
    ratios = [load["images_per_second"] / loop for load, loop in zip(loads, loops, strict=True)]
    return {
        "loop_images_per_second": round(statistics.median(loops), 1),
        "http": {key: round(statistics.median(load[key] for load in loads), 2) for key in loads[0]},
        "http_one_connection": {key: round(statistics.median(load[key] for load in alone), 2) for key in alone[0]},
        "ratio": round(statistics.median(ratios), 3),
        "ratio_of_each_round": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    share_threads()
    with TemporaryDirectory() as folder:
        scratch = Path(folder) / "images"
        scratch.mkdir()
        if given.model is None:
            make_model(Path(folder) / "model")
        result = measure(given.model or Path(folder) / "model", scratch, given.connections, given.seconds)
    device = find_device()
    conditions = {"device": device_name(device), "threads": torch.get_num_threads(), "connections": given.connections}
    result = {**conditions, **result, "versions": versions()}
    print(json.dumps(result, indent=2))
    write_json(given.out, result)


if __name__ == "__main__":
    main()
