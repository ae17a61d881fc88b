"""The tables that are written by hand hold what was measured."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHOLE = "head.read_blocks=6,head.read_patches=true"
MIDDLE = "head.read_blocks=6,head.read_centre=true,head.read_patches=true"
CIFAR_10 = f"head.own_share=0.05,{WHOLE},head.shrinkage=0.03,head.strategy=quadratic"
CUB_10 = "head.own_share=0.01,head.read_blocks=6,head.shrinkage=0.3,head.strategy=quadratic"
CIFAR_50 = f"{MIDDLE},head.shrinkage=0.01,head.strategy=quadratic"
CUB_50 = f"head.own_share=0.003,{MIDDLE},head.shrinkage=0.3,head.strategy=quadratic"


@pytest.mark.parametrize(
    ("row", "preset", "head", "blocks", "missing"),
    [
        ("CIFAR-100, 10 tasks", "cifar100-10x10", CIFAR_10, WHOLE, ()),
        ("CIFAR-100, 20 tasks", "cifar100-20x5", CIFAR_10, WHOLE, ("ranpac-", "aper-adapter-", "joint-")),
        ("CIFAR-100, 50 tasks", "cifar100-50x2", CIFAR_50, MIDDLE, ("joint-",)),
        ("CUB-200, 10 tasks", "cub200-10x20", CUB_10, "head.read_blocks=6", ()),
        ("CUB-200, 50 tasks", "cub200-50x4", CUB_50, MIDDLE, ("joint-",)),
    ],
)
def test_what_clare_plus_reaches(row: str, preset: str, head: str, blocks: str, missing: tuple[str, ...]) -> None:
    folder = ROOT / f"results/runs/{preset}+vits14-112"
    labels = [
        "clare",
        "clare-plus",
        f"linear-{head}",
        "ranpac",
        f"ranpac-{blocks}",
        f"aper-adapter-{head}",
        f"joint-{head}",
    ]
    paths = [None if label.startswith(missing) else folder / f"{label}-1993.json" for label in labels]
    cells = ["-" if path is None else f"{100 * json.loads(path.read_text())['final_accuracy']:.1f}" for path in paths]
    assert f"| {row} | {' | '.join(cells)} |" in (ROOT / "docs/methods/clare-plus.md").read_text()
