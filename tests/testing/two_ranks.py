"""Teach every method a short stream on all ranks, and write what each rank ends with; torchrun starts this file."""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clare.backbones.vit import load_backbone
from clare.data.sources import load_dataset
from clare.data.stream import make_stream
from clare.engine.context import Context, Silence
from clare.engine.evaluate import accuracies, evaluate
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.run import make_transforms
from clare.files import write_json, write_tensors
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.protocols import diagnosis_of
from clare.methods.state import structure_of
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment
from clare.testing.world import heads_of


def experiments(preset: str) -> dict[str, Experiment]:
    """Return one experiment for each method and each kind of head that it can have."""
    pairs = [(name, head) for name in METHODS for head in heads_of(name)]
    return {f"{name}-{head}": make_experiment(preset, name, [f"method.head.kind={head}"]) for name, head in pairs}


@dataclass(frozen=True)
class Taught:
    """A method after all tasks, its accuracies after each, and its logits at the end."""

    method: Method
    accuracies: list[dict[str, Any]]
    logits: Tensor


def teach(experiment: Experiment, ranks: Ranks) -> Taught:
    """Teach the experiment's method all tasks."""
    backbone = load_backbone(experiment.backbone)
    context = Context(ranks, make_transforms(experiment, backbone), experiment.engine, experiment.seed, Silence())
    dataset = load_dataset(experiment.data.model_copy(update={"channels": backbone.channels}))
    stream = make_stream(dataset, experiment.stream, experiment.seed)
    method = METHODS.get(experiment.method_name)(backbone, experiment.method_settings(), experiment.seed)
    results = []
    for task in stream.tasks:
        learn_task(context, method, task, Journal())
        predicted, target, *_ = evaluate(context, method, stream, task.index)
        results.append(accuracies(predicted, target, stream.task_of_class, task.index))
    return Taught(method, results, predict_logits(context, method, stream.test))


def digest(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Return a hash of every tensor's bytes."""
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}


def main(preset: str, out: Path) -> None:
    """Run every experiment and write one file per rank, and the tensors of rank zero."""
    found = experiments(preset)
    ranks = Ranks(next(iter(found.values())).engine)
    ranks.fabric.launch()
    report: dict[str, Any] = {"world_size": ranks.world_size}
    for label, experiment in found.items():
        taught = teach(experiment, ranks)
        report[label] = {
            "tensors": digest({**taught.method.state_dict(), "logits": taught.logits}),
            "accuracies": taught.accuracies,
            "structure": structure_of(taught.method),
            "diagnosis": diagnosis_of(taught.method),
        }
        if ranks.rank == 0:
            write_tensors(out / f"{label}.safetensors", {"rows": taught.method.head.rows, "logits": taught.logits})
    write_json(out / f"rank-{ranks.rank}.json", report)
    ranks.barrier()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
