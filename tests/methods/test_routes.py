"""Routes: the scores of every rule worked out by hand, and that a route changes which task answers and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from own_worlds import tiny_weights
from torch import Tensor

import clare
from clare.backbones.vit import Backbone, load_backbone
from clare.data.stream import Stream
from clare.data.transforms import TransformSettings
from clare.engine.context import Context
from clare.engine.evaluate import evaluate, measured
from clare.engine.learn import learn_task
from clare.engine.passes import predict, predict_logits
from clare.errors import ModelError
from clare.methods._shared.autoencoder import AutoencoderSettings, ByAutoencoder
from clare.methods._shared.masked import Name, RouteSettings
from clare.methods._shared.routes import RULES, ByBareMeans, ByDistance, one_shot, whitened
from clare.methods.packnet import PackNet, PackNetSettings
from clare.model.folder import save_model

OWN = torch.tensor([[True, True, True, False, False], [False, False, False, True, True]])


def scores(by: str, first: tuple[float, ...], second: tuple[float, ...]) -> Tensor:
    """Return the scores of two tasks by a rule; what networks say of other tasks' classes is nonsense."""
    logits = torch.tensor([[[*first, 50.0, 60.0], [70.0, 80.0, 90.0, *second]]])
    return RULES[by](logits, OWN)[0]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("max-logit", (2, 1.5)),
        ("msp", (0.659001, 0.524979)),
        ("entropy", (-0.846738, -0.691899)),
        ("energy", (2.417030, 2.144397)),
    ],
)
def test_rules_by_hand(by: str, expected: tuple[float, float]) -> None:
    assert scores(by, (2, 1, 0.1), (1.5, 1.4)).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("by", "expected"),
    [("max-logit", (11, 10)), ("msp", (0.988871, 0.999665)), ("entropy", (-0.068625, -0.003018))],
)
def test_rules_on_scaled_cosines_by_hand(by: str, expected: tuple[float, float]) -> None:
    first, second = (11.0, 6.0, 5.6), (10.0, 2.0)
    assert scores(by, first, second).tolist() == pytest.approx(expected, abs=1e-5)


def test_one_shot_by_hand() -> None:
    logits = torch.tensor([[[2.0, 0.0, 0.0], [0.2, 0.1, 0.3]]])
    assert one_shot(logits, OWN[:, :3])[0].tolist() == pytest.approx([0.487285, 0.000898], abs=1e-5)
    shares = torch.full((2,), 0.5, requires_grad=True)
    mixed = torch.einsum("t,btk->bk", shares, logits).softmax(1)
    (slope,) = torch.autograd.grad(torch.special.entr(mixed).sum(), shares)
    torch.testing.assert_close(one_shot(logits, OWN[:, :3])[0], -slope)


def test_an_autoencoder_by_hand() -> None:
    encoders = ByAutoencoder(2, AutoencoderSettings(code=1))
    encoders.current.data = torch.tensor([1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0])
    features = torch.tensor([[1.0, -1.0]])
    assert encoders.squashed(features)[0].tolist() == pytest.approx([0.731059, 0.268941], abs=1e-6)
    assert encoders.errors(features).tolist() == [[pytest.approx(0.006277, abs=1e-6)]]
    assert encoders.loss(features, torch.zeros(1)).item() == pytest.approx(1.179198, abs=1e-5)
    assert sum(ByAutoencoder(768, AutoencoderSettings()).current.shape) == 154_468


def test_a_gate_asks_for_each_image_by_itself() -> None:
    gate = ByAutoencoder(2, AutoencoderSettings(code=1))
    gate.errors = lambda _: torch.tensor([[1.0, 4.0], [3.0, 2.0]])  # type: ignore[method-assign]
    parts, nothing = torch.zeros(2, 3, 2), torch.zeros(0)
    # Summed over both images, the first task's errors would be the least.
    assert gate.scores(parts, nothing, nothing).argmax(1).tolist() == [0, 1]


