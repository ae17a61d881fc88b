"""Counts and reports of how well pictures were named."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clare.methods.base import Capacity
from clare.model.records import Evaluation
from clare.own.certainty import calibration_error
from clare.own.pictures import Pictures
from clare.own.unknown import scores


def evaluation_of(
    known: Sequence[str],
    given: Sequence[str],
    logits_NK: Tensor,
    calibration: dict[str, Any] | None,
    threshold: float,
    scale: float,
) -> Evaluation:
    """Count what pictures of the given classes were taken for; classes that are not known are counted apart."""
    place_of = {name: place for place, name in enumerate(known)}
    num_known = len(known)
    truth = torch.tensor([place_of.get(name, num_known) for name in given], dtype=torch.int64)
    flagged = (scores(calibration, logits_NK.amax(1)) >= threshold) & (calibration is not None)
    is_known = truth < num_known
    certainty, answers = (scale * logits_NK[is_known].double()).softmax(1).max(1)
    pairs = truth[is_known] * num_known + answers
    confusion = torch.bincount(pairs, minlength=num_known**2).view(num_known, num_known)
    strangers = {}
    for name in sorted(set(given) - set(known)):
        own = torch.tensor([other == name for other in given])
        strangers[name] = (int(own.sum()), int(flagged[own].sum()))
    return Evaluation(
        tuple(known),
        tuple(confusion.sum(1).tolist()),
        tuple(confusion.diagonal().tolist()),
        confusion.tolist(),
        int(flagged[is_known].sum()),
        strangers,
        float(certainty.mean()) if len(certainty) else None,
        calibration_error(certainty, answers == truth[is_known]) if len(certainty) else None,
    )


def report_of(
    pictures: Pictures,
    evaluation: Evaluation,
    calibration: dict[str, Any] | None,
    capacity: Capacity | None,
    num_tasks_left: int | None,
    seconds: float,
) -> dict[str, Any]:
    """Return what the history says about teaching these pictures."""
    place_of = {name: place for place, name in enumerate(evaluation.classes)}
    return {
        "num_train": pictures.num_train,
        "num_held_back": pictures.num_held_back,
        "accuracy": evaluation.accuracy,
        "classes": {
            name: {
                "num_train": len(pictures.train[name]),
                "num_held_back": evaluation.counts[place_of[name]],
                "num_correct": evaluation.correct[place_of[name]],
            }
            for name in pictures.classes
        },
        "num_skipped": len(pictures.skipped),
        "num_coordinates": None if capacity is None else capacity.num_coordinates,
        "num_free": None if capacity is None else capacity.num_free,
        "tasks_left": num_tasks_left,
        "is_calibrated": calibration is not None,
        "seconds": round(seconds, 3),
    }
