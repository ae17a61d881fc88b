"""The light quadratic discriminant: what it keeps, how it shrinks, and that it answers as the plain one."""

import pytest
import torch
from head_steps import a_drift, finish, head_of
from torch import Tensor

from clare.classifier.memory import num_held
from clare.growth import make_room
from clare.heads.gaussian import MOST_ROWS, GaussianHead
from clare.heads.left_out import STRENGTHS, best_strength, judged, left_out_squares
from clare.heads.precision import Precision
from clare.heads.statistics import shrunk_covariance

NUM_FEATURES, NUM_CLASSES = 40, 3


def samples(number: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes a little apart, which scatter alike."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % NUM_CLASSES
    centres = torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator)
    return centres[labels] + torch.randn(number, NUM_FEATURES, generator=generator), labels


def make(kind: str = "gaussian", **settings: object) -> GaussianHead:
    return head_of(NUM_FEATURES, kind=kind, form="linear", **settings)  # type: ignore[return-value]


def taught(*lessons: tuple[Tensor, Tensor], **settings: object) -> GaussianHead:
    head = make(**settings)
    for features, labels in lessons:
        finish(head, features, labels, int(labels.max()) + 1)
    return head


@pytest.mark.parametrize(("number", "is_square"), [(9, False), (30, True)])
def test_it_answers_as_the_plain_quadratic_head_of_the_same_settings(number: int, is_square: bool) -> None:
    features, labels = samples(number)
    same: dict[str, object] = {"shrinkage": 0.3, "own_share": 0.1, "num_directions": 2}
    light, plain = taught((features, labels), **same), taught((features, labels), kind="quadratic", **same)
    assert (len(light.scatter) > 0) == is_square
    assert (len(light.roots) > 0) != is_square
    torch.testing.assert_close(light.logits(features), plain.logits(features), rtol=1e-3, atol=1e-3)


def test_lessons_one_by_one_keep_what_all_at_once_would() -> None:
    features, labels = samples(24)
    head = make(num_directions=2)
    for label in range(NUM_CLASSES):
        own = features[labels == label]
        finish(head, own, torch.zeros(len(own), dtype=torch.int64), 1)
    whole = taught((features, labels), num_directions=2)
    assert len(head.scatter) > 0
    assert len(head.roots) > 0
    torch.testing.assert_close(head._whole(), whole._whole(), rtol=1e-5, atol=1e-5)


