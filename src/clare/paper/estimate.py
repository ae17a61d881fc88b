"""How long runs will take on this device, from the images of their streams and a few real steps of each method.

Images are counted without decoding them. Two tiny tasks of noise are learnt by the engine's own driver, every phase for
two short epochs; the second epoch is timed and scaled to the images, classes and epochs of the stream, the second task
standing for all later ones.
"""

import gc
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import torch
from torch import Tensor

from clare.backbones.vit import Backbone, load_backbone
from clare.data import cifar
from clare.data.catalogue import CATALOGUE
from clare.data.folders import list_tree
from clare.data.settings import DRAWINGS, DataSettings
from clare.data.sources import load_dataset
from clare.data.store import ImageStore, LabelledImages
from clare.data.stream import task_sizes
from clare.engine.context import Context, Silence
from clare.engine.drive import Driver
from clare.engine.journal import Journal
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.run import make_transforms
from clare.engine.train import Place
from clare.errors import DataError
from clare.methods import METHODS
from clare.methods.base import Method, passes_per_image, prepare
from clare.methods.protocols import LearnsAllAtOnce
from clare.presets.schema import Experiment
from clare.seeds import generator_at
from clare.steps import Collect, Pass, Phase, Result, Step, TaskInfo

TEST_SHARE = 0.2
"""Share of a data set's images that are for testing, where nobody says."""
ALTERNATIVE = "quickdraw-20x10"
"""A preset whose data come with the package."""


@dataclass(frozen=True)
class Extent:
    """Size of a data set."""

    num_classes: int
    num_train: int
    num_test: int


@dataclass(frozen=True)
class TaskExtent:
    """Images that a task trains on, and classes and images that are evaluated after it."""

    num_train: float
    num_seen: int
    num_evaluated: float


def count_images(settings: DataSettings) -> Extent:
    """Count the classes and images of a data set."""
    root = Path(settings.root).expanduser()
    is_tree = settings.dataset not in (*DRAWINGS, "cifar100")
    if settings.dataset == "cifar100":
        is_tree = (root / "cifar100").is_dir() and not (root / cifar.FOLDER).is_dir()
    if not is_tree:
        # These are read within a second, and what is missing is refused as a run would refuse it.
        dataset = load_dataset(settings)
        return Extent(len(dataset.classes), len(dataset.train), len(dataset.test))
    train, test = list_tree(root if settings.dataset == "folder" else root / settings.dataset)
    return Extent(len(train.classes), len(train.paths), len(test.paths))


def known_extent(settings: DataSettings) -> Extent | None:
    """Return the size of a data set as its authors and users describe it, nothing where nobody does."""
    facts = CATALOGUE.get(settings.dataset)
    if facts is None or facts.num_classes is None or not (facts.num_test or facts.num_images):
        return None
    num_images = facts.num_images or 0
    num_train = facts.num_train or round((1 - TEST_SHARE) * num_images)
    return Extent(facts.num_classes, num_train, facts.num_test or num_images - num_train)


