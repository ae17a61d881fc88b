"""What only some methods have, each by a name of its own: classes to inherit from beside `Method`.

Whoever needs to know asks for one of these, never for a method by its class or name.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from clare.sparse.ledger import Ledger
from clare.steps import Pictures

FACTORS = tuple(2.0**power for power in range(-4, 5))
"""A logarithmic grid around a preset's value."""


@dataclass(frozen=True)
class Capacity:
    """How many coordinates there are, how many are free, and how many the last task claimed."""

    num_coordinates: int
    num_free: int
    num_claimed: int


@dataclass(frozen=True)
class Deployed:
    """What plain timm needs beside a backbone and rows."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    """Weights that take the place of the backbone's, by their names there."""
    adapters: dict[str, Tensor] = field(default_factory=dict)
    """The parts of each block's adapter, by block and part."""
    adapter_scale: float | None = None


class CachesFeatures:
    """Features of an image stay the same until their version changes, so that evaluation computes them once."""

    @property
    def features_version(self) -> int | None:
        """Version of the features; none as long as the next task may change them."""
        return 0


class PassesSeveralTimes:
    """An image goes through the backbone several times to be seen once."""

    @property
    def num_passes(self) -> int:
        """How many times."""
        return 2


class GrowsFeatures(CachesFeatures, PassesSeveralTimes):
    """Features have parts side by side; a task may add parts and changes none, so only training is recorded."""

    @property
    def num_passes(self) -> int:
        """One for each part."""
        return self.num_parts

    @property
    def num_parts(self) -> int:
        """How many parts there are by now."""
        raise NotImplementedError

    def later_parts(self, images: Tensor, first: int) -> Tensor:
        """Return the parts from this one on, side by side."""
        raise NotImplementedError


class CachesQueries:
    """Features are made with a query of the image that never changes, so that evaluation computes it once."""

    def queries(self, images: Tensor) -> Tensor:
        """Return the queries of these images, shape (B, Q)."""
        raise NotImplementedError

    def features_from(self, images: Tensor, queries: Tensor) -> Tensor:
        """Return the features of images whose queries are known."""
        raise NotImplementedError


class InfersTask:
    """The task of an image is inferred by a rule of the method's own, before or beside its class."""

    def inferred_tasks(self, features: Tensor) -> Tensor:
        """Return the index of the task that each image is taken to be of, shape (B,)."""
        raise NotImplementedError


class IsToldTask:
    """Each image must come with its task, so that only figures with the task given are the method's."""

    @property
    def is_told_task(self) -> bool:
        """Whether that is so with the settings it has."""
        return True


class PlansTasks:
    """Room is made, or a schedule laid, before the first task."""

    def prepare(self, num_tasks: int | None, largest_task: int) -> None:
        """Get ready for tasks of at most so many classes; their number is none where nobody knows it."""


class HasStructure:
    """More must be known of a method than its tensors and tasks, by facts that are saved beside them."""

    def structure(self) -> dict[str, Any]:
        """Return what must be known, as JSON values."""
        return {}

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Take back what is known, before the tensors are loaded; the tasks are in place already."""


class GrowsRoom:
    """Tensors of fixed shapes are given more room now and then, and what reads them is recorded anew."""

    @property
    def room(self) -> int:
        """A number that changes with the room."""
        raise NotImplementedError


class LearnsAllAtOnce:
    """All classes of a stream are learnt as one task, which no continual learner may do."""


class KeepsPictures:
    """Training pictures of earlier tasks are kept and learnt from again, which model folders never carry."""

    @property
    def kept(self) -> tuple[Pictures, Tensor]:
        """The pictures, and the place of each one's class among all."""
        raise NotImplementedError

    def drop_pictures(self) -> None:
        """Forget all pictures, after which images are classified as before but no task can follow."""
        raise NotImplementedError


class KeepsRowsAlone:
    """All that is kept of a class is in the head, so that classes may come without training, and go."""


class ClaimsCoordinates:
    """Tasks claim coordinates of a pool."""

    ledger: Ledger
    """Who has claimed which."""

    def claims_by_layer(self) -> list[list[int]]:
        """Return how many coordinates each task claimed in each layer."""
        raise NotImplementedError

    @property
    def share_left_free(self) -> float | None:
        """Share of the free coordinates that a task leaves free; none where they never run out."""
        raise NotImplementedError


class Diagnoses:
    """A task is found out about while it is learnt."""

    def diagnosis(self) -> dict[str, Any]:
        """Return what the record keeps about the task just learnt, as JSON values."""
        return {}


class Deploys:
    """Under its rows, what was learnt is the bare backbone, other weights for it, or an adapter in each block."""

    def deployed(self) -> Deployed:
        """Return what is added to the backbone; nothing unless a method says otherwise."""
        return Deployed()


class Tunable:
    """`clare tune` tries other settings than the learning rate."""

    tunable: ClassVar[dict[str, tuple[Any, ...]]]
    """What it tries for a setting: numbers are factors on the preset's value, all else is a value itself."""


class HasTinySettings:
    """Some settings must be smaller for the tiny world of the promises."""

    tiny: ClassVar[dict[str, Any]] = {}
    """Settings with which `clare check-method` learns tasks of two classes in a second."""


def tiny_settings(kind: type) -> dict[str, Any]:
    """Return what a method's class asks for in the tiny world."""
    return kind.tiny if issubclass(kind, HasTinySettings) else {}


def is_told_task(method: object) -> bool:
    """Tell whether a method must be told the task of each image."""
    return isinstance(method, IsToldTask) and method.is_told_task


def num_kept(method: object) -> tuple[int, int]:
    """Return how many pictures a method keeps, and their bytes."""
    pictures = method.kept[0] if isinstance(method, KeepsPictures) else None
    return (len(pictures.sizes), pictures.pixels.numel()) if pictures else (0, 0)


def capacity_of(method: object) -> Capacity | None:
    """Return the state of a method's coordinate pool, if it has one."""
    if not isinstance(method, ClaimsCoordinates):
        return None
    ledger = method.ledger
    return Capacity(ledger.num_coordinates, ledger.num_free, (ledger.lengths or [0])[-1])


def diagnosis_of(method: object) -> dict[str, Any]:
    """Return what a method found out about its last task, if it looks."""
    return method.diagnosis() if isinstance(method, Diagnoses) else {}
