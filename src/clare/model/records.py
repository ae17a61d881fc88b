"""What a taught model tells: its classes, its history, its guesses and how good they are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["create", "learn", "quick", "update", "rename", "remove", "undo"]
Mode = Literal["learn", "quick", "update"]

UNKNOWN_DATE = "unknown date"


@dataclass(frozen=True)
class ClassInfo:
    """One known class: the task it came with, counted from 1, when (ISO 8601, UTC), and from how many pictures."""

    name: str
    task: int
    taught_at: str
    num_images: int


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
    """One image's answer: the most probable known classes, descending, and whether it may be none of them."""

    names: tuple[str, ...]
    probabilities: tuple[float, ...]
    unknown: float
    is_unknown: bool


def answer_of(image: str, guess: Guess) -> dict[str, Any]:
    """Return the answer to one image as JSON holds it: the same from the command line and over HTTP."""
    named = zip(guess.names, guess.probabilities, strict=True)
    return {
        "image": image,
        "guesses": [{"name": name, "probability": round(probability, 6)} for name, probability in named],
        "unknown": round(guess.unknown, 6),
        "is_unknown": guess.is_unknown,
    }


@dataclass(frozen=True)
class Evaluation:
    """Counts over pictures whose class is known to the user; row k of the confusion is what class k was taken for."""

    classes: tuple[str, ...]
    counts: tuple[int, ...]
    correct: tuple[int, ...]
    confusion: list[list[int]]
    num_flagged: int
    """Pictures of known classes that were said to be none of them."""
    strangers: dict[str, tuple[int, int]]
    """For classes that the model does not know: pictures, and how many of them were said to be none of the known."""
    certainty: float | None
    """Mean probability of the answers to pictures of known classes."""
    calibration_error: float | None
    """Mean distance between the probability of an answer and how often such answers are right."""

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


def class_reports(history: Iterable[Change]) -> dict[str, ClassReport]:
    """Return the newest report of each class by the name that it has now."""
    reports: dict[str, ClassReport] = {}
    for change in standing(history):
        if change.kind == "rename" and change.classes[0] in reports:
            reports[change.classes[1]] = reports.pop(change.classes[0])
        elif change.kind == "remove":
            reports.pop(change.classes[0], None)
        for name, counts in change.report.get("classes", {}).items():
            is_estimate = counts.get("is_estimate", False)
            reports[name] = ClassReport(counts["num_correct"], counts["num_held_back"], change.at, is_estimate)
    return reports
