"""One definition of the same run, which resuming, comparing, sweeping and the study ask."""

from pathlib import Path

import pytest
from fake_runs import write_run

from clare.identity import flatten, head_label, identity
from clare.methods import METHODS
from clare.paper.plan import digest
from clare.presets.load import make_experiment
from clare.report.record import read_run


def test_settings_make_another_run_and_ways_of_writing_them_do_not(tiny_preset: Path) -> None:
    plain = make_experiment(str(tiny_preset), "linear")
    words = [f"method.epochs={plain.method['epochs']}", "data.store=pinned"]
    written = make_experiment(str(tiny_preset), "linear", words)
    assert written.overrides != plain.overrides
    assert written.identity() == plain.identity()
    assert digest(written) == digest(plain)
    for other in ("method.epochs=7", "engine.eval_batch_size=3", "stream.increment=3"):
        assert make_experiment(str(tiny_preset), "linear", [other]).identity() != plain.identity()
    assert make_experiment(str(tiny_preset), "linear", seed=5).identity() != plain.identity()


def test_what_a_folder_holds_has_the_identity_of_its_experiment(tiny_preset: Path) -> None:
    experiment = make_experiment(str(tiny_preset), "clare")
    assert identity(experiment.model_dump(mode="json")) == experiment.identity()
    assert identity({"name": "x", "data": {"root": "r", "store": "cpu", "cache": "c"}, "description": "d"}) == {
        "name": "x",
        "data": {"root": "r"},
    }
    assert flatten({"a": {"b": 1, "c": [1]}, "d": "x", "e": {}}) == {"a.b": "1", "a.c": "[1]", "d": "x", "e": "{}"}


@pytest.mark.parametrize("method", list(METHODS))
def test_a_run_that_fails_and_one_that_ends_have_one_label_of_their_head(
    method: str, tiny_preset: Path, tmp_path: Path
) -> None:
    experiment = make_experiment(str(tiny_preset), method)
    folder = write_run(tmp_path / "run", method, preset=experiment.model_dump(mode="json"))
    assert read_run(folder).head == experiment.head_label
    assert experiment.method["head"]["kind"] in experiment.head_label


def test_heads_of_earlier_releases_have_todays_label() -> None:
    head = {"form": "cosine", "strategy": "prototype", "read_blocks": 2, "read_looks": 3}
    assert head_label({"method": {"name": "simplecil", "head": head}}) == "prototype, 2 blocks, 3 views"
