"""The quadratic discriminant: its rows, its sums, and how it follows moved features."""

import pytest
import torch
import torch.nn.functional as F
from head_steps import a_drift, finish, head_of
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clare.growth import make_room
from clare.heads import quadratic
from clare.heads.drift import moved
from clare.heads.precision import Precision
from clare.heads.quadratic import QuadraticHead, leading_root, quadratic_rows, quadratic_scores
from clare.heads.statistics import discriminant_rows, shrunk_covariance
from clare.steps import found_in

NUM_FEATURES, NUM_CLASSES = 5, 3


def samples(num_samples: int = 90, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes that each scatter in their own way."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator)
    shapes = torch.randn(NUM_CLASSES, NUM_FEATURES, NUM_FEATURES, generator=generator)
    labels = torch.arange(num_samples) % NUM_CLASSES
    noise = torch.randn(num_samples, NUM_FEATURES, generator=generator)
    return centres[labels] + torch.einsum("bd,bde->be", noise, shapes[labels]), labels


def make_head(**settings: object) -> QuadraticHead:
    values = {"kind": "quadratic", "num_directions": NUM_FEATURES, **settings}
    head = head_of(NUM_FEATURES, **values)
    assert isinstance(head, QuadraticHead)
    return head


def test_left_to_itself_it_goes_by_how_many_images_there_are() -> None:
    head = make_head(shrinkage="auto", own_share="auto")
    shares = []
    for num_samples in (30, 300):
        features, labels = samples(num_samples)
        finish(head, features, labels, NUM_CLASSES)
        shares.append((head.shrinkage, head.own_share))
    # Of three classes 10 samples each, then of six classes 10 or 100: 55 to a class.
    assert shares[0] == pytest.approx((5 / (5 + 2 * 30), 10**0.5 / (10**0.5 + 200)))
    assert shares[1] == pytest.approx((5 / (5 + 2 * 330), 55**0.5 / (55**0.5 + 200)))
    set_by_hand = make_head(shrinkage=shares[1][0], own_share=shares[1][1])
    for num_samples in (30, 300):
        finish(set_by_hand, *samples(num_samples), NUM_CLASSES)
    torch.testing.assert_close(head.rows, set_by_hand.rows)


def give_more(head: QuadraticHead, features: Tensor, labels: Tensor) -> None:
    found = found_in(head.sweep(NUM_CLASSES), features, labels)
    head.add_samples(torch.arange(NUM_CLASSES), head.summed(found, NUM_CLASSES))


def covariance_of(rows: Tensor) -> Tensor:
    apart = rows - rows.mean(0)
    return apart.T @ apart / len(rows)


@pytest.mark.parametrize("own_share", [0.0, 0.3, 0.9])
def test_scores_are_log_posteriors_of_gaussians_with_mixed_covariances(own_share: float) -> None:
    features, labels = samples()
    head = make_head(form="linear", shrinkage=0.1, own_share=own_share)
    finish(head, features, labels, NUM_CLASSES)
    wide = features.double()
    shared = shrunk_covariance(head.means, head.scatter, len(features), 0.1)
    gaussians = [
        torch.distributions.MultivariateNormal(
            wide[labels == c].mean(0), (1 - own_share) * shared + own_share * covariance_of(wide[labels == c])
        )
        for c in range(NUM_CLASSES)
    ]
    expected = torch.stack([each.log_prob(wide) for each in gaussians], 1).log_softmax(1)
    torch.testing.assert_close(head.logits(features).double().log_softmax(1), expected, rtol=1e-3, atol=1e-3)
    assert head.scale == 1.0


def test_without_a_share_of_their_own_classes_have_the_linear_discriminant() -> None:
    features, labels = samples()
    head = make_head(form="linear", own_share=0.0)
    finish(head, features, labels, NUM_CLASSES)
    rows = discriminant_rows(head.means, head.scatter, len(features), head.settings.shrinkage).float()
    expected = F.linear(features, rows[:, :-1], rows[:, -1]).softmax(1)
    torch.testing.assert_close(head.logits(features).softmax(1), expected, rtol=1e-4, atol=1e-4)


def test_classes_of_one_mean_are_told_apart_by_how_they_scatter() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    spread = torch.tensor([[3.0, 1, 1, 1, 0.3], [0.3, 1, 1, 1, 3.0]])
    features = spread[labels] * torch.randn(400, NUM_FEATURES, generator=generator)
    quadratic, linear = make_head(form="linear", own_share=0.9), make_head(form="linear", own_share=0.0)
    for head in (quadratic, linear):
        finish(head, features, labels, 2)
    right = [(head.logits(features).argmax(1) == labels).float().mean() for head in (quadratic, linear)]
    assert right[0] > 0.9 > 0.7 > right[1]


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 100))
def test_a_leading_root_is_the_best_of_its_rank(size: int, num_directions: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(size + 3, size, generator=generator, dtype=torch.float64))
    turn, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    values = 2.0 ** -torch.arange(size, dtype=torch.float64)
    root = leading_root(left @ values.sqrt().diag() @ turn.T, num_directions)
    assert root.shape == (size, num_directions)
    kept = torch.where(torch.arange(size) < num_directions, values, 0)
    torch.testing.assert_close(root @ root.T, turn @ kept.diag() @ turn.T, rtol=1e-5, atol=1e-5)


