"""Everything a taught model asks of the engine: features, new rows without training, more pictures of known classes."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from clare.backbones.vit import num_channels
from clare.classifier.memory import Memory
from clare.data.images import Pixels
from clare.data.store import Canvas, ImageStore, LabelledImages
from clare.data.stream import Task
from clare.engine.context import Context
from clare.engine.drive import Driver
from clare.engine.images import ImageSource
from clare.engine.learn import check_images, check_new, learn_task
from clare.engine.passes import run_sweep, sweep
from clare.engine.train import Place
from clare.errors import ModelError
from clare.heads.aligned import AlignedHead, GaussianFeatures
from clare.heads.discriminant import DiscriminantHead
from clare.heads.drift import Drift, fit_drift_of_parts
from clare.heads.precision import SHARES
from clare.heads.trained import TrainedSettings
from clare.methods import METHODS
from clare.methods.base import HeadOnlySettings, Method
from clare.methods.protocols import CachesFeatures, ClaimsCoordinates, KeepsRowsAlone
from clare.seeds import generator_at
from clare.steps import TaskInfo

NUM_MEASURED = {"cpu": 8, "cuda": 32}
"""Pictures by which time is measured: few where each takes long."""
NUM_ASKED = 1000
"""Pictures whose distances are computed at a time."""
CONTRAST, LOGIT = "contrast", "logit"
"""What the score of showing none of the classes goes by; folders from before go by distances without the contrast."""
TRAINING_FACTOR = 3.0
"""A training step costs about three forward passes: one forward, one back through activations, and the update."""


@torch.no_grad()
def features_of(
    context: Context, method: Method, images: Sequence[Pixels], compute: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the features of pictures, shape (N, D), on the CPU, as the method or something else computes them."""
    method.eval()
    store = ImageStore.from_images(images).to(context.ranks.device)
    positions = torch.arange(len(images))
    source = ImageSource(context, LabelledImages(store, positions, torch.zeros_like(positions)), augmented=False)

    def rows_of(inputs: Tensor, _: Tensor) -> Tensor:
        return compute(inputs) if compute else context.programs.forward(method, method.features, inputs)

    return sweep(context, method, source, rows_of).cpu()


@torch.no_grad()
def logits_of(context: Context, method: Method, features: Tensor) -> Tensor:
    """Return the logits of features over all known classes, shape (N, K), on the CPU."""
    method.eval()
    # Where there are no pictures nobody knows how wide their features would be.
    parts = torch.split(features, context.settings.eval_batch_size) if len(features) else ()
    with context.ranks.autocast():
        logits = [method.classify(part.to(context.ranks.device)).float().cpu() for part in parts]
    return torch.cat(logits) if logits else torch.zeros(0, len(method.classes))


def tells_distances(method: Method) -> bool:
    """Tell whether a method keeps what distances to its classes are measured with."""
    return isinstance(method, KeepsRowsAlone) and isinstance(method.head, DiscriminantHead)


@torch.no_grad()
def familiarity_of(method: Method, features: Tensor, logits: Tensor, by: str, left_out: Tensor | None = None) -> Tensor:
    """Return how well pictures go with any known class, or any but one: by distances or by the largest logit."""
    if by in SHARES and isinstance(method.head, DiscriminantHead) and len(features):
        head, device = method.head, method.head.means.device
        parts = torch.split(features, NUM_ASKED)
        outs = [None] * len(parts) if left_out is None else torch.split(left_out.to(device), NUM_ASKED)
        pairs = zip(parts, outs, strict=True)
        strangers = head.strangers()
        return torch.cat([strangers.familiarity(head.seen(part.to(device)), out, by).cpu() for part, out in pairs])
    if left_out is not None:
        logits = logits.scatter(1, left_out[:, None], -torch.inf)
    return logits.amax(1) if len(logits) else logits.new_zeros(0)


def fit_move(method: Method, before: Tensor, after: Tensor, labels: Tensor) -> Drift:
    """Return how features moved that are blocks of the backbone side by side, or parts of another width."""
    sizes, width = method.settings.reading.part_sizes(method.backbone), before.shape[1]
    num_copies, rest = divmod(width, sum(sizes))
    return fit_drift_of_parts(before, after, labels, [width] if rest else sizes * num_copies)


