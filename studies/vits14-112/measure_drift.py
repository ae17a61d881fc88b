"""Measure what later tasks taught the features of a finished CLARE run, and what the head lost on the way.

python studies/vits14-112/measure_drift.py RUN…     one JSON each below drift/

The same head is filled anew with statistics of all tasks' training images, which no method may do, at three states of
the adapter: before the first task, after the first, after the last. What the run itself ended with stands beside it.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from collect_results import command_of, row_of, stream_of
from result_files import refuse_paths, without_paths, write_result
from study import HOME, Study, read_study
from torch import Tensor

from clare.backbones.vit import load_backbone
from clare.classifier.teaching import teach_quickly
from clare.data.stream import Stream, make_stream
from clare.engine.context import Context, Silence
from clare.engine.evaluate import accuracies, evaluate
from clare.engine.run import environment, load_data, make_transforms, start_ranks
from clare.errors import ModelError, RunError
from clare.methods.base import METHODS, prepare
from clare.methods.clare import Clare
from clare.model.folder import load_model
from clare.presets.schema import Experiment
from clare.report.record import RunRecord, read_run


@dataclass(frozen=True)
class Scene:
    """A run's stream, and where it computes."""

    experiment: Experiment
    context: Context
    stream: Stream


def set_up(preset: dict[str, Any]) -> Scene:
    """Load what a run was made with."""
    experiment = Experiment.model_validate(preset)
    ranks = start_ranks(experiment.engine)
    backbone = load_backbone(experiment.backbone)
    transforms = make_transforms(experiment, backbone)
    context = Context(ranks, transforms, experiment.engine, experiment.seed, Silence())
    stream = make_stream(load_data(experiment, backbone, context), experiment.stream, experiment.seed)
    return Scene(experiment, context, stream)


def states_of(method: Clare) -> dict[str, Tensor]:
    """Return the adapter's values before the first task, after the first and after the last."""
    first = method.adapter.initial.detach().clone()
    coordinates, values = method.ledger.claim_of(0)
    first[coordinates] = values
    return {"frozen": method.adapter.initial.detach(), "first": first, "last": method.adapter.values.detach()}


@torch.no_grad()
def renewed_accuracy(scene: Scene, values: Tensor) -> list[float]:
    """Return each task's accuracy where a head like the run's knows all training images at this state."""
    experiment, stream = scene.experiment, scene.stream
    backbone = load_backbone(experiment.backbone)
    method = METHODS.get(experiment.method_name)(backbone, experiment.method_settings(), experiment.seed)
    assert isinstance(method, Clare)
    prepare(method, len(stream.tasks), max(len(task.classes) for task in stream.tasks))
    method.to(scene.context.ranks.device)
    method.adapter.values.copy_(values)
    for task in stream.tasks:
        teach_quickly(scene.context, method, task.classes, task.train)
    last = len(stream.tasks) - 1
    predicted, target, *_ = evaluate(scene.context, method, stream, last)
    found = accuracies(predicted, target, stream.task_of_class, last)
    return [round(value, 4) for value in (found["seen"], *found["per_task"])]


def measure(run: RunRecord) -> dict[str, Any]:
    """Return the accuracies at the three states beside the run's own."""
    if not run.finished:
        raise RunError(f"the run in {run.folder} is not finished; finish it with the command that started it")
    scene = set_up(json.loads((run.folder / "preset.json").read_bytes()))
    method, _, _ = load_model(run.folder / "model")
    if not isinstance(method, Clare) or method.settings.merge != "state" or method.settings.mask == "none":
        raise ModelError(
            f"{run.folder} is a run of '{run.method}' that gives tasks no coordinates of their own, so its states "
            "cannot be told apart; measure a run of clare or clare-plus with a mask"
        )
    found = {name: renewed_accuracy(scene, values) for name, values in states_of(method).items()}
    kept = run.tasks[-1]
    found["run"] = [round(value, 4) for value in (kept.seen, *kept.per_task)]
    figures = {
        "final_accuracy": {name: values[0] for name, values in found.items()},
        "per_task": {name: values[1:] for name, values in found.items()},
    }
    return described(run, scene, figures)


def described(run: RunRecord, scene: Scene, figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a run with all that tells where they come from."""
    clean, where = without_paths(run.preset), environment(scene.context.ranks)
    result = {
        "preset": clean["name"],
        "method": run.method,
        "head": run.head,
        "seed": clean["seed"],
        "evaluate_on": clean["stream"]["evaluate_on"],
        "num_tasks": len(run.tasks),
        **figures,
        "commit": where.get("commit"),
        "environment": where,
        "settings": clean["method"],
    }
    refuse_paths(result, run.folder)
    return result


def placed(run: RunRecord, result: dict[str, Any], study: Study) -> dict[str, Any]:
    """Return a result with the stream, the row and the command of its run."""
    stream = stream_of(run, study)
    row = row_of(run, stream, study)
    return {"stream": stream, "row": row, **result, "command": command_of(run, stream, row, study)}


def main(
    arguments: Sequence[str] | None = None,
    measure: Callable[[RunRecord], dict[str, Any]] = measure,
    kind: str = "drift",
    text: str | None = __doc__,
) -> None:
    """Measure each run that is named."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--home", type=Path, default=HOME, help="the study's folder")
    options = parser.parse_args(arguments)
    study = read_study()
    for folder in options.runs:
        run = read_run(folder)
        result = placed(run, measure(run), study)
        path = options.home / kind / result["stream"] / result["row"] / f"{result['seed']}.json"
        write_result(path, result)
        told = ", ".join(f"{state} {100 * value:.1f}" for state, value in result["final_accuracy"].items())
        print(f"{path}: {told}", flush=True)


if __name__ == "__main__":
    main()
