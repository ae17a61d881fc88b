"""RanPAC: the closed form of ridge regression over all tasks; parity with the official code."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from clare_runs import bits
from clare_runs import learn as learn_tasks
from first_task_golden import Golden, Trained, learn, train
from run_outcome import Stop, outcome
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context, Silence
from clare.engine.evaluate import evaluate
from clare.engine.run import run_experiment
from clare.errors import SettingsError
from clare.heads.ridge import CANDIDATES, RidgeHead, projected, ridge_errors, unpack_symmetric
from clare.methods.base import passes_per_image, prepare
from clare.methods.ranpac import RanPac, RanPacSettings
from clare.methods.state import learnt_tensors
from clare.presets.load import make_experiment
from clare.settings import build_settings

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

RECIPE = {"adapter": {"bottleneck": 4}, "epochs": 2, "batch_size": 8, "learning_rate": 0.02}

OF_HEAD = ("num_projected", "ridge", "precision")


def make_ranpac(backbone: Backbone, seed: int = 0, **changes: Any) -> RanPac:
    head = {"num_projected": 40, **{key: changes.pop(key) for key in OF_HEAD if key in changes}}
    return RanPac(backbone, RanPacSettings.model_validate({**RECIPE, "head": head, **changes}), seed)


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("ranpac")


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours.to(theirs), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_official_run_is_reproduced(
    golden: Golden, context: MakeContext, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    recipe = {"adapter": {"bottleneck": 8, "scale": 0.1, "dropout": 0}, "learning_rate": 2.0, "weight_decay": 5e-4}
    method = make_ranpac(golden.backbone(), num_projected=64, precision=precision, **recipe)
    assert method.tuner is not None
    (values,) = method.tuner.parameters()
    names = ("down_proj", "up_proj")
    values.data.copy_(golden.adapter("task0.init.adapter.blocks", *names))
    method.head.projection.copy_(golden["projection"])
    # The rows of the recorded run are in the order of the images.
    monkeypatch.setattr(torch, "randperm", lambda size, generator: torch.arange(size))
    ran: list[Trained] = []
    for task in range(2):
        learn(
            golden,
            method,
            task,
            lambda phase: ran.append(train(golden, context(), method, phase, golden["task0.init.head.weight"])),
        )
        images, labels = golden.task(task)
        features = method.features(images)
        close(features, golden[f"task{task}.features"])
        close(projected(features, method.head.projection), golden[f"task{task}.projected"])
        for ours, theirs in (
            (unpack_symmetric(method.head.gram, 64), golden[f"task{task}.gram"]),
            (method.head.sums, golden[f"task{task}.cross"].T[: 3 * task + 3]),
        ):
            # Sums of products in the thousands: what counts is the size of the matrix.
            close(ours / theirs.max(), theirs / theirs.max(), 1e-6)
        chosen = method.head.choose_ridge(features, labels, 3)
        assert chosen == golden[f"task{task}.ridge.chosen"]
        close(method.head.rows, golden[f"task{task}.weight"])
        # Their single-precision solution is itself 1e-5 off in the logits.
        close(method(golden.images("test")), golden[f"task{task}.test.logits"], 2e-5)
    assert len(ran) == 1
    for step in range(3):
        close(ran[0].losses[step], golden[f"task0.step{step}.loss"])
        close(ran[0].logits[step], golden[f"task0.step{step}.logits"])
    close(values, golden.adapter("task0.after.adapter.blocks", *names))
    close(ran[0].rows, golden["task0.after.head.weight"])
    close(ran[0].factor[None], golden["task0.after.head.sigma"])
    close(method.features(golden.images("test")), golden["test.features"])


@pytest.mark.parametrize("task", [0, 1])
def test_the_official_errors_of_all_ridges(golden: Golden, task: int) -> None:
    """Theirs are means over the six classes of both tasks, of which three are zero everywhere."""
    labels = golden.task(task)[1]
    features, projection = golden[f"task{task}.features"], golden["projection"]
    torch.testing.assert_close(torch.tensor(CANDIDATES), golden["ridge.candidates"])
    errors = 0.5 * ridge_errors(features, labels, 3, projection.double())
    close(errors, golden[f"task{task}.ridge.errors_float64"])
    # In single precision theirs are noise for small ridges, and off by 1e-5 still at 1, where ours are not.
    errors = 0.5 * ridge_errors(features, labels, 3, projection)
    close(errors[9:], golden[f"task{task}.ridge.errors"][9:])
    close(errors, golden[f"task{task}.ridge.errors_float64"], 1e-4)


def closed_form(method: RanPac, run: Context, tasks: Any, ridge: float) -> Tensor:
    """Return Q^T (G + ridge I)^-1 of all tasks at once, in double precision."""
    hidden, targets, first = [], [], 0
    for task in tasks:
        canvas, labels = task.train.batch(torch.arange(len(task.train)))
        features = method.features(run.transforms.test(canvas)).double()
        hidden.append((features @ method.head.projection.double()).clamp(min=0))
        targets.append(torch.nn.functional.one_hot(labels + first, len(method.classes)).double())
        first += len(task.classes)
    h, y = torch.cat(hidden), torch.cat(targets)
    return (torch.linalg.inv(h.T @ h + ridge * torch.eye(h.shape[1])) @ h.T @ y).T


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("float64", 1e-6)])
@pytest.mark.parametrize("tuner", ["adapter", "none"])
def test_rows_are_the_closed_form_over_all_tasks(
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    context: MakeContext,
    tuner: str,
    precision: str,
    tolerance: float,
) -> None:
    stream, run = tiny_stream(), context(eval_batch_size=7)
    method = make_ranpac(tiny_backbone(), tuner=tuner, ridge=5.0, precision=precision)
    for task in stream.tasks:
        learn_tasks(run, method, [task])
        with torch.no_grad():
            expected = closed_form(method, run, stream.tasks[: task.index + 1], 5.0)
        close(method.head.rows.detach().double(), expected, tolerance)
        assert method.head.rows.dtype == torch.float32
    predicted, target, *_ = evaluate(run, method, stream, 2)
    assert torch.equal(predicted, target)
    assert passes_per_image(method) == 1


def test_logits_are_plain_products(tiny_backbone: MakeBackbone) -> None:
    method = make_ranpac(tiny_backbone(), num_projected=2)
    method.head.projection.zero_()
    method.head.projection[0, 0], method.head.projection[1, 1] = 2.0, 3.0
    method.head.replace(torch.tensor([[1.0, 0.0], [0.5, 10.0]]))
    features = torch.zeros(2, 24)
    features[:, 0], features[:, 1] = 4.0, torch.tensor([-1.0, 1.0])
    # The hidden features are (8, relu(-3)) and (8, 3); neither they nor the rows are normalised.
    assert method.classify(features).tolist() == [[8.0, 4.0], [8.0, 34.0]]
    with torch.autocast("cpu", torch.bfloat16):
        assert method.classify(1.001 * features).dtype == torch.float32
        torch.testing.assert_close(method.classify(1.001 * features), 1.001 * method.classify(features))


def test_without_tuning_the_order_of_the_tasks_does_not_matter(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    tasks = tiny_stream().tasks
    forward, backward = (make_ranpac(tiny_backbone(), tuner="none", ridge=3.0, precision="float64") for _ in range(2))
    learn_tasks(context(train="affine"), forward, tasks)
    learn_tasks(context(seed=5), backward, [replace(task, index=i) for i, task in enumerate(reversed(tasks))])
    assert backward.classes != forward.classes
    order = [backward.classes.index(name) for name in forward.classes]
    close(backward.head.rows[order], forward.head.rows, 1e-6)
    assert not list(forward.tuner.parameters() if forward.tuner else [])


def test_the_tuner_moves_in_the_first_task_and_never_again(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, method = tiny_stream(), make_ranpac(tiny_backbone())
    assert method.tuner is not None
    (values,) = method.tuner.parameters()
    before = bits(values)
    learn_tasks(context(), method, stream.tasks[:1])
    tuned, projection = bits(values), bits(method.head.projection)
    assert tuned != before
    assert method.features_version == 0
    learn_tasks(context(), method, stream.tasks[1:])
    assert bits(values) == tuned
    assert bits(method.head.projection) == projection


def test_the_ridge_is_chosen_in_a_seeded_order(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[list[int]] = []

    def watched(features: Tensor, labels: Tensor, num_new: int) -> float:
        orders.append(labels.tolist())
        return 1.0

    for _ in range(2):
        method = make_ranpac(tiny_backbone(), tuner="none")
        monkeypatch.setattr(method.head, "choose_ridge", watched)
        learn_tasks(context(), method, tiny_stream().tasks[:2])
    first, second = orders[:2]
    assert orders[2:] == [first, second]
    # Shuffled, so that classes that come one after the other are on both sides of the split.
    assert sorted(first) == [0] * 12 + [1] * 12
    assert first != second
    assert set(first[19:]) == {0, 1}


class Noting(Silence):
    """A listener that remembers notices."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def notice(self, text: str) -> None:
        """Remember."""
        self.texts.append(text)


