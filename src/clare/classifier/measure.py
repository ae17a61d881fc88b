"""Counts and reports of how well pictures were named."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clare.classifier.capacity import tasks_left
from clare.classifier.certainty import calibration_error, fitted_scale
from clare.classifier.memory import Memory
from clare.classifier.pictures import Pictures
from clare.classifier.unknown import threshold_of
from clare.methods.base import Method
from clare.methods.protocols import capacity_of
from clare.model.records import Evaluation

Counts = dict[str, dict[str, Any]]
"""Of each class, by name: `num_held_back`, `num_correct` and `is_estimate`."""


def evaluation_of(
    method: Method, images: Mapping[str, Sequence[Any]], seen: tuple[Tensor, Tensor], calibration: dict[str, Any] | None
) -> Evaluation:
    """Count what pictures with these logits and scores, class by class, were taken for; unknown classes apart."""
    given = [name for name in images for _ in images[name]]
    flagged = (seen[1] >= threshold_of(calibration)) & (calibration is not None)
    return counted(method.classes, given, seen[0], flagged, fitted_scale(calibration, method))


def counted(known: Sequence[str], given: Sequence[str], logits_NK: Tensor, flagged: Tensor, scale: float) -> Evaluation:
    """Count what pictures of the given classes were taken for, some of which were said to be none of them."""
    place_of = {name: place for place, name in enumerate(known)}
    num_known = len(known)
    truth = torch.tensor([place_of.get(name, num_known) for name in given], dtype=torch.int64)
    is_known = truth < num_known
    certainty, answers = (scale * logits_NK[is_known].double()).softmax(1).max(1)
    # A square of thousands of classes would be nearly empty: what there is of it is counted.
    taken: dict[int, dict[int, int]] = {}
    for (own, answer), number in sorted(Counter(zip(truth[is_known].tolist(), answers.tolist(), strict=True)).items()):
        taken.setdefault(own, {})[answer] = number
    counts = [sum(taken.get(place, {}).values()) for place in range(num_known)]
    correct = [taken.get(place, {}).get(place, 0) for place in range(num_known)]
    is_flagged = zip(given, flagged.tolist(), strict=True)
    said = Counter(name for name, is_unknown in is_flagged if is_unknown)
    strangers = {name: (number, said[name]) for name, number in sorted(Counter(given).items()) if name not in place_of}
    return Evaluation(
        tuple(known),
        tuple(counts),
        tuple(correct),
        taken,
        int(flagged[is_known].sum()),
        strangers,
        float(certainty.mean()) if len(certainty) else None,
        calibration_error(certainty, answers == truth[is_known]) if len(certainty) else None,
    )


NUM_NAMED = 8
LARGEST_FALL = 0.1
"""A class whose accuracy fell by more than this share is named."""


def kept_counts(known: Sequence[str], memory: Memory, logits_NK: Tensor, features_move: bool) -> Counts:
    """Count, for each class of which held-back features are kept, how many of them get this class's name."""
    is_right = logits_NK.argmax(1) == memory.labels
    found: Counts = {}
    for place in sorted(set(memory.labels.tolist())):
        own = memory.labels == place
        found[known[place]] = {
            "num_held_back": int(own.sum()),
            "num_correct": int(is_right[own].sum()),
            "is_estimate": features_move and bool(memory.estimated[place]),
        }
    return found


def fallen(before: Counts, after: Counts) -> dict[str, dict[str, int]]:
    """Return the classes whose accuracy on the same held-back pictures fell by more than ten points."""
    found = {}
    for name, old in before.items():
        new, number = after.get(name), old["num_held_back"]
        if new is None or new["num_held_back"] != number:
            continue
        if old["num_correct"] - new["num_correct"] > LARGEST_FALL * number:
            found[name] = {"before": old["num_correct"], "after": new["num_correct"], "num_held_back": number}
    return found


def fall_in_words(falls: dict[str, dict[str, int]], way_back: str) -> str:
    """Say which classes lost, the hardest hit first, and what to type to go back."""
    hardest = sorted(
        falls, key=lambda name: (falls[name]["after"] - falls[name]["before"]) / falls[name]["num_held_back"]
    )
    lines = [
        f"'{name}' {falls[name]['before']} before and {falls[name]['after']} now of {falls[name]['num_held_back']}"
        for name in hardest[:NUM_NAMED]
    ]
    more = f" and {len(hardest) - NUM_NAMED} more classes" if len(hardest) > NUM_NAMED else ""
    return (
        f"fewer held-back pictures of earlier classes are named rightly: {', '.join(lines)}{more}; "
        f"to go back to before this lesson: {way_back}"
    )


def report_of(
    pictures: Pictures,
    method: Method,
    evaluation: Evaluation,
    earlier: Counts,
    calibration: dict[str, Any] | None,
    seconds: float,
) -> dict[str, Any]:
    """Return what the history says about teaching these pictures to a method."""
    capacity = capacity_of(method)
    place_of = {name: place for place, name in enumerate(evaluation.classes)}
    return {
        "num_train": pictures.num_train,
        "num_held_back": pictures.num_held_back,
        "accuracy": evaluation.accuracy,
        "classes": {
            **earlier,
            **{
                name: {
                    "num_train": len(pictures.train[name]),
                    "num_held_back": evaluation.counts[place_of[name]],
                    "num_correct": evaluation.correct[place_of[name]],
                    "is_estimate": False,
                }
                for name in pictures.classes
            },
        },
        "num_skipped": len(pictures.skipped),
        "pictures": [pictures.digest()],
        "num_coordinates": None if capacity is None else capacity.num_coordinates,
        "num_free": None if capacity is None else capacity.num_free,
        "tasks_left": tasks_left(method),
        "is_calibrated": calibration is not None,
        "seconds": round(seconds, 3),
    }
