"""How many images a stream has, found out without decoding them, and whether its data are there at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from clare.data import cifar
from clare.data.catalogue import CATALOGUE
from clare.data.folders import list_tree
from clare.data.settings import DRAWINGS, DataSettings
from clare.data.sources import load_dataset
from clare.data.stream import task_sizes
from clare.errors import DataError
from clare.presets.schema import Experiment

TEST_SHARE = 0.2
"""Share of a data set's images that are for testing, where nobody says."""
ALTERNATIVE = "quickdraw-20x10"
"""A preset whose data come with the package."""


@dataclass(frozen=True)
class Extent:
    """Size of a data set."""

    num_classes: int
    num_train: int
    num_test: int


@dataclass(frozen=True)
class TaskExtent:
    """Images that a task trains on, and classes and images that are evaluated after it."""

    num_train: float
    num_seen: int
    num_evaluated: float


def count_images(settings: DataSettings) -> Extent:
    """Count the classes and images of a data set."""
    root = Path(settings.root).expanduser()
    is_tree = settings.dataset not in (*DRAWINGS, "cifar100")
    if settings.dataset == "cifar100":
        is_tree = (root / "cifar100").is_dir() and not (root / cifar.FOLDER).is_dir()
    if not is_tree:
        # These are read within a second, and what is missing is refused as a run would refuse it.
        dataset = load_dataset(settings)
        return Extent(len(dataset.classes), len(dataset.train), len(dataset.test))
    train, test = list_tree(root if settings.dataset == "folder" else root / settings.dataset)
    return Extent(len(train.classes), len(train.paths), len(test.paths))


def known_extent(settings: DataSettings) -> Extent | None:
    """Return the size of a data set as its authors and users describe it, nothing where nobody does."""
    facts = CATALOGUE.get(settings.dataset)
    if facts is None or facts.num_classes is None or not (facts.num_test or facts.num_images):
        return None
    num_images = facts.num_images or 0
    num_train = facts.num_train or round((1 - TEST_SHARE) * num_images)
    return Extent(facts.num_classes, num_train, facts.num_test or num_images - num_train)


def count_all(experiments: Mapping[str, Experiment], expects: bool = False) -> tuple[dict[str, Extent], list[str]]:
    """Count the images of every preset, or expect what is known of them, and say of which the data are not here."""
    extents: dict[str, Extent] = {}
    problems: dict[str, DataError] = {}
    remarks = []
    for preset, experiment in experiments.items():
        try:
            extents[preset] = count_images(experiment.data)
        except DataError as error:
            known = known_extent(experiment.data) if expects else None
            if known is None:
                problems[preset] = error
                continue
            extents[preset] = known
            remarks.append(
                f"{preset}: the data are not here; known are {known.num_classes:,} classes with about "
                f"{known.num_train:,} training and {known.num_test:,} test images"
            )
    if problems:
        names = list(problems)
        first = str(problems[names[0]]).partition("; ")[0]
        raise DataError(
            f"the data of {_listed(names)} cannot be used: {first}; `clare data {quote(names[0])}` says where they "
            f"come from, --set data.root=FOLDER where they are, and --preset {ALTERNATIVE} runs the experiment on "
            "drawings that come with the package"
        )
    return extents, remarks


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def task_extents(extent: Extent, experiment: Experiment, merged: bool) -> list[TaskExtent]:
    """Return the size of every task of a stream, whose classes are taken to be equally large."""
    stream = experiment.stream
    num_classes = stream.num_classes or extent.num_classes
    if num_classes > extent.num_classes:
        raise DataError(
            f"the stream of {experiment.name} asks for {num_classes} classes and there are {extent.num_classes}; "
            f"set `stream.num_classes` to at most {extent.num_classes}"
        )
    per_class, evaluated = extent.num_train / extent.num_classes, extent.num_test / extent.num_classes
    if stream.evaluate_on == "validation":
        evaluated = stream.validation_share * per_class
        per_class -= evaluated
    per_class = min(per_class, stream.train_per_class or per_class)
    sizes = [num_classes] if merged else task_sizes(num_classes, stream.first or stream.increment, stream.increment)
    tasks, num_seen = [], 0
    for size in sizes:
        num_seen += size
        tasks.append(TaskExtent(size * per_class, num_seen, num_seen * evaluated))
    return tasks
