"""The linear discriminant: its rows, its sums, and how it follows moved features."""

import pytest
import torch
import torch.nn.functional as F
from head_steps import a_drift, finish, head_of
from torch import Tensor

from clare.heads.discriminant import DiscriminantHead
from clare.heads.drift import moved
from clare.heads.statistics import added_scatter, class_means, discriminant_rows, scatter_sums, within_scatter

NUM_FEATURES, NUM_CLASSES = 5, 3


def samples(num_samples: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator)
    shape = torch.randn(NUM_FEATURES, NUM_FEATURES, generator=generator)
    labels = torch.arange(num_samples) % NUM_CLASSES
    noise = torch.randn(num_samples, NUM_FEATURES, generator=generator) @ shape
    return centres[labels] + noise, labels


def sums_of(features: Tensor, labels: Tensor, num_classes: int = NUM_CLASSES) -> dict[str, Tensor]:
    return scatter_sums(features, labels, torch.ones(len(features)), num_classes)


def make_head(**settings: object) -> DiscriminantHead:
    head = head_of(NUM_FEATURES, kind="discriminant", **settings)
    assert isinstance(head, DiscriminantHead)
    return head


def test_scores_are_log_posteriors_of_gaussians_with_one_covariance() -> None:
    features, labels = samples()
    sums = sums_of(features, labels)
    means, covariance = class_means(sums), within_scatter(sums) / len(features)
    rows = discriminant_rows(means, within_scatter(sums), len(features), 0.0)
    gaussians = [torch.distributions.MultivariateNormal(mean, covariance) for mean in means]
    expected = torch.stack([each.log_prob(features.double()) for each in gaussians], 1).softmax(1)
    ours = F.linear(features.double(), rows[:, :-1], rows[:, -1]).softmax(1)
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)


def test_padded_samples_count_for_nothing() -> None:
    features, labels = samples()
    weights = (torch.arange(60) < 48).double()
    ours, expected = scatter_sums(features, labels, weights, NUM_CLASSES), sums_of(features[:48], labels[:48])
    for name, part in expected.items():
        torch.testing.assert_close(ours[name], part)


def test_full_shrinkage_is_the_nearest_mean() -> None:
    features, labels = samples()
    sums = sums_of(features, labels)
    means = class_means(sums)
    rows = discriminant_rows(means, within_scatter(sums), len(features), 1.0)
    nearest = torch.cdist(features.double(), means).argmin(1)
    assert torch.equal(F.linear(features.double(), rows[:, :-1], rows[:, -1]).argmax(1), nearest)


def test_features_without_any_variance_still_have_finite_rows() -> None:
    means = torch.eye(NUM_CLASSES, NUM_FEATURES)
    rows = discriminant_rows(means, torch.zeros(NUM_FEATURES, NUM_FEATURES), 3, 0.1)
    assert bool(torch.isfinite(rows).all())
    assert F.linear(means.double(), rows[:, :-1], rows[:, -1]).argmax(1).tolist() == [0, 1, 2]


def test_more_samples_of_known_classes_are_as_if_they_had_come_at_once() -> None:
    features, labels = samples()
    first, second = sums_of(features[:24], labels[:24]), sums_of(features[24:], labels[24:])
    whole, growth = sums_of(features, labels), added_scatter(first["count"], class_means(first), second)
    torch.testing.assert_close(within_scatter(first) + growth, within_scatter(whole))
    head, expected = make_head(form="linear"), make_head(form="linear")
    finish(head, features[:24], labels[:24], NUM_CLASSES)
    head.add_samples(torch.arange(NUM_CLASSES), second)
    head.replace(head.solve())
    finish(expected, features, labels, NUM_CLASSES)
    torch.testing.assert_close(head.rows, expected.rows, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("form", ["cosine", "linear"])
def test_tasks_one_by_one_make_the_rows_of_all_at_once(form: str) -> None:
    features, labels = samples()
    together, apart = make_head(form=form), make_head(form=form)
    finish(together, features, labels, NUM_CLASSES)
    finish(apart, features[labels < 2], labels[labels < 2], 2)
    finish(apart, features[labels == 2], labels[labels == 2] - 2, 1)
    torch.testing.assert_close(apart.rows, together.rows, rtol=1e-4, atol=1e-4)
    seen = F.normalize(features, dim=1) if form == "cosine" else features
    expected = F.linear(seen, together.rows[:, :-1], together.rows[:, -1])
    torch.testing.assert_close(together.logits(features), expected)
    assert together.scale == 1.0
    assert together.block_scale == (20.0 if form == "cosine" else 1.0)


def test_a_linear_drift_moves_the_rows_to_where_the_features_went() -> None:
    features, labels = samples()
    drift = a_drift(features)
    head, expected = make_head(form="linear"), make_head(form="linear")
    finish(head, features, labels, NUM_CLASSES)
    head.carry_over(drift)
    finish(expected, moved(features, drift), labels, NUM_CLASSES)
    torch.testing.assert_close(head.means, expected.means, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(head.scatter, expected.scatter, rtol=1e-4, atol=1e-3)


def test_earlier_classes_are_told_apart_by_rows_like_those_of_the_block() -> None:
    features, labels = samples()
    cosine, linear = make_head(form="cosine"), make_head(form="linear")
    for head in (cosine, linear):
        finish(head, features, labels, NUM_CLASSES)
        head.open_block(2, torch.Generator().manual_seed(0))
        assert head.directions.shape == (NUM_CLASSES, head.block.shape[1])
    assert torch.equal(cosine.directions, cosine.means)
    assert torch.equal(linear.directions, linear.rows)


def test_samples_of_no_class_leave_the_scatter_as_it_is() -> None:
    features, labels = samples()
    head = make_head()
    finish(head, features, labels, NUM_CLASSES)
    before = head.scatter.clone()
    nothing = head.statistic(features[:0], labels[:0], torch.ones(0), NUM_CLASSES)
    head.add_samples(torch.arange(NUM_CLASSES), nothing)
    assert torch.equal(head.scatter, before)


def test_the_rows_of_the_rest_stay_when_a_class_goes() -> None:
    features, labels = samples()
    head = make_head(form="linear")
    finish(head, features, labels, NUM_CLASSES)
    expected = head.rows[1:].clone()
    head.forget(0)
    torch.testing.assert_close(head.solve().float(), expected, rtol=1e-4, atol=1e-4)