def test_distances_by_hand() -> None:
    values = torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 3.0], [6.0, 3.0], [0.0, 1.0], [2.0, -1.0]])
    labels = torch.tensor([0, 0, 1, 1, 0, 0])
    solved = whitened(values, labels, 2)
    centred = values - torch.tensor([[1.0, 0.0], [5.0, 3.0]])[labels]
    covariance = centred.T.double() @ centred.double() / 6
    covariance += 1e-3 * covariance.diagonal().mean() * torch.eye(2)
    image = torch.tensor([3.0, 1.0], dtype=torch.float64)
    expected = [
        float((image - mean) @ torch.linalg.inv(covariance) @ (image - mean))
        for mean in torch.tensor([[1.0, 0.0], [5.0, 3.0]], dtype=torch.float64)
    ]
    found = (image @ solved["root"] - solved["means"]).square().sum(1)
    assert found.tolist() == pytest.approx(expected)
    route = ByDistance(2)
    route.means, route.roots = solved["means"].float(), solved["root"].float().expand(2, 2, 2)
    parts = image.float().expand(1, 2, 2)
    scored = route.scores(parts, torch.zeros(0), torch.eye(2, dtype=torch.bool))
    assert (-scored[0]).tolist() == pytest.approx(expected, rel=1e-4)


def test_bare_means_by_hand() -> None:
    route = ByBareMeans(2)
    route.means = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    own = torch.tensor([[True, True, False], [False, False, True]])
    # The second part is that of a network, which this route does not look at.
    parts = torch.tensor([[[2.0, 1.9], [9.0, 0.0]], [[0.0, 3.0], [9.0, 9.0]]])
    assert route.scores(parts, torch.zeros(0), own).argmax(1).tolist() == [1, 0]


@pytest.mark.parametrize("by", get_args(Name))
def test_a_route_decides_which_task_answers_and_nothing_else(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    by: Any,
) -> None:
    stream, run = tiny_stream(), context()
    recipe = {"epochs": 2, "batch_size": 8, "retrain_epochs": 1}
    route = RouteSettings(by=by, autoencoder=AutoencoderSettings(epochs=2))
    method = PackNet(tiny_backbone(), PackNetSettings(**recipe, route=route), 0)  # type: ignore[arg-type]
    for task in stream.tasks:
        learn_task(run, method, task)
    found = predict(run, method, stream.test)
    logits, tasks = found[:, :6], found[:, 6].long()
    plain = predict_logits(run, method, stream.test) if by == "told" else _under_max_logit(method, run, stream)
    if by != "told":
        assert (logits.argmax(1) // 2).tolist() == tasks.tolist()
    for first in (0, 2, 4):
        # Within a task the order of the classes is that of its own network, whatever the route.
        torch.testing.assert_close(
            logits[:, first] - logits[:, first + 1], plain[:, first] - plain[:, first + 1], atol=1e-5, rtol=1e-4
        )
    figures = measured(method, evaluate(run, method, stream, 2), stream.task_of_class, 2)
    assert ("task_right" in figures) is (by != "told")
    assert method.num_passes == 3 + (by in ("bare-prototype", "autoencoder"))


def _under_max_logit(method: PackNet, run: Context, stream: Stream) -> Tensor:
    """Return the logits that the same networks give where each class has its own."""
    features = method.features(run.transforms.test(stream.test.batch(torch.arange(len(stream.test)))[0]))
    return method.answers(features)[0]


def test_a_method_that_is_told_the_task_makes_and_is_no_model_for_own_pictures(tmp_path: Path) -> None:
    settings = {"route": {"by": "told"}}
    with pytest.raises(ModelError, match="'packnet' must be told the task of each picture, and nobody can"):
        clare.Classifier(
            tmp_path / "model", backbone=tiny_weights(tmp_path), method="packnet", settings=settings
        ).reader()
    assert not (tmp_path / "model").exists()
    backbone = load_backbone(tiny_weights(tmp_path))
    method = PackNet(backbone, PackNetSettings(route=RouteSettings(by="told")), 0)
    save_model(tmp_path / "run", method, backbone, TransformSettings(image_size=28, resize=28))
    with pytest.raises(ModelError, match="let it infer the task"):
        clare.load(tmp_path / "run")
