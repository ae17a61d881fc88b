"""Two models that see with the same frozen features become one: their statistics add up, class by class."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from clare.classifier import lesson, teaching
from clare.classifier.facts import State
from clare.classifier.labels import quoted
from clare.errors import ModelError
from clare.methods.state import HEAD, learnt_tensors
from clare.model.records import Change, ClassInfo, lessons


def check_mergeable(
    ours: State, theirs: State, labels: tuple[str, str], histories: tuple[list[Change], list[Change]]
) -> None:
    """Refuse models whose statistics do not add up, saying why."""
    one, other = labels
    for state, label in zip((ours, theirs), labels, strict=True):
        if not state.parts.method.classes:
            raise ModelError(f"{label} knows no classes yet, so there is nothing to merge; teach it some")
        teaching.require_rows(state.parts.method, "merging")
    for key, what in (
        ("backbone_hash", "backbones"),
        ("transforms", "ways to prepare pictures"),
        ("method", "methods or settings of it"),
    ):
        if ours.manifest.state[key] != theirs.manifest.state[key]:
            raise ModelError(
                f"{one} and {other} have different {what}, so what they keep does not add up; make both alike"
            )
    if not all(name.startswith(HEAD) for name in learnt_tensors(ours.parts.method)):
        raise ModelError(
            f"{one} and {other} each have an adapter of their own (method '{ours.parts.method.name}'), so they see "
            "different features; merge models whose features are frozen, as those of the default method are"
        )
    known, more = map(lessons, histories)
    common = [classes for digest, classes in more.items() if digest in known]
    if common:
        raise ModelError(
            f"{one} and {other} have learnt {quoted(common[0])} from the same pictures, which would count "
            "twice; begin each model by itself"
        )


@torch.no_grad()
def merged(
    ours: State, theirs: State, own: Sequence[ClassInfo], more: Sequence[ClassInfo]
) -> tuple[State, list[ClassInfo], dict[str, Any]]:
    """Take their classes over into our method, which changes; return the state, all classes, and what to report."""
    method, other = ours.parts.method, theirs.parts.method
    known = method.classes
    place_of = {
        name: place for place, name in enumerate([*known, *(name for name in other.classes if name not in known)])
    }
    places = torch.tensor([place_of[name] for name in other.classes])
    counts = theirs.memory.counts
    shared = [name for name in other.classes if name in known]
    if shared and not (ours.memory.counts[places[places < len(known)]].all() and counts.all()):
        raise ModelError(
            f"one of the models does not say from how many pictures it knows {quoted(shared)}, so they cannot be "
            "weighed; remove and learn them anew"
        )
    device = method.head.rows.device
    method.head.merge(other.head.to(device), places.to(device), ours.memory.counts.to(device), counts.to(device))
    new_tasks = [tuple(name for name in task if name not in known) for task in other.tasks]
    method.tasks += [task for task in new_tasks if task]
    width = theirs.memory.held.shape[1] if len(theirs.memory.held) else ours.memory.held.shape[1]
    memory = ours.memory.grown(len(place_of), width).added(places, counts)
    memory = memory.holding(theirs.memory.held, places[theirs.memory.labels])
    state = replace(ours, memory=memory)
    found = lesson.counts_of(state.parts, memory)
    numbers = {info.name: info.num_images for info in more}
    task_of = {name: number for number, task in enumerate(method.tasks, 1) for name in task}
    classes = [replace(info, num_images=info.num_images + numbers.get(info.name, 0)) for info in own]
    classes += [replace(info, task=task_of[info.name]) for info in more if info.name not in known]
    num_held = sum(each["num_held_back"] for each in found.values())
    accuracy = sum(each["num_correct"] for each in found.values()) / num_held if num_held else None
    report = {"classes": found, "num_held_back": num_held, "accuracy": accuracy, "shared": shared}
    return state, classes, report
