"""Measure what each of the two views of a finished APER run is worth: the bare backbone's, and the tuned one's.

python studies/vits14-112/measure_views.py RUN…     one JSON each below views/

The run's head is made anew of the bare features alone, of the tuned ones alone, and of both side by side, which is the
run itself; and the log posteriors of the first two are added, as if the views were independent given the class.
"""

import json
from collections.abc import Callable
from typing import Any

import torch
from measure_drift import Scene, described, main, set_up
from torch import Tensor

from clare.data.store import LabelledImages
from clare.engine.passes import run_sweep
from clare.engine.train import Place
from clare.errors import ModelError, RunError
from clare.heads.solved import SolvedHead
from clare.methods.aper_adapter import Aper
from clare.methods.base import bare_features
from clare.model.folder import load_model
from clare.report.record import RunRecord
from clare.steps import Collect

NUM_IMAGES = 500
"""Test images that are classified at a time."""


def view_of(scene: Scene, method: Aper, view: Callable[[Tensor], Tensor], images: LabelledImages) -> Tensor:
    """Return the features of all images as one view has them."""
    return run_sweep(scene.context, method, Collect("view", view), images, Place(0, 0))["values"]


def log_posteriors(scene: Scene, method: Aper, view: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the test images' scores under a head like the run's that knows this view alone, shape (B, K)."""
    tests = view_of(scene, method, view, scene.stream.test)
    head = method.settings.head.make(tests.shape[1], scene.experiment.seed).to(tests.device)
    assert isinstance(head, SolvedHead)
    for task in scene.stream.tasks:
        features, num_new = view_of(scene, method, view, task.train), len(task.classes)
        labels, step = task.train.labels.to(features.device), head.sweep(num_new)
        if isinstance(step, Collect):
            found = {"values": step.function(features), "labels": labels}
        else:
            found = step.statistic(features, labels, torch.ones(len(labels), device=features.device))
        head.add_classes(head.summed(found, num_new))
    head.replace(head.solve())
    return torch.cat([head.logits(part) for part in torch.split(tests, NUM_IMAGES)])


@torch.no_grad()
def measure(run: RunRecord) -> dict[str, Any]:
    """Return the final accuracy of each view, of both side by side, and of their log posteriors added."""
    if not run.finished:
        raise RunError(f"the run in {run.folder} is not finished; finish it with the command that started it")
    scene = set_up(json.loads((run.folder / "preset.json").read_bytes()))
    method, _, _ = load_model(run.folder / "model")
    if not isinstance(method, Aper) or method.settings.head.kind not in ("discriminant", "quadratic"):
        raise ModelError(
            f"{run.folder} is a run of '{run.method}' with {method.settings.head.kind} rows, which have no log "
            "posteriors of two views; measure a run of aper-adapter with head.kind=discriminant or quadratic"
        )
    method.to(scene.context.ranks.device)
    scores = {
        "bare": log_posteriors(scene, method, lambda images: bare_features(method, images)),
        "tuned": log_posteriors(scene, method, method.tuned_features),
        "both": log_posteriors(scene, method, method.features),
    }
    scores["added"] = scores["bare"] + scores["tuned"]
    target = scene.stream.test.labels.to(scores["bare"].device)
    found = {name: round(float((each.argmax(1) == target).double().mean()), 4) for name, each in scores.items()}
    return described(run, scene, {"final_accuracy": {**found, "run": round(run.tasks[-1].seen, 4)}})


if __name__ == "__main__":
    main(measure=measure, kind="views", text=__doc__)
