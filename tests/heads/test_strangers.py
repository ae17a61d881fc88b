"""How well samples go with the classes: the distances by hand, and that strangers stand out."""

import torch

from clare.heads.precision import SHARES, Precision, Strangers

SIZE, NUM_CLASSES = 6, 3


def test_distances_are_those_to_the_nearest_class_to_the_middle_of_all_and_to_all_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(NUM_CLASSES, SIZE, generator=generator, dtype=torch.float64)
    root = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)
    within, counts = root @ root.T + torch.eye(SIZE), torch.tensor([5.0, 3.0, 2.0], dtype=torch.float64)
    asked = torch.randn(4, SIZE, generator=generator, dtype=torch.float64)
    strangers = Strangers(means, counts, Precision.of_matrix(within))
    shares = counts / counts.sum()
    middle = shares @ means
    around = within + (means - middle).T @ (shares[:, None] * (means - middle))
    to_middle = ((asked - middle) @ torch.linalg.inv(around) * (asked - middle)).sum(1)
    apart = asked[:, None] - means
    to_classes = torch.einsum("bkd,de,bke->bk", apart, torch.linalg.inv(within), apart)

    others, left_out = torch.tensor([[1, 2], [0, 2], [0, 1], [1, 2]]), torch.tensor([0, 1, 2, 0])
    for by, (of_middle, of_contrast) in SHARES.items():
        for squares, without in ((to_classes, None), (to_classes.gather(1, others), left_out)):
            nearest = squares.amin(1)
            expected = of_middle * to_middle - nearest + of_contrast * (squares.mean(1) - nearest)
            torch.testing.assert_close(strangers.familiarity(asked, without, by), expected)


def test_without_its_only_class_a_sample_goes_with_nothing() -> None:
    strangers = Strangers(torch.ones(1, SIZE), torch.ones(1), Precision.of_matrix(torch.eye(SIZE)))
    assert strangers.familiarity(torch.zeros(1, SIZE)).isfinite().all()
    for by in SHARES:
        assert strangers.familiarity(torch.zeros(1, SIZE), torch.tensor([0]), by).tolist() == [-torch.inf]


def test_far_samples_are_less_familiar_than_those_of_a_class() -> None:
    means = 3 * torch.eye(NUM_CLASSES, SIZE)
    strangers = Strangers(means, torch.ones(NUM_CLASSES), Precision.of_matrix(0.1 * torch.eye(SIZE)))
    far = torch.zeros(1, SIZE)
    far[0, -1] = 3.0
    assert strangers.familiarity(means + 0.05).min() > strangers.familiarity(far) + 1
