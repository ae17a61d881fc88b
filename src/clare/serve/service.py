"""What the service does with a request, apart from HTTP's forms."""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from clare.classifier.classifier import Classifier
from clare.classifier.labels import check_known
from clare.data.images import Pixels
from clare.errors import ClareError, ModelError
from clare.model.records import Answer, Mode
from clare.serve.archives import StoredImage, clean_label, unpack
from clare.serve.batching import Batcher
from clare.serve.decoders import Decoders
from clare.serve.jobs import Job, Jobs
from clare.serve.limits import Budget, Limits, Refusal
from clare.serve.pictures import check_image, check_pixels
from clare.serve.scratch import scratch_folder
from clare.serve.teach import write_examples
from clare.serve.uploads import FormLimits, Part, read_form

LABEL_BYTES = 1000
NUM_DECODERS = 2
"""Processes that decode; each may hold one whole image of the largest size."""
SECONDS_BETWEEN_LOOKS = 1.0


logger = logging.getLogger(__name__)


class CurrentModel:
    """Holds the model in use; whoever asks takes it once and keeps it for the whole answer."""

    def __init__(self, path: Path, open_model: Callable[[Path], Classifier], executor: Executor | None) -> None:
        """Take the folder, how to open it, and where that is done after the first time."""
        self.path, self.open_model, self.executor = path, open_model, executor
        self._stamp = self._read_stamp()
        self.model = open_model(path)
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Exchange the model if the folder holds another version."""
        async with self._lock:
            stamp = self._read_stamp()
            newest = await asyncio.get_running_loop().run_in_executor(self.executor, self.open_model, self.path)
            self._stamp = stamp
            if newest.version != self.model.version:
                self.model = newest

    async def watch(self, seconds: float) -> None:
        """Notice changes that other processes make to the folder."""
        while True:
            await asyncio.sleep(seconds)
            stamp = self._read_stamp()
            if stamp == self._stamp:
                continue
            try:
                await self.refresh()
            except Exception as error:  # whatever is in the folder now, the model in use and this watch go on
                self._stamp = stamp
                reason = str(error) if isinstance(error, ClareError | OSError) else f"{type(error).__name__}: {error}"
                logger.warning("the model goes on as version %d: %s", self.model.version, reason)

    def _read_stamp(self) -> tuple[int, int]:
        """Return what tells one manifest from the next."""
        try:
            status = (self.path / "model.json").stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino


@dataclass(frozen=True)
class Options:
    """Where the model is, who may change it, and how it is taught."""

    path: Path
    open_model: Callable[[Path], Classifier]
    teach_command: Sequence[str]
    """The command of the child process, without the job's folder and the mode."""
    token: str | None = None
    hosts: tuple[str, ...] | None = None
    """Names by which the server may be called; none allows all."""
    limits: Limits = field(default_factory=Limits)


