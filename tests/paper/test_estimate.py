"""How long runs take: sums by hand, sizes of streams, and a real measurement of every method."""

from pathlib import Path

import pytest
from experiment_worlds import EXTENT

from clare.errors import BackboneError, DataError
from clare.methods import METHODS as REGISTERED
from clare.paper.estimate import (
    Costs,
    Estimator,
    Extent,
    Measured,
    TaskExtent,
    count_all,
    count_images,
    measure,
    run_seconds,
    task_extents,
)
from clare.paper.paper import STUDIES
from clare.presets.load import make_experiment
from clare.presets.schema import Experiment


def test_seconds_add_up_by_hand() -> None:
    first, later = Costs(per_image=4.0), Costs(per_image=2.0, per_seen_class=0.5, per_task=3.0)
    measured = Measured(first, later, per_evaluated=0.1, passes=(1, 1))
    tasks = [TaskExtent(10, 2, 20), TaskExtent(30, 4, 40), TaskExtent(10, 6, 60)]
    # 4*10 + 0.1*20, then 2*30 + 0.5*4 + 3 + 0.1*40, then 2*10 + 0.5*6 + 3 + 0.1*60
    assert run_seconds(measured, tasks) == pytest.approx(42 + 69 + 32)


def test_passes_go_on_growing_as_they_began() -> None:
    measured = Measured(Costs(), Costs(), per_evaluated=0.4, passes=(2, 4))
    tasks = [TaskExtent(0, 1, 10), TaskExtent(0, 2, 10), TaskExtent(0, 3, 10)]
    # 0.4 seconds are four passes: 2, 4 and 6 of them per image.
    assert run_seconds(measured, tasks) == pytest.approx(10 * 0.1 * (2 + 4 + 6))


def test_tasks_have_their_share_of_the_images() -> None:
    def tasks(*overrides: str, merged: bool = False) -> list[TaskExtent]:
        words = ["stream.increment=2", "stream.num_classes=6", *overrides]
        experiment = make_experiment("quickdraw-20x10", "clare", words)
        return task_extents(EXTENT, experiment, merged)

    assert tasks() == [TaskExtent(20, 2, 10), TaskExtent(20, 4, 20), TaskExtent(20, 6, 30)]
    assert tasks("stream.first=4") == [TaskExtent(40, 4, 20), TaskExtent(20, 6, 30)]
    assert tasks("stream.train_per_class=3")[0] == TaskExtent(6, 2, 10)
    assert tasks("stream.evaluate_on=validation")[0] == TaskExtent(16, 2, 4)
    assert tasks(merged=True) == [TaskExtent(60, 6, 30)]
    with pytest.raises(DataError, match=r"asks for 7 classes and there are 6; set `stream\.num_classes` to at most 6"):
        tasks("stream.num_classes=7")


def test_drawings_are_counted() -> None:
    assert count_images(make_experiment("quickdraw").data) == Extent(200, 16_000, 4_000)


def test_missing_data_are_named_with_a_way_out(tmp_path: Path) -> None:
    def experiment(dataset: str) -> Experiment:
        return make_experiment("quickdraw", "clare", [f"data.dataset={dataset}", f"data.root={tmp_path}"])

    with pytest.raises(DataError) as caught:
        count_all({"one": experiment("imagenet-r"), "two": experiment("cifar100")})
    sentence = str(caught.value)
    assert sentence.startswith(
        f"the data of one and two cannot be used: there is no folder '{tmp_path}/imagenet-r/train'; "
    )
    assert "`clare data one` says where they come from" in sentence
    assert "--preset quickdraw-20x10" in sentence


