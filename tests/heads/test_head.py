"""The head: its losses over padded blocks, its logits, and its three ways to finish a task."""

import math

import pytest
import torch
import torch.nn.functional as F
from head_steps import head_of
from torch import Tensor

from clare.errors import SettingsError
from clare.growth import make_room
from clare.heads.aligned import GaussianFeatures
from clare.heads.head import Head
from clare.heads.statistics import class_sums, gaussian_factors
from clare.steps import Pass, Phase, Result

NUM_FEATURES = 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_head(**settings: object) -> Head:
    return head_of(NUM_FEATURES, **settings)


def sample(num_samples: int, seed: int = 0) -> Tensor:
    return torch.randn(num_samples, NUM_FEATURES, generator=generator(seed))


def cosines(features: Tensor, rows: Tensor) -> Tensor:
    """Compute cosines one by one."""
    return torch.stack([torch.stack([F.cosine_similarity(x, row, dim=0) for row in rows]) for x in features])


@pytest.mark.parametrize("num_new", [1, 3, 5])
def test_the_block_loss_is_cross_entropy_over_the_tasks_classes_only(num_new: int) -> None:
    head = make_head(scale=12.0)
    head.open_block(5, generator(0))
    head.open_block(num_new, generator(1))
    assert head.block.shape == (5, NUM_FEATURES)
    head.block.requires_grad_(True)
    features, labels = sample(7), torch.arange(7) % num_new
    losses = head.block_loss(features, labels)
    expected = F.cross_entropy(12.0 * cosines(features, head.block[:num_new]), labels, reduction="none")
    torch.testing.assert_close(losses, expected)
    (gradient,) = torch.autograd.grad(losses.sum(), head.block)
    assert bool(torch.isfinite(gradient).all())
    assert not gradient[num_new:].any()
    assert num_new == 1 or bool(gradient[:num_new].any(1).all())


def test_the_block_loss_does_not_see_finished_rows() -> None:
    head = make_head()
    head.open_block(2, generator())
    features, labels = sample(4), torch.tensor([0, 1, 1, 0])
    before = head.block_loss(features, labels)
    head.append(sample(3, seed=5))
    assert torch.equal(head.block_loss(features, labels), before)


def test_logits_are_cosines_with_all_rows() -> None:
    head = make_head()
    head.append(3 * sample(2, seed=1))
    head.append(0.1 * sample(3, seed=2))
    features = sample(4)
    assert head.num_classes == 5
    torch.testing.assert_close(head.logits(features), cosines(features, head.rows))
    torch.testing.assert_close(head.logits(1000 * features), head.logits(features))
    assert float(head.logits(head.rows).diagonal().min()) == pytest.approx(1, abs=1e-6)


def test_a_head_without_classes_has_no_logits() -> None:
    assert make_head().logits(sample(3)).shape == (3, 0)


def test_the_row_loss_is_cross_entropy_over_all_classes() -> None:
    head = make_head(scale=7.0)
    head.append(sample(4, seed=1))
    features, labels = sample(5), torch.tensor([0, 1, 2, 3, 0])
    expected = F.cross_entropy(7.0 * cosines(features, head.rows), labels, reduction="none")
    torch.testing.assert_close(head.row_loss(features, labels), expected)


def test_opening_a_block_keeps_its_tensor_while_it_is_large_enough() -> None:
    head = make_head()
    head.open_block(3, generator(0))
    place, first = head.block.data_ptr(), head.block.clone()
    head.open_block(2, generator(1))
    assert head.block.data_ptr() == place
    assert not torch.equal(head.block, first)
    assert head.closed.tolist() == [0.0, 0.0, -math.inf]
    head.open_block(3, generator(0))
    assert torch.equal(head.block, first)
    assert head.closed.tolist() == [0.0, 0.0, 0.0]
    head.open_block(4, generator(2))
    assert head.block.shape == (4, NUM_FEATURES)
    assert float(head.block.abs().max()) <= 1 / math.sqrt(NUM_FEATURES)
    assert not head.block.requires_grad


