"""The verdict on each claim of claims.toml, by rule, from the table and the differences."""

import math
import statistics
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from result_differences import Difference, Differences
from result_table import Entry
from study import Study

from clare.errors import RunError, nearest

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not measured")
STREAMS = ("cifar100-10x10", "cifar100-50x2", "cub200-10x20", "cub200-50x4")
"""Where a claim is looked for that names no streams."""
KEYS = {"key", "whose", "text", "judge", "ours", "rivals", "streams", "shorter", "cost", "most", "aims"}
KEYS |= {"needs_own_device", "only_measured"}

RULE = (
    "A difference holds when its 95 % interval over test images lies above 0, does not hold when it lies below, and is "
    "undecided when it includes 0; without an interval its sign decides. Accuracies and differences are means over the "
    "seeds that both rows have. Where the answers to single images were not kept, the interval takes both runs as "
    "independent, which makes it wider; it is marked as unpaired. A claim about several rivals holds when it holds "
    "against each; shown is the nearest of them. An aim is reached when the mean reaches it."
)


@dataclass(frozen=True)
class Finding:
    """What one stream says about a claim."""

    stream: str
    figures: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """A sentence that figures can hold or refute, whose it is, and what the streams say about it."""

    key: str
    whose: str
    text: str
    findings: tuple[Finding, ...]

    def tally(self) -> dict[Verdict, int]:
        """Count the verdicts."""
        return {verdict: sum(finding.verdict == verdict for finding in self.findings) for verdict in VERDICTS}


@dataclass(frozen=True)
class Court:
    """A claim as it is written down, on one stream, with all that decides it."""

    told: Mapping[str, Any]
    stream: str
    study: Study
    differences: Differences

    def find(self, row: str, stream: str | None = None) -> Entry | None:
        """Return what was measured of a row."""
        return self.differences.table.find(stream or self.stream, self.study.row(row).id)

    def difference(self, row: str, stream: str | None = None) -> Difference | None:
        """Return how far our row is ahead of another, or nothing where that was not measured."""
        ours, other = self.find(self.told["ours"], stream), self.find(row, stream)
        return self.differences.between(ours, other) if ours and other else None

    def leads(self) -> dict[str, Difference]:
        """Return how far our row is ahead of each rival that was measured."""
        found = {row: self.difference(row) for row in self.told["rivals"]}
        return {row: each for row, each in found.items() if each is not None}

    def show(self, row: str, found: Difference) -> str:
        """Say both accuracies, over the same seeds, and the difference."""
        return f"{100 * found.ours:.2f}, {self.study.row(row).title} {100 * found.theirs:.2f}: {found}"


def judge(found: Difference | None) -> Verdict:
    """Return whether a difference is above 0."""
    if found is None:
        return "not measured"
    low, high = found.interval or (found.mean, found.mean)
    if found.interval is None and found.mean == 0:
        return "does not hold"
    return "holds" if low > 0 else "does not hold" if high < 0 else "undecided"


def _ahead(court: Court) -> tuple[str, Verdict]:
    """Judge a lead over each rival: with rivals missing our row can be behind, but not ahead of all."""
    leads = court.leads()
    if not leads:
        return "", "not measured"
    nearest_row = min(leads, key=lambda row: leads[row].mean)
    figures, verdicts = court.show(nearest_row, leads[nearest_row]), {row: judge(leads[row]) for row in leads}
    verdict = _weakest(verdicts.values())
    if verdict != verdicts[nearest_row]:
        against = [court.study.row(row).title for row in verdicts if verdicts[row] == verdict]
        figures += f"; {verdict} against {', '.join(against)}"
    missing = len(court.told["rivals"]) - len(leads)
    if missing and not court.told.get("only_measured"):
        figures += f"; {missing} of {len(court.told['rivals'])} rivals not measured"
        verdict = verdict if verdict == "does not hold" else "not measured"
    return figures, verdict


def _grows(court: Court) -> tuple[str, Verdict]:
    """Judge whether a lead is larger than on a shorter stream of the same images."""
    shorter = court.told["shorter"].get(court.stream)
    (rival,) = court.told["rivals"]
    before, after = (court.difference(rival, stream) for stream in (shorter, court.stream)) if shorter else (None, None)
    if before is None or after is None:
        return "", "not measured"
    interval, mean = None, after.mean - before.mean
    if before.deviation is not None and after.deviation is not None:
        # Two streams of the same images: taken as independent, which makes the interval rather too wide.
        half = 1.959964 * math.hypot(before.deviation, after.deviation)
        interval = (mean - half, mean + half)
    growth = Difference(after.mean, before.mean, (mean,), interval, before.is_paired and after.is_paired)
    return f"from {100 * before.mean:+.1f} to {100 * after.mean:+.1f}: {growth}", judge(growth)