def count_all(experiments: Mapping[str, Experiment], expects: bool = False) -> tuple[dict[str, Extent], list[str]]:
    """Count the images of every preset, or expect what is known of them, and say of which the data are not here."""
    extents: dict[str, Extent] = {}
    problems: dict[str, DataError] = {}
    remarks = []
    for preset, experiment in experiments.items():
        try:
            extents[preset] = count_images(experiment.data)
        except DataError as error:
            known = known_extent(experiment.data) if expects else None
            if known is None:
                problems[preset] = error
                continue
            extents[preset] = known
            remarks.append(
                f"{preset}: the data are not here; known are {known.num_classes:,} classes with about "
                f"{known.num_train:,} training and {known.num_test:,} test images"
            )
    if problems:
        names = list(problems)
        first = str(problems[names[0]]).partition("; ")[0]
        raise DataError(
            f"the data of {_listed(names)} cannot be used: {first}; `clare data {quote(names[0])}` says where they "
            f"come from, --set data.root=FOLDER where they are, and --preset {ALTERNATIVE} runs the experiment on "
            "drawings that come with the package"
        )
    return extents, remarks


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def task_extents(extent: Extent, experiment: Experiment, merged: bool) -> list[TaskExtent]:
    """Return the size of every task of a stream, whose classes are taken to be equally large."""
    stream = experiment.stream
    num_classes = stream.num_classes or extent.num_classes
    if num_classes > extent.num_classes:
        raise DataError(
            f"the stream of {experiment.name} asks for {num_classes} classes and there are {extent.num_classes}; "
            f"set `stream.num_classes` to at most {extent.num_classes}"
        )
    per_class, evaluated = extent.num_train / extent.num_classes, extent.num_test / extent.num_classes
    if stream.evaluate_on == "validation":
        evaluated = stream.validation_share * per_class
        per_class -= evaluated
    per_class = min(per_class, stream.train_per_class or per_class)
    sizes = [num_classes] if merged else task_sizes(num_classes, stream.first or stream.increment, stream.increment)
    tasks, num_seen = [], 0
    for size in sizes:
        num_seen += size
        tasks.append(TaskExtent(size * per_class, num_seen, num_seen * evaluated))
    return tasks


NUM_CLASSES = 4
NUM_TASKS = 2
NUM_IMAGES_GPU = 256
NUM_IMAGES_CPU = 32
NUM_LARGE_IMAGES_CPU = 8
LARGE = 64
"""Side above which images are large for a CPU."""


class Costs(NamedTuple):
    """Seconds that learning a task takes on this device."""

    per_image: float = 0.0
    """For each training image of the task over all epochs."""
    per_seen_class: float = 0.0
    """Of training on drawn features, for each class known so far."""
    per_task: float = 0.0

    def plus(self, other: "Costs") -> "Costs":
        """Add the costs of another step."""
        return Costs(*map(sum, zip(self, other, strict=True)))

    def of(self, task: TaskExtent) -> float:
        """Return the seconds of a task of this size."""
        return self.per_image * task.num_train + self.per_seen_class * task.num_seen + self.per_task


@dataclass(frozen=True)
class Measured:
    """What was measured of a method; some methods train more in the first task than later."""

    first: Costs
    later: Costs
    per_evaluated: float
    """Seconds of evaluating one image after the second task."""
    passes: tuple[int, int]
    """Passes through the backbone per image after the first and after the second task."""


def run_seconds(measured: Measured, tasks: Sequence[TaskExtent]) -> float:
    """Return how long a run over these tasks takes; passes per image are taken to go on growing as they began to."""
    first, second = measured.passes
    seconds = 0.0
    for index, task in enumerate(tasks):
        passes = first + index * (second - first)
        seconds += (measured.later if index else measured.first).of(task)
        seconds += measured.per_evaluated * task.num_evaluated * passes / second
    return seconds


class Estimator:
    """Estimates of runs; a method is measured once for each backbone, with the settings of the first run it is in."""

    def __init__(self, needs_weights: bool = True) -> None:
        """Measure with the weights of the runs, or with any, which take as long and need not be here."""
        self.needs_weights = needs_weights
        self.measured: dict[str, Measured | None] = {}

    def seconds(self, experiment: Experiment, extent: Extent) -> float | None:
        """Return how long a run will take, or nothing where the measurement failed, of which the run will tell."""
        if not self.needs_weights:
            backbone = experiment.backbone.model_copy(update={"weights": "random"})
            experiment = experiment.model_copy(update={"backbone": backbone})
        values = experiment.model_dump(mode="json", include={"backbone", "transforms", "engine"})
        key = json.dumps([values, experiment.method_name], sort_keys=True)
        if key not in self.measured:
            self.measured[key] = measure(experiment)
        measured = self.measured[key]
        if measured is None:
            return None
        merged = issubclass(METHODS.get(experiment.method_name), LearnsAllAtOnce)
        return run_seconds(measured, task_extents(extent, experiment, merged))