def test_where_data_are_missing_a_plan_takes_what_is_known_of_them(tmp_path: Path) -> None:
    def experiment(dataset: str) -> Experiment:
        return make_experiment("quickdraw", "clare", [f"data.dataset={dataset}", f"data.root={tmp_path}"])

    names = {"here": "quickdraw", "split": "imagenet-a", "whole": "imagenet-r", "train": "omnibenchmark1k"}
    extents, remarks = count_all({preset: experiment(dataset) for preset, dataset in names.items()}, expects=True)
    assert extents == {
        "here": Extent(200, 16_000, 4_000),
        "split": Extent(200, 5_981, 1_519),
        "whole": Extent(200, 24_000, 6_000),
        "train": Extent(1_000, 168_718, 21_282),
    }
    assert [remark.partition(":")[0] for remark in remarks] == ["split", "whole", "train"]
    assert "known are 200 classes with about 24,000 training and 6,000 test images" in remarks[1]
    with pytest.raises(DataError, match="the data of own cannot be used"):
        count_all({"own": experiment("folder")}, expects=True)


def test_a_tree_of_images_is_counted_without_decoding(tmp_path: Path) -> None:
    for part, number in (("train", 3), ("test", 1)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for place in range(number):
                (tmp_path / part / name / f"{place}.png").write_bytes(b"no picture")
    experiment = make_experiment("quickdraw", "clare", ["data.dataset=folder", f"data.root={tmp_path}"])
    assert count_images(experiment.data) == Extent(2, 6, 2)


@pytest.mark.parametrize("method", [*STUDIES["table1"].methods, "full-finetune"])
def test_every_method_can_be_measured(tiny_preset: Path, method: str) -> None:
    measured = measure(make_experiment(str(tiny_preset), method))
    assert measured is not None
    assert measured.first.per_image > 0
    assert measured.later.per_image > 0
    assert measured.per_evaluated > 0
    assert measured.passes[0] >= 1


def test_what_is_trained_only_once_costs_only_the_first_task(tiny_preset: Path) -> None:
    measured = measure(make_experiment(str(tiny_preset), "aper-adapter", ["method.epochs=200"]))
    assert measured is not None
    # Two hundred epochs beside one sweep: no load of a machine turns this round.
    assert measured.first.per_image > measured.later.per_image


def test_drawn_features_are_counted_by_class(tiny_preset: Path) -> None:
    aligned = measure(make_experiment(str(tiny_preset), "clare", ["method.head.kind=aligned"]))
    assert aligned is not None
    assert aligned.later.per_seen_class > 0


def test_a_method_is_measured_once(tiny_preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fake(experiment: Experiment) -> Measured:
        asked.append("measure")
        return Measured(Costs(per_image=0.5), Costs(per_image=0.5), 0.0, (1, 1))

    monkeypatch.setattr("clare.paper.estimate.measure", fake)
    estimator = Estimator()
    for overrides in ([], ["method.sparsity=0.9"]):
        experiment = make_experiment(str(tiny_preset), "clare", overrides)
        # Three tasks of two classes with six images each.
        assert estimator.seconds(experiment, EXTENT) == pytest.approx(0.5 * 36)
    assert asked == ["measure"]


BROKEN = """
from clare.methods.finetune import FineTune


class Broken(FineTune):
    name = "unmeasurable"
    summary = "raises"

    def learn(self, task):
        raise KeyError("no")
        yield
"""


def test_what_cannot_be_measured_is_unknown(tiny_preset: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    REGISTERED.named(f"{tmp_path}/broken.py:Broken")
    experiment = make_experiment(str(tiny_preset), f"{tmp_path}/broken.py:Broken")
    assert measure(experiment) is None
    assert Estimator().seconds(experiment, EXTENT) is None


def test_a_backbone_that_is_not_there_is_told_at_once_unless_any_will_do(tiny_preset: Path) -> None:
    experiment = make_experiment(str(tiny_preset), "clare", ["backbone.weights=none.safetensors"])
    with pytest.raises(BackboneError, match="there is no weights file"):
        Estimator().seconds(experiment, EXTENT)
    seconds = Estimator(needs_weights=False).seconds(experiment, EXTENT)
    assert seconds is not None
    assert seconds > 0
