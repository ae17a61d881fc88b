"""Claims on presets with a backbone laid over them, which are never mixed, and against several rivals."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clare.errors import RunError

Script = Callable[[str], ModuleType]
Add = Callable[..., Path]
SMALL, LARGE = "vits14-112", "vit-b16-in21k"


@pytest.fixture
def claim(boards: ModuleType, claims: ModuleType, script: Script, tmp_path: Path) -> Callable[[str], Any]:
    """Return claim(key): the claim as the results below tmp_path decide it."""

    def claim(key: str) -> Any:
        results = script("result_files").read_results(tmp_path / "results/runs")
        return next(each for each in claims.make_claims(boards.make_boards(results)) if each.key == key)

    return claim


def test_two_backbones_under_one_preset_are_two_worlds(
    write: ModuleType, add: Add, claim: Callable[[str], Any], tmp_path: Path
) -> None:
    for stream, backbone, learnt, random in (
        ("cifar100-10x10", SMALL, 0.6, 0.5),
        ("cifar100-50x2", SMALL, 0.6, 0.2),
        ("cifar100-10x10", LARGE, 0.8, 0.95),
        ("cifar100-50x2", LARGE, 0.9, 0.95),
    ):
        add(f"{stream}+{backbone}", "clare", skill=learnt)
        add(f"{stream}+{backbone}", "clare", "method.mask=random", skill=random)
    add(f"cifar100-10x10+{LARGE}", "ranpac", skill=0.99)
    found = {finding.where: finding.verdict for finding in claim("learnt-mask").findings}
    assert found[f"cifar100-10x10+{SMALL}"] == "holds"
    assert found[f"cifar100-10x10+{LARGE}"] == "does not hold"
    assert [finding.where for finding in claim("longer").findings] == [f"cifar100+{LARGE}", f"cifar100+{SMALL}"]
    assert [finding.where for finding in claim("ranpac").findings][:2] == [f"cifar100-10x10+{LARGE}", "cifar100-50x2"]
    (tmp_path / "README.md").write_text("<!-- results:start --><!-- results:end -->")
    pages = write.render(tmp_path)
    for stream in ("cifar100-10x10", "cifar100-50x2"):
        for backbone in (SMALL, LARGE):
            assert len(re.findall(rf"^\| {stream}\+{backbone} \|", pages["README.md"], re.MULTILINE)) == 1
            assert f"\n## {stream}+{backbone}\n" in pages["docs/results.md"]
    small = pages["docs/results.md"].split(f"## cifar100-10x10+{SMALL}")[1].split("\n## ")[0]
    assert "ranpac" not in small
    assert len(write.draw(tmp_path)) == 4


def test_other_weights_under_one_name_are_refused(add: Add, claim: Callable[[str], Any], tmp_path: Path) -> None:
    add("cifar100-10x10+vits14-112", "clare")
    add("cifar100-10x10+vits14-112", "ease")
    path = tmp_path / "results/runs/cifar100-10x10+vits14-112/ease-1.json"
    path.write_text(path.read_text().replace('"backbone_hash": "abc"', '"backbone_hash": "other"'))
    with pytest.raises(RunError, match="differ in backbone_hash, which their names do not tell"):
        claim("equal-head")


def test_the_size_in_a_backbones_name_is_no_cut_into_tasks(boards: ModuleType) -> None:
    assert boards.Board("cifar100-50x2+vit-112x112", ()).family == "cifar100+vit-112x112"
    assert boards.Board("cifar100-50x2-tuned+vit", ()).family == "cifar100-tuned+vit"


def test_who_is_ahead_of_all_is_ahead_of_each(
    boards: ModuleType, claims: ModuleType, monkeypatch: pytest.MonkeyPatch, add: Add, claim: Callable[[str], Any]
) -> None:
    for method, skill in (("clare", 0.9), ("linear", 0.6), ("finetune", 0.5)):
        add(f"cifar100-10x10+{SMALL}", method, skill=skill)
    (finding, *_) = claim("equal-head").findings
    assert finding.verdict == "holds"

    def unsure(kind: Any, other: Any) -> Any:
        # The second best differs in other images than the best, which makes its interval wider.
        return boards.Difference((0.02,), 0.02 if other.method == "finetune" else 0.001)

    monkeypatch.setattr(claims, "difference", unsure)
    (finding, *_) = claim("equal-head").findings
    assert finding.verdict == "undecided"
    assert re.search(r"best: linear .*; undecided against finetune; 2 of 2 rivals measured", finding.figures)
    monkeypatch.setattr(
        claims, "difference", lambda kind, other: None if other.method == "finetune" else unsure(0, other)
    )
    assert claim("equal-head").findings[0].verdict == "not measured"
    assert claim("aim-lead").findings[0].verdict == "does not hold"


def test_the_comparison_page_counts_the_runs_of_its_table(write: ModuleType, add: Add, tmp_path: Path) -> None:
    for seed in (1, 2):
        add("quickdraw-20x10", "clare", seed=seed, num_tasks=4)
    add("quickdraw-20x10", "clare", "method.mask=random", num_tasks=4)
    pages = write.render(tmp_path)
    assert "\n2 runs on " in pages["docs/compare_quickdraw.md"]
    assert "\n3 runs on " in pages["docs/results.md"]


def without_answers(path: Path) -> None:
    """Leave of a result only its accuracies."""
    result = json.loads(path.read_bytes())
    path.write_text(json.dumps({**result, "final_answers": None}))


def test_runs_whose_answers_were_not_kept_are_taken_as_independent(
    boards: ModuleType, add: Add, script: Script, tmp_path: Path
) -> None:
    preset = f"cifar100-10x10+{SMALL}"
    for method, skill in (("clare", 0.9), ("linear", 0.6), ("finetune", 0.5)):
        add(preset, method, skill=skill)
    folder = tmp_path / "results/runs" / preset

    def found() -> Any:
        (board,) = boards.make_boards(script("result_files").read_results(folder.parent))
        return boards.difference(board.find("clare"), board.find("linear"))

    paired = found()
    without_answers(folder / "linear-1.json")
    unpaired = found()
    assert (paired.is_paired, unpaired.is_paired) == (True, False)
    assert unpaired.mean == paired.mean
    accuracies = [
        json.loads((folder / f"{name}-1.json").read_bytes())["final_accuracy"] for name in ("clare", "linear")
    ]
    num_images = sum(json.loads((folder / "clare-1.json").read_bytes())["final_answers"]["num_images"])
    expected = sum(a * (1 - a) / num_images for a in accuracies) ** 0.5
    assert unpaired.deviation == pytest.approx(expected)
    assert str(unpaired).endswith("] unpaired")
    # The third run still knows how many images there are; without it nobody does.
    without_answers(folder / "clare-1.json")
    assert found().deviation == pytest.approx(expected)
    without_answers(folder / "finetune-1.json")
    assert found().deviation is None
    assert str(found()) == f"{100 * paired.mean:+.1f}"


def test_a_rival_at_another_head_than_its_own_is_not_measured(add: Add, claim: Callable[[str], Any]) -> None:
    preset = f"cifar100-10x10+{SMALL}"
    add(preset, "clare", skill=0.6)
    add(preset, "aper-adapter", skill=0.9)
    assert claim("rivals").findings[0].verdict == "not measured"
    add(preset, "aper-adapter", "method.head.strategy=prototype", skill=0.9)
    finding = claim("rivals").findings[0]
    assert finding.verdict == "does not hold"
    assert "1 of 8 rivals measured" in finding.figures


def test_heads_that_read_other_blocks_are_no_equals(add: Add, claim: Callable[[str], Any]) -> None:
    preset = f"cifar100-10x10+{SMALL}"
    add(preset, "clare", skill=0.6)
    add(preset, "finetune", "method.head.read_blocks=6", skill=0.9)
    add(preset, "linear", skill=0.5)
    finding = claim("equal-head").findings[0]
    assert finding.verdict == "holds"
    assert "1 of 1 rivals" in finding.figures or "rivals" not in finding.figures
