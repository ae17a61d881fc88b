"""The allocator works on any module: what is claimed keeps its bits, what is not stays free."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from clare.sparse.allocator import Allocator

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "sgd": lambda parameters: SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda parameters: Adam(parameters, 0.01, weight_decay=0.1),
    "adamw": lambda parameters: AdamW(parameters, 0.01, weight_decay=0.1),
    "rmsprop": lambda parameters: RMSprop(parameters, 0.01, momentum=0.9),
}


def network() -> nn.Module:
    """Return a small network with bias, so that the pool has parameters of several shapes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def steps(model: nn.Module, optimizer: Optimizer, seed: int, number: int = 4) -> None:
    """Train on random inputs of one seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        optimizer.zero_grad()
        model(torch.randn(8, 5, generator=generator)).square().sum().backward()
        optimizer.step()


def learn(pool: Allocator, model: nn.Module, seed: int, make: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    """Learn one task in both stages."""
    probing = make(pool.parameters)
    with pool.probe(probing, share=0.2, penalty=1e-3):
        steps(model, probing, seed)
    training = make(pool.parameters)
    with pool.train(training):
        steps(model, training, seed)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tasks_claim_disjoint_coordinates_and_what_is_claimed_keeps_its_bits(name: str) -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    seen = torch.zeros(pool.num_coordinates, dtype=torch.int64)
    for task in range(4):
        before, free = pool.values(), pool.ledger.free.clone()
        learn(pool, model, task, OPTIMIZERS[name])
        coordinates, values = pool.ledger.claim_of(task)
        moved = pool.values() != before
        assert free[coordinates].all()
        assert set(moved.nonzero().flatten().tolist()) <= set(coordinates.tolist())
        assert len(coordinates) == round(0.2 * int(free.sum()))
        assert torch.equal(pool.values()[coordinates], values)
        seen[coordinates] += 1
    assert int(seen.max()) == 1
    assert pool.num_free == pool.num_coordinates - int(seen.sum())


def test_stage_one_leaves_nothing_but_the_choice() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    before = pool.values()
    optimizer = SGD(pool.parameters, 0.1)
    with pool.probe(optimizer, share=0.5):
        steps(model, optimizer, 0)
        assert not torch.equal(pool.values(), before)
    assert torch.equal(pool.values(), before)


def test_the_step_is_that_of_plain_sgd_where_the_mask_is_open() -> None:
    alone, masked = network(), network()
    pool = Allocator(masked.named_parameters())
    mask = torch.arange(pool.num_coordinates) % 3 == 0
    optimizer = SGD(pool.parameters, 0.1, momentum=0.9)
    with pool.only(optimizer, mask):
        steps(masked, optimizer, 3, number=1)
    steps(alone, SGD(alone.parameters(), 0.1, momentum=0.9), 3, number=1)
    expected = Allocator(alone.named_parameters()).values()
    assert torch.equal(pool.values(), torch.where(mask, expected, pool.initial))


def test_the_penalty_moves_by_hand_what_a_step_moved() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 1.0, 1.0]))
    pool = Allocator({"weight": weight})
    optimizer = SGD([weight], 0.5)
    with pool.only(optimizer, torch.tensor([True, True, False]), penalty=0.2):
        weight.grad = torch.tensor([1.0, 0.1, 1.0])
        optimizer.step()
    # The first moves by 0.5 and is pulled back by 0.5 * 0.2; the second moves by 0.05, less than the pull.
    assert weight.tolist() == pytest.approx([0.6, 1.0, 1.0])
    assert weight[1] == 1.0


def test_a_hook_is_gone_after_its_stage() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    optimizer = SGD(pool.parameters, 0.1)
    with pool.only(optimizer, torch.zeros_like(pool.ledger.free)):
        steps(model, optimizer, 0)
    assert torch.equal(pool.values(), pool.initial)
    steps(model, optimizer, 0)
    assert not torch.equal(pool.values(), pool.initial)


def interrupted(pool: Allocator) -> None:
    """Move everything, and be interrupted before the claim."""
    with pool.train(SGD(pool.parameters, 0.1)):
        pool.write(pool.values() + 1)
        raise KeyboardInterrupt


def test_an_exception_while_training_changes_nothing() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    learn(pool, model, 0, OPTIMIZERS["sgd"])
    before = pool.values()
    optimizer = SGD(pool.parameters, 0.1)
    with pool.probe(optimizer, share=0.2):
        steps(model, optimizer, 1)
    with pytest.raises(KeyboardInterrupt):
        interrupted(pool)
    assert torch.equal(pool.values(), before)
    assert pool.num_tasks == 1


def test_undo_gives_back_the_last_claim_and_its_values() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    learn(pool, model, 0, OPTIMIZERS["sgd"])
    before, free = pool.values(), pool.ledger.free.clone()
    learn(pool, model, 1, OPTIMIZERS["sgd"])
    pool.undo()
    assert torch.equal(pool.values(), before)
    assert torch.equal(pool.ledger.free, free)
    assert pool.num_tasks == 1


def test_a_saved_pool_goes_on_as_the_one_that_was_saved() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    learn(pool, model, 0, OPTIMIZERS["adam"])
    other = network()
    again = Allocator(other.named_parameters())
    again.load_state_dict(pool.state_dict())
    for one, its in ((pool, model), (again, other)):
        learn(one, its, 1, OPTIMIZERS["adam"])
    assert pool.state_dict().keys() == again.state_dict().keys()
    for name, tensor in pool.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_pool_without_free_coordinates_trains_none() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    pool.claim(torch.ones_like(pool.ledger.free))
    before = pool.values()
    learn(pool, model, 0, OPTIMIZERS["sgd"])
    assert torch.equal(pool.values(), before)
    assert pool.ledger.lengths == [pool.num_coordinates, 0]


def claimed_twice(pool: Allocator, model: nn.Module) -> None:
    """Claim what the first task has."""
    pool.claim(~pool.ledger.free)


def untrained_choice(pool: Allocator, model: nn.Module) -> None:
    """Train before anything was chosen."""
    with pool.train(SGD(pool.parameters, 0.1)):
        raise AssertionError


def probed_twice(pool: Allocator, model: nn.Module) -> None:
    """Choose twice for one task."""
    for _ in range(2):
        with pool.probe(SGD(pool.parameters, 0.1), share=0.1):
            pass


def foreign_optimizer(pool: Allocator, model: nn.Module) -> None:
    """Use an optimiser of another network."""
    with pool.probe(SGD(network().parameters(), 0.1), share=0.1):
        raise AssertionError


def used_optimizer(pool: Allocator, model: nn.Module) -> None:
    """Use an optimiser that has momentum from before."""
    optimizer = SGD(pool.parameters, 0.0, momentum=0.9)
    steps(model, optimizer, 0)
    with pool.probe(optimizer, share=0.1):
        raise AssertionError


def resized_parameter(pool: Allocator, model: nn.Module) -> None:
    """Give a parameter another shape."""
    pool.parameters[0].data = torch.zeros(2, 2)
    pool.values()


def wrong_share(pool: Allocator, model: nn.Module) -> None:
    """Ask for more than there is."""
    with pool.probe(SGD(pool.parameters, 0.1), share=1.5):
        raise AssertionError


def wrong_penalty(pool: Allocator, model: nn.Module) -> None:
    """Push instead of pull."""
    with pool.probe(SGD(pool.parameters, 0.1), share=0.1, penalty=-1):
        raise AssertionError


def wrong_mask(pool: Allocator, model: nn.Module) -> None:
    """Claim by a mask of another length."""
    pool.claim(torch.ones(3, dtype=torch.bool))


def foreign_state(pool: Allocator, model: nn.Module) -> None:
    """Load the state of a smaller pool."""
    pool.load_state_dict(Allocator({"weight": nn.Parameter(torch.ones(3))}).state_dict())


def partial_state(pool: Allocator, model: nn.Module) -> None:
    """Load a state of which a part is gone."""
    pool.load_state_dict({"values": pool.values()})


def contradicting_state(pool: Allocator, model: nn.Module) -> None:
    """Load a state whose claims are longer than it says."""
    pool.load_state_dict({**pool.state_dict(), "lengths": torch.tensor([1])})


MISTAKES: list[tuple[Callable[[Allocator, nn.Module], None], str]] = [
    (claimed_twice, "claimed already"),
    (untrained_choice, "use `probe` before `train`"),
    (probed_twice, "use `train` before `probe`"),
    (foreign_optimizer, "other parameters than the pool"),
    (used_optimizer, "make a new one for each stage"),
    (resized_parameter, "make a new pool"),
    (wrong_share, "the share is 1.5"),
    (wrong_penalty, "the penalty is -1"),
    (wrong_mask, "a mask of 66 booleans"),
    (foreign_state, "3 coordinates, this one has 66"),
    (partial_state, "lacks initial"),
    (contradicting_state, "contradicts itself"),
]


@pytest.mark.parametrize(("mistake", "words"), MISTAKES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_mistake_ends_in_a_sentence_and_changes_nothing(
    mistake: Callable[[Allocator, nn.Module], None], words: str
) -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    learn(pool, model, 0, OPTIMIZERS["sgd"])
    before, free = pool.values(), pool.ledger.free.clone()
    with pytest.raises(ValueError, match=words):
        mistake(pool, model)
    assert torch.equal(pool.ledger.free, free)
    if mistake is not resized_parameter:
        assert torch.equal(pool.values(), before)


def tied() -> dict[str, nn.Parameter]:
    """Return two parameters over the same values."""
    values = torch.ones(4)
    return {"one": nn.Parameter(values), "two": nn.Parameter(values)}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "no parameters"),
        (tied(), "one and two share their values"),
        ({"mask": nn.Parameter(torch.ones(2, dtype=torch.bool), requires_grad=False)}, "no floating-point values"),
        ({"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.ones(2).double())}, "several precisions"),
    ],
)
def test_what_is_no_pool_is_refused(parameters: dict[str, nn.Parameter], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Allocator(parameters)


def test_a_pool_is_split_into_the_shapes_of_its_parameters() -> None:
    model = network()
    pool = Allocator(model.named_parameters())
    parts: list[Tensor] = pool.split(pool.values())
    assert [part.shape for part in parts] == [parameter.shape for parameter in model.parameters()]
    assert all(torch.equal(part, parameter) for part, parameter in zip(parts, model.parameters(), strict=True))