def require_rows(method: Method, action: str) -> None:
    """Refuse what only methods with one row per class can do."""
    if not isinstance(method, KeepsRowsAlone):
        able = ", ".join(name for name in METHODS if issubclass(METHODS.get(name), KeepsRowsAlone))
        raise ModelError(
            f"the method '{method.name}' keeps more of a class than a row, so {action} is not possible with it; "
            f"those that can: {able}"
        )


def teach_task(context: Context, method: Method, classes: tuple[str, ...], images: LabelledImages) -> None:
    """Let the method learn a task in its own way."""
    learn_task(context, method, Task(len(method.tasks), classes, images))


@torch.no_grad()
def teach_quickly(context: Context, method: Method, classes: tuple[str, ...], images: LabelledImages) -> None:
    """Give new classes rows from the statistics of their features as they are; nothing else is trained or claimed."""
    require_rows(method, "learning without training")
    task = Task(len(method.tasks), classes, images)
    check_new(method, classes)
    check_images(task)
    head, info = method.head, TaskInfo(task.index, classes, method.seed)
    head.open_block(len(classes), info.generator("rows"))
    Driver(context, method, images, task.index).run(head.finish_untrained(len(classes)))
    if isinstance(method, ClaimsCoordinates):
        method.ledger.claim_nothing()
    method.tasks.append(classes)


@torch.no_grad()
def teach_more(context: Context, method: Method, places: Tensor, images: LabelledImages, memory: Memory) -> None:
    """Renew the rows and statistics of known classes with more pictures."""
    require_rows(method, "giving classes more pictures")
    head, num_classes = method.head, len(places)
    step, place = head.sweep(num_classes), Place(len(method.tasks), 0)
    context.listener.step(step.name, 1)
    sums = head.summed(run_sweep(context, method, step, images, place), num_classes)
    # What is remembered says how many pictures stand behind what the head keeps.
    steps = head.renew(places.to(head.rows.device), memory.counts[places], sums)
    Driver(context, method, images, place.task).run(steps)


@torch.no_grad()
def measure_seconds(context: Context, method: Method, num_images: int, num_classes: int, trains: bool) -> float:
    """Estimate the seconds of teaching from the time that a few random pictures take here."""
    settings, device = context.transforms.settings, context.ranks.device
    generator = generator_at(0, "estimate")
    side, number = settings.resize, min(NUM_MEASURED[device.type], num_images)
    shape = (number, num_channels(method.backbone), side, side)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)
    canvas = Canvas(pixels, torch.tensor([[side, side]]).repeat(number, 1))
    draws = context.transforms.draws(number, generator)
    method.eval()

    def one_pass() -> None:
        with context.ranks.autocast():
            float(method.features(context.transforms.augment(canvas, draws)).sum())

    one_pass()
    per_image = _seconds(one_pass) / number
    passes = num_passes(type(method), method.settings, trains)
    return per_image * num_images * passes + _align_seconds(method, num_classes)


def num_passes(kind: type[Method], settings: HeadOnlySettings, trains: bool = True) -> float:
    """Return how many passes of the backbone each picture of a lesson takes about."""
    is_frozen = issubclass(kind, CachesFeatures)
    trains = trains and (isinstance(settings.head, TrainedSettings) or not is_frozen)
    epochs = sum(value for key, value in settings if key.endswith("epochs")) if trains else 0
    # Features that move are swept up to twice for the statistics, and once over the pictures that were held back.
    return TRAINING_FACTOR * epochs + (1 if is_frozen else 3)


def _align_seconds(method: Method, num_classes: int) -> float:
    """Estimate the seconds of re-training the rows of all classes."""
    head = method.head
    if not isinstance(head, AlignedHead):
        return 0.0
    settings = head.settings
    number, size = 4, head.num_features
    means, factors = head.rows.new_zeros(number, size), head.rows.new_zeros(number, size, size)
    source = GaussianFeatures(means, factors, settings.align_samples)
    rows = head.rows.new_zeros(number, head.row_size)

    def one_draw() -> None:
        source.begin_epoch(generator_at(0, "estimate"))
        float(head.scores(source.features, rows).sum())

    one_draw()
    return _seconds(one_draw) / number * (len(head.rows) + num_classes) * settings.align_epochs * 2


def _seconds(function: Callable[[], None]) -> float:
    """Return the time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
