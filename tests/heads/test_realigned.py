"""Rows trained again as the authors' code of SSIAT and SLCA trained them, and what only some methods ask for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from clare.engine.optim import rate_at
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.heads.aligned import GaussianFeatures
from clare.heads.head import margin_logits
from clare.heads.realigned import RealignedHead, RealignedSettings, decoupled, mean_factors, task_norms
from clare.heads.statistics import class_sums, ridged_factors
from clare.methods.slca import SLCA_HEAD
from clare.steps import Phase

TASKS = torch.tensor([0, 0, 1, 1, 2, 2])
FOLDER = Path(__file__).parents[1] / "golden"


def finished(head: RealignedHead, features: Tensor, labels: Tensor, rows: Tensor) -> Phase | None:
    """Teach a head a task from these features, without training it, and return the alignment it asks for."""
    num_new = len(rows)
    head.open_block(num_new, torch.Generator())
    head.block.data[:num_new] = rows
    learning = head.finish(num_new)
    next(learning)
    try:
        step: Any = learning.send(class_sums(features, labels, torch.ones(len(labels)), num_new, outer=True))
    except StopIteration:
        return None
    assert isinstance(step, Phase)
    return step


def made(settings: RealignedSettings, golden: dict[str, Tensor]) -> Phase:
    """Return the alignment of the recorded rows and means, after two tasks of two classes."""
    head = settings.make(4, 0)
    spread = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    spread = spread - spread.view(2, 4, 4).mean(1).repeat_interleave(4, 0)
    labels = torch.arange(2).repeat_interleave(4)
    phase = None
    for task in (0, 1):
        means = golden["means"][2 * task : 2 * task + 2]
        phase = finished(head, means[labels] + spread, labels, golden["start"][2 * task : 2 * task + 2])
        assert (phase is None) == (task == 0)
    assert phase is not None
    torch.testing.assert_close(head.means, golden["means"], rtol=0, atol=1e-5)
    return phase


@pytest.mark.parametrize(("name", "settings"), [("ssiat", RealignedSettings()), ("slca", SLCA_HEAD)])
def test_rows_are_trained_again_as_recorded(name: str, settings: RealignedSettings) -> None:
    golden = load_file(FOLDER / f"{name}.safetensors")
    phase = made(settings, golden)
    assert isinstance(phase.data, GaussianFeatures)
    torch.testing.assert_close(phase.data.means, golden["given_means"], rtol=0, atol=1e-5)
    step = TrainStep(Ranks(EngineSettings(device="cpu")), phase)
    phase.groups[0].parameter.requires_grad_(True)
    size, labels = phase.batch_size, torch.arange(4).repeat_interleave(256)
    for epoch, order in enumerate(golden["orders"].long()):
        step.optimizer.set_rate(rate_at(phase.optimizer, epoch, phase.epochs))
        for chosen in order.split(size):
            step(golden["features"][epoch].float()[chosen], labels[chosen], torch.ones(size), size)
    rows = phase.groups[0].parameter.data
    assert float((golden["aligned"] - golden["start"]).abs().max()) > 0.05
    torch.testing.assert_close(rows, golden["aligned"], rtol=0, atol=1e-5)


def test_rows_as_trained_come_back_before_the_next_task_where_asked() -> None:
    features, labels = torch.randn(6, 2, generator=torch.Generator().manual_seed(1)), torch.arange(2).repeat(3)
    for restores in (False, True):
        head = RealignedSettings(restores=restores).make(2, 0)
        for task in range(3):
            phase = finished(head, features, labels, torch.full((2, 2), float(task + 1)))
            if phase is not None:
                head.rows.data.add_(10)
        first = [11, 12, 13] if restores else [21, 22, 13]
        assert head.rows[:, 0].tolist() == [value for value in first for _ in range(2)]
        assert head.tasks.tolist() == [0, 0, 1, 1, 2, 2]
        assert len(head.trained) == (6 if restores else 0)


def test_features_of_older_classes_fade_when_drawn_and_count_for_more_in_logits() -> None:
    ages = torch.tensor([0, 1, 5])
    drawn = GaussianFeatures(torch.ones(3, 2), torch.zeros(3, 2, 2), 1000, ages, 0.02)
    drawn.begin_epoch(torch.Generator().manual_seed(0))
    means = drawn.features.view(3, 1000, 2).mean((1, 2))
    torch.testing.assert_close(means, torch.tensor([1, 0.980392, 0.909091]), rtol=0, atol=2e-3)
    assert 0.004 < float(drawn.features[1000:2000].std()) < 0.007
    head = RealignedSettings(form="linear", align_fade=0.02).make(1, 0)
    head.append(torch.tensor([[1.0, 0.5]] * 3))
    head.tasks = torch.tensor([0, 4, 5])
    torch.testing.assert_close(head.logits(torch.tensor([[1.0]])), torch.tensor([[1.6, 1.52, 1.5]]))


@pytest.mark.parametrize(("margin", "expected"), [(0.0, [0.000001, 0.018195]), (0.3, [0.000336, 2.129109])])
def test_cosface_by_hand(margin: float, expected: list[float]) -> None:
    cosines, labels = torch.tensor([[0.8, 0.1, -0.2], [0.3, 0.5, 0.0]]), torch.tensor([0, 1])
    losses = F.cross_entropy(margin_logits(20 * cosines, labels, 20 * margin), labels, reduction="none")
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=0, atol=1e-6)


def test_older_means_are_drawn_in() -> None:
    rising = torch.tensor([0.933333, 0.933333, 0.966667, 0.966667, 1, 1])
    torch.testing.assert_close(mean_factors(TASKS, "older"), rising, rtol=0, atol=1e-6)
    assert mean_factors(TASKS, "none").tolist() == [1] * 6
    # Of tasks of other sizes too, a class has the factor of its own task.
    factors = mean_factors(torch.tensor([0, 0, 0, 1]), "older")
    torch.testing.assert_close(factors, torch.tensor([0.95, 0.95, 0.95, 1]))


def test_newer_means_are_drawn_in_as_some_code_has_it() -> None:
    falling = torch.tensor([0.933333, 0.9, 0.9, 0.866667, 0.866667, 0.833333])
    torch.testing.assert_close(mean_factors(TASKS, "newer"), falling, rtol=0, atol=1e-6)


def test_decoupled_logits_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5, -1.0]])
    found = decoupled(logits, TASKS[:4], 0.1)
    torch.testing.assert_close(task_norms(logits, TASKS[:4]), torch.tensor([[1.677051]]), rtol=0, atol=1e-6)
    expected = torch.tensor([[5.962848, 11.925695, 2.981424, -5.962848]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    losses = [float(F.cross_entropy(found, torch.tensor([label]))) for label in (1, 0)]
    assert losses == pytest.approx([0.002699, 5.965547], abs=1e-5)


def test_ridged_factors_are_roots_of_the_unbiased_covariance() -> None:
    features = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)) + 3
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    factors = ridged_factors(class_sums(features, labels, torch.ones(7), 2, outer=True), 1e-3)
    for label in (0, 1):
        expected = np.cov(features[labels == label].double().numpy().T) + 1e-3 * np.eye(4)
        np.testing.assert_allclose((factors[label] @ factors[label].T).numpy(), expected, atol=1e-9)


def test_variances_alone_make_diagonal_factors() -> None:
    features = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()
    sums = class_sums(features, torch.zeros(9, dtype=torch.int64), torch.ones(9), 1, outer=True)
    factors = ridged_factors(sums, 0.01, diagonal=True)[0]
    torch.testing.assert_close(factors, (features.var(0) + 0.01).sqrt().diag())


def test_one_image_leaves_the_ridge_alone() -> None:
    sums = class_sums(torch.tensor([[100.0, -3.0]]), torch.tensor([0]), torch.ones(1), 1, outer=True)
    expected = 0.1 * torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(ridged_factors(sums, 0.01)[0], expected, rtol=0, atol=1e-6)
