"""Measure `clare learn --quick` with very many classes of three tiny pictures, and the commands that look at the model.

python scripts/measure_classes.py 1000 10000     # writes results/many_classes.json

Seconds are those of the processor, so that they hold on a busy machine too.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure_lessons import commit
from PIL import Image

from clare.engine.ranks import Ranks
from clare.engine.run import environment
from clare.engine.settings import EngineSettings
from clare.files import write_json

OUT = Path(__file__).parents[1] / "results" / "many_classes.json"
PER_CLASS = 3


def draw(folder: Path, num_classes: int) -> Path:
    """Write pictures that show a pattern of their class under noise, one folder per class."""
    for number in range(num_classes):
        random = np.random.RandomState(number)
        tile = np.tile(200 * random.randint(0, 2, (7, 7)), (4, 4))
        (folder / f"class {number:05d}").mkdir(parents=True)
        for place in range(PER_CLASS):
            pixels = (tile + random.randint(0, 55, (28, 28))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class {number:05d}" / f"{place}.png")
    return folder


def run(*words: str | Path) -> dict[str, float]:
    """Run a command; return what it took of processor and memory."""
    command = [sys.executable, "-m", "clare", *map(str, words)]
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, command, os.environ, file_actions=silence)
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {"processor_seconds": round(used.ru_utime + used.ru_stime, 1), "peak_mib": round(used.ru_maxrss / 1024)}


def measure(num_classes: int) -> dict[str, Any]:
    """Teach so many classes, and look at the model."""
    with tempfile.TemporaryDirectory() as folder:
        pictures, model = draw(Path(folder) / "pictures", num_classes), Path(folder) / "model"
        found: dict[str, Any] = {"learn": run("learn", model, pictures, "--quick")}
        found["inspect"] = run("inspect", model)
        found["predict"] = run("predict", model, pictures / "class 00007" / "0.png")
        found["model_mib"] = round(sum(path.stat().st_size for path in model.iterdir()) / 2**20, 1)
    return {"num_classes": num_classes, **found}


def main(words: list[str]) -> None:
    """Measure each number of classes."""
    ranks = Ranks(EngineSettings.model_validate({"device": "cpu", "threads": 1}))
    facts = {"command": f"python scripts/measure_classes.py {' '.join(words)}", "pictures_per_class": PER_CLASS}
    facts |= {"commit": commit(), "environment": environment(ranks)}
    found = []
    for word in words:
        found.append(measure(int(word)))
        print(found[-1], flush=True)
        write_json(OUT, {**facts, "found": found})


if __name__ == "__main__":
    main(sys.argv[1:])
