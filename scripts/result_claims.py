"""The claims about CLARE, the figures that decide each of them, and a verdict by rule."""

import math
import re
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from result_boards import OURS, TOLD_BY_HEAD, Board, Difference, Kind, difference

from clare.methods import METHODS
from clare.report.record import TaskEvent
from clare.report.tables import amount, duration

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not measured")

# The streams on which the claims are to be found or refuted.
STREAMS = ("cifar100-10x10", "cifar100-50x2", "cub200-10x20", "cub200-50x4")
RIVALS = ("l2p", "dualprompt", "coda-prompt", "aper-adapter", "ease", "sema", "inflora", "sdlora")
LONG = 50
MOST_GROWTH = 1.1
MOST_STORED = 3
AIM_FINAL = {10: 0.72, 50: 0.66}
AIM_LEAD = {10: 0.04, 50: 0.06}

RULE = (
    "A difference holds when its 95 % interval over test images lies above 0, does not hold when it lies below, and is "
    "undecided when it includes 0; without an interval its sign decides. Where the answers to single images were not "
    "kept, the interval takes both runs as independent, which makes it wider; it is marked as unpaired. A claim about "
    "several rivals holds when it holds against each, and is measured when all of them were. An aim is reached when "
    "the mean reaches it."
)


@dataclass(frozen=True)
class Finding:
    """What one stream says about a claim."""

    where: str
    figures: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """A sentence that figures can hold or refute, whose it is, and what the streams say about it."""

    key: str
    whose: str
    text: str
    findings: tuple[Finding, ...]


Decide = Callable[[Board], Iterable[Finding]]


def judge(found: Difference | None) -> Verdict:
    """Return whether a difference is above 0."""
    if found is None:
        return "not measured"
    if found.deviation is None:
        return "holds" if found.mean > 0 else "does not hold"
    return "holds" if found.low > 0 else "does not hold" if found.high < 0 else "undecided"


def make_claims(boards: Sequence[Board]) -> list[Claim]:
    """Decide every claim on the boards of its streams."""
    long = [stream for stream in STREAMS if f"-{LONG}x" in stream]
    on_all: list[tuple[str, str, str, Decide, Sequence[str]]] = [
        ("rivals", "paper", "CLARE is ahead of the paper's eight rivals, each with its own head.", _rivals, STREAMS),
        ("learnt-mask", "paper", "The learnt mask is ahead of a random one.", _learnt_mask, STREAMS),
        ("capacity", "paper", "A capacity-aware budget is ahead of a constant share on long sequences.", _aware, long),
        ("two-stage", "paper", "Two stages are ahead of one.", _two_stages, STREAMS),
        (
            "no-mask",
            "ours",
            "Without a mask the adapter loses against frozen features at learning rates where CLARE gains.",
            _no_mask,
            STREAMS,
        ),
        ("time", "ours", "The time to learn a task does not grow over a long sequence.", _flat_time, long),
        ("memory", "ours", "The peak memory of a task does not grow over a long sequence.", _flat_memory, long),
        ("stored", "ours", "What is stored beyond the head stays within three numbers a coordinate.", _stored, STREAMS),
        ("ranpac", "ours", "clare and clare-plus are ahead of RanPAC, which the paper leaves out.", _ranpac, STREAMS),
        (
            "equal-head",
            "ours",
            "clare and clare-plus are ahead of every other method that was run with their heads.",
            _equal_head,
            STREAMS,
        ),
        ("aim-final", "aim", "A_T on CIFAR-100 is at least 72 at 10 tasks and 66 at 50.", _aim_final, STREAMS[:2]),
        (
            "aim-lead",
            "aim",
            "First of those run with its head by 4 points at 10 tasks and 6 at 50.",
            _aim_lead,
            STREAMS,
        ),
    ]
    claims = [Claim(key, whose, text, tuple(_decide(boards, decide, on))) for key, whose, text, decide, on in on_all]
    longer = Claim(
        "longer", "paper", "The lead of the learnt mask grows with the sequence.", tuple(_longer(boards)) or _nothing()
    )
    return [*claims[:2], longer, *claims[2:]]


def tally(claim: Claim) -> dict[Verdict, int]:
    """Count the verdicts on a claim."""
    return {verdict: sum(finding.verdict == verdict for finding in claim.findings) for verdict in VERDICTS}


def _nothing() -> tuple[Finding, ...]:
    return (Finding("all streams", "", "not measured"),)


def _decide(boards: Sequence[Board], decide: Decide, streams: Sequence[str]) -> Iterator[Finding]:
    """Yield what each stream says, one that was not run included."""
    for stream in streams:
        findings = [finding for board in boards if _is_on(board, stream) for finding in decide(board)]
        yield from findings or [Finding(stream, "", "not measured")]


def _is_on(board: Board, stream: str) -> bool:
    """Whether a board is of a stream, be it with tuned settings."""
    return re.match(rf"{re.escape(stream)}\b", board.base) is not None


def _rivals(board: Board) -> Iterator[Finding]:
    """Compare CLARE with the best of the paper's rivals at the heads of their papers."""
    ours = board.find("clare")
    measured = [kind for name in RIVALS if (kind := board.at_head(name, _own_head(name)))]
    if ours and measured:
        yield _lead(board, ours, measured, len(RIVALS))


