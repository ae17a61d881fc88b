"""Ridge regression on random features of all tasks."""

import pytest
import torch
import torch.nn.functional as F
from head_steps import finish, head_of
from torch import Tensor

from clare.heads.ridge import RidgeHead

NUM_FEATURES, NUM_CLASSES, NUM_PROJECTED = 5, 3, 33


def samples(num_samples: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator)
    labels = torch.arange(num_samples) % NUM_CLASSES
    return centres[labels] + 0.4 * torch.randn(num_samples, NUM_FEATURES, generator=generator), labels


def make_ridge(**settings: object) -> RidgeHead:
    values = {"kind": "ridge", "num_projected": NUM_PROJECTED, **settings}
    head = head_of(NUM_FEATURES, **values)
    assert isinstance(head, RidgeHead)
    return head


@pytest.mark.parametrize("form", ["cosine", "linear"])
def test_rows_solve_the_regression_of_all_tasks_together(form: str) -> None:
    features, labels = samples()
    head = make_ridge(form=form, ridge_share=0.05)
    finish(head, features[labels < 2], labels[labels < 2], 2)
    finish(head, features[labels == 2], labels[labels == 2] - 2, 1)
    seen = F.normalize(features, dim=1) if form == "cosine" else features
    hidden = (seen @ head.projection).relu().double()
    gram = hidden.T @ hidden
    system = gram + 0.05 * gram.diagonal().mean() * torch.eye(NUM_PROJECTED)
    expected = torch.linalg.solve(system, hidden.T @ F.one_hot(labels).double())
    torch.testing.assert_close(head.logits(features).double(), hidden @ expected, rtol=1e-3, atol=1e-3)


def test_weights_of_nothing_count_for_nothing() -> None:
    features, labels = samples()
    head = make_ridge()
    padded = head.statistic(features, labels, (torch.arange(300) < 240).double(), NUM_CLASSES)
    whole = head.statistic(features[:240], labels[:240], torch.ones(240), NUM_CLASSES)
    for name, part in whole.items():
        torch.testing.assert_close(padded[name], part, rtol=1e-4, atol=1e-4)


def test_more_samples_of_known_classes_are_as_if_they_had_come_at_once() -> None:
    features, labels = samples()
    head, whole = make_ridge(), make_ridge()
    finish(head, features[:150], labels[:150], NUM_CLASSES)
    sums = head.statistic(features[150:], labels[150:], torch.ones(150), NUM_CLASSES)
    head.add_samples(torch.arange(NUM_CLASSES), sums)
    head.replace(head.solve())
    finish(whole, features, labels, NUM_CLASSES)
    torch.testing.assert_close(head.rows, whole.rows, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(head.means, whole.means, rtol=1e-4, atol=1e-5)


def test_random_features_that_are_all_nothing_end_in_a_sentence_or_in_rows() -> None:
    head = make_ridge(num_projected=1)
    features, labels = samples()
    head.projection.copy_(-features.sign().abs().sum(0, keepdim=True).T)
    finish(head, features.abs(), labels, NUM_CLASSES)
    assert bool(torch.isfinite(head.rows).all())
    assert not head.logits(features.abs()).any()


def test_linear_directions_make_the_nearest_mean_win() -> None:
    features, labels = samples()
    head = make_ridge(form="linear")
    finish(head, features, labels, NUM_CLASSES)
    rows = head.directions
    nearest = torch.cdist(features, head.means).argmin(1)
    assert torch.equal((features @ rows[:, :-1].T + rows[:, -1]).argmax(1), nearest)
    assert not head.follows_drift


def test_the_projection_is_seeded_and_standard_normal() -> None:
    one, same, other = (head_of(30, seed, kind="ridge", num_projected=400) for seed in (0, 0, 1))
    projection = one.get_buffer("projection")
    assert torch.equal(projection, same.get_buffer("projection"))
    assert not torch.equal(projection, other.get_buffer("projection"))
    assert float(projection.std()) == pytest.approx(1, abs=0.03)
    assert float(projection.mean()) == pytest.approx(0, abs=0.03)
    assert one.rows.shape == (0, 400)
    assert one.scale == 20.0