def test_more_samples_of_known_classes_are_as_if_they_had_come_at_once() -> None:
    features, labels = samples(30)
    settings: dict[str, object] = {"shrinkage": 0.2, "num_directions": 2}
    head = taught((features[:9], labels[:9]), **settings)
    sums = head.summed({"values": features[9:], "labels": labels[9:]}, NUM_CLASSES)
    for _ in head.renew(torch.arange(NUM_CLASSES), head.counts, sums):
        raise AssertionError("there is nothing to wait for")
    whole = taught((features, labels), **settings)
    torch.testing.assert_close(head._whole(), whole._whole(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(head.means, whole.means)


def test_what_a_folder_keeps_gives_the_head_back_to_the_bit() -> None:
    for number in (6, 60):
        head = taught(samples(number))
        saved = head.packed({name: tensor.clone() for name, tensor in head.state_dict().items()})
        assert "rows" not in saved
        if number == 60:
            assert saved["scatter"].shape == (NUM_FEATURES * (NUM_FEATURES + 1) // 2,)
        other = make()
        full = other.unpacked(saved)
        make_room(other, {**full, "rows": head.rows})
        other.load_state_dict({**full, "rows": other.rows})
        assert torch.equal(other.solve().float(), head.rows)


def test_left_out_distances_are_those_of_statistics_without_the_sample() -> None:
    features, labels = (part[:24] for part in samples(24))
    features = features.double()

    def statistics(kept: Tensor) -> tuple[Tensor, Tensor]:
        own, named = features[kept], labels[kept]
        means = torch.stack([own[named == label].mean(0) for label in range(NUM_CLASSES)])
        apart = own - means[named]
        return means, apart.T @ apart

    everything = torch.ones(24, dtype=torch.bool)
    means, scatter = statistics(everything)
    weight, floor = 0.1, 0.5
    identity = floor * torch.eye(NUM_FEATURES, dtype=torch.float64)
    precision = Precision.of_matrix(weight * scatter + identity)
    found = left_out_squares(features, labels, means, torch.bincount(labels).double(), precision, weight)
    for place in (0, 7, 23):
        kept = everything.clone()
        kept[place] = False
        own_means, own_scatter = statistics(kept)
        apart = features[place] - own_means
        expected = (apart @ torch.linalg.inv(weight * own_scatter + identity) * apart).sum(1)
        torch.testing.assert_close(found[place], expected)


def test_rows_beside_an_identity_are_inverted_as_their_matrix() -> None:
    rows = torch.randn(6, NUM_FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    matrix = Precision.of_matrix(0.3 * rows.T @ rows + 0.2 * torch.eye(NUM_FEATURES, dtype=torch.float64))
    few = Precision.of_rows(rows, 0.3, 0.2)
    asked = torch.randn(5, NUM_FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(few.solve(asked.T), matrix.solve(asked.T))
    torch.testing.assert_close(few.squares(asked), matrix.squares(asked))


def test_more_noise_asks_for_more_shrinkage_and_one_class_for_the_usual() -> None:
    # Along a few directions that the classes share, samples scatter widely; everything else is quiet.
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60) % NUM_CLASSES
    centres = 0.6 * torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator)
    loud = torch.ones(NUM_FEATURES)
    loud[:4] = 30
    wide = centres[labels] + 0.3 * loud * torch.randn(60, NUM_FEATURES, generator=generator)
    alike = centres[labels] + torch.randn(60, NUM_FEATURES, generator=generator)
    of_wide, of_alike = (taught((features, labels)) for features in (wide, alike))
    assert best_strength(of_wide.likelihoods) < best_strength(of_alike.likelihoods)
    assert 0 < of_wide.shrinkage < of_alike.shrinkage < 1
    alone = taught((features := samples(8)[0], torch.zeros(len(features), dtype=torch.int64)))
    assert best_strength(alone.likelihoods) == 0.5
    assert len(STRENGTHS) == len(alone.likelihoods)


def test_a_class_of_one_sample_is_not_judged() -> None:
    features, _ = samples(2)
    labels = torch.arange(2)
    precision = Precision.of_matrix(torch.eye(NUM_FEATURES))
    found = judged(features, labels, features.double(), torch.ones(2), lambda _: precision)
    assert not found.any()


def test_a_drift_moves_rows_kept_one_by_one_as_it_moves_their_square() -> None:
    features, labels = samples(9)
    drift = a_drift(features)
    few, plain = taught((features, labels)), taught((features, labels), kind="quadratic", num_directions=4)
    few.carry_over(drift)
    plain.carry_over(drift)
    torch.testing.assert_close(few._whole().float(), plain.scatter, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(few.means, plain.means)


def test_a_forgotten_class_takes_its_share_along() -> None:
    head = taught(samples(9))
    before = head._whole()
    head.forget(1)
    torch.testing.assert_close(head._whole(), before * 2 / 3, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        head.precision(head.shrinkage).solve(torch.eye(NUM_FEATURES, dtype=torch.float64)),
        torch.linalg.inv(shrunk_covariance(head.means, before * 2 / 3, 6, head.shrinkage)),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_thousand_classes_of_a_large_backbone_take_less_than_200_megabytes() -> None:
    size, number = 4608, 1000
    head = GaussianHead(size, make().settings)

    def room(*shape: int) -> Tensor:
        return torch.empty(shape, device="meta")

    kept = {**head.state_dict(), "means": room(number, size), "factors": room(number, size, 4), "counts": room(number)}
    kept |= {"rows": room(number, 5 * (size + 1)), "scatter": room(size, size), "roots": room(size // MOST_ROWS, size)}
    num_bytes = sum(tensor.nbytes for tensor in head.packed(kept).values())
    assert num_bytes + 2 * size * number * num_held(size, number) < 200e6
