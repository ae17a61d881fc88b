"""The runs of a comparison in one file."""

import json
from pathlib import Path

import fake_runs
import pytest

from clare.presets.load import make_experiment
from clare.registry import load_file

ROOT = Path(__file__).parents[2]
collect = load_file(ROOT / "scripts" / "collect_demo.py", "which a test needs")


def test_all_runs_go_into_one_file_with_their_differences(tmp_path: Path) -> None:
    for method, skill in (("clare", 0.9), ("finetune", 0.6)):
        preset = make_experiment("quickdraw", method).model_dump(mode="json")
        fake_runs.write_run(tmp_path / "all" / method, method, skill=skill, preset=preset)
    words = [str(tmp_path / "all"), "--into", str(tmp_path / "demo.json"), "--command", "make run"]
    assert collect.main(words) is None
    kept, demo = json.loads((tmp_path / "demo.json").read_text()), ROOT / "results" / "quickdraw_demo.json"
    assert list(kept) == list(json.loads(demo.read_text()))
    assert kept["methods"]["finetune"]["difference_to_clare"]["final_accuracy"][0] < 0


def test_wrong_words_end_in_a_sentence(tmp_path: Path) -> None:
    words = [str(tmp_path / "nothing"), "--into", str(tmp_path / "demo.json"), "--command", "make run"]
    assert str(collect.main(words)).startswith("there is no folder")
    with pytest.raises(SystemExit):
        collect.main(words[:3])
