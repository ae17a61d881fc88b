"""Measure what training can gain on frozen features at all, in a stream of many small tasks.

python studies/vits14-112/measure_gain.py STREAM REGIME --rate RATE     one JSON below gain/

The adapter of clare-plus is trained in one of seven regimes. Then clare-plus's head is made anew from all training
images, which no method may do, so that only the features are judged, on validation images:

frozen      nothing is trained
joint       all tasks at once, the loss over all classes
joint-own   all tasks at once, the loss of an image over the classes of its own task alone
own         task after task, never reset, the loss over the task's classes
seen        the same, the loss over all classes so far; rows of old classes are those of the discriminant
replay      the same with a buffer of old images, half of every batch; the rows of old classes are trained as well
first-ten   the first ten tasks' classes at once, then frozen
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure_drift import Scene, renewed_accuracy, set_up
from result_files import refuse_paths, without_paths, write_result
from study import HOME, read_study
from torch import Tensor

from clare.backbones.vit import load_backbone
from clare.data.store import LabelledImages
from clare.data.stream import Stream, Task, merge_tasks
from clare.engine.images import ImageSource
from clare.engine.run import environment
from clare.methods.base import METHODS, Method
from clare.presets.load import make_experiment
from clare.seeds import derive_seed, generator_at

REGIMES = ("frozen", "joint", "joint-own", "own", "seen", "replay", "first-ten")
AT_ONCE = ("joint", "joint-own", "first-ten")
NUM_FIRST = 10
PER_CLASS = 20
"""Images of an old class in the buffer of `replay`."""
SCALE = 20.0
SHRINKAGE = 0.1
"""Weight of the identity in the covariance by which features are whitened."""
NUM_ROWS = 512
"""Images whose features are computed at a time."""


@dataclass(frozen=True)
class Recipe:
    """How an adapter is trained."""

    regime: str
    rate: float
    epochs: int
    batch_size: int
    seed: int


class Trainer:
    """An adapter that learns, with one row for each class of the stream."""

    def __init__(self, scene: Scene, method: Method, recipe: Recipe) -> None:
        self.scene, self.method, self.recipe = scene, method, recipe
        self.device = scene.context.ranks.device
        self.values: torch.nn.Parameter = method.adapter.values  # type: ignore[union-attr,assignment]
        self.values.requires_grad_(True)
        num_classes = len(scene.stream.classes)
        rows = torch.randn(num_classes, method.head.num_features, generator=generator_at(recipe.seed, "rows"))
        self.rows = torch.nn.Parameter(F.normalize(rows, dim=1).to(self.device))
        self.task_of = scene.stream.task_of_class.to(self.device)
        self.whitening = torch.eye(method.head.num_features, device=self.device)

    def logits(self, images: Tensor) -> Tensor:
        """Return scaled cosines with the rows of all classes, of whitened features."""
        with self.scene.context.ranks.autocast():
            features = self.method.features(images)
        return SCALE * F.normalize(features.float() @ self.whitening, dim=1) @ F.normalize(self.rows, dim=1).T

    def loss(self, images: Tensor, labels: Tensor, last_task: int) -> Tensor:
        """Return the mean cross-entropy over the classes that the regime tells apart."""
        logits = self.logits(images)
        if self.recipe.regime in ("joint-own", "own"):
            others = self.task_of[None] != self.task_of[labels][:, None]
        else:
            others = (self.task_of > last_task)[None].expand_as(logits)
        return F.cross_entropy(logits.masked_fill(others, float("-inf")), labels)

    def train(self, parts: Sequence[LabelledImages], last_task: int, trained_rows: Tensor) -> None:
        """Train adapter and rows by SGD with momentum under a cosine schedule; a batch takes as much of each part."""
        recipe = self.recipe
        optimizer = torch.optim.SGD([self.values, self.rows], recipe.rate, momentum=0.9)
        sources = [ImageSource(self.scene.context, part, augmented=True) for part in parts]
        num_steps = -(-sources[0].num_samples * len(sources) // recipe.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, recipe.epochs))
        self.method.train()
        for epoch in range(recipe.epochs):
            batches = [self.batches(source, last_task, epoch, len(sources), num_steps) for source in sources]
            for drawn in zip(*batches, strict=True):
                images, labels = (torch.cat(pieces) for pieces in zip(*drawn, strict=True))
                optimizer.zero_grad()
                self.loss(images, labels, last_task).backward()  # type: ignore[no-untyped-call]
                assert self.rows.grad is not None
                self.rows.grad[~trained_rows] = 0
                optimizer.step()
            schedule.step()

    def batches(
        self, source: ImageSource, task: int, epoch: int, num_sources: int, num_steps: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield so many batches of a source in random order, from its start again where it is short."""
        generator = generator_at(self.recipe.seed, task, epoch, source.num_samples)
        torch.manual_seed(derive_seed(self.recipe.seed, task, epoch, "dropout"))
        source.begin_epoch(generator)
        order = torch.randperm(source.num_samples, generator=generator)
        size = max(1, self.recipe.batch_size // num_sources)
        for step in range(num_steps):
            positions = (torch.arange(step * size, (step + 1) * size)) % len(order)
            yield source.draw(order[positions].to(self.device))

    @torch.no_grad()
    def remember(self, statistics: "Statistics", images: LabelledImages) -> None:
        """Add the images to the statistics; whiten features and place the rows of old classes by them."""
        self.method.eval()
        source, features = ImageSource(self.scene.context, images, augmented=False), []
        for positions in torch.split(torch.arange(source.num_samples), NUM_ROWS):
            with self.scene.context.ranks.autocast():
                features.append(self.method.features(source.draw(positions.to(self.device))[0]).float())
        old = statistics.add(torch.cat(features), images.labels.to(self.device))
        self.whitening = statistics.whitening().to(self.whitening)
        self.rows[old] = statistics.means[old].to(self.rows) @ self.whitening


class Statistics:
    """Class means, and the scatter of all classes about them, as the features were when each task was learnt."""

    def __init__(self, num_classes: int, size: int, device: torch.device) -> None:
        self.means = torch.zeros(num_classes, size, dtype=torch.float64, device=device)
        self.scatter = torch.zeros(size, size, dtype=torch.float64, device=device)
        self.counts = torch.zeros(num_classes, dtype=torch.float64, device=device)

    def add(self, features: Tensor, labels: Tensor) -> Tensor:
        """Take over a task's features, and mark the classes that are known."""
        for label in labels.unique().tolist():
            rows = features[labels == label].double()
            self.means[label], self.counts[label] = rows.mean(0), len(rows)
            self.scatter += (rows - rows.mean(0)).T @ (rows - rows.mean(0))
        return self.counts > 0

    def whitening(self) -> Tensor:
        """Return W with W Wᵀ the inverse of the shrunk covariance, brought to unit mean square."""
        covariance = self.scatter / self.counts.sum()
        size = len(covariance)
        identity = torch.eye(size, dtype=torch.float64, device=covariance.device)
        shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * covariance.trace() / size * identity
        inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(shrunk)))
        return inverse * (size / inverse.square().sum()).sqrt()


