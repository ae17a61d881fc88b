"""The paper's experiments: as its text reads, as their names say, and able to run."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from data_worlds import write_tree
from typer.testing import CliRunner

from clare.cli.main import app
from clare.data.catalogue import CATALOGUE
from clare.data.stream import task_sizes
from clare.methods import METHODS
from clare.methods.protocols import tiny_settings
from clare.presets.load import make_experiment
from clare.report.record import RunRecord, read_run

PRESETS = {
    "imagenet-r-10x20": (10, 20),
    "imagenet-r-20x10": (20, 10),
    "imagenet-r-50x4": (50, 4),
    "imagenet-a-10x20": (10, 20),
    "imagenet-a-50x4": (50, 4),
    "objectnet-10x20": (10, 20),
    "omnibenchmark1k-100x10": (100, 10),
}
BASELINES = ("l2p", "dualprompt", "coda-prompt", "ease", "aper-adapter", "ranpac", "inflora", "sdlora", "sema")
TINY = (
    "backbone.weights=random",
    "backbone.image_size=32",
    "backbone.architecture={depth=5, embed_dim=24, num_heads=2}",
    "transforms.image_size=32",
    "transforms.resize=36",
    "stream.increment=2",
    "engine.device=cpu",
)


@pytest.mark.parametrize(("name", "tasks", "increment"), [(name, *sizes) for name, sizes in PRESETS.items()])
def test_a_preset_has_the_tasks_of_its_name(name: str, tasks: int, increment: int) -> None:
    experiment = make_experiment(name)
    num_classes = CATALOGUE[experiment.data.dataset].num_classes
    assert name.startswith(experiment.data.dataset)
    assert num_classes is not None
    stream = experiment.stream
    assert task_sizes(num_classes, stream.first or stream.increment, stream.increment) == [increment] * tasks
    assert stream.evaluate_on == "test"
    assert stream.num_classes is None
    assert f"in {tasks} tasks of {increment} classes" in experiment.description


@pytest.mark.parametrize(
    ("name", "first", "increment", "tasks", "recipe"),
    [
        ("omnibenchmark1k-200x5", 5, 5, 200, (0.01, 16, 3, 80)),
        ("omnibenchmark1k-b100-150x6", 100, 6, 151, (0.02, 32, 3, 160)),
        ("omnibenchmark1k-b100-300x3", 100, 3, 301, (0.01, 16, 3, 80)),
    ],
)
def test_long_sequences_are_those_of_cares_authors(
    name: str, first: int, increment: int, tasks: int, recipe: tuple[float, int, int, int]
) -> None:
    experiment = make_experiment(name, method="care")
    sizes = task_sizes(1000, experiment.stream.first or experiment.stream.increment, experiment.stream.increment)
    assert sizes == [first, *[increment] * (tasks - 1)]
    assert f"in {tasks} tasks" in experiment.description
    method = experiment.method
    head = method["head"]
    assert (method["learning_rate"], method["batch_size"], head["align_epochs"], head["align_samples"]) == recipe
    assert method["epochs"] == 20
    assert method["iterative"] is False


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_protocol_and_the_recipe_are_the_papers(name: str) -> None:
    experiment = make_experiment(name)
    assert experiment.seed == 1993
    assert experiment.backbone.name == "vit_base_patch16_224.augreg_in21k"
    transforms = experiment.transforms
    assert (transforms.image_size, transforms.resize, transforms.train) == (224, 256, "crop")
    crops = (0.08, "backbone") if name.startswith("imagenet-a") else (0.05, "none")
    assert (transforms.crop_scale[0], transforms.normalise) == crops
    assert (transforms.crop_scale[1], transforms.flip) == (1.0, 0.5)
    assert experiment.method_name == "clare"
    recipe = {
        "sparsity": 0.95,
        "probe_epochs": 5,
        "epochs": 20,
        "batch_size": 32,
        "learning_rate": 0.02,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "penalty": "l1-subgradient",
        "penalty_weight": 1e-4,
        "probe_decay": "zero",
        "two_stage": True,
        "capacity_aware": True,
    }
    assert recipe.items() <= experiment.method.items()
    assert experiment.method["adapter"] == {"bottleneck": 64, "scale": 0.1, "dropout": 0.1}
    assert experiment.method["head"]["kind"] == "trained"


SLCA_AS_ON_IMAGENET_R = (
    "imagenet-r-10x20",
    "cub200-10x20",
    "imagenet-a-10x20",
    "objectnet-10x20",
    "omnibenchmark1k-100x10",
)
PUBLISHED = [
    ("imagenet-r-50x4", "l2p", {"learning_rate": 0.001875, "batch_size": 32, "epochs": 10, "pull_weight": 0.1}),
    ("omnibenchmark1k-100x10", "dualprompt", {"learning_rate": 0.001, "batch_size": 24, "epochs": 10}),
    (
        "imagenet-r-50x4",
        "dualprompt",
        {"learning_rate": 0.005 * 24 / 256, "epochs": 50, "expert_length": 20, "pull_weight": 1.0, "clip_norm": 1.0},
    ),
    ("imagenet-r-20x10", "coda-prompt", {"epochs": 50, "batch_size": 128, "learning_rate": 0.001}),
    ("imagenet-r-10x20", "ease", {"learning_rate": 0.05, "batch_size": 16, "epochs": 20, "weight_decay": 5e-3}),
    ("imagenet-a-50x4", "ease", {"learning_rate": 0.05, "batch_size": 32, "epochs": 20, "weight_decay": 5e-3}),
    ("objectnet-10x20", "ease", {"learning_rate": 0.05, "batch_size": 48, "epochs": 25, "cross_weight": 0.2}),
    ("imagenet-r-10x20", "aper-adapter", {"learning_rate": 0.05, "batch_size": 24, "weight_decay": 5e-3}),
    ("imagenet-a-10x20", "aper-adapter", {"learning_rate": 0.01, "batch_size": 48, "weight_decay": 5e-4}),
    ("imagenet-r-10x20", "ranpac", {"tuner": "ssf", "learning_rate": 0.01}),
    ("imagenet-r-10x20", "inflora", {"epochs": 50, "threshold": 0.98, "rank": 10}),
    ("imagenet-a-10x20", "sdlora", {"learning_rate": 0.01, "epochs": 20, "batch_size": 128}),
    ("imagenet-r-10x20", "sema", {"threshold": 2.0, "epochs": 20, "learning_rate": 0.005}),
    ("imagenet-a-10x20", "sema", {"threshold": 1.0, "epochs": 20, "learning_rate": 0.005}),
    ("cifar100-10x10", "slca", {"epochs": 20, "milestone": 18, "batch_size": 128, "head.align_temperature": 0.1}),
    *((name, "slca", {"epochs": 50, "milestone": 40, "batch_size": 128}) for name in SLCA_AS_ON_IMAGENET_R),
    ("cifar100-10x10", "fecam", {"head.diagonal_share": 1, "head.others_share": 0}),
    ("imagenet-r-10x20", "fecam", {"head.diagonal_share": 10, "head.others_share": 10}),
    ("cifar100-10x10", "moal", {"epochs": 80, "batch_size": 48, "head.num_projected": 5000}),
    ("imagenet-r-10x20", "moal", {"epochs": 80, "head.num_projected": 20000}),
    *((name, "moal", {"head.num_projected": 15000}) for name in ("imagenet-a-10x20", "cub200-10x20")),
    ("omnibenchmark1k-100x10", "moal", {"epochs": 20, "head.num_projected": 10000}),
    ("imagenet-r-10x20", "magmax", {"epochs": 10, "learning_rate": 1e-5, "batch_size": 128, "weight_decay": 0.1}),
    ("cub200-10x20", "magmax", {"epochs": 30}),
    ("cifar100-10x10", "loda", {"rank": 32, "learning_rate": 0.005, "weight_decay": 5e-4, "margin": 0, "reach": 0.3}),
    ("cub200-10x20", "loda", {"rank": 32, "learning_rate": 0.005, "margin": 0.1}),
    ("imagenet-a-10x20", "loda", {"rank": 32, "learning_rate": 0.01, "margin": 0.15}),
    (
        "imagenet-r-20x10",
        "loda",
        {"rank": 64, "learning_rate": 0.02, "weight_decay": 0, "margin": 0.1, "reach": 0.7},
    ),
    ("cifar100-20x5", "care", {"epochs": 60, "learning_rate": 0.05, "batch_size": 64, "head.align_decay": "none"}),
    ("imagenet-r-10x20", "care", {"epochs": 60, "learning_rate": 0.02, "batch_size": 32, "head.align_epochs": 30}),
    ("imagenet-r-20x10", "care", {"epochs": 60, "learning_rate": 0.01, "batch_size": 16, "head.align_epochs": 30}),
    ("imagenet-r-50x4", "care", {"epochs": 20, "learning_rate": 0.05, "batch_size": 16, "head.align_epochs": 20}),
    ("imagenet-a-50x4", "care", {"epochs": 20, "learning_rate": 0.01, "margin": 0.3, "head.align_epochs": 10}),
    ("objectnet-10x20", "care", {"epochs": 30, "learning_rate": 0.05, "batch_size": 64, "head.align_decay": "older"}),
    ("cifar100-20x5", "tuna", {"epochs": 15, "learning_rate": 0.01, "batch_size": 16, "orthogonality": 0}),
    ("imagenet-r-10x20", "tuna", {"epochs": 10, "learning_rate": 0.02, "batch_size": 32, "orthogonality": 1e-3}),
    ("imagenet-a-10x20", "tuna", {"epochs": 20, "margin": 0.3, "head.align_learning_rate": 0.01}),
    ("objectnet-10x20", "tuna", {"epochs": 10, "learning_rate": 0.05, "head.align_learning_rate": 0.001}),
    ("cifar100-20x5", "mos", {"epochs": 20, "learning_rate": 0.03, "batch_size": 48, "weight_decay": 5e-4}),
    ("imagenet-r-10x20", "mos", {"epochs": 10, "learning_rate": 0.05, "batch_size": 16, "weight_decay": 5e-3}),
    ("imagenet-a-10x20", "mos", {"epochs": 10, "batch_size": 32, "head.align_diagonal": True}),
    ("cub200-10x20", "mos", {"epochs": 10, "learning_rate": 0.01, "batch_size": 32, "weight_decay": 5e-4}),
    ("omnibenchmark1k-100x10", "mos", {"epochs": 10, "learning_rate": 0.01, "batch_size": 16}),
    ("cifar100-10x10", "min", {"first_epochs": 10, "epochs": 10, "batch_size": 128, "head.ridge": 100}),
    ("imagenet-r-10x20", "min", {"head.ridge": 500, "head.num_projected": 16384}),
    ("omnibenchmark1k-100x10", "min", {"first_epochs": 20, "epochs": 10, "head.ridge": 500}),
    ("imagenet-r-10x20", "macil", {"first_epochs": 20, "epochs": 10, "learning_rate": 0.01, "weight_decay": 0}),
    ("imagenet-r-10x20", "ssiat", {"first_epochs": 20, "epochs": 10, "learning_rate": 0.01, "margin": 0}),
    ("imagenet-a-10x20", "ssiat", {"learning_rate": 0.01, "batch_size": 48, "margin": 0.3}),
]


@pytest.mark.parametrize(("name", "method", "settings"), PUBLISHED)
def test_baselines_have_the_settings_that_their_authors_published(
    name: str, method: str, settings: dict[str, object]
) -> None:
    found = make_experiment(name, method).method
    assert settings.items() <= {**found, **{f"head.{key}": value for key, value in found["head"].items()}}.items()


@pytest.mark.parametrize(
    ("backbone", "weights"),
    [
        ("vit-b16-in21k", "vit_base_patch16_224.augreg_in21k"),
        ("vit-b16-in1k", "vit_base_patch16_224.augreg_in21k_ft_in1k"),
    ],
)
def test_the_papers_backbones_lie_over_a_preset(backbone: str, weights: str) -> None:
    plain, laid = make_experiment("imagenet-r-10x20"), make_experiment(f"imagenet-r-10x20+{backbone}")
    assert laid.backbone.name == weights
    assert laid.model_copy(update={"name": plain.name, "backbone": plain.backbone}) == plain


def flat(settings: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield settings as a user writes them with --set."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value)}"


def train_tiny(preset: str, method: str, folder: Path, settings: Mapping[str, Any]) -> RunRecord:
    """Train on a made-up tree in the layout of the preset's data set."""
    dataset = make_experiment(preset).data.dataset
    write_tree(folder / "data" / dataset, num_classes=4, num_train=6, num_test=3, size=40)
    words = ["train", preset, "--method", method, "--out", str(folder / "run")]
    for override in (*TINY, f"data.root={folder / 'data'}", *flat(settings, "method.")):
        words += ["--set", override]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return read_run(folder / "run")


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_runs_on_a_tree_of_its_layout(name: str, tmp_path: Path) -> None:
    run = train_tiny(name, "clare", tmp_path, {"epochs": 1, "probe_epochs": 1})
    assert run.finished
    assert len(run.tasks) == 2
    assert [phase.phase for phase in run.phases] == ["probe", "train"] * 2


@pytest.mark.parametrize("method", BASELINES)
def test_every_baseline_runs_with_its_settings_in_a_paper_preset(method: str, tmp_path: Path) -> None:
    run = train_tiny("imagenet-r-10x20", method, tmp_path, {"epochs": 1, **tiny_settings(METHODS.get(method))})
    assert (run.finished, run.method, len(run.tasks)) == (True, method, 2)
