"""Compare scores of showing none of the known classes, on kept features of near and of far strangers.

python scripts/default_features.py ...                      first, for the features
python scripts/measure_scores.py DRAWINGS CUB CIFAR DRAWN_CIFAR DRAWN_NOISE NOISE     writes results/unknown_pairs.json
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from default_features import load
from measure_heads import HEADS, lesson, taught
from measure_lessons import provenance
from torch import Tensor
from unknown_scores import (
    area_under_curve,
    energy,
    false_alarms,
    mahalanobis,
    max_logit,
    max_softmax,
    nearest_kept,
    relative_mahalanobis,
    residual,
    vim,
)

from clare.classifier.certainty import fit_scale
from clare.classifier.coverage import empirical_coverage, least_probability
from clare.classifier.unknown import limit_at
from clare.files import write_json
from clare.heads.discriminant import DiscriminantHead

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "unknown_pairs.json"
HELD_SHARE = 5
RATES, COVERAGES = (0.05, 0.1), (0.8, 0.9, 0.95)
SETS = ("drawings", "cub200", "cifar100", "drawn cifar100", "drawn noise", "noise")
"""Features in the order of the files; of the drawn ones, as the backbone for drawings sees the pictures."""
CASES: tuple[tuple[str, int, int, int, str, int, int], ...] = (
    ("drawings", 100, 10, 40, "drawings", 130, 70),
    ("drawings", 100, 30, 40, "drawings", 130, 70),
    ("cub200", 50, 25, 30, "cub200", 75, 25),
    ("cifar100", 50, 25, 30, "cifar100", 75, 25),
    ("drawings", 100, 30, 40, "drawn cifar100", 0, 25),
    ("cub200", 50, 25, 30, "cifar100", 50, 25),
    ("cifar100", 50, 25, 30, "cub200", 50, 25),
    ("drawings", 100, 30, 40, "drawn noise", 0, 1),
    ("cub200", 50, 25, 30, "noise", 0, 1),
    ("cifar100", 50, 25, 30, "noise", 0, 1),
)
"""Known: features, first class, classes, pictures of each; strangers: features, first class, classes.

The score was chosen on drawings 0 to 99 and on the first 50 classes of the other sets (`choose_unknown_score.py`).
"""


def all_scores(head: DiscriminantHead, features: Tensor, kept: Tensor, scale: float) -> dict[str, Tensor]:
    """Return every candidate's score of pictures."""
    strangers = head.strangers()
    seen = head.seen(features).double()
    logits, apart = head.logits(features).double(), seen - strangers.centre
    own, products = strangers.precision.squares(apart), apart @ strangers.solved
    squares = own[:, None] - 2 * products + strangers.lengths
    inner = torch.linalg.solve_triangular(strangers.cholesky, (products * strangers.roots).T, upper=False)
    to_middle = own - inner.square().sum(0)
    means = head.means.double() - strangers.centre
    span, _ = torch.linalg.qr(means.T)
    ratio = float(logits.amax(1).abs().mean() / residual(apart, span).clamp(min=0).sqrt().mean())
    return {
        "largest softmax": max_softmax(logits, scale),
        "largest logit": max_logit(logits),
        "energy": energy(logits, scale),
        "Mahalanobis": mahalanobis(squares),
        "relative Mahalanobis": relative_mahalanobis(squares, to_middle),
        "relative Mahalanobis, 0.95 (default before)": relative_mahalanobis(squares, to_middle, 0.95),
        "third nearest kept picture": nearest_kept(apart, head.seen(kept).double() - strangers.centre, 3),
        "residual of the class means": residual(apart, span),
        "ViM": vim(apart, logits, span, ratio),
        "default": -strangers.familiarity(seen),
    }


@torch.no_grad()
def measure(files: dict[str, Any], case: tuple[str, int, int, int, str, int, int]) -> dict[str, Any]:
    """Compare the scores on one pair of known classes and strangers."""
    name, first, number, each, other, start, count = case
    features, labels, asked, truth = lesson(files[name], first, number, each)
    is_held = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(number):
        own = (labels == label).nonzero().squeeze(1)
        is_held[own[: len(own) // HELD_SHARE]] = True
    head = taught(HEADS["gaussian (default)"], features[~is_held], labels[~is_held], 1)
    held, held_labels = features[is_held], labels[is_held]
    strange = files[other]
    strange = strange.test[(strange.test_labels >= start) & (strange.test_labels < start + count)]
    logits = head.logits(held).double()
    scale = fit_scale(logits, held_labels)
    known, unknown = (all_scores(head, part, held, scale) for part in (asked, strange))
    kept = all_scores(head, held, held, scale)["default"]
    probabilities = [(scale * part).softmax(1) for part in (logits, head.logits(asked).double())]
    lost = {}
    for rate in RATES:
        limit = limit_at(-kept, rate)
        lost[str(rate)] = (
            None if limit is None else [float((part["default"] >= -limit).double().mean()) for part in (known, unknown)]
        )
    sets = {}
    for share in COVERAGES:
        sets[str(share)] = empirical_coverage(
            probabilities[1], truth, least_probability(probabilities[0], held_labels, share)
        )
    return {
        "known": f"{name}: {number} classes of {each} pictures",
        "strangers": f"{other}: {count} classes" if count > 1 else other,
        "num_known": len(asked),
        "num_unknown": len(strange),
        "num_held_back": len(held),
        "accuracy": float((head.logits(asked).argmax(1) == truth).double().mean()),
        "scores": {
            key: {
                "area_under_curve": area_under_curve(known[key], unknown[key]),
                "false_alarms": false_alarms(known[key], unknown[key]),
            }
            for key in known
        },
        "known_lost_and_strangers_noticed_by_rate": lost,
        "coverage_and_size_of_sets": sets,
    }


def table(facts: dict[str, Any]) -> str:
    """Return the areas under the curve and the false alarms as a table in Markdown, both in percent."""
    pairs = facts["pairs"]
    titles = [f"{pair['known'].split(' of ')[0]}; {pair['strangers']}" for pair in pairs]
    lines = ["| score | " + " | ".join(titles) + " |", "| --- |" + " --- |" * len(pairs)]
    for name in pairs[0]["scores"]:
        found = [pair["scores"][name] for pair in pairs]
        cells = [f"{100 * each['area_under_curve']:.1f}, {100 * each['false_alarms']:.0f}" for each in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Write results/unknown_pairs.json."""
    files = {name: load(Path(path)) for name, path in zip(SETS, arguments, strict=True)}
    pairs = []
    for case in CASES:
        pairs.append(measure(files, case))
        print(pairs[-1], flush=True)
    facts = {
        "what": "scores of test pictures of taught classes and of strangers; false alarms at 95 % of these",
        "command": "python scripts/measure_scores.py " + " ".join(Path(name).name for name in arguments),
        "features": [dict(found.facts) for found in files.values()],
        "seed": 0,
        "device": "CPU, one thread",
        **provenance(),
        "pairs": pairs,
    }
    write_json(RESULTS, facts)
    print(table(facts))


if __name__ == "__main__":
    main(sys.argv[1:])
