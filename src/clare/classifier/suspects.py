"""What is wrong with pictures before they are taught: files, copies, labels, strangers among them, and classes.

Shapes: N pictures, K classes, D features.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clare.classifier import teaching
from clare.classifier.certainty import fit_scale
from clare.classifier.parts import Parts
from clare.classifier.sources import Source
from clare.data.images import Pixels
from clare.data.pictures import Stored
from clare.errors import DataError
from clare.heads.statistics import discriminant_rows, scatter_sums, shrinkage_for, within_scatter
from clare.seeds import generator_at

Kind = Literal[
    "unreadable", "copy", "near copy", "label", "outlier", "small class", "unbalanced class", "alike classes"
]
LEFT_OUT: dict[Kind, float] = {"unreadable": 0.0, "copy": 0.0, "label": 0.75}
"""Kinds that a lesson without suspects leaves out, from this score on."""
NUM_FOLDS = 5
SIDE, NEAR = 16, 0.98
"""Side to which pictures are brought to be compared, and the correlation from which two are near copies."""
NUM_ROWS = 1024
"""Pictures that are compared with all others at a time."""
NUM_NEIGHBOURS, FAR = 5, 3.0
"""An outlier is as far from its nearest as this many ranges of the middle half above that half (Tukey)."""
FEWEST, MOST_TIMES, ALIKE = 5, 10, 0.3
"""Pictures that a class needs, how often the largest may have the median's, and the share taken for each other."""


@dataclass(frozen=True)
class Suspect:
    """What may be wrong with a picture or a class, and how sure that is."""

    kind: Kind
    name: str
    """The picture, or the class."""
    label: str
    about: str
    score: float
    read: "Read | None" = None

    @property
    def is_left_out(self) -> bool:
        """Whether a lesson without suspects leaves the picture out."""
        return self.kind in LEFT_OUT and self.score >= LEFT_OUT[self.kind]


@dataclass(frozen=True)
class Read:
    """A picture with its part and class; of no size where it could not be read."""

    part: str
    label: str
    image: Path | Stored
    pixels: Pixels = field(default_factory=lambda: np.zeros((1, 0, 0), np.uint8))


def find_suspects(parts: Parts, source: Source) -> list[Suspect]:
    """Look at all pictures with the features of a model, and return what is suspicious, class by class."""
    found, reader, read = list[Suspect](), parts.reader(), list[Read]()
    for part, classes in source.parts.items():
        for label, images in classes.items():
            for image in images:
                try:
                    read.append(Read(part, label, image, reader.image(image)))
                except (DataError, OSError) as error:
                    reason = str(error).partition(";")[0]
                    found.append(Suspect("unreadable", str(image), label, reason, 1.0, Read(part, label, image)))
    if read:
        features = F.normalize(teaching.features_of(parts.context, parts.method, [each.pixels for each in read]), dim=1)
        found += [*_copies(read), *_outliers(read, features), *_labels(read, features)]
    return found + _classes(read)


def without(source: Source, suspects: list[Suspect]) -> Source:
    """Return a source without the pictures that a lesson should not see."""
    # By the very objects: a table may name a file twice.
    out = {id(each.read.image) for each in suspects if each.read is not None and each.is_left_out}
    parts = {
        part: {label: [image for image in images if id(image) not in out] for label, images in classes.items()}
        for part, classes in source.parts.items()
    }
    rest = Source(source.label, {part: {k: v for k, v in classes.items() if v} for part, classes in parts.items()})
    if not rest.to_learn:
        raise DataError(f"every picture of {source.label} is suspicious, so none is left to learn from; correct them")
    return rest


def _copies(read: list[Read]) -> Iterator[Suspect]:
    """Yield the later one of two pictures that are the same or nearly so; of two parts the one to learn from."""
    order = sorted(range(len(read)), key=lambda place: read[place].part in ("", "train"))
    first: dict[bytes, int] = {}
    same: dict[int, int] = {}
    for place in order:
        pixels = read[place].pixels
        same[place] = first.setdefault(repr(pixels.shape).encode() + pixels.tobytes(), place)
    kept = [place for place in order if same[place] == place]
    for place in order:
        if same[place] != place:
            yield _copy("copy", read[place], read[same[place]], 1.0)
    small = torch.stack([_thumbnail(read[place].pixels) for place in kept])
    for start in range(0, len(kept), NUM_ROWS):
        likeness = small[start : start + NUM_ROWS] @ small.T
        # Each is compared with those before it.
        likeness = likeness.tril(start - 1)
        values, nearest = likeness.max(1)
        for row, (value, other) in enumerate(zip(values.tolist(), nearest.tolist(), strict=True), start):
            if value >= NEAR:
                yield _copy("near copy", read[kept[row]], read[kept[other]], value)


def _copy(kind: Kind, one: Read, other: Read, score: float) -> Suspect:
    """Say of which picture another one is a copy, and whether they lie in two classes or two parts."""
    where = " of another class" if one.label != other.label else ""
    where += f" in {other.part}" if one.part != other.part else ""
    return Suspect(kind, str(one.image), one.label, f"like {other.image}{where}", score, one)


