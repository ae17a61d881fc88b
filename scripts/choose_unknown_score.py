"""Try scores of showing none of the known classes, and how good any could be, on classes that are kept for choosing.

python scripts/default_features.py ...                                  first, for the features
python scripts/choose_unknown_score.py DRAWINGS CUB CIFAR DRAWN_CIFAR   writes results/unknown_choice.json

Known classes and strangers are drawn anew several times from the first half of each set's classes; what was chosen is
then asked about the other half, as `measure_scores.py` does on one draw with what a model keeps.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from default_features import Features, load
from measure_lessons import provenance
from stranger_space import Space, fit_line, scores, to_middle
from torch import Tensor
from unknown_scores import area_under_curve, false_alarms, nearest_kept

from clare.files import write_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "unknown_choice.json"
SETS = ("drawings", "cub200", "cifar100", "drawn cifar100")
HALF = {"drawings": 100, "cub200": 50, "cifar100": 50}
MAIN = (("drawings", 10, 60, 40), ("drawings", 30, 60, 40), ("cub200", 25, 25, 30), ("cifar100", 25, 25, 30))
"""Set, known classes, strange classes, pictures of a known class."""
NEAR = (
    *MAIN,
    *(("drawings", number, 60, each) for number, each in ((2, 40), (5, 40), (10, 10), (30, 10), (40, 5))),
    *(("cub200", number, 25, each) for number, each in ((2, 30), (5, 30), (10, 10), (25, 5))),
    *(("cifar100", number, 25, each) for number, each in ((2, 30), (5, 30), (25, 10))),
)
FAR = (
    *(("cub200", number, "cifar100", 30) for number in (5, 25)),
    *(("cifar100", number, "cub200", 30) for number in (5, 25)),
    *(("drawings", number, "drawn cifar100", 40) for number in (5, 10, 30)),
)
MIDDLES, CONTRASTS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95), (0.0, 0.25, 0.5, 0.75)
FEW, HELD_SHARE, NUM_FOLDS, RIDGE = 10, 5, 5, 1.0
WIDTHS = {"drawings": 192, "cub200": 384, "cifar100": 384}
BEFORE, CHOSEN = "relative distance, 0.95 of the middle (before)", "0.85 of the middle, contrast 0.5"
FOUND = "area_under_curve_and_false_alarms"


@dataclass(frozen=True)
class Drawn:
    """Pictures of known classes to learn from, held back and to ask about, and of strange classes."""

    learnt: Tensor
    labels: Tensor
    held: Tensor
    held_labels: Tensor
    asked: Tensor
    strange: Tensor
    strange_groups: Tensor
    strange_lessons: Tensor
    strange_labels: Tensor


def draw(found: Features, first: int, half: int, known: int, strange: int, each: int, seed: int) -> Drawn:
    """Draw classes of a half, which begins with this one."""
    generator = torch.Generator().manual_seed(seed)
    order = (first + torch.randperm(half, generator=generator)).tolist()
    parts: dict[str, list[Tensor]] = {name: [] for name in Drawn.__annotations__}
    for place, label in enumerate(order[: known + strange]):
        own = (found.train_labels == label).nonzero().squeeze(1)
        own = own[torch.randperm(len(own), generator=generator)][:each]
        test, held = found.test[found.test_labels == label], len(own) // HELD_SHARE
        if place < known:
            parts["held"].append(found.train[own[:held]])
            parts["held_labels"].append(torch.full((held,), place))
            parts["learnt"].append(found.train[own[held:]])
            parts["labels"].append(torch.full((len(own) - held,), place))
            parts["asked"].append(test)
        else:
            parts["strange"].append(test)
            parts["strange_groups"].append(torch.full((len(test),), place - known))
            parts["strange_lessons"].append(found.train[own])
            parts["strange_labels"].append(torch.full((len(own),), place - known))
    return Drawn(**{name: torch.cat(values) for name, values in parts.items()})


def grid(space: Space, features: Tensor) -> dict[str, Tensor]:
    """Return the score that was made, with several shares of the distance to the middle and of the contrast."""
    inside, outside = space.see(features)
    squares = (inside[:, None] - space.means).square().sum(2)
    nearest, middle = squares.amin(1), to_middle(inside, space.means, space.counts)
    return {
        f"{share} of the middle, contrast {contrast}": nearest
        - share * middle
        + (1 - share) * outside
        + contrast * (nearest - squares.mean(1))
        for share in MIDDLES
        for contrast in CONTRASTS
    }


def several(of: Drawn, space: Space, width: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield scores that take more than one space, or a fit to classes that are left out in turn."""
    blocks = [slice(start, start + 2 * width) for start in range(0, of.learnt.shape[1], 2 * width)]
    sums = [torch.zeros(len(part)).double() for part in (of.asked, of.strange)]
    for block in blocks:
        own = Space(of.learnt[:, block], of.labels)
        held = scores(own, of.held[:, block])[BEFORE]
        for place, part in enumerate((of.asked, of.strange)):
            sums[place] += (scores(own, part[:, block])[BEFORE] - held.mean()) / held.std()
    yield "mean of the blocks' relative distances", sums[0], sums[1]
    kept = space.see(of.held)[0]
    near = [nearest_kept(space.see(part)[0], kept, 3) for part in (of.asked, of.strange)]
    yield "cosine with the third nearest kept picture, between classes", near[0], near[1]
    order = torch.randperm(len(space.means), generator=torch.Generator().manual_seed(0))
    pairs = []
    for fold in range(NUM_FOLDS):
        without = order[fold::NUM_FOLDS]
        pairs.append((beside(scores(space, of.held, without)), torch.isin(of.held_labels, without)))
    line = fit_line(torch.cat([one for one, _ in pairs]), torch.cat([other for _, other in pairs]), RIDGE)
    yield "combination fitted to classes left out in turn", *(applied(line, space, p) for p in (of.asked, of.strange))


