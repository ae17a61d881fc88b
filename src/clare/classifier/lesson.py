"""What a lesson does: the method learns, and what is remembered of the pictures follows."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clare.classifier import teaching
from clare.classifier.certainty import fit_scale
from clare.classifier.measure import Counts, kept_counts
from clare.classifier.memory import Memory
from clare.classifier.parts import Parts
from clare.classifier.pictures import Pictures, as_images
from clare.classifier.teaching import CONTRAST, LOGIT
from clare.classifier.unknown import calibrate, scores
from clare.engine.context import Listener
from clare.methods.base import Method
from clare.methods.protocols import CachesFeatures
from clare.model.records import ClassInfo, Mode


def taught(parts: Parts, listener: Listener, memory: Memory, pictures: Pictures, mode: Mode) -> Memory:
    """Let the method learn, and return what there is to remember of the pictures it learnt from."""
    method, context = parts.method, replace(parts.context, listener=listener)
    images = as_images(pictures.train, pictures.classes.index, context.ranks.device)
    counts = torch.tensor([len(images) for images in pictures.train.values()], dtype=torch.float64)
    if mode == "update":
        place_of = {name: place for place, name in enumerate(method.classes)}
        places = torch.tensor([place_of[name] for name in pictures.classes])
        teaching.teach_more(context, method, places, images, memory)
        return memory.added(places, counts)
    places = len(method.classes) + torch.arange(len(pictures.classes))
    follows = mode == "learn" and not isinstance(method, CachesFeatures) and len(memory.held) > 0
    flat = [image for name in pictures.train for image in pictures.train[name]]
    before = teaching.features_of(context, method, flat) if follows else None
    teach = teaching.teach_quickly if mode == "quick" else teaching.teach_task
    teach(context, method, pictures.classes, images)
    width = teaching.features_of(context, method, flat[:1]).shape[1]
    memory = memory.grown(len(method.classes), width).added(places, counts)
    if before is not None and before.shape[1] == width:
        after = teaching.features_of(context, method, flat)
        memory = memory.drifted(teaching.fit_move(method, before, after, images.labels.cpu()))
    return memory


def held_back(parts: Parts, memory: Memory, pictures: Pictures) -> tuple[Memory, Tensor, Tensor]:
    """Remember the features of pictures that were held back, and return them with their logits."""
    held = [image for images in pictures.held_back.values() for image in images]
    features = teaching.features_of(parts.context, parts.method, held) if held else memory.held[:0]
    place_of = {name: place for place, name in enumerate(parts.method.classes)}
    labels = [place_of[name] for name, images in pictures.held_back.items() for _ in images]
    memory = memory.holding(features, torch.tensor(labels, dtype=torch.int64))
    return memory, features, teaching.logits_of(parts.context, parts.method, features)


def unknown_scores(method: Method, features: Tensor, logits: Tensor, calibration: dict[str, Any] | None) -> Tensor:
    """Return the scores that pictures show none of the classes; zero as long as they are not calibrated."""
    by = LOGIT if calibration is None else calibration.get("by", LOGIT)
    return scores(calibration, teaching.familiarity_of(method, features, logits, by))


def counts_of(parts: Parts, memory: Memory) -> Counts:
    """Count how many of the kept held-back pictures of each class are named rightly as the model is now."""
    if len(memory.held) == 0:
        return {}
    logits = teaching.logits_of(parts.context, parts.method, memory.held)
    return kept_counts(parts.method.classes, memory, logits, not isinstance(parts.method, CachesFeatures))


def calibrated(parts: Parts, memory: Memory) -> dict[str, Any] | None:
    """Fit the score of being unknown, and the probabilities, to the held-back pictures of all classes so far."""
    if len(parts.method.classes) < 2:
        return None
    method, held, labels = parts.method, memory.held, memory.labels
    logits = teaching.logits_of(parts.context, method, held)
    curves = {}
    for by in (LOGIT, CONTRAST) if teaching.tells_distances(method) else (LOGIT,):
        found = [teaching.familiarity_of(method, held, logits, by, left_out) for left_out in (None, labels)]
        curves[by] = calibrate(*found)
    curve = curves[by]
    if curve is None:
        return None
    # An exported model knows its logits alone.
    return {**curve, "by": by, "of_logits": curves[LOGIT], "scale": fit_scale(logits, labels)}


def dated(known: list[ClassInfo], pictures: Pictures, mode: Mode, task: int, now: str) -> list[ClassInfo]:
    """Return all classes, the new ones with today's date, and more pictures of those that got more."""
    more = {name: len(images) for name, images in pictures.train.items()}
    if mode == "update":
        return [replace(info, num_images=info.num_images + more.get(info.name, 0)) for info in known]
    return [*known, *(ClassInfo(name, task, now, number, pictures.kind) for name, number in more.items())]