class Service:
    """The model in use, the batches, the jobs and the room they share."""

    def __init__(self, options: Options) -> None:
        limits = options.limits
        self.options, self.limits = options, limits
        self.predictor = ThreadPoolExecutor(1, "predict")
        self.decoders = Decoders(NUM_DECODERS, limits)
        # On a GPU all work is done on one thread: another one's would spoil a graph that is being recorded.
        opener = self.predictor if torch.cuda.is_available() else None
        self.current = CurrentModel(options.path, options.open_model, opener)
        self.batcher: Batcher[Answer] = Batcher(self._predict_batch, self.predictor, limits)
        self.jobs = Jobs(options.teach_command, limits.waiting_jobs, self.current.refresh)
        self.memory = Budget(limits.memory_bytes, "too many images are under way; try again in a second")
        self.undecoded = Budget(limits.waiting_images, "too many images wait to be decoded; try again in a second")
        self.scratch: Path | None = None
        self._undoing = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the workers at work; at the end a job is given up and the folder keeps the last whole model."""
        workers = [self.jobs.run(), self.current.watch(SECONDS_BETWEEN_LOOKS)]
        with scratch_folder() as self.scratch:
            tasks = [asyncio.create_task(worker) for worker in workers]
            await self.decoders.start()
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task
                await self.decoders.close()
                # What is being predicted goes on to its end, and nobody waits for it.
                self.predictor.shutdown(wait=False, cancel_futures=True)

    def clear_up(self) -> None:
        """Leave nothing of strangers behind where the process must end at once."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _predict_batch(self, images: list[Pixels], top: int) -> tuple[int, list[Answer]]:
        """Predict with the model in use at this moment."""
        model = self.current.model
        return model.version, model.guess_pixels([""] * len(images), images, top)

    async def predict(self, request: Request, top: int, threshold: float | None) -> dict[str, Any]:
        """Answer the images of a request."""
        limits = self.limits
        form_limits = FormLimits({"images": limits.image_bytes}, limits.predict_bytes, limits.predict_images)
        with self.memory.growing() as take:
            parts = await read_form(request.headers, request.stream(), form_limits, take=take)
            if not parts:
                raise Refusal(422, "the form has no images; send at least one in the field 'images'")
            contents = [(_name(part, number), part.content) for number, part in enumerate(parts)]
            # Not two copies of every image while they wait.
            parts.clear()
            with self.undecoded.taken(len(contents)):
                images = await self.decoders.decode_all(contents, self.current.model.reader())
            version, found = await self.batcher.ask(images, top)
        answers = [
            _as_asked(answer, name, top, threshold).as_json() for (name, _), answer in zip(contents, found, strict=True)
        ]
        return {"version": version, "answers": answers}

    async def learn(self, request: Request, mode: Mode) -> str:
        """Store the images of a request and queue a job for them; return its number."""
        with ExitStack() as held:
            # Taken before the body is read, so that uploads on their way count too.
            held.enter_context(self.jobs.slots.taken(1, self.jobs.retry_after))
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(dir=self.scratch)))
            images = await self._stored_images(request, folder)
            classes = dict.fromkeys(image.label for image in images)
            if len(classes) > self.limits.learn_classes:
                raise Refusal(413, f"{len(classes)} classes came, {self.limits.learn_classes} are allowed at a time")
            known = [info.name for info in self.current.model.classes]
            check_known(classes, known, mode, self.options.path.name)
            await run_in_threadpool(write_examples, folder, images, self.limits)
            job = Job(folder, mode)
            self.jobs.add(job, held.pop_all().close)
        return job.id

    async def _stored_images(self, request: Request, folder: Path) -> list[StoredImage]:
        """Write the images of a request to a folder and check them, without decoding any."""
        limits = self.limits
        fields = {"archive": limits.learn_bytes, "images": limits.image_bytes, "labels": LABEL_BYTES}
        form_limits = FormLimits(fields, limits.learn_bytes, 2 * limits.learn_images)
        parts = await read_form(request.headers, request.stream(), form_limits, folder)
        return await run_in_threadpool(_sort_parts, parts, folder, limits)

    async def undo(self) -> dict[str, Any]:
        """Take back the last change and answer with the model as it was before."""
        async with self._undoing:
            if self.jobs.current is not None:
                raise Refusal(409, "the model is learning; undo when the job is done")
            try:
                change = await asyncio.get_running_loop().run_in_executor(
                    # A model of our own, since the one in use goes on answering.
                    self.current.executor,
                    lambda: self.options.open_model(self.options.path).undo(wait=False),
                )
            except ModelError as error:
                raise Refusal(409, str(error)) from None
            await self.current.refresh()
        return {"change": asdict(change)}

    def describe_model(self) -> dict[str, Any]:
        """Return all about the model in use."""
        model, job = self.current.model, self.jobs.current
        capacity, reports = model.capacity, model.reports
        return {
            "version": model.version,
            "name": self.options.path.name,
            "is_drawing_model": model.is_drawing_model,
            "image_size": model.image_size,
            "channels": model.channels,
            "classes": [
                {**each.as_json(), "held_back": asdict(measured) if (measured := reports.get(each.name)) else None}
                for each in model.classes
            ],
            "capacity": capacity
            and {
                "num_coordinates": capacity.num_coordinates,
                "num_free": capacity.num_free,
                "used": 1 - capacity.num_free / capacity.num_coordinates,
            },
            "tasks_left": model.tasks_left,
            "history": [asdict(change) for change in model.history],
            "needs_token": self.options.token is not None,
            "learning": job and job.id,
        }


def _name(part: Part, number: int) -> str:
    """Return the name by which the sender knows an image."""
    return part.filename or f"image {number + 1}"


def _label(part: Part, image: str) -> str:
    """Return the class that came with an image; unreadable ones would all become the same."""
    try:
        return clean_label(part.content.decode())
    except UnicodeDecodeError:
        raise Refusal(422, f"the label of '{image}' is not UTF-8; send it as UTF-8") from None


def _as_asked(answer: Answer, name: str, top: int, threshold: float | None) -> Answer:
    """Return an answer with as many guesses as were asked for, judged by the threshold that was asked for."""
    is_unknown = answer.is_unknown if threshold is None else answer.unknown >= threshold
    return Answer(name, answer.guesses[:top], answer.unknown, is_unknown)


def _sort_parts(parts: list[Part], folder: Path, limits: Limits) -> list[StoredImage]:
    """Turn the parts of a form into labelled images."""
    by_field: dict[str, list[int]] = {"archive": [], "images": [], "labels": []}
    for number, part in enumerate(parts):
        by_field[part.field].append(number)
    archives, images, labels = by_field.values()
    if len(archives) == 1 and not images and not labels:
        return unpack(folder / f"part-{archives[0]:06d}", folder, limits)
    if archives or not images or len(images) != len(labels):
        raise Refusal(
            422,
            f"the form has {len(archives)} archives, {len(images)} images and {len(labels)} labels; "
            "send either one 'archive', or 'images' with one of 'labels' for each",
        )
    if len(images) > limits.learn_images:
        raise Refusal(413, f"{len(images)} images came, {limits.learn_images} are allowed at a time")
    stored, num_pixels = [], 0
    for position, (image, label) in enumerate(zip(images, labels, strict=True)):
        name = _name(parts[image], position)
        num_pixels += check_image(parts[image].content, name, limits)
        check_pixels(num_pixels, limits.learn_pixels)
        stored.append(StoredImage(_label(parts[label], name), name, folder / f"part-{image:06d}"))
    return stored
