"""What some settings of CLARE are worth on streams of drawings that a processor gets through.

    OMP_NUM_THREADS=1 python scripts/measure_clare.py trust|budgets|penalties|penalties-long|open|open-rows
        [--out FILE] [--seeds 1993]

`budgets`: method.budget=auto beside the fixed share, on quickdraw-100x2.
`penalties`: the forms of Stage 1's penalty, on three tasks of ten classes; `penalties-long`: on fifteen of two.
`trust`: a task of wrong labels and one at forty times the rate, with a trust region and without.
`open`: what the text leaves open, on five tasks of the preset quickdraw with half of their drawings, in bf16;
`open-rows`: how rows are drawn, the same with rows as training left them. Training is that of the preset.
The others have few drawings of each class and few epochs: accuracies compare settings, and say nothing of the method.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clare.backbones.vit import load_backbone
from clare.data.sources import load_dataset
from clare.data.store import LabelledImages
from clare.data.stream import Stream, Task, make_stream
from clare.engine.commit import source_commit
from clare.engine.context import Context, Silence
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.run import environment, make_transforms
from clare.files import write_json
from clare.methods.base import prepare
from clare.methods.clare import Clare
from clare.metrics.bootstrap import Evaluations, Pair
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.report.groups import FINAL, intervals_of
from clare.steps import Phase

ROOT = Path(__file__).parents[1]
NUM_ASKED = 20
"""Test drawings of a class."""
SHORT = (
    "method.epochs=4",
    "method.probe_epochs=2",
    "method.batch_size=10",
    "method.learning_rate=0.1",
    "method.head.kind=prototype",
    "method.adapter.bottleneck=16",
)
BUDGETS = {"share": (), "auto": ("method.budget=auto",)}
PENALTIES: dict[str, tuple[str, ...]] = {
    "none": ("method.penalty_weight=0",),
    **{
        f"{form}, {weight}": (f"method.penalty={form}", f"method.penalty_weight={weight}")
        for form, weight in {
            "l1-proximal": 1e-3,
            "l2": 1e-1,
            "group-lasso": 3e-3,
            "transformed-l1": 3e-3,
            "l0": 1e-4,
        }.items()
    },
}
LIMIT, BAD, FACTOR = 0.05, 1, 40
USUAL = ("engine.precision=bf16", "stream.num_classes=50", "stream.train_per_class=20")
"""The preset's training; bf16 takes three quarters of the time where the processor has it."""
OPEN: dict[str, tuple[str, ...]] = {
    "default": (),
    "momentum 0": ("method.momentum=0",),
    "momentum 0, ten times the rate": ("method.momentum=0", "method.learning_rate=2.0"),
    "normalise none": ("transforms.normalise=none",),
    "scale 0.05": ("method.adapter.scale=0.05",),
    "scale 0.2": ("method.adapter.scale=0.2",),
    "one cosine for both stages": (),
}
DEVIATION = 0.02
"""Of rows that are drawn from a normal distribution, as timm draws those of a new classifier."""
ROWS: dict[str, tuple[str, ...]] = {"uniform": (), "normal": ()}
Change = Callable[[Clare, Task], Task]
"""What is done to a task, or to how the method learns it."""


def experiment_of(preset: str, overrides: Iterable[str], seed: int) -> Experiment:
    """Return CLARE on a preset with these settings."""
    return make_experiment(preset, "clare", list(overrides), seed)


def begin(experiment: Experiment) -> tuple[Context, Clare, Stream]:
    """Return what an experiment needs before its first task."""
    backbone = load_backbone(experiment.backbone)
    ranks, transforms = Ranks(experiment.engine), make_transforms(experiment, backbone)
    context = Context(ranks, transforms, experiment.engine, experiment.seed, Silence())
    data = load_dataset(experiment.data.model_copy(update={"channels": backbone.channels}))
    stream = make_stream(data, experiment.stream, experiment.seed)
    settings = experiment.method_settings()
    method = Clare(backbone, settings, experiment.seed)  # type: ignore[arg-type]
    prepare(method, len(stream.tasks), max(len(task.classes) for task in stream.tasks))
    return context, method, stream


def asked(stream: Stream) -> LabelledImages:
    """Return the first test drawings of each class."""
    labels = stream.test.labels
    chosen = [(labels == label).nonzero().squeeze(1)[:NUM_ASKED] for label in range(len(stream.classes))]
    return stream.test.select(torch.cat(chosen))


