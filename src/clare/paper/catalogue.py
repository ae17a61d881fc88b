"""The paper's experiments as data: which rows, on which streams, and what is looked at."""

from dataclasses import dataclass, replace
from typing import Literal

from clare.errors import SettingsError, nearest

Metric = Literal["average", "final"]
BOTH: tuple[Metric, ...] = ("average", "final")


@dataclass(frozen=True)
class Row:
    """A method with settings of its own; `choices` are overrides of which the best on validation images is taken."""

    key: str
    label: str
    method: str
    overrides: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """One table or figure of the paper."""

    name: str
    title: str
    presets: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...] = BOTH
    reference: str = "clare"
    """The row that differences are taken to."""
    seeds: tuple[int, ...] = ()
    """Seeds when the user gives none; empty is the preset's own."""
    kind: Literal["table", "figure", "efficiency"] = "table"
    all_at_once: bool = False
    """Whether all classes are learnt as one task."""

    @property
    def methods(self) -> list[str]:
        """The methods of its rows."""
        return [row.method for row in self.rows]

    def row(self, key: str) -> Row:
        """Return the row of this key."""
        return next(row for row in self.rows if row.key == key)


LABELS = ("CLARE", "L2P", "DualPrompt", "CODA-Prompt", "EASE", "APER-Adapter", "SEMA", "InfLoRA", "SD-LoRA")
METHODS = tuple(Row(key, label, key) for label in LABELS for key in [label.lower().replace("sd-lora", "sdlora")])
CLARE, EASE, SD_LORA = METHODS[0], METHODS[4], METHODS[8]
LONG = ("imagenet-r-50x4", "imagenet-a-50x4", "omnibenchmark1k-100x10")
STANDARD = (
    "imagenet-r-10x20",
    "imagenet-r-20x10",
    "cifar100-10x10",
    "cifar100-20x5",
    "imagenet-a-10x20",
    "objectnet-10x20",
)
ABLATION = ("imagenet-r-10x20", "omnibenchmark1k-100x10")
CONSTANT_SHARES = (0.1, 0.05, 0.025, 0.01)
UPDATED_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001)
FULL = "share-100"


def _variant(key: str, label: str, *overrides: str) -> Row:
    """CLARE with some settings changed."""
    return Row(key, label, "clare", tuple(f"method.{override}" for override in overrides))


def _constant(key: str, label: str, *overrides: str) -> Row:
    """CLARE with a constant share of all coordinates, the best of those that the paper tried."""
    row = _variant(key, label, "capacity_aware=false", *overrides)
    return replace(row, choices=tuple(f"method.constant_share={share}" for share in CONSTANT_SHARES))


def _updated(share: float) -> Row:
    """Fine-tuning of the whole backbone, of which only a share is updated, with the rows as it leaves them."""
    words = (f"method.share={share}", "method.head.kind=trained")
    return Row(f"share-{100 * share:g}", f"{100 * share:g} % updated", "full-finetune", words)


_STUDIES = (
    Study("table1", "Long sequences", LONG, METHODS),
    Study("table2", "Standard benchmarks", STANDARD, METHODS),
    Study(
        "table3",
        "Components of CLARE",
        ABLATION,
        (
            CLARE,
            _constant("no-capacity", "w/o capacity-aware"),
            _constant("no-capacity-start", "w/o capacity-aware, moved in the task", "origin=start"),
            _constant("no-capacity-literal", "w/o capacity-aware, merge as printed", "merge=literal"),
            _variant("one-stage", "w/o two-stage", "two_stage=false"),
        ),
    ),
    Study(
        "table4",
        "Sparsity ratio",
        ABLATION,
        (
            _variant("sparsity-90", "sparsity 90 %", "sparsity=0.9"),
            _variant("clare", "sparsity 95 % (CLARE)", "sparsity=0.95"),
            _variant("sparsity-97.5", "sparsity 97.5 %", "sparsity=0.975"),
            _variant("sparsity-99", "sparsity 99 %", "sparsity=0.99"),
        ),
    ),
    Study(
        "table5",
        "Mask and penalty",
        ABLATION,
        (
            CLARE,
            _variant("no-mask", "no mask", "mask=none"),
            _variant("no-mask-literal", "no mask, merge as printed", "mask=none", "merge=literal"),
            _variant("random-mask", "random mask", "mask=random"),
            _variant("independent", "independent tuning", "start=initial"),
            _variant("stage1-l2", "Stage-1 L2", "penalty=l2"),
            _variant("lambda-0", "λ = 0", "penalty_weight=0.0"),
            _variant("lambda-1e-5", "λ = 1e-5", "penalty_weight=1e-5"),
            _variant("lambda-1e-3", "λ = 1e-3", "penalty_weight=1e-3"),
        ),
    ),
    Study(
        "table6",
        "Class-order seeds",
        ("imagenet-r-10x20", "imagenet-a-50x4", "omnibenchmark1k-100x10"),
        (CLARE, SD_LORA),
        metrics=("final",),
        seeds=(1993, 1994, 1995),
    ),
    Study(
        "table7",
        "Adapter width",
        ("imagenet-r-50x4",),
        (
            _variant("width-16", "d = 16", "adapter.bottleneck=16"),
            _variant("width-32", "d = 32", "adapter.bottleneck=32"),
            _variant("clare", "d = 64 (CLARE)", "adapter.bottleneck=64"),
            _variant("width-128", "d = 128", "adapter.bottleneck=128"),
        ),
        metrics=("final",),
    ),
    Study(
        "figure1",
        "Sizes of updates, and sparse fine-tuning of the whole backbone",
        ("imagenet-r-10x20+vit-b16-in1k",),
        tuple(map(_updated, UPDATED_SHARES)),
        metrics=("final",),
        reference=FULL,
        kind="figure",
        all_at_once=True,
    ),
    Study(
        "efficiency",
        "Training time and latency",
        ("imagenet-a-50x4",),
        (CLARE, SD_LORA, EASE),
        metrics=("final",),
        kind="efficiency",
    ),
)
STUDIES = {study.name: study for study in _STUDIES}


def find_study(name: str) -> Study:
    """Return the experiment of this name, or say which there are."""
    if name not in STUDIES:
        raise SettingsError(
            f"there is no experiment '{name}'{nearest(name, STUDIES)}; known: {', '.join(STUDIES)}, "
            "see docs/reproduce.md"
        )
    return STUDIES[name]
