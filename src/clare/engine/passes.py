"""Sweeps without gradient: statistics of a task, one row for each image, and predictions."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clare.data.store import LabelledImages
from clare.engine.context import Context
from clare.engine.images import Drawn, ImageSource, drawn_batches
from clare.engine.replay import ReplaySource, stored
from clare.engine.train import Place
from clare.errors import ModelError
from clare.methods.base import Method
from clare.methods.protocols import CachesFeatures, CachesQueries, GrowsFeatures, InfersTask
from clare.seeds import derive_seed, generator_at
from clare.steps import Collect, Pass, Source, added_up

RowsOf = Callable[[Tensor, Tensor], Tensor]
"""(images, their positions) -> one row per image"""


def run_sweep(
    context: Context, method: Method, step: Pass | Collect, images: LabelledImages, place: Place
) -> dict[str, Tensor]:
    """Run a step that looks at all images once; all that is random depends on the place alone."""
    method.eval()
    if isinstance(step, Collect) and step.pictures is not None:
        images = stored(step.pictures)
    source = ImageSource(context, images, step.view == "train")
    replay = step.replay if isinstance(step, Pass) else None
    drawn = source if replay is None else ReplaySource(context, images, replay)
    drawn.begin_epoch(generator_at(context.seed, place.task, place.step, "source"))
    torch.manual_seed(derive_seed(context.seed, place.task, place.step, context.ranks.rank, "pass"))
    if isinstance(step, Pass):
        return _sums(context, method, step, drawn)
    # A function of the method itself that looks at images is recorded like its features.
    is_own = step.of == "images" and getattr(step.function, "__self__", None) is method

    def rows_of(inputs: Tensor, _: Tensor) -> Tensor:
        if is_own:
            return context.programs.forward(method, step.function, inputs)
        if step.of == "features":
            inputs = _features(context, method, inputs)
        with context.ranks.autocast():
            return step.function(inputs)

    return {"values": sweep(context, method, source, rows_of), "labels": source.labels}


def _sums(context: Context, method: Method, step: Pass, source: Source) -> dict[str, Tensor]:
    """Return the sums of a statistic over batches and ranks."""

    def parts() -> Iterator[dict[str, Tensor]]:
        for batch, inputs, labels in _batches(context, method, source):
            seen = _features(context, method, inputs) if step.of == "features" else inputs
            with context.ranks.autocast():
                yield step.statistic(seen, labels, batch.weights.to(inputs.device))

    sums = added_up(parts())
    for name in sorted(sums):
        context.ranks.sum_(sums[name])
    return sums


def _batches(context: Context, method: Method, source: Source) -> Iterator[Drawn]:
    """Yield the batches of a sweep over a source, and tell the listener of each that is done."""
    size = context.programs.sweep_size(method, source.num_samples, context.settings.eval_batch_size)
    context.listener.epoch(0, -(-source.num_samples // size))
    for drawn in drawn_batches(source, torch.arange(source.num_samples), size, context.ranks):
        yield drawn
        context.listener.batch()


def sweep(context: Context, method: Method, source: ImageSource, rows_of: RowsOf) -> Tensor:
    """Return a row for every image of a source, on every rank, in the images' order."""
    num_images, rows = source.num_samples, torch.zeros(0)
    for batch, inputs, _ in _batches(context, method, source):
        part = rows_of(inputs, batch.positions)
        if not len(rows):
            dtype = torch.promote_types(part.dtype, torch.float32)
            rows = torch.zeros(num_images + 1, *part.shape[1:], dtype=dtype, device=context.ranks.device)
        # Padding repeats a real position; it is written to the spare last row, which is dropped.
        rows[torch.where(batch.weights > 0, batch.positions, num_images)] = part.to(rows.dtype)
    return context.ranks.sum_(rows[:-1])


def predict_logits(context: Context, method: Method, images: LabelledImages, known: Tensor | None = None) -> Tensor:
    """Return logits of all images over all classes so far, in their order; `known` are cached features or queries."""
    return predict(context, method, images, known)[:, : len(method.classes)]


