"""One definition of the same run, which resuming, comparing, sweeping and the study ask."""

from pathlib import Path

from clare.identity import flatten, identity
from clare.paper.plan import digest
from clare.presets.load import make_experiment


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