def ended(experiment: Experiment, change: Change | None = None) -> tuple[dict[str, Any], Evaluations]:
    """Learn a stream, and return what became of the pool and what is named at the end."""
    context, method, stream = begin(experiment)
    needed: list[float] = []
    likeness: list[float] = []
    unmoved: list[float] = []
    started = time.process_time()
    for task in stream.tasks:
        free = method.ledger.num_free
        learn_task(context, method, change(method, task) if change else task)
        found = method.diagnosis()
        needed += [found["needed"]] if "needed" in found else []
        likeness += [found["likeness"]] if "likeness" in found else []
        unmoved += [found["movement"]["num_unmoved"] / free] if "movement" in found else []
    seconds = time.process_time() - started
    images = asked(stream)
    predicted = predict_logits(context, method, images).argmax(1)
    evaluations = Evaluations(
        [predicted.numpy()], [images.labels.numpy()], np.zeros(len(stream.classes), dtype=np.int64)
    )
    lengths = method.ledger.lengths
    facts = {
        "accuracy": round(100 * float((predicted == images.labels).double().mean()), 2),
        "num_free": method.ledger.num_free,
        "num_coordinates": method.ledger.num_coordinates,
        "claims": lengths,
        "mean_part_needed": mean(needed),
        "mean_likeness": mean(likeness),
        "mean_part_unmoved_in_stage_1": mean(unmoved),
        "processor_seconds": round(seconds, 1),
    }
    return facts, evaluations


def mean(values: list[float]) -> float | None:
    """Return the mean where there is any value."""
    return round(float(np.mean(values)), 4) if values else None


def compare(
    preset: str, variants: dict[str, tuple[str, ...]], shared: tuple[str, ...], seeds: list[int]
) -> Iterator[dict[str, Any]]:
    """Run each variant with each seed; return after each seed every run and the differences to the first variant."""
    runs: list[dict[str, Any]] = []
    found: dict[str, list[Evaluations]] = {name: [] for name in variants}
    first, *others = found
    for seed in seeds:
        for name, overrides in variants.items():
            facts, evaluations = ended(experiment_of(preset, [*shared, *overrides], seed), CHANGES.get(name))
            runs.append({"variant": name, "seed": seed, **facts})
            found[name].append(evaluations)
            print({key: value for key, value in runs[-1].items() if key != "claims"}, flush=True)
        beside = {name: difference(found[name], found[first]) for name in others}
        yield {"preset": preset, "overrides": shared, "variants": variants, "runs": runs, "beside": beside}


def difference(runs: list[Evaluations], others: list[Evaluations]) -> dict[str, float]:
    """Return accuracies minus others in points, with an interval over the drawings that both were asked about."""
    names = [str(label) for label in range(len(runs[0].task_of_class))]
    pairs = [Pair(run, other, names) for run, other in zip(runs, others, strict=True)]
    interval = intervals_of(pairs, FINAL)["final_accuracy"]
    return {key: round(100 * value, 2) for key, value in asdict(interval).items()}


def budgets(seeds: list[int]) -> Iterator[Any]:
    """Compare budgets by need with the fixed share."""
    return compare("quickdraw-100x2", BUDGETS, (*SHORT, "stream.train_per_class=5"), seeds)


def penalties(preset: str, seeds: list[int]) -> Iterator[Any]:
    """Compare forms of the penalty on the first thirty classes, at a rate at which training shows in the answers."""
    shared = (*SHORT, "stream.num_classes=30", "stream.train_per_class=8", "method.learning_rate=0.4")
    return compare(preset, PENALTIES, shared, seeds)


def wrong_labels(_: Clare, task: Task) -> Task:
    """Draw the labels of one task."""
    if task.index != BAD:
        return task
    generator = torch.Generator().manual_seed(0)
    labels = task.train.labels[torch.randperm(len(task.train), generator=generator)]
    return replace(task, train=LabelledImages(task.train.store, task.train.indices, labels))


def hurried(method: Clare, task: Task) -> Task:
    """Let one task be learnt at many times the rate."""
    original = Clare.phase

    def phase(*arguments: Any, **more: Any) -> Phase:
        usual = original(method, *arguments, **more)
        optimizer = replace(usual.optimizer, learning_rate=FACTOR * usual.optimizer.learning_rate)
        return replace(usual, optimizer=optimizer)

    method.__dict__.pop("phase", None)
    if task.index == BAD:
        method.phase = phase  # type: ignore[method-assign]
    return task


