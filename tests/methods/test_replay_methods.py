"""iCaRL, ER and DER++: choices, means and losses by hand, and pictures that help."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import count_parameters, evaluate
from clare.engine.learn import learn_task
from clare.errors import SettingsError
from clare.methods import METHODS
from clare.methods._shared.replayed import Memory, MemorySettings, ReplayMethod, first_of_each, herd, herded, reservoir
from clare.methods.derpp import DarkExperienceReplay, DerppSettings, change
from clare.methods.icarl import exemplar_means
from clare.settings import build_settings

UNITS = torch.tensor([[0.8, 0.6], [-0.6, 0.8], [-0.8, 0.6], [0.28, 0.96], [0.96, 0.28]])


def test_herding_by_hand() -> None:
    chosen = herd(UNITS, 3)
    assert chosen.tolist() == [3, 1, 4]
    means = exemplar_means(torch.cat([2 * UNITS[chosen], torch.tensor([[-3.0, 0.0]])]), torch.tensor([0, 0, 0, 1]), 2)
    assert means[0].tolist() == pytest.approx([0.299340, 0.954146], abs=1e-6)
    for image, squares in (((-0.6, 0.8), (0.832574, 0.8)), ((-0.28, 0.96), (0.335669, 1.44))):
        found = (torch.tensor(image) - means).square().sum(1)
        assert found.tolist() == pytest.approx(squares, abs=1e-6)


def test_a_class_with_fewer_images_gives_all_it_has() -> None:
    labels = torch.tensor([1, 0, 0, 0, 0, 0])
    places = herded(torch.cat([UNITS[:1], UNITS]), labels, 3)
    assert places.tolist() == [4, 2, 5, 0]


def test_places_are_shared_out_and_the_rest_is_left() -> None:
    memory = Memory(MemorySettings(pictures=2000), 1)
    assert memory.share(30) == 66
    with pytest.raises(SettingsError, match="too few for one of each of 2001 classes"):
        memory.share(2001)
    assert first_of_each(torch.tensor([1, 0, 1, 1, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5]


@given(st.integers(0, 12), st.integers(0, 30), st.integers(1, 12), st.integers(0, 99))
def test_a_reservoir_is_full_as_soon_as_it_can_be(num_kept: int, num_new: int, size: int, seed: int) -> None:
    num_kept = min(num_kept, size)
    slots = reservoir(num_kept, num_kept + 5, num_new, size, torch.Generator().manual_seed(seed))
    assert len(slots) == min(size, num_kept + num_new)
    assert len(set(slots.tolist())) == len(slots)
    assert all(0 <= slot < num_kept + num_new for slot in slots.tolist())


def test_a_reservoir_keeps_every_picture_equally_often() -> None:
    counts = torch.zeros(20)
    for seed in range(600):
        generator = torch.Generator().manual_seed(seed)
        first = reservoir(0, 0, 8, 5, generator)
        second = reservoir(5, 8, 12, 5, generator)
        kept = torch.cat([first, 8 + torch.arange(12)])[second]
        counts[kept] += 1
    assert counts.min() > 600 * 5 / 20 - 50
    assert counts.max() < 600 * 5 / 20 + 50


def make(name: str, backbone: Backbone, **settings: Any) -> ReplayMethod:
    """Return a replay method with a gentle recipe."""
    values = {"epochs": 4, "batch_size": 8, "learning_rate": 0.05, "memory": {"pictures": 8}, **settings}
    kind = METHODS.get(name)
    method = kind(backbone, build_settings(kind.settings_type, values, "method"), 0)
    assert isinstance(method, ReplayMethod)
    return method


@pytest.mark.parametrize("choice", ["reservoir", "balanced", "herding"])
def test_kept_pictures_are_those_of_the_stream_and_even_where_they_should_be(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    choice: str,
) -> None:
    stream, run = tiny_stream(), context()
    method = make("er", tiny_backbone(), epochs=1, memory={"pictures": 9, "choice": choice})
    kept = None
    for task, share in zip(stream.tasks, (4, 2, 1), strict=True):
        before = kept
        learn_task(run, method, task)
        pictures, classes = method.kept
        kept = {tuple(part.tolist()) for part in pictures.pixels.view(len(classes), -1)}
        if choice != "reservoir":
            assert torch.bincount(classes).tolist() == [share] * stream.num_seen(task.index)
        else:
            assert len(classes) == 9
        assert len(kept) == len(classes)
        if before and choice != "reservoir":
            assert len(kept & before) == share * (stream.num_seen(task.index) - 2)
    counts = count_parameters(method)
    assert (counts["num_pictures"], counts["picture_bytes"]) == (len(classes), len(classes) * 28 * 28)


def test_means_follow_the_network_for_classes_of_all_tasks(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context()
    method = make("icarl", tiny_backbone())
    for task in stream.tasks[:2]:
        learn_task(run, method, task)
    pictures, classes = method.kept
    images = (pictures.pixels.view(-1, 1, 28, 28) / 255 - 0.5) / 0.5
    units = F.normalize(method.features(images), dim=1)
    for label in range(4):
        mean = F.normalize(units[classes == label].mean(0), dim=0)
        torch.testing.assert_close(method.head.rows[label], mean, atol=1e-4, rtol=0)


def test_changed_logits_by_hand() -> None:
    stored = torch.tensor([[1.0, 2.0, torch.nan], [0.0, torch.nan, torch.nan]])
    logits = torch.tensor([[2.0, 0.0, -torch.inf], [3.0, 5.0, 1.0]], requires_grad=True)
    found = change(logits, stored)
    assert found.tolist() == [2.5, 9.0]
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert gradient.tolist() == [[1.0, -2.0, 0.0], [6.0, 0.0, 0.0]]


def test_dark_experience_stores_the_logits_of_after_each_task_and_pays_by_hand(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context()
    settings = {"alpha": 0.3, "beta": 0.7, "head": {"kind": "trained"}, "adapter": {"dropout": 0.0}}
    method = make("derpp", tiny_backbone(), **settings)
    assert isinstance(method, DarkExperienceReplay)
    assert isinstance(method.settings, DerppSettings)
    learn_task(run, method, stream.tasks[0])
    images = (method.kept[0].pixels.view(-1, 1, 28, 28) / 255 - 0.5) / 0.5
    torch.testing.assert_close(method.outputs[:8], 20 * method(images), atol=1e-3, rtol=0)
    method.head.open_block(2, torch.Generator().manual_seed(0))
    method.contrast.take(method.head)
    canvas, _ = stream.tasks[1].train.batch(torch.tensor([0, 20]))
    own = run.transforms.test(canvas)
    batch, labels = torch.stack([own, images[[3, 5]], images[[1, 7]]], 1), torch.tensor([[0, 3, 1], [1, 5, 7]])
    found = method.replay_loss(batch, labels)
    for place in range(2):
        logits = method.logits(batch[place])
        paid = F.cross_entropy(logits[:1], labels[place, :1])
        paid = paid + 0.3 * (logits[1, 2:4] - method.outputs[labels[place, 1]]).square().mean()
        paid = paid + 0.7 * F.cross_entropy(logits[2:], 2 + method.kept[1][labels[place, 2:]])
        assert float(found[place]) == pytest.approx(float(paid), abs=1e-4)
    learn_task(run, method, stream.tasks[1])
    is_old = method.kept[1] < 2
    known = method.outputs[: len(is_old)].isfinite().sum(1)
    assert known[is_old].unique().tolist() in ([2], [])
    assert known[~is_old].unique().tolist() == [4]


def test_what_is_replayed_is_not_forgotten(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run, found = tiny_stream(), context(), {}
    for name, settings in (("er", {}), ("derpp", {}), ("none", {"memory": {"pictures": 1}})):
        method = make("er" if name == "none" else name, tiny_backbone(), epochs=8, **settings)
        for task in stream.tasks:
            learn_task(run, method, task)
        predicted, target, *_ = evaluate(run, method, stream, 2)
        found[name] = float((predicted == target).float().mean())
    assert min(found["er"], found["derpp"]) > found["none"] + 0.1, found