def test_a_ridge_lost_in_rounding_is_raised_and_said(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    for precision, is_lost in (("float32", True), ("float64", False)):
        listener, method = Noting(), make_ranpac(tiny_backbone(), num_projected=200, ridge=1e-8, precision=precision)
        learn_tasks(context(listener=listener), method, tiny_stream(num_tasks=1).tasks)
        assert bool(method.head.rows.isfinite().all())
        assert bool(listener.texts) == is_lost
        assert not is_lost or "a ridge of 1e-08 is lost in the rounding of float32 sums: " in listener.texts[0]


def test_a_run_cut_off_while_it_solves_goes_on_as_if_it_had_not(
    tiny_preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = make_experiment(str(tiny_preset), "ranpac")
    run_experiment(experiment, tmp_path / "straight", Silence())
    solve, calls = RidgeHead.solve_at, list[float]()

    def cut_off(head: RidgeHead, ridge: float) -> tuple[Tensor, float]:
        calls.append(ridge)
        if len(calls) in (1, 3):
            raise Stop
        return solve(head, ridge)

    monkeypatch.setattr(RidgeHead, "solve_at", cut_off)
    for _ in range(2):
        with pytest.raises(Stop):
            run_experiment(experiment, tmp_path / "stopped", Silence())
    run_experiment(experiment, tmp_path / "stopped", Silence())
    assert len(calls) == 5
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def test_one_image_is_enough_for_a_task(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, method = tiny_stream(classes_per_task=1, num_train=1), make_ranpac(tiny_backbone(), tuner="none")
    learn_tasks(context(), method, stream.tasks)
    assert method.head.rows.shape == (3, 40)
    assert bool(method.head.rows.isfinite().all())


def test_what_is_stored(tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext) -> None:
    """The projection, a triangle of the Gram matrix, and two rows for each class; the trained rows are gone."""
    method = make_ranpac(tiny_backbone(), tuner="none")
    prepare(method, 3, 2)
    learn_tasks(context(), method, tiny_stream().tasks)
    shapes = {name: tuple(tensor.shape) for name, tensor in learnt_tensors(method).items() if tensor.numel()}
    assert shapes == {
        "head.rows": (6, 40),
        "head.sums": (6, 40),
        "head.gram": (20, 41),
        "head.projection": (24, 40),
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tuner": "lora"}, r"'method\.tuner' got 'lora'; .*'vpt-shallow' or 'none'"),
        ({"head": {"ridge": -1}}, r"'method\.head\.ridge' got -1"),
        ({"head": {"num_projected": 0}}, r"'method\.head\.num_projected' got 0"),
        (
            {"num_projected": 9},
            r"'method\.num_projected' any more; it is called 'method\.head\.num_projected'",
        ),
        ({"head": {"precision": "bf16"}}, r"'method\.head\.precision' got 'bf16'; .*'float32' or 'float64'"),
        ({"head": {"kind": "aligned"}}, r"'method\.head\.kind' got 'aligned'; it is ridge"),
        ({"head": {"form": "cosine"}}, r"no setting 'method\.head\.form'.*allowed here: .*ridge"),
        ({"head": {"lambda": 3}}, r"no setting 'method\.head\.lambda'.*ridge"),
    ],
)
def test_mistakes_in_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_settings(RanPacSettings, values, "method")