def one_cosine(method: Clare, task: Task) -> Task:
    """Let Stage 1's rate fall along the beginning of Stage 2's cosine, so that it does not end at zero."""
    original = Clare.phase

    def phase(name: str, epochs: int, groups: Any, **more: Any) -> Phase:
        usual = original(method, name, epochs, groups, **more)
        return replace(usual, optimizer=replace(usual.optimizer, turn=method.settings.epochs))

    method.phase = phase  # type: ignore[method-assign]
    return task


def normal_rows(method: Clare, task: Task) -> Task:
    """Draw a task's rows from a normal distribution."""
    head, original = method.head, type(method.head).open_block

    def open_block(num_new: int, generator: torch.Generator) -> None:
        original(head, num_new, generator)
        head.block.data.copy_(DEVIATION * torch.randn(head.block.shape, generator=generator))

    head.open_block = open_block  # type: ignore[method-assign]
    return task


CHANGES: dict[str, Change] = {"one cosine for both stages": one_cosine, "normal": normal_rows}


def open_rows(seeds: list[int]) -> Iterator[Any]:
    """Compare how rows are drawn where training alone makes them."""
    return compare("quickdraw", ROWS, (*USUAL, "method.head.kind=trained"), seeds)


def trust(seeds: list[int]) -> Iterator[Any]:
    """Measure what a bad task costs the others, beside the same stream in which it is learnt as it should be."""
    preset = "quickdraw-20x10"
    shared = (*SHORT, "stream.num_classes=40", "stream.train_per_class=8")
    rows = []
    for seed in seeds:
        for name, change in {
            "as it should": None,
            "wrong labels": wrong_labels,
            "forty times the rate": hurried,
        }.items():
            for limit in (1.0, LIMIT):
                experiment = experiment_of(preset, [*shared, f"method.trust={limit}"], seed)
                context, method, stream = begin(experiment)
                lengths, lost = [], []
                for task in stream.tasks:
                    learn_task(context, method, change(method, task) if change else task)
                    found = method.diagnosis().get("trust", {})
                    lengths.append(found.get("length"))
                    lost.append(found.get("lost"))
                images = asked(stream)
                logits = predict_logits(context, method, images)
                size = len(stream.tasks[0].classes)
                bad = range(BAD * size, (BAD + 1) * size)
                rest = (images.labels < bad.start) | (images.labels >= bad.stop)
                among = logits.index_fill(1, torch.tensor(bad), -torch.inf)
                right = [(each.argmax(1) == images.labels)[rest].double().mean() for each in (logits, among)]
                rows.append(
                    {
                        "seed": seed,
                        "task": name,
                        "trust": limit,
                        "rest": round(100 * float(right[0]), 2),
                        "rest_among_themselves": round(100 * float(right[1]), 2),
                        "num_images": int(rest.sum()),
                        "lengths": lengths,
                        "lost": lost,
                    }
                )
                print(rows[-1], flush=True)
        yield {"preset": preset, "overrides": shared, "bad_task": BAD, "factor": FACTOR, "rows": rows}


STUDIES: dict[str, Callable[[list[int]], Iterator[Any]]] = {
    "trust": trust,
    "budgets": budgets,
    "penalties": partial(penalties, "quickdraw-20x10"),
    "penalties-long": partial(penalties, "quickdraw-100x2"),
    "open": partial(compare, "quickdraw", OPEN, USUAL),
    "open-rows": open_rows,
}


def main() -> None:
    """Run one study and write its JSON, anew after each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", default="1993")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(sys.argv[1:])
    seeds, commit = given.seeds.split(","), source_commit()
    for number, found in enumerate(STUDIES[given.study]([int(seed) for seed in seeds]), 1):
        facts = {
            "command": f"python scripts/measure_clare.py {given.study} --seeds {','.join(seeds[:number])}",
            "num_asked_per_class": NUM_ASKED,
            "environment": {**environment(Ranks(experiment_of("quickdraw", (), 0).engine)), "commit": commit},
            "found": found,
        }
        write_json(given.out or ROOT / f"results/clare_{given.study.replace('-', '_')}.json", facts)


if __name__ == "__main__":
    main()