def sums_of(step: Pass, images: Tensor, labels: Tensor) -> Result:
    """Run a pass by hand in two batches, the second of them padded."""
    half = len(images) // 2
    first = step.statistic(images[:half], labels[:half], torch.ones(half))
    rest = len(images) - half
    padded = step.statistic(
        torch.cat([images[half:], 1e6 * images[:2]]),
        torch.cat([labels[half:], labels[:2]]),
        torch.cat([torch.ones(rest), torch.zeros(2)]),
    )
    return {name: first[name] + padded[name] for name in first}


@torch.no_grad()
def test_trained_rows_are_what_the_block_holds() -> None:
    head = make_head(kind="trained")
    head.append(sample(2, seed=8))
    head.open_block(4, generator(0))
    head.open_block(3, generator(1))
    assert list(head.finish(3)) == []
    assert torch.equal(head.rows[:2], sample(2, seed=8))
    assert torch.equal(head.rows[2:], head.block[:3])
    head.open_block(3, generator(2))
    assert not torch.equal(head.rows[2:], head.block[:3])


@torch.no_grad()
def test_prototype_rows_are_class_means() -> None:
    head = make_head(kind="prototype")
    head.append(sample(1, seed=8))
    images, labels = sample(9), torch.arange(9) % 3
    learning = head.finish(3)
    step = next(learning)
    assert isinstance(step, Pass)
    assert (step.of, step.view) == ("features", "test")
    assert head.num_classes == 1
    with pytest.raises(StopIteration):
        learning.send(sums_of(step, images, labels))
    expected = torch.stack([images[labels == label].mean(0) for label in range(3)])
    torch.testing.assert_close(head.rows[1:], expected)
    assert torch.equal(head.rows[:1], sample(1, seed=8))
    assert head.rows.dtype == torch.float32
    assert len(head.means) == len(head.factors) == 0


@torch.no_grad()
def test_aligned_rows_are_trained_again_for_all_classes() -> None:
    head = make_head(kind="aligned", align_samples=10, align_epochs=3, align_batch_size=8, align_learning_rate=0.3)
    for task in range(2):
        images, labels = sample(20, seed=task), torch.arange(20) % 2
        learning = head.finish(2)
        step = next(learning)
        assert isinstance(step, Pass)
        sums = sums_of(step, images, labels)
        phase = learning.send(sums)
        assert isinstance(phase, Phase)
        num_classes = 2 * (task + 1)
        assert head.num_classes == num_classes
        assert [group.parameter for group in phase.groups] == [head.rows]
        assert phase.groups[0].mask is None
        assert (phase.epochs, phase.batch_size, phase.optimizer.learning_rate) == (3, 8, 0.3)
        assert phase.data is not None
        assert phase.data.num_samples == 10 * num_classes
        means = torch.stack([images[labels == label].mean(0) for label in range(2)])
        torch.testing.assert_close(head.means[-2:], means)
        torch.testing.assert_close(head.factors[-2:], gaussian_factors(sums, 0.2).float())
        torch.testing.assert_close(head.rows[-2:], F.normalize(means, dim=1))
        features = sample(4, seed=9)
        assert torch.equal(phase.loss(features, torch.arange(4) % 2), head.row_loss(features, torch.arange(4) % 2))
        head.rows.add_(0.1)
        with pytest.raises(StopIteration):
            learning.send({})
    assert head.factors.shape == (4, NUM_FEATURES, NUM_FEATURES)


@torch.no_grad()
def test_alignment_starts_old_rows_from_their_means_again() -> None:
    head = make_head(kind="aligned")
    for task in range(2):
        learning = head.finish(1)
        step = next(learning)
        assert isinstance(step, Pass)
        learning.send(sums_of(step, sample(8, seed=task), torch.zeros(8, dtype=torch.long)))
        torch.testing.assert_close(head.rows.detach(), F.normalize(head.means, dim=1))
        head.rows.fill_(5.0)


@pytest.mark.parametrize("kind", ["prototype", "aligned"])
def test_a_head_makes_room_for_saved_tensors(kind: str) -> None:
    saved, loaded = make_head(kind=kind), make_head(kind=kind)
    with torch.no_grad():
        learning = saved.finish(2)
        step = next(learning)
        assert isinstance(step, Pass)
        for _ in range(2):
            try:
                learning.send(sums_of(step, sample(10), torch.arange(10) % 2))
            except StopIteration:
                break
    make_room(loaded, saved.state_dict())
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded.logits(sample(3)), saved.logits(sample(3)))
    assert torch.equal(loaded.factors, saved.factors)