def beside(found: dict[str, Tensor]) -> Tensor:
    """Return scores side by side."""
    return torch.stack(list(found.values()), 1)


def applied(line: tuple[Tensor, float], space: Space, features: Tensor) -> Tensor:
    """Return the combination of all simple scores."""
    return beside(scores(space, features)) @ line[0] + line[1]


def ceilings(of: Drawn, space: Space) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield what could be reached by somebody who has pictures of these strangers, or of others of their sort."""
    seen = [beside(scores(space, part)) for part in (of.held, of.strange_lessons)]
    is_stranger = torch.cat([torch.zeros(len(seen[0])), torch.ones(len(seen[1]))]).bool()
    line = fit_line(torch.cat(seen), is_stranger, 0.01)
    yield "all scores, combined for these strangers", *(applied(line, space, p) for p in (of.asked, of.strange))
    number = int(of.strange_labels.max()) + 1
    others = of.strange_labels < number // 2
    rest = of.strange[of.strange_groups >= number // 2]
    known = torch.cat([of.learnt, of.held])
    for name, lessons, strange in (
        ("one line through the features, for these strangers", of.strange_lessons, of.strange),
        ("one line through the features, for other strangers", of.strange_lessons[others], rest),
    ):
        two = Space(torch.cat([known, lessons]), torch.cat([torch.zeros(len(known)), torch.ones(len(lessons))]).long())
        way = two.means[1] - two.means[0]
        yield name, two.see(of.asked)[0] @ way, two.see(strange)[0] @ way
    taught = len(space.means)
    for name, chosen, strange in (
        ("these strangers taught as classes", torch.ones_like(others), of.strange),
        ("other strangers taught as classes", others, rest),
    ):
        labels = torch.cat([of.labels, taught + of.strange_labels[chosen]])
        both = Space(torch.cat([of.learnt, of.strange_lessons[chosen]]), labels)
        asked, other = (both.see(part)[0] for part in (of.asked, strange))
        far = [(part[:, None] - both.means).square().sum(2) for part in (asked, other)]
        yield name, *(each[:, :taught].amin(1) - each[:, taught:].amin(1) for each in far)


@torch.no_grad()
def measure(
    files: dict[str, Features], case: tuple[str, int, Any, int], seed: int, is_test: bool
) -> dict[str, tuple[float, float]]:
    """Return area under the curve and false alarms of every score on one draw."""
    name, known, other, each = case
    first = HALF[name] if is_test else 0
    of = draw(files[name], first, HALF[name], known, other if isinstance(other, int) else 1, each, seed)
    strange = of.strange if isinstance(other, int) else files[other].test
    space = Space(of.learnt, of.labels)
    pairs = [{**scores(space, part), **grid(space, part)} for part in (of.asked, strange)]
    found = [(key, pairs[0][key], pairs[1][key]) for key in ((BEFORE, CHOSEN) if is_test else pairs[0])]
    if case in MAIN and not is_test:
        found += [*several(of, space, WIDTHS[name]), *ceilings(of, space)]
    return {key: (area_under_curve(one, two.contiguous()), false_alarms(one, two)) for key, one, two in found}


def drawn(files: dict[str, Features], case: tuple[str, int, Any, int], is_test: bool) -> dict[str, Any]:
    """Return the means over several draws of one case."""
    draws = [measure(files, case, seed, is_test) for seed in range(6 if case[1] < FEW else 3)]
    mean = {key: torch.tensor([each[key] for each in draws]).mean(0).tolist() for key in draws[0]}
    strangers = f"{case[2]} other classes" if isinstance(case[2], int) else case[2]
    print(case, is_test, [round(100 * mean[key][0], 1) for key in (BEFORE, CHOSEN)], flush=True)
    known = f"{case[0]}: {case[1]} classes of {case[3]}"
    return {"known": known, "strangers": strangers, "num_draws": len(draws), FOUND: mean}


def table(facts: dict[str, Any]) -> str:
    """Return areas under the curve and false alarms on the main pairs as a table in Markdown, both in percent."""
    pairs = [each for each in facts["pairs"] if "these strangers taught as classes" in each[FOUND]]
    titles = [f"{pair['known'].split(' of ')[0]}; {pair['strangers']}" for pair in pairs]
    lines = ["| score | " + " | ".join(titles) + " |", "| --- |" + " --- |" * len(pairs)]
    for name in pairs[0][FOUND]:
        if ", contrast" not in name or name == CHOSEN:
            cells = [f"{100 * area:.1f}, {100 * alarms:.0f}" for area, alarms in (pair[FOUND][name] for pair in pairs)]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gains(pairs: list[dict[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Return each weighting's mean and least gain in area on near strangers, and its least area on far ones."""
    near, far = (
        [pair[FOUND] for pair in pairs if pair["strangers"].endswith("other classes") is is_near]
        for is_near in (True, False)
    )
    found = {}
    for name in (key for key in far[0] if ", contrast" in key):
        more = [100 * (each[name][0] - each[BEFORE][0]) for each in near]
        found[name] = (sum(more) / len(more), min(more), 100 * min(each[name][0] for each in far))
    return found


def main(arguments: Sequence[str]) -> None:
    """Write results/unknown_choice.json."""
    torch.set_num_threads(1)
    files = {name: load(Path(path)) for name, path in zip(SETS, arguments, strict=True)}
    pairs, tests = ([drawn(files, case, is_test) for case in (*NEAR, *FAR)] for is_test in (False, True))
    facts = {
        "what": "scores of strangers and ceilings of them, means over draws of classes that are kept for choosing; "
        "false alarms at 95 % of the strangers",
        "command": "python scripts/choose_unknown_score.py " + " ".join(Path(name).name for name in arguments),
        "features": [dict(found.facts) for found in files.values()],
        "device": "CPU, one thread",
        **provenance(),
        "pairs": pairs,
        "pairs_of_the_other_half": tests,
    }
    write_json(RESULTS, facts)
    print(table(facts))
    for found in (pairs, tests):
        for name, (mean_gain, least_gain, far) in sorted(gains(found).items(), key=lambda each: each[1]):
            print(f"{name}: {mean_gain:+.2f} on average, {least_gain:+.2f} at least, far {far:.1f} at least")


if __name__ == "__main__":
    main(sys.argv[1:])
