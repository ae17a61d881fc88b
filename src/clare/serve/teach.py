"""The child process of a job: teaches a model folder and says on its standard output, line by line, how far it is."""

import asyncio
import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO, cast

from clare.classifier.classifier import load
from clare.classifier.pictures import Reader
from clare.data.images import Pixels
from clare.errors import ClareError
from clare.files import write_json
from clare.model.records import Mode
from clare.record import TaskEvent
from clare.serve.archives import StoredImage
from clare.serve.decoders import Decoder
from clare.serve.decoding import Wanted, die_with_parent
from clare.serve.limits import Limits
from clare.serve.pictures import as_array, refusal_of

MANIFEST = "examples.json"
SECONDS_BETWEEN_REPORTS = 0.2
TRUSTED_SHARE = 0.7
"""Share of the estimated time during which progress is simply the time."""
GREATEST_PROGRESS = 0.98


class Reporter:
    """A listener that writes lines of JSON."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.started = time.monotonic()
        self.estimate: float | None = None
        self._name, self._num_epochs, self._last = "starting", 1, 0.0

    def say(self, **values: Any) -> None:
        """Write one line at once."""
        self.out.write(json.dumps(values) + "\n")
        self.out.flush()

    def begin(self, estimate: float) -> None:
        """Count from here, with an estimate of the whole in seconds."""
        self.started, self.estimate = time.monotonic(), estimate
        self._tell("starting")

    def task(self, index: int, num_tasks: int, classes: tuple[str, ...]) -> None:
        """Tell that the task begins."""
        self._tell("starting")

    def step(self, name: str, num_epochs: int) -> None:
        """Tell which step begins."""
        self._name, self._num_epochs = name, num_epochs
        self._tell(name)

    def epoch(self, epoch: int, num_batches: int) -> None:
        """Tell which epoch begins."""
        self._tell(self._name if self._num_epochs == 1 else f"{self._name}, epoch {epoch + 1} of {self._num_epochs}")

    def batch(self) -> None:
        """Tell the time that is left, now and then."""
        if time.monotonic() - self._last > SECONDS_BETWEEN_REPORTS:
            self._tell(None)

    def trained(self, phase: str, epoch: int, loss: float, rate: float) -> None:
        """Nothing to tell: the next epoch will be told."""

    def measured(self, task: TaskEvent) -> None:
        """Nothing to tell: the change will be told."""

    def notice(self, text: str) -> None:
        """Tell what the user should know."""
        self._tell(text)

    def _tell(self, step: str | None) -> None:
        """Write how far we are."""
        self._last = time.monotonic()
        progress, left = expected(self._last - self.started, self.estimate)
        self.say(progress=progress, seconds_left=left, **({} if step is None else {"step": step}))


def expected(elapsed: float, estimate: float | None) -> tuple[float, float | None]:
    """Return progress in 0..1 and the seconds left; beyond the estimate progress slows down and never stands still."""
    if estimate is None:
        return 0.0, None
    share = elapsed / max(estimate, 1e-9)
    beyond = max(0.0, share - TRUSTED_SHARE)
    progress = min(share, TRUSTED_SHARE) + (1 - TRUSTED_SHARE) * -math.expm1(-beyond / (1 - TRUSTED_SHARE))
    progress = min(progress, GREATEST_PROGRESS)
    left = elapsed * (1 - progress) / progress if progress > 0 else estimate
    return round(progress, 4), round(left, 1)


def write_examples(folder: Path, images: Sequence[StoredImage], limits: Limits) -> None:
    """Leave the list of a job's images for the child."""
    listed = [{"label": image.label, "name": image.name, "file": image.path.name} for image in images]
    write_json(folder / MANIFEST, {"limits": limits.model_dump(), "images": listed})


async def read_examples(folder: Path, reader: Reader) -> dict[str, list[Pixels]]:
    """Decode the images of a job, by class."""
    manifest: Mapping[str, Any] = json.loads((folder / MANIFEST).read_text())
    limits = Limits(**manifest["limits"])
    wanted = Wanted(limits.image_pixels, reader.channels, reader.shorter_side)
    examples: dict[str, list[Pixels]] = {}
    decoder = Decoder(limits.image_seconds)
    try:
        for image in manifest["images"]:
            answer = await decoder.decode((folder / image["file"]).read_bytes(), wanted)
            if answer.pixels is None:
                raise refusal_of(answer, image["name"], limits)
            examples.setdefault(image["label"], []).append(as_array(answer.pixels))
    finally:
        await decoder.stop()
    return examples


def teach(path: Path, device: str, method: str | None, folder: Path, mode: Mode, reporter: Reporter) -> None:
    """Teach the model the images of a job and tell the change."""
    reporter.say(step="reading the images")
    model = load(path, method=method, device=device)
    examples = asyncio.run(read_examples(folder, model.reader()))
    num_images = sum(map(len, examples.values()))
    reporter.begin(model.estimate_seconds(num_images, len(examples), mode))
    reporter.say(change=asdict(model.learn(examples, mode=mode, listener=reporter)))


def end_with_input() -> None:
    """End this process when its input closes, that is when its parent is gone, however it ended."""

    def wait() -> None:
        # Not through sys.stdin, whose lock a waiting thread would hold when the interpreter ends.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    """Run one job: model folder, device, the method if the user named one, job folder, mode."""
    path, device, method, folder, mode = arguments
    die_with_parent()
    end_with_input()
    # Whatever else prints goes to the log; the reports have the output for themselves.
    reporter = Reporter(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    try:
        teach(Path(path), device, method or None, Path(folder), cast(Mode, mode), reporter)
    except ClareError as error:
        reporter.say(error=str(error))
        return error.exit_code
    except Exception:
        traceback.print_exc()
        reporter.say(error="learning failed unexpectedly and the model is as it was; see the server's log")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