def _own_head(name: str) -> str:
    """Return the head that a method has where no preset gives it another."""
    head = METHODS.get(name).settings_type().head
    return f"{head.form}, {head.strategy}"


def _equal_head(board: Board) -> Iterator[Finding]:
    """Compare CLARE with the best other method at its head."""
    for ours in filter(None, map(board.find, OURS)):
        rivals = _equals(board, ours)
        if rivals:
            yield _lead(board, ours, rivals, len(rivals))


def _ranpac(board: Board) -> Iterator[Finding]:
    """Compare CLARE with RanPAC, and a CLARE that reads several blocks also with a RanPAC that does."""
    for ours in filter(None, map(board.find, OURS)):
        kinds = [kind for kind in board.kinds if kind.method == "ranpac" and kind.changes_head_alone]
        rivals = [kind for kind in kinds if _reading(kind) in ("", _reading(ours))]
        if rivals:
            yield _lead(board, ours, rivals, len(rivals))


def _reading(kind: Kind) -> str:
    """What a head reads beyond the usual feature, in its own words."""
    return ", ".join(kind.head.split(", ")[2:])


def _lead(board: Board, ours: Kind, rivals: Sequence[Kind], num_rivals: int) -> Finding:
    """Say how far CLARE is ahead of the best rival, and judge it against each: who is ahead of all is ahead of each.

    With rivals missing it can be behind, but not ahead of all.
    """
    best = max(rivals, key=lambda kind: kind.final)
    figures = f"{_score(ours)}, best: {_score(best)}, {_points(difference(ours, best))}"
    against = {kind.label: judge(difference(ours, kind)) for kind in rivals}
    verdict = _weakest(against.values())
    if verdict != against[best.label]:
        figures += f"; {verdict} against {', '.join(label for label in against if against[label] == verdict)}"
    if len(rivals) < num_rivals and verdict != "does not hold":
        verdict = "not measured"
    measured = f"; {len(rivals)} of {num_rivals} rivals measured" if num_rivals > 1 else ""
    return Finding(board.preset, f"{figures}{measured}", verdict)


def _weakest(verdicts: Collection[Verdict]) -> Verdict:
    """Return the verdict on a claim that needs all of these: one refutation refutes it, one gap leaves it open."""
    order: tuple[Verdict, ...] = ("does not hold", "not measured", "undecided", "holds")
    return next(verdict for verdict in order if verdict in verdicts)


def _equals(board: Board, ours: Kind) -> list[Kind]:
    """Return the methods of others that have a kind's head and otherwise their own settings."""
    return [
        kind
        for kind in board.kinds
        if kind.head == ours.head and kind.changes_head_alone and kind.method not in OURS and not kind.is_bound
    ]


def _learnt_mask(board: Board) -> Iterator[Finding]:
    yield from _ablation(board, {"mask": "random"})


def _aware(board: Board) -> Iterator[Finding]:
    yield from _ablation(board, {"capacity_aware": "false"}, ("constant_share",))


def _two_stages(board: Board) -> Iterator[Finding]:
    yield from _ablation(board, {"two_stage": "false"})


def _ablation(board: Board, changes: dict[str, str], along: Sequence[str] = ()) -> Iterator[Finding]:
    """Compare each kind of CLARE with the same one under changes."""
    for base, changed in board.ablations("clare", changes, along):
        found = difference(base, changed)
        yield Finding(board.preset, f"{_score(base)}, {_score(changed)}, {_points(found)}", judge(found))


def _longer(boards: Sequence[Board]) -> Iterator[Finding]:
    """Compare the lead of the learnt mask on the shortest and the longest sequence of a data set and backbone."""
    leads: dict[str, list[tuple[int, Difference]]] = {}
    for board in boards:
        pairs = [pair for pair in board.ablations("clare", {"mask": "random"}) if not pair[0].changes]
        found = difference(*pairs[0]) if pairs else None
        if found and any(_is_on(board, stream) for stream in STREAMS):
            leads.setdefault(board.family, []).append((board.num_tasks, found))
    for family, found_at in leads.items():
        (num_short, short), (num_long, long) = min(found_at, key=lambda e: e[0]), max(found_at, key=lambda e: e[0])
        if num_short < num_long:
            # Two streams of the same images: taken as independent, which makes the interval rather too wide.
            known = None not in (short.deviation, long.deviation)
            deviation = math.hypot(short.deviation or 0, long.deviation or 0) if known else None
            growth = Difference((round(long.mean - short.mean, 6),), deviation, short.is_paired and long.is_paired)
            figures = f"{num_short} tasks: {short}; {num_long} tasks: {long}; growth {growth}"
            yield Finding(family, figures, judge(growth))