def _thumbnail(pixels: Pixels) -> Tensor:
    """Return a small grey picture, its mean taken off, of length one."""
    grey = torch.tensor(pixels, dtype=torch.float32).mean(0)[None, None]
    small = F.interpolate(grey, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False).flatten()
    return F.normalize(small - small.mean(), dim=0)


def _outliers(read: list[Read], features_ND: Tensor) -> Iterator[Suspect]:
    """Yield pictures whose nearest ones are farther away than is usual."""
    number = min(NUM_NEIGHBOURS, len(read) - 1)
    if number < 1:
        return
    near = torch.cat(
        [(rows @ features_ND.T).topk(number + 1, dim=1).values for rows in torch.split(features_ND, NUM_ROWS)]
    )
    apart = 1 - near[:, 1:].mean(1).double()
    low, high = apart.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64)).tolist()
    for each, distance in zip(read, apart.tolist(), strict=True):
        if distance > high + FAR * max(high - low, 1e-6):
            times = distance / max((low + high) / 2, 1e-6)
            yield Suspect("outlier", str(each.image), each.label, "unlike all others", times, each)


def _labels(read: list[Read], features_ND: Tensor) -> Iterator[Suspect]:
    """Yield pictures that a model taught without them takes for another class, and classes taken for each other."""
    names = sorted({each.label for each in read})
    labels = torch.tensor([names.index(each.label) for each in read])
    if len(names) < 2 or int(labels.bincount().min()) < 2:
        return
    probabilities = out_of_fold(features_ND, labels)
    for place in wrong_labels(probabilities, labels).tolist():
        each, said = read[place], int(probabilities[place].argmax())
        score = float(probabilities[place, said] - probabilities[place, labels[place]])
        yield Suspect("label", str(each.image), each.label, f"looks like '{names[said]}'", score, each)
    taken = torch.zeros(len(names), len(names), dtype=torch.float64)
    taken.index_put_((labels, probabilities.argmax(1)), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    share = taken / taken.sum(1, keepdim=True)
    for one, other in (share.triu(1) + share.tril(-1).T >= 2 * ALIKE).nonzero().tolist():
        mean = float(share[one, other] + share[other, one]) / 2
        yield Suspect("alike classes", names[one], names[one], f"taken for '{names[other]}' and the reverse", mean)


@torch.no_grad()
def out_of_fold(features_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Return probabilities (N, K) of each picture by a linear discriminant of the pictures in the other folds."""
    num_classes, fold = int(labels_N.max()) + 1, torch.empty_like(labels_N)
    generator = generator_at(0, "folds")
    for label in range(num_classes):
        own = (labels_N == label).nonzero().squeeze(1)
        fold[own[torch.randperm(len(own), generator=generator)]] = torch.arange(len(own)) % NUM_FOLDS
    ones, logits = torch.ones(len(labels_N)), torch.zeros(len(labels_N), num_classes, dtype=torch.float64)
    for left_out in range(NUM_FOLDS):
        own = fold == left_out
        sums = scatter_sums(features_ND[~own], labels_N[~own], ones[~own], num_classes)
        number, means = float(sums["count"].sum()), sums["sum"] / sums["count"][:, None]
        rows = discriminant_rows(means, within_scatter(sums), number, shrinkage_for(features_ND.shape[1], number))
        logits[own] = F.linear(features_ND[own].double(), rows[:, :-1], rows[:, -1])
    return (fit_scale(logits, labels_N) * logits).softmax(1)


def wrong_labels(probabilities_NK: Tensor, labels_N: Tensor) -> Tensor:
    """Return the places whose label is probably wrong: off the diagonal of the confident joint, the surest first.

    Northcutt, Jiang, Chuang: "Confident Learning" (JAIR 2021): a picture counts for a class as which it is at least as
    probable as pictures of that class are on average; of several the most probable.
    """
    own = probabilities_NK.gather(1, labels_N[:, None]).squeeze(1)
    sums = torch.zeros(probabilities_NK.shape[1], dtype=own.dtype).index_add(0, labels_N, own)
    least = sums / labels_N.bincount(minlength=len(sums)).clamp(min=1)
    counted = probabilities_NK.where(probabilities_NK >= least, -1.0)
    best, said = counted.max(1)
    places = ((best >= 0) & (said != labels_N)).nonzero().squeeze(1)
    return places[(own - probabilities_NK.amax(1))[places].argsort()]


def _classes(read: list[Read]) -> list[Suspect]:
    """Return classes with too few pictures, or with very many more than most have."""
    counts = Counter(each.label for each in read if each.part in ("", "train"))
    usual = sorted(counts.values())[len(counts) // 2] if counts else 0
    few = [
        Suspect("small class", name, name, f"{number} pictures; nothing is held back of fewer than {FEWEST}", number)
        for name, number in counts.items()
        if number < FEWEST
    ]
    many = [
        Suspect("unbalanced class", name, name, f"{number} pictures where the median has {usual}", number / usual)
        for name, number in counts.items()
        if number > MOST_TIMES * usual or MOST_TIMES * number < usual
    ]
    return few + many
