"""The tables that are written by hand hold what was measured."""

import json
import shlex
from pathlib import Path

import pytest

from clare.presets.load import make_experiment
from clare.presets.schema import completed

ROOT = Path(__file__).parents[2]
WHOLE = "head.read_blocks=6,head.read_patches=true"
MIDDLE = "head.read_blocks=6,head.read_centre=true,head.read_patches=true"
CIFAR_10 = f"head.own_share=0.05,{WHOLE},head.shrinkage=0.03,head.strategy=quadratic"
CUB_10 = "head.own_share=0.01,head.read_blocks=6,head.shrinkage=0.3,head.strategy=quadratic"
CIFAR_50 = f"{MIDDLE},head.shrinkage=0.01,head.strategy=quadratic"
CUB_50 = f"head.own_share=0.003,{MIDDLE},head.shrinkage=0.3,head.strategy=quadratic"
ROWS = [
    ("CIFAR-100, 10 tasks", "cifar100-10x10", CIFAR_10, WHOLE),
    ("CIFAR-100, 20 tasks", "cifar100-20x5", CIFAR_10, WHOLE),
    ("CIFAR-100, 50 tasks", "cifar100-50x2", CIFAR_50, MIDDLE),
    ("CUB-200, 10 tasks", "cub200-10x20", CUB_10, "head.read_blocks=6"),
    ("CUB-200, 50 tasks", "cub200-50x4", CUB_50, MIDDLE),
]


def at_three_looks(label: str) -> str:
    """Return a label with the looks in their place among the settings."""
    return ",".join(sorted([*label.split(","), "head.read_looks=3"]))


def row_of(name: str, preset: str, labels: list[str]) -> str:
    """Return a row of the final accuracies that were measured, a dash for each that was not."""
    paths = [ROOT / f"results/runs/{preset}+vits14-112/{label}-1993.json" for label in labels]
    found = [f"{100 * json.loads(path.read_text())['final_accuracy']:.1f}" if path.exists() else "-" for path in paths]
    assert found[0] != "-"
    return f"| {name} | {' | '.join(found)} |\n"


@pytest.mark.parametrize(("name", "preset", "head", "blocks"), ROWS)
def test_what_clare_plus_reaches(name: str, preset: str, head: str, blocks: str) -> None:
    page = (ROOT / "docs/methods/clare-plus.md").read_text()
    wide, reads = at_three_looks(head), at_three_looks(blocks)
    others = ["ranpac", f"ranpac-{reads}", f"aper-adapter-{wide}", f"joint-{wide}"]
    assert row_of(name, preset, ["clare", "clare-plus", f"linear-{wide}", *others]) in page
    others = [f"ranpac-{blocks}", f"aper-adapter-{head}", f"joint-{head}"]
    assert row_of(name, preset, ["clare-plus-head.read_looks=1", f"linear-{head}", *others]) in page


MEASURED = sorted(path for kind in ("drift", "views") for path in (ROOT / "results" / kind).rglob("*.json"))


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_the_command_of_a_measured_run_still_means_its_settings(path: Path) -> None:
    result = json.loads(path.read_text())
    words = shlex.split(result["command"])
    overrides = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    meant = make_experiment(result["preset"], result["method"], overrides, result["seed"]).model_dump(mode="json")
    assert completed({**meant, "method": result["settings"]})["method"] == meant["method"]
    changes = ",".join(f"{key}={value}" for key, value in result["changes"].items())
    assert path.stem == f"{result['method']}-{changes}-{result['seed']}"