def _no_mask(board: Board) -> Iterator[Finding]:
    """Look for a learning rate where CLARE is above frozen features with the same head and no mask below."""
    parts: list[str] = []
    verdicts: list[Verdict] = []
    for masked, unmasked in board.ablations("clare", {"mask": "none"}):
        frozen = board.at_head("linear", masked.head) or board.at_head("simplecil", masked.head)
        if frozen:
            gain, loss = difference(masked, frozen), difference(frozen, unmasked)
            rate = masked.runs[0].preset["method"]["learning_rate"]
            head = f", {masked.head}" if masked.changes else ""
            parts.append(
                f"learning rate {rate}{head}: {frozen.method} {_percent(frozen)}, clare {gain}, none {_minus(loss)}"
            )
            verdicts.append(_weakest([judge(gain), judge(loss)]))
    if parts:
        best = next(word for word in ("holds", "undecided", "does not hold", "not measured") if word in verdicts)
        yield Finding(board.preset, "; ".join(parts), best)


def _flat_time(board: Board) -> Iterator[Finding]:
    """Compare the time to learn a task in the last tenth with the first tenth, where no other run used the device."""
    ours = board.find("clare")
    if ours and any(run.result.get("shared_device") for run in ours.runs):
        return
    yield from _flat(board, lambda task: task.learn_seconds, duration)


def _flat_memory(board: Board) -> Iterator[Finding]:
    """Compare the peak memory of a task in the last tenth of the sequence with the first tenth."""
    yield from _flat(board, lambda task: task.peak_memory, amount)


def _flat(board: Board, cost: Callable[[TaskEvent], float | None], show: Callable[[float], str]) -> Iterator[Finding]:
    """Compare what a task costs CLARE in the last tenth of the sequence with the first tenth."""
    ours = board.find("clare")
    costs = [[cost(task) for task in run.tasks] for run in ours.runs] if ours else []
    by_run = [[value for value in row if value is not None] for row in costs]
    if ours and all(len(known) == len(run.tasks) for known, run in zip(by_run, ours.runs, strict=True)):
        by_task = [statistics.median(same) for same in zip(*by_run, strict=True)]
        size = max(1, len(by_task) // 10)
        first, last = statistics.median(by_task[:size]), statistics.median(by_task[-size:])
        # Times are kept in hundredths of a second.
        ratio = last / max(first, 0.01)
        figures = f"median of the first {size} tasks {show(first)}, of the last {size} {show(last)}, ratio {ratio:.2f}"
        verdict: Verdict = "holds" if ratio <= MOST_GROWTH else "does not hold"
        yield Finding(board.preset, f"{figures}, at most {MOST_GROWTH} allowed", verdict)


def _stored(board: Board) -> Iterator[Finding]:
    """Compare what CLARE stores beyond a linear head of the same form with the size of its adapter."""
    ours = board.find("clare")
    head_alone = board.at_head("linear", ours.head) if ours else None
    if ours and head_alone:
        last = [kind.runs[0].tasks[-1].num_stored for kind in (ours, head_alone)]
        size = ours.runs[0].start.num_coordinates
        if size and None not in last:
            share = ((last[0] or 0) - (last[1] or 0)) / size
            figures = (
                f"{share:.2f} numbers a coordinate after {board.num_tasks} tasks (values and the ledger of claims)"
            )
            yield Finding(board.preset, figures, "holds" if share <= MOST_STORED else "does not hold")


def _aim_final(board: Board) -> Iterator[Finding]:
    """Compare the final accuracy with what was aimed at."""
    for kind in filter(None, map(board.find, OURS)):
        aim = AIM_FINAL[_tasks(board)]
        verdict: Verdict = "holds" if kind.final >= aim else "does not hold"
        yield Finding(board.preset, f"{_score(kind)}, aim {100 * aim:.0f}", verdict)


def _aim_lead(board: Board) -> Iterator[Finding]:
    """Compare the lead over the nearest at equal head with what was aimed at."""
    for kind in filter(None, map(board.find, OURS)):
        leads = [(difference(kind, rival), rival) for rival in _equals(board, kind)]
        if leads:
            found, nearest = min(leads, key=lambda lead: lead[0].mean if lead[0] else math.inf)
            aim = AIM_LEAD[_tasks(board)]
            verdict: Verdict = "not measured" if any(lead is None for lead, _ in leads) else "holds"
            if found and found.mean < aim:
                verdict = "does not hold"
            figures = f"{_score(kind)}, nearest: {_score(nearest)}, {_points(found)}, aim {100 * aim:.0f}"
            yield Finding(board.preset, figures, verdict)


def _tasks(board: Board) -> int:
    """The number of tasks that the name of a stream tells."""
    found = re.search(r"-(\d+)x", board.base)
    assert found, board.base
    return int(found[1])


def _percent(kind: Kind) -> str:
    """The final accuracy in percent."""
    return f"{100 * kind.final:.1f}"


def _score(kind: Kind) -> str:
    """A kind with its final accuracy."""
    is_told = any(key in kind.changes for key in TOLD_BY_HEAD)
    return f"{f'{kind.name} at {kind.head}' if is_told else kind.label} {_percent(kind)}"


def _points(found: Difference | None) -> str:
    """A difference in points."""
    return "no shared seed" if found is None else str(found)


def _minus(found: Difference | None) -> str:
    """A difference the other way round."""
    return _points(found and replace(found, by_seed=tuple(-each for each in found.by_seed)))