def test_features_without_any_variance_still_have_finite_rows() -> None:
    means = torch.eye(NUM_CLASSES, NUM_FEATURES)
    nothing = torch.zeros(NUM_FEATURES, NUM_FEATURES)
    factors = torch.stack([leading_root(nothing, 2)] * NUM_CLASSES)
    rows = quadratic_rows(means, Precision.of_matrix(shrunk_covariance(means, nothing, 3, 0.1)), factors, 0.1)
    assert bool(torch.isfinite(rows).all())
    assert quadratic_scores(means, rows).argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("form", ["cosine", "linear"])
def test_tasks_one_by_one_make_the_rows_of_all_at_once(form: str) -> None:
    features, labels = samples()
    together, apart = make_head(form=form, num_directions=2), make_head(form=form, num_directions=2)
    finish(together, features, labels, NUM_CLASSES)
    finish(apart, features[labels < 2], labels[labels < 2], 2)
    finish(apart, features[labels == 2], labels[labels == 2] - 2, 1)
    torch.testing.assert_close(apart.logits(features), together.logits(features), rtol=1e-4, atol=1e-4)
    assert make_head(form=form).directions.shape == (0, together.row_size)
    assert together.directions.shape == (NUM_CLASSES, together.row_size)


def test_more_samples_of_known_classes_are_as_if_they_had_come_at_once() -> None:
    features, labels = samples()
    head, expected = make_head(form="linear"), make_head(form="linear")
    finish(head, features[:30], labels[:30], NUM_CLASSES)
    give_more(head, features[30:], labels[30:])
    head.replace(head.solve())
    finish(expected, features, labels, NUM_CLASSES)
    torch.testing.assert_close(head.logits(features), expected.logits(features), rtol=1e-3, atol=1e-3)
    before = head.factors @ head.factors.mT
    give_more(head, features[:0], labels[:0])
    torch.testing.assert_close(head.factors @ head.factors.mT, before, rtol=1e-4, atol=1e-4)


def test_a_linear_drift_moves_the_gaussians_to_where_the_features_went() -> None:
    features, labels = samples()
    drift = a_drift(features)
    head, expected = make_head(form="linear"), make_head(form="linear")
    finish(head, features, labels, NUM_CLASSES)
    head.carry_over(drift)
    finish(expected, moved(features, drift), labels, NUM_CLASSES)
    torch.testing.assert_close(head.means, expected.means, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        head.factors @ head.factors.mT, expected.factors @ expected.factors.mT, rtol=1e-3, atol=1e-3
    )


def test_saved_tensors_fit_a_head_that_was_made_anew() -> None:
    features, labels = samples()
    head, other = make_head(), make_head()
    finish(head, features, labels, NUM_CLASSES)
    make_room(other, head.state_dict())
    other.load_state_dict(head.state_dict())
    assert torch.equal(other.logits(features), head.logits(features))


def test_thousands_of_classes_are_taken_in_pieces_with_the_same_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 7, (40,), generator=draw)
    found = {"values": torch.randn(40, NUM_FEATURES, generator=draw) + labels[:, None], "labels": labels}

    def rows() -> Tensor:
        head = make_head()
        head.add_classes(head.summed(found, 7))
        return head.solve()

    whole = rows()
    monkeypatch.setattr(quadratic, "NUM_ROWS", 9)
    monkeypatch.setattr(quadratic, "NUM_CLASSES", 2)
    seen: list[int] = []
    really = quadratic.scatter_sums

    def scatter_sums(features: Tensor, own: Tensor, weights: Tensor, num_classes: int) -> dict[str, Tensor]:
        seen.append(num_classes)
        return really(features, own, weights, num_classes)

    monkeypatch.setattr(quadratic, "scatter_sums", scatter_sums)
    torch.testing.assert_close(rows(), whole, rtol=1e-4, atol=1e-4)
    assert len(seen) == 5
    assert max(seen) < 7, "a piece without samples of some classes makes room for all of them"