def _between(court: Court) -> tuple[str, Verdict]:
    """Judge whether the first rival lies between our row and the second."""
    above, below = court.told["rivals"]
    gain = court.difference(above)
    middle, worst = court.find(above), court.find(below)
    loss = court.differences.between(middle, worst) if middle and worst else None
    if gain is None or loss is None:
        return "", "not measured"
    figures = f"{court.show(above, gain)}; {above} {100 * loss.ours:.2f}, {below} {100 * loss.theirs:.2f}: {loss}"
    return figures, _weakest([judge(gain), judge(loss)])


def _flat(court: Court) -> tuple[str, Verdict]:
    """Judge what a task costs in the last tenth of the sequence beside the first tenth."""
    ours = court.find(court.told["ours"])
    if ours is None:
        return "", "not measured"
    if court.told.get("needs_own_device") and any(line["shared_device"] == "true" for line in ours.lines):
        return "the device was shared", "not measured"
    costs = [line.numbers(court.told["cost"]) for line in ours.lines]
    if not all(costs):
        return "", "not measured"
    by_task = [statistics.median(same) for same in zip(*costs, strict=True)]
    size = max(1, len(by_task) // 10)
    # Times are kept in hundredths of a second.
    ratio = statistics.median(by_task[-size:]) / max(statistics.median(by_task[:size]), 0.01)
    return f"{ratio:.2f} times", "holds" if ratio <= court.told["most"] else "does not hold"


def _stored(court: Court) -> tuple[str, Verdict]:
    """Judge what our row stores beyond the rival, by the size of its adapter."""
    ours, head_alone = (court.find(row) for row in (court.told["ours"], *court.told["rivals"]))
    numbers = [entry.lines[0].number("num_stored") for entry in (ours, head_alone) if entry]
    size = ours.lines[0].number("num_coordinates") if ours else None
    if len(numbers) < 2 or None in numbers or not size:
        return "", "not measured"
    share = ((numbers[0] or 0) - (numbers[1] or 0)) / size
    return f"{share:.2f} numbers", "holds" if share <= court.told["most"] else "does not hold"


def _reaches(court: Court) -> tuple[str, Verdict]:
    """Judge whether our row reaches an aim."""
    ours = court.find(court.told["ours"])
    if ours is None:
        return "", "not measured"
    reached = ours.final >= court.told["aims"][court.stream]
    return f"{100 * ours.final:.1f}", "holds" if reached else "does not hold"


def _leads(court: Court) -> tuple[str, Verdict]:
    """Judge whether our row is ahead of the nearest rival by as much as was aimed at."""
    leads = court.leads()
    if not leads:
        return "", "not measured"
    row = min(leads, key=lambda name: leads[name].mean)
    reached = leads[row].mean >= court.told["aims"][court.stream]
    return court.show(row, leads[row]), "holds" if reached else "does not hold"


RULES: dict[str, Callable[[Court], tuple[str, Verdict]]] = {
    "ahead": _ahead,
    "grows": _grows,
    "between": _between,
    "flat": _flat,
    "stored": _stored,
    "reaches": _reaches,
    "leads": _leads,
}


def _weakest(verdicts: Collection[Verdict]) -> Verdict:
    """Return the verdict on a claim that needs all of these: one refutation refutes it, one gap leaves it open."""
    order: tuple[Verdict, ...] = ("does not hold", "not measured", "undecided", "holds")
    return next(verdict for verdict in order if verdict in verdicts)


def judge_claims(path: Path, study: Study, differences: Differences) -> list[Claim]:
    """Read the claims and judge each on its streams."""
    return [_judge(told, study, differences) for told in read_claims(path)]


def read_claims(path: Path) -> list[dict[str, Any]]:
    """Read the claims as they are written down."""
    try:
        claims: list[dict[str, Any]] = tomllib.loads(path.read_text())["claims"]
        for told in claims:
            for key in sorted(told.keys() - KEYS):
                raise ValueError(f"'{key}'{nearest(key, KEYS)}")
            RULES[told["judge"]], told["ours"], told["text"], told["key"], told["whose"]
    except (tomllib.TOMLDecodeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise RunError(f"{path.name} holds no valid claims ({error}); correct it") from None
    return claims


def _judge(told: Mapping[str, Any], study: Study, differences: Differences) -> Claim:
    """Judge one claim."""
    streams: Sequence[str] = told.get("streams") or list(told.get("aims") or told.get("shorter") or STREAMS)
    findings = []
    for stream in streams:
        figures, verdict = RULES[told["judge"]](Court(told, stream, study, differences))
        findings.append(Finding(stream, figures, verdict))
    return Claim(told["key"], told["whose"], told["text"], tuple(findings))
