"""What a taught model tells: its classes, its history, its guesses and how good they are."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["create", "fit", "learn", "quick", "update", "rename", "remove", "merge", "undo"]
Mode = Literal["learn", "quick", "update"]

UNKNOWN_DATE = "unknown date"


@dataclass(frozen=True)
class ClassInfo:
    """One known class: the task it came with, counted from 1, when (ISO 8601, UTC), and from how many pictures."""

    name: str
    task: int
    taught_at: str
    num_images: int
    kind: str | None = None
    """The type of the class's label where it was given as a number."""

    def as_json(self) -> dict[str, Any]:
        """Return the class as JSON holds it; that a label is text goes without saying."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Change:
    """One entry of the history, oldest first."""

    number: int
    kind: Kind
    at: str
    classes: tuple[str, ...]
    report: dict[str, Any]


@dataclass(frozen=True)
class ClassReport:
    """How many held-back pictures of a class were named rightly, and when that was measured."""

    num_correct: int
    num_held_back: int
    measured_at: str
    is_estimate: bool = False
    """Whether an adapter has moved since, so that what is known of these pictures is an estimate."""


@dataclass(frozen=True)
class Guess:
    """A known class that an image may show, and how probable that is."""

    name: str
    probability: float


@dataclass(frozen=True)
class Answer:
    """What is said of one image, in Python, on the command line and over HTTP."""

    image: str
    """The name under which it was given, or its number."""
    guesses: tuple[Guess, ...]
    """The most probable known classes, best first."""
    unknown: float
    """Score in 0..1 that it shows none of the known classes."""
    is_unknown: bool
    """Whether that score is at or above the threshold."""
    one_of: tuple[str, ...] | None = None
    """Names of which one is right as often as was asked for, the likeliest first; none where no set was asked for."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON holds it, to six digits."""
        guesses = [{"name": guess.name, "probability": round(guess.probability, 6)} for guess in self.guesses]
        values = {**asdict(self), "guesses": guesses, "unknown": round(self.unknown, 6)}
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True)
class Evaluation:
    """Counts over pictures whose class is known to the user."""

    classes: tuple[str, ...]
    counts: tuple[int, ...]
    correct: tuple[int, ...]
    taken: dict[int, dict[int, int]]
    """By place of their class: the places of the classes that pictures were taken for, and how many of them."""
    num_flagged: int
    """Pictures of known classes that were said to be none of them."""
    strangers: dict[str, tuple[int, int]]
    """For classes that the model does not know: pictures, and how many of them were said to be none of the known."""
    certainty: float | None
    """Mean probability of the answers to pictures of known classes."""
    calibration_error: float | None
    """Mean distance between the probability of an answer and how often such answers are right."""

    @property
    def confusion(self) -> list[list[int]]:
        """A square of all classes: row k says what pictures of class k were taken for."""
        places = range(len(self.classes))
        return [[self.taken.get(row, {}).get(column, 0) for column in places] for row in places]

    @property
    def num_images(self) -> int:
        """Pictures of known classes."""
        return sum(self.counts)

    @property
    def accuracy(self) -> float | None:
        """Share of the pictures of known classes that were named rightly; none where there are no such pictures."""
        return sum(self.correct) / self.num_images if self.num_images else None

    @property
    def unknown_rate(self) -> float | None:
        """Share of the pictures of known classes that were said to be none of them."""
        return self.num_flagged / self.num_images if self.num_images else None


def standing(history: Iterable[Change]) -> list[Change]:
    """Return the changes that were not taken back."""
    found: list[Change] = []
    for change in history:
        if change.kind != "undo":
            found.append(change)
        elif found:
            found.pop()
    return found


def lessons(history: Iterable[Change]) -> dict[str, tuple[str, ...]]:
    """Return the classes of each lesson that counts, merged ones among them, by the digest of its pictures."""
    found: dict[str, tuple[str, ...]] = {}
    for change in standing(history):
        if change.kind == "fit":
            found.clear()
        if change.kind in ("fit", "learn", "quick", "update", "merge"):
            # Folders of 0.1.0 know no digests: there a lesson is all that was noted of it.
            noted = (hashlib.sha256(repr(change).encode()).hexdigest(),)
            found.update(dict.fromkeys(change.report.get("pictures", noted), change.classes))
    return found


def class_reports(history: Iterable[Change]) -> dict[str, ClassReport]:
    """Return the newest report of each class by the name that it has now."""
    reports: dict[str, ClassReport] = {}
    for change in standing(history):
        if change.kind == "rename" and change.classes[0] in reports:
            reports[change.classes[1]] = reports.pop(change.classes[0])
        elif change.kind == "fit":
            reports.clear()
        elif change.kind == "remove":
            reports.pop(change.classes[0], None)
        for name, counts in change.report.get("classes", {}).items():
            is_estimate = counts.get("is_estimate", False)
            reports[name] = ClassReport(counts["num_correct"], counts["num_held_back"], change.at, is_estimate)
    return reports