def measure(experiment: Experiment) -> Measured | None:
    """Take a few steps of a method and time them; nothing when it fails on them."""
    engine = experiment.engine.model_copy(update={"num_devices": 1})
    ranks = Ranks(engine)
    if engine.threads:
        torch.set_num_threads(engine.threads)
    backbone = load_backbone(experiment.backbone)
    context = Context(ranks, make_transforms(experiment, backbone), engine, experiment.seed, Silence())
    devices = [ranks.device] if ranks.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        try:
            return _measure(context, experiment, backbone)
        except Exception:
            # Noise may do to a method what pictures do not; a method of one's own may raise anything.
            return None
        finally:
            if devices:
                # What stays reserved here would be missing where the runs look for room for their images.
                gc.collect()
                torch.cuda.empty_cache()


def _measure(context: Context, experiment: Experiment, backbone: Backbone) -> Measured:
    """Learn two tiny tasks, and look at their images once more."""
    method = METHODS.get(experiment.method_name)(backbone, experiment.method_settings(), experiment.seed)
    prepare(method, NUM_TASKS, NUM_CLASSES)
    method.to(context.ranks.device)
    images = noise_images(context, backbone)
    costs, passes = [], []
    for index in range(NUM_TASKS):
        costs.append(_walk(context, method, images, index))
        predict_logits(context, method, images)
        passes.append(passes_per_image(method))
    started = now_on(context.ranks.device)
    predict_logits(context, method, images)
    per_evaluated = (now_on(context.ranks.device) - started) / len(images)
    return Measured(costs[0], costs[1], per_evaluated, (passes[0], passes[1]))


def now_on(device: torch.device) -> float:
    """Return the time once all work queued on a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def noise_images(context: Context, backbone: Backbone) -> LabelledImages:
    """Return a few images of noise where the computing is done, labelled by turns."""
    device, side = context.ranks.device, context.transforms.settings.resize
    on_cpu = NUM_LARGE_IMAGES_CPU if side > LARGE else NUM_IMAGES_CPU
    num_images = NUM_IMAGES_GPU if device.type == "cuda" else on_cpu
    shape = (num_images, backbone.channels, side, side)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator_at(context.seed, "noise"))
    positions = torch.arange(num_images)
    return LabelledImages(ImageStore.from_array(pixels).to(device), positions, positions % NUM_CLASSES)


class Stopwatch(Journal):
    """A journal that keeps nothing but the time at which a phase's first epoch ended."""

    def __init__(self, context: Context) -> None:
        self.context, self.warm_at = context, 0.0

    def save_epoch(self, step: int, epoch: int, tensors: dict[str, Tensor]) -> None:
        """Note the time: from here on everything is warm."""
        self.warm_at = now_on(self.context.ranks.device)


def _walk(context: Context, method: Method, images: LabelledImages, index: int) -> Costs:
    """Learn one tiny task, phases for two epochs each, and add up what the steps cost."""
    classes = tuple(f"class {index}-{place}" for place in range(NUM_CLASSES))
    num_seen, costs = (index + 1) * NUM_CLASSES, Costs()
    watch = Stopwatch(context)
    driver = Driver(context, method, images, index, watch)

    def timed(step: Step, place: Place) -> Result:
        nonlocal costs
        started = now_on(context.ranks.device)
        if isinstance(step, Phase):
            size = step.batch_size if step.data is not None else min(step.batch_size, len(images))
            result = driver.perform(replace(step, epochs=2, batch_size=size), place)
            seconds, drawn = (now_on(context.ranks.device) - watch.warm_at) * step.epochs, step.data is not None
            own = Costs(per_seen_class=seconds / num_seen) if drawn else Costs(per_image=seconds / len(images))
        else:
            result = driver.perform(step, place)
            seconds, sweeps = now_on(context.ranks.device) - started, isinstance(step, Pass | Collect)
            own = Costs(per_image=seconds / len(images)) if sweeps else Costs(per_task=seconds)
        costs = costs.plus(own)
        return result

    driver.run(method.learn(TaskInfo(index, classes, method.seed)), timed)
    method.tasks.append(classes)
    return costs
