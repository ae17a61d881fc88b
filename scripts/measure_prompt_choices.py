"""Measure which prompts the test images of finished runs of l2p and dualprompt choose.

python scripts/measure_prompt_choices.py RUN… --out FILE     as results/dualprompt_keys.json, results/l2p_choices.json

A prompt was never trained if it is what it was before the first task.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clare.backbones.vit import load_backbone
from clare.data.stream import make_stream
from clare.engine.context import Context, Silence
from clare.engine.passes import run_sweep
from clare.engine.run import load_data, make_transforms, start_ranks
from clare.engine.train import Place
from clare.errors import RunError
from clare.files import write_json
from clare.methods._shared.prompted import cosines, most_similar
from clare.methods.base import METHODS, prepare
from clare.methods.dualprompt import DualPrompt
from clare.methods.l2p import L2p
from clare.model.folder import load_model
from clare.presets.schema import Experiment
from clare.report.record import RunRecord, read_run, reproduce_command
from clare.steps import Collect

WHAT = (
    "Prompts that test images choose after the last task: the share of choices that fall on prompts which no task "
    "trained; of dualprompt also how often the key of an image's own task is the most similar one, among all slots and "
    "among those that have learnt. Keys learn from queries of augmented or of plain images."
)


def share(marks: Tensor) -> float:
    """Return the share of true values."""
    return round(float(marks.double().mean()), 4)


def figures_of(method: L2p | DualPrompt, fresh: L2p | DualPrompt, queries: Tensor, tasks: Tensor) -> dict[str, Any]:
    """Return what the queries of images of these tasks choose."""
    similarity = cosines(queries, method.keys)
    if isinstance(method, L2p) and isinstance(fresh, L2p):
        untrained = (method.prompts == fresh.prompts).flatten(1).all(1)
        chosen = most_similar(similarity, method.settings.num_chosen)
        return {"num_prompts_never_trained": int(untrained.sum()), "slots_never_trained": share(untrained[chosen])}
    assert isinstance(method, DualPrompt)
    chosen = most_similar(similarity, 1).squeeze(1)
    num_learnt = len(method.tasks)
    among = most_similar(similarity[:, :num_learnt], 1).squeeze(1)
    return {
        "slots_never_trained": share(chosen >= num_learnt),
        "right_slot": share(chosen == tasks),
        "right_slot_by_task": [share(chosen[tasks == task] == task) for task in range(num_learnt)],
        "right_slot_by_task_among_learnt": [share(among[tasks == task] == task) for task in range(num_learnt)],
    }


@torch.no_grad()
def measure(run: RunRecord) -> dict[str, Any]:
    """Return the figures of a run and where they come from."""
    method = load_model(run.folder / "model")[0] if run.finished else None
    if not isinstance(method, L2p | DualPrompt):
        raise RunError(f"the run in {run.folder} is no finished one of l2p or dualprompt; name one that is")
    experiment = Experiment.model_validate(json.loads((run.folder / "preset.json").read_bytes()))
    ranks, backbone = start_ranks(experiment.engine), load_backbone(experiment.backbone)
    context = Context(ranks, make_transforms(experiment, backbone), experiment.engine, experiment.seed, Silence())
    stream = make_stream(load_data(experiment, backbone, context), experiment.stream, experiment.seed)
    fresh = METHODS.get(run.method)(backbone, experiment.method_settings(), experiment.seed)
    prepare(fresh, len(stream.tasks), max(len(task.classes) for task in stream.tasks))
    method.to(ranks.device).eval()
    fresh.to(ranks.device)
    queries = run_sweep(context, method, Collect("queries", method.queries), stream.test, Place(0, 0))["values"]
    tasks = stream.task_of_class.to(ranks.device)[queries["labels"].to(ranks.device)]
    assert isinstance(fresh, L2p | DualPrompt)
    return {
        "command": reproduce_command(run),
        "seed": experiment.seed,
        "seen_accuracy": [round(task.seen, 4) for task in run.tasks],
        **figures_of(method, fresh, queries["values"], tasks),
        "settings": experiment.method,
        "environment": dict(run.environment),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each run that is named, and write all figures into one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the file that is written")
    options = parser.parse_args(arguments)
    write_json(options.out, {"what": WHAT, "runs": [measure(read_run(folder)) for folder in options.runs]})


if __name__ == "__main__":
    main()
