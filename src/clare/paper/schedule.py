"""The plan of an experiment as a table: which runs there are, which are done, and how long the others will take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clare.paper.plan import Place, Request, Run, unique
from clare.report.tables import Sheet, duration

AFTER = "after the choice"
ORIGIN = (
    "Times are measured: two tiny tasks of noise on the true backbone and image size, two short epochs of each phase, "
    "the second epoch scaled to the images and epochs of the stream, the second task standing for all later ones; a "
    "method's rows are taken to cost alike, and where a run of the same method and preset is finished, its time "
    "counts. Reading the images is not included, and a method whose training slows down from task to task takes longer."
)

Seconds = Mapping[Path, float | None]
"""Estimated seconds of the runs that are not done; none where nothing could be measured."""


@dataclass(frozen=True)
class Entry:
    """The runs of one row on one preset, and what they are for."""

    place: Place
    remark: str
    runs: Sequence[Run]

    @property
    def is_guess(self) -> bool:
        """Whether the settings of these runs are not known before others are done."""
        return self.remark == AFTER


def plan_sheet(request: Request, entries: Sequence[Entry], done: set[Path], seconds: Seconds) -> Sheet:
    """One line for each row and preset; a run that several rows share counts in the first."""
    rows, counted = [], set[Path]()
    for entry in entries:
        preset, key = entry.place
        own = [run for run in unique(list(entry.runs)) if run.folder not in counted]
        counted |= {run.folder for run in own}
        num_done = sum(run.folder in done for run in own)
        label = request.study.row(key).label + (f" ({entry.remark})" if entry.remark else "")
        shared = "shared" if not own else str(len(own))
        rows.append((label, preset, shared, str(num_done), _time(own, done, seconds)))
    title = f"{request.study.name}: {request.study.title}"
    return Sheet(title, ("Row", "Preset", "Runs", "Done", "Time left"), tuple(rows))


def _time(runs: Sequence[Run], done: set[Path], seconds: Seconds) -> str:
    """The time that these runs still take."""
    left = [seconds.get(run.folder) for run in runs if run.folder not in done]
    known = [value for value in left if value is not None]
    if len(known) < len(left):
        return "unknown"
    return duration(sum(known)) if left else "-"


def plan_words(entries: Sequence[Entry], done: set[Path], seconds: Seconds, num_processes: int) -> str:
    """Say how many runs are left, how long they take together, and how that is known."""
    runs = unique([run for entry in entries for run in entry.runs])
    left = [run for run in runs if run.folder not in done]
    if not left:
        return f"all {len(runs)} runs are done"
    known = [value for value in (seconds.get(run.folder) for run in left) if value is not None]
    unknown = f", and {len(left) - len(known)} for which nothing could be measured" if len(known) < len(left) else ""
    together = f"about {duration(sum(known))} one at a time{unknown}" if known else "for an unknown time"
    several = ""
    if num_processes > 1 and known:
        several = f"; {num_processes} at a time take at best {duration(sum(known) / num_processes)}"
    return f"{len(left)} of {len(runs)} runs are left, {together}{several}. {ORIGIN}"