def with_all_labels(stream: Stream) -> list[LabelledImages]:
    """Return the training images of each task, labelled by their classes' places in the stream."""
    merged, parts, start = merge_tasks(stream).tasks[0].train, [], 0
    for task in stream.tasks:
        parts.append(merged.select(torch.arange(start, start + len(task.train))))
        start += len(task.train)
    return parts


def joined(parts: Sequence[LabelledImages]) -> LabelledImages:
    """Return the images of several tasks as one set."""
    indices = torch.cat([part.indices for part in parts])
    return LabelledImages(parts[0].store, indices, torch.cat([part.labels for part in parts]))


def buffer_of(parts: Sequence[LabelledImages], seed: int) -> LabelledImages:
    """Return a few images of every class that these tasks have brought."""
    whole = joined(parts)
    order = torch.randperm(len(whole), generator=generator_at(seed, "buffer", len(parts)))
    labels = whole.labels.cpu()[order]
    kept = [order[labels == label][:PER_CLASS] for label in labels.unique().tolist()]
    return whole.select(torch.cat(kept))


def learnt_values(scene: Scene, recipe: Recipe) -> Tensor:
    """Return the adapter's values after training in a regime."""
    experiment, stream = scene.experiment, scene.stream
    method = METHODS.get(experiment.method_name)(
        load_backbone(experiment.backbone), experiment.method_settings(), experiment.seed
    )
    method.to(scene.context.ranks.device)
    trainer = Trainer(scene, method, recipe)
    parts, last = with_all_labels(stream), len(stream.tasks) - 1
    if recipe.regime in AT_ONCE:
        used = parts[:NUM_FIRST] if recipe.regime == "first-ten" else parts
        last = len(used) - 1
        trainer.train([joined(used)], last, trainer.task_of <= last)
    elif recipe.regime != "frozen":
        _one_after_another(trainer, stream.tasks, parts, recipe)
    return trainer.values.detach().clone()


def _one_after_another(
    trainer: Trainer, tasks: Sequence[Task], parts: Sequence[LabelledImages], recipe: Recipe
) -> None:
    """Train on task after task; statistics are kept where rows of old classes are needed."""
    size = trainer.method.head.num_features
    statistics = Statistics(len(trainer.rows), size, trainer.device) if recipe.regime in ("seen", "replay") else None
    for task in tasks:
        own, trained = [parts[task.index]], trainer.task_of == task.index
        if recipe.regime == "replay" and task.index > 0:
            own.append(buffer_of(parts[: task.index], recipe.seed))
            trained = trainer.task_of <= task.index
        trainer.train(own, task.index, trained)
        if statistics is not None:
            trainer.remember(statistics, parts[task.index])


def measure(scene: Scene, recipe: Recipe) -> dict[str, Any]:
    """Return the accuracy of the features that a regime leads to, and all that tells where it comes from."""
    accuracies = renewed_accuracy(scene, learnt_values(scene, recipe))
    clean, where = without_paths(scene.experiment.model_dump(mode="json")), environment(scene.context.ranks)
    return {
        "preset": clean["name"],
        "regime": recipe.regime,
        "rate": recipe.rate,
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "seed": recipe.seed,
        "evaluate_on": clean["stream"]["evaluate_on"],
        "final_accuracy": accuracies[0],
        "per_task": accuracies[1:],
        "commit": where.get("commit"),
        "environment": where,
        "settings": clean["method"],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one regime at one rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", help="a stream of study.toml")
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, help="epochs of a task, or of all at once")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--home", type=Path, default=HOME, help="the study's folder")
    options = parser.parse_args(arguments)
    overrides = ["stream.evaluate_on=validation", *options.overrides]
    experiment = make_experiment(read_study().presets[options.stream], "clare-plus", overrides)
    settings = experiment.method
    epochs = int(settings["epochs"]) if options.epochs is None else options.epochs
    recipe = Recipe(options.regime, options.rate, epochs, int(settings["batch_size"]), experiment.seed)
    result = {"stream": options.stream, **measure(set_up(experiment.model_dump(mode="json")), recipe)}
    refuse_paths(result, options.home)
    path = options.home / "gain" / options.stream / options.regime / f"rate{recipe.rate:g}-e{epochs}.json"
    write_result(path, result)
    print(f"{path.name} {options.stream} {options.regime}: {100 * result['final_accuracy']:.2f}", flush=True)


if __name__ == "__main__":
    main()
