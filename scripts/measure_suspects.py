"""Measure how many swapped labels are found, beside cleanlab on the same probabilities where it is installed.

python scripts/measure_suspects.py                      drawings, to results/suspects.json
python scripts/measure_suspects.py PICTURES BACKBONE    the first pictures of each class of a folder
python scripts/measure_suspects.py FEATURES.safetensors     the same from what `default_features.py --train 40` wrote

cleanlab is no dependency: `pip install --no-deps --target FOLDER cleanlab termcolor tqdm`, and FOLDER in PYTHONPATH.
"""

import platform
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from default_features import load
from measure_lessons import commit
from measure_unknown import drawings
from torch import Tensor

from clare.classifier import teaching
from clare.classifier.classifier import Classifier
from clare.classifier.parts import Parts
from clare.classifier.sources import find_source
from clare.classifier.suspects import out_of_fold, wrong_labels
from clare.data.images import Pixels
from clare.data.sources import DataSettings, load_dataset
from clare.files import write_json
from clare.version import __version__

SHARE, PER_CLASS = 0.05, 40
SETS = {"validation": (100, 140), "test": (0, 40)}
"""Classes, by their places, that a rule may be chosen on, and others to report."""
MARGINS = (0.0, 0.25, 0.5, 0.75)


def rates(found: set[int], swapped: set[int]) -> dict[str, float]:
    """Return how many of those that were found had been swapped, and how many of the swapped were found."""
    right = len(found & swapped)
    return {"found": len(found), "precision": right / max(1, len(found)), "recall": right / len(swapped)}


def drawn(first: int, last: int) -> tuple[Tensor, list[int]]:
    """Return features and classes of drawings."""
    data = load_dataset(DataSettings(dataset="quickdraw", channels=1))
    images = [image[None] for place in range(first, last) for image in drawings(data.train, place)[:PER_CLASS]]
    return seen(Classifier(device="cpu").parts, images), [
        place for place in range(last - first) for _ in range(PER_CLASS)
    ]


def photographed(pictures: str, backbone: str) -> tuple[Tensor, list[int]]:
    """Return features and classes of the first pictures of every class of a folder."""
    parts, source = Classifier(backbone=backbone, device="cpu").parts, find_source(pictures)
    reader, chosen = parts.reader(), [images[:PER_CLASS] for images in source.to_learn.values()]
    images = [reader.image(image) for own in chosen for image in own]
    return seen(parts, images), [place for place, own in enumerate(chosen) for _ in own]


def seen(parts: Parts, images: list[Pixels]) -> Tensor:
    """Return the features that `clare check` looks at."""
    return F.normalize(teaching.features_of(parts.context, parts.method, images), dim=1)


def measure(features: Tensor, truth: list[int], seed: int) -> dict[str, Any]:
    """Swap some labels, and look for them."""
    chance, num_classes = random.Random(seed), max(truth) + 1
    given = [
        chance.choice([other for other in range(num_classes) if other != label]) if chance.random() < SHARE else label
        for label in truth
    ]
    swapped = {place for place, pair in enumerate(zip(truth, given, strict=True)) if pair[0] != pair[1]}
    labels = torch.tensor(given)
    probabilities = out_of_fold(features, labels)
    places = wrong_labels(probabilities, labels)
    own = probabilities.gather(1, labels[:, None]).squeeze(1)
    margin = (probabilities.amax(1) - own)[places]
    result: dict[str, Any] = {
        "seed": seed,
        "num_pictures": len(truth),
        "num_classes": num_classes,
        "num_swapped": len(swapped),
        "right_out_of_fold": float((probabilities.argmax(1) == torch.tensor(truth)).double().mean()),
        "by_margin": {str(least): rates(set(places[margin >= least].tolist()), swapped) for least in MARGINS},
        "first_as_many_as_swapped": rates(set(places[: len(swapped)].tolist()), swapped),
    }
    if find_spec("cleanlab") is not None:
        from cleanlab.filter import find_label_issues

        for rule in ("prune_by_noise_rate", "both", "confident_learning"):
            issues = find_label_issues(labels.numpy(), probabilities.numpy(), filter_by=rule, n_jobs=1)
            result[f"cleanlab, {rule}"] = rates(set(issues.nonzero()[0].tolist()), swapped)
    return result


def main() -> None:
    """Write results/suspects.json, or results/suspects_FOLDER.json."""
    given, facts = sys.argv[1:], {}
    if len(given) == 1:
        kept = load(Path(given[0]))
        name, facts = kept.facts["data"], {"features": dict(kept.facts)}
        sets = {"test": (F.normalize(kept.train, dim=1), kept.train_labels.tolist())}
    elif given:
        name, sets = Path(given[0]).name, {"test": photographed(*given)}
    else:
        name, sets = "quickdraw", {key: drawn(*of) for key, of in SETS.items()}
    measured = {key: [measure(*found, seed) for seed in range(3)] for key, found in sets.items()}
    facts |= {
        "command": " ".join(["python scripts/measure_suspects.py", *(Path(each).name for each in given)]),
        "data": f"{name}, {PER_CLASS} pictures a class, {SHARE:.0%} of the labels swapped, three seeds",
        "device": "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "clare": __version__,
        "commit": commit(),
    }
    file = f"suspects_{name}.json" if given else "suspects.json"
    write_json(Path("results") / file, {**facts, "measured": measured})


if __name__ == "__main__":
    main()