@torch.no_grad()
def predict(context: Context, method: Method, images: LabelledImages, known: Tensor | None = None) -> Tensor:
    """Return logits of all images and, behind them, the tasks that a method infers by a rule of its own."""
    method.eval()
    if known is not None and not isinstance(method, CachesQueries):
        return _classified(context, method, known)

    def rows_of(inputs: Tensor, positions: Tensor) -> Tensor:
        if known is None or not isinstance(method, CachesQueries):
            features = _features(context, method, inputs)
        else:
            features = context.programs.forward(method, method.features_from, inputs, known[positions])
        return _answers(context, method, features)

    return sweep(context, method, ImageSource(context, images, augmented=False), rows_of).cpu()


def _classified(context: Context, method: Method, features: Tensor) -> Tensor:
    """Return the logits of features, batch by batch."""
    parts = torch.split(features, context.settings.eval_batch_size)
    context.listener.epoch(0, len(parts))
    logits = []
    for part in parts:
        logits.append(_answers(context, method, part).float())
        context.listener.batch()
    return torch.cat(logits).cpu()


def _features(context: Context, method: Method, images: Tensor) -> Tensor:
    """Return features of images, one row for each."""
    features = context.programs.forward(method, method.features, images)
    if features.dim() != 2 or len(features) != len(images):
        raise ModelError(
            f"the features of {method.name} have the shape {tuple(features.shape)} for {len(images)} images; "
            "return one row for each image"
        )
    return features


def _answers(context: Context, method: Method, features: Tensor) -> Tensor:
    """Return a logit for each class so far and, behind them, the task that a method infers by a rule of its own."""
    with context.ranks.autocast():
        logits = method.classify(features)
        if logits.shape != (len(features), len(method.classes)):
            raise ModelError(
                f"{method.name} gives logits of shape {tuple(logits.shape)} for {len(features)} images and "
                f"{len(method.classes)} classes; end `learn` with `yield from self.head.finish(len(task.classes))`"
            )
        if not isinstance(method, InfersTask):
            return logits
        return torch.cat([logits, method.inferred_tasks(features)[:, None].float()], 1)


class FeatureCache:
    """What evaluation keeps of the test images from task to task, until the method says that it has changed."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.num_parts = 0
        self.rows, self.is_known = torch.zeros(0), torch.zeros(0, dtype=torch.bool)

    @torch.no_grad()
    def of(self, context: Context, method: Method, images: LabelledImages, positions: Tensor) -> Tensor | None:
        """Return features or queries of the images at these positions, computing those that are not known."""
        if isinstance(method, CachesFeatures):
            version, function = method.features_version, method.features
        elif isinstance(method, CachesQueries):
            version, function = 0, method.queries
        else:
            return None
        if version is None:
            return None
        method.eval()
        num_parts = method.num_parts if isinstance(method, GrowsFeatures) else 0
        if version != self.version:
            self.version, self.num_parts = version, num_parts
            self.rows, self.is_known = torch.zeros(0), torch.zeros(len(images), dtype=torch.bool)
        if isinstance(method, GrowsFeatures) and num_parts > self.num_parts:
            self._widen(context, method, method, images)
        missing = positions[~self.is_known[positions]]
        if len(missing):
            source = ImageSource(context, images.select(missing), augmented=False)
            new = sweep(context, method, source, lambda inputs, _: context.programs.forward(method, function, inputs))
            if not len(self.rows):
                self.rows = new.new_zeros(len(images), *new.shape[1:])
            self.rows[missing.to(new.device)] = new
            self.is_known[missing] = True
        return self.rows[positions.to(self.rows.device)]

    def _widen(self, context: Context, method: Method, grown: GrowsFeatures, images: LabelledImages) -> None:
        """Add the parts that came since to the features of known images."""
        known, first = self.is_known.nonzero().squeeze(1), self.num_parts
        self.num_parts = grown.num_parts
        if not len(known):
            return

        def rows_of(inputs: Tensor, _: Tensor) -> Tensor:
            with context.ranks.autocast():
                return grown.later_parts(inputs, first)

        new = sweep(context, method, ImageSource(context, images.select(known), augmented=False), rows_of)
        added = new.new_zeros(len(images), *new.shape[1:])
        added[known.to(new.device)] = new
        self.rows = torch.cat([self.rows, added], 1)