def test_drawn_features_have_the_moments_of_their_class() -> None:
    means = torch.tensor([[1.0, -2.0], [0.0, 5.0], [3.0, 3.0]])
    factors = torch.tensor([[[1.0, 0.0], [0.5, 0.2]], [[2.0, 0.0], [0.0, 1.0]], [[0.1, 0.0], [0.0, 0.1]]])
    source = GaussianFeatures(means, factors, 5000)
    assert source.num_samples == 15_000
    source.begin_epoch(generator())
    features, labels = source.draw(torch.arange(15_000))
    assert torch.bincount(labels).tolist() == [5000, 5000, 5000]
    for label in range(3):
        own = features[labels == label].double()
        spread = float(factors[label].norm())
        torch.testing.assert_close(own.mean(0), means[label].double(), rtol=0, atol=0.06 * spread)
        covariance = (factors[label] @ factors[label].T).double()
        torch.testing.assert_close(torch.cov(own.T), covariance, rtol=0, atol=0.1 * spread**2)


def test_drawn_features_are_seeded_and_new_in_every_epoch() -> None:
    sums = class_sums(sample(12), torch.arange(12) % 2, torch.ones(12), 2, outer=True)
    source = GaussianFeatures(sample(2, seed=3), gaussian_factors(sums, 0.5).float(), 4)

    def epoch(seed: int) -> tuple[Tensor, Tensor]:
        source.begin_epoch(generator(seed))
        return source.draw(torch.arange(8))

    features, labels = epoch(1)
    assert len({tuple(feature) for feature in features.tolist()}) == 8
    assert torch.equal(epoch(1)[0], features)
    assert not torch.equal(epoch(2)[0], features)
    epoch(1)
    order = torch.tensor([5, 0, 2, 2])
    some, some_labels = source.draw(order)
    assert torch.equal(some, features[order])
    assert torch.equal(some_labels, labels[order])


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"head\.kind' got 'mean'.*trained, prototype, aligned"):
        make_head(kind="mean")


def test_a_linear_heads_logits_are_products_and_biases() -> None:
    head = make_head(kind="trained", form="linear")
    head.open_block(3, generator(0))
    features, labels = sample(4), torch.tensor([0, 2, 1, 2])
    by_hand = features @ head.block[:, :-1].T + head.block[:, -1]
    torch.testing.assert_close(head.block_logits(features), by_hand)
    torch.testing.assert_close(head.block_loss(features, labels), F.cross_entropy(by_hand, labels, reduction="none"))
    assert list(head.finish(3)) == []
    torch.testing.assert_close(head.logits(features), by_hand)
    assert head.scale == 1


def test_aligned_linear_rows_start_as_they_were_trained() -> None:
    head = make_head(kind="aligned", form="linear")
    head.open_block(2, generator(0))
    trained = head.block.detach().clone()
    features, labels = sample(8), torch.arange(8) % 2
    finishing = head.finish(2)
    assert isinstance(next(finishing), Pass)
    phase = finishing.send(class_sums(features, labels, torch.ones(8), 2, outer=True))
    assert isinstance(phase, Phase)
    assert torch.equal(head.rows, trained)
    assert phase.groups[0].parameter is head.rows


def test_class_means_have_no_linear_form() -> None:
    with pytest.raises(
        SettingsError, match=r"'method\.head\.form' got 'linear'; it belongs to kind = trained, aligned"
    ):
        make_head(form="linear")


def test_a_learnt_scale_is_trained_with_the_rows_and_starts_anew() -> None:
    head = make_head(learnt_scale=True)
    head.open_block(3, generator(0))
    assert [group.parameter for group in head.groups()] == [head.block, head.factor]
    head.factor.data.fill_(4)
    features = sample(5)
    torch.testing.assert_close(head.block_logits(features), 4 * cosines(features, head.block))
    head.open_block(3, generator(1))
    assert float(head.factor) == 1
    assert [group.parameter.shape for group in make_head().groups()] == [(0, NUM_FEATURES)]
