"""L2P against the recorded port, its choice and pull by hand, and its mistakes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import learn
from prompt_golden import Golden, close, gradients, learning_steps, norm_of
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.passes import predict_logits
from clare.errors import BackboneError, SettingsError
from clare.methods._shared.prompted import cosines, most_similar, vote
from clare.methods.l2p import L2p, L2pSettings
from clare.settings import build_settings
from clare.steps import TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

PORT = {
    "pool_size": 6,
    "prompt_length": 2,
    "num_chosen": 2,
    "pull_weight": 0.1,
    "prompt_start": "wide",
    "prompt_position": "class-token",
    "initial_rows": "drawn",
}
SMALL = {"pool_size": 5, "prompt_length": 2, "num_chosen": 2, "batch_size": 8, "learning_rate": 0.02}


def make_l2p(backbone: Backbone, **settings: Any) -> L2p:
    return L2p(backbone, L2pSettings.model_validate(settings), 0)


@pytest.mark.parametrize(("prefix", "votes"), [("", False), ("batchwise.", True)])
@torch.no_grad()
def test_the_recorded_run_of_the_port(prefix: str, votes: bool) -> None:
    golden = Golden("l2p", prefix)
    method = make_l2p(golden.backbone(), **PORT, vote_in_training=votes, vote_at_test=votes)
    method.prompts.copy_(golden["init.prompt.prompt"])
    method.keys.copy_(golden["init.prompt.prompt_key"])
    for task in (0, 1):
        for name, phase, images, labels in learning_steps(method, golden, task, rate=0.03):
            assert phase.clip_norm == 1.0
            check_choice(method, golden, name, images)
            found = gradients(phase, images, labels)
            close(norm_of(found), golden[f"{name}.grad_norm"])
            if name.endswith("step0"):
                close(found[0], golden[f"{name}.grad.prompt.prompt"])
                close(found[1], golden[f"{name}.grad.prompt.prompt_key"])
                close(found[2], golden.rows(f"{name}.grad", task))
        close(method.prompts, golden[f"task{task}.after.prompt.prompt"])
        close(method.keys, golden[f"task{task}.after.prompt.prompt_key"])
        close(method.head.rows, golden.rows(f"task{task}.after")[: 3 * (task + 1)])
        check_choice(method, golden, f"task{task}.test", golden.images("test"))
        close(method(golden.images("test")), golden[f"task{task}.test.logits"])


def check_choice(method: L2p, golden: Golden, name: str, images: Tensor) -> None:
    """Compare query, similarity, choice, pull and feature with the recording."""
    queries = method.queries(images)
    close(queries, golden[f"{name}.query"])
    similarity = cosines(queries, method.keys)
    close(similarity, golden[f"{name}.similarity"])
    chosen = method.choose(similarity)
    assert torch.equal(chosen, golden[f"{name}.prompt_idx"])
    close(similarity.gather(1, chosen).sum(1).mean(), golden[f"{name}.pull"])
    close(method.features_from(images, queries), golden[f"{name}.feature"])


def test_keys_are_matched_by_angle() -> None:
    queries = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    keys = torch.tensor([[5.0, 0.0], [0.0, 0.1], [-1.0, -1.0]])
    expected = [[0.6, 0.8, -1.4 / math.sqrt(2)], [0.0, -1.0, 1 / math.sqrt(2)]]
    similarity = cosines(queries, keys)
    torch.testing.assert_close(similarity, torch.tensor(expected))
    assert most_similar(similarity, 2).tolist() == [[1, 0], [2, 0]]
    assert most_similar(torch.ones(1, 4), 3).tolist() == [[0, 1, 2]]


def test_a_vote_counts_names_and_ties_go_to_the_lower_slot() -> None:
    assert vote(torch.tensor([[3, 1], [3, 0], [1, 3]]), 5).tolist() == [[3, 1]] * 3
    assert vote(torch.tensor([[4, 2], [0, 3]]), 5).tolist() == [[0, 2]] * 2
    assert vote(torch.tensor([[2], [1], [2]]), 3).tolist() == [[2]] * 3


@torch.no_grad()
def test_the_pull_is_the_chosen_keys_cosine_and_moves_keys_alone(tiny_backbone: MakeBackbone) -> None:
    """With one key along the query and one across it, two chosen keys pull with 1 + 0."""
    images, labels = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.tensor([1])
    losses = {}
    for weight in (0.0, 0.5):
        method = make_l2p(tiny_backbone(), pool_size=3, num_chosen=2, prompt_length=2, pull_weight=weight).eval()
        method.head.open_block(2, torch.Generator().manual_seed(0))
        query = method.queries(images)[0]
        across = torch.zeros_like(query)
        across[:2] = torch.stack([-query[1], query[0]])
        method.keys.copy_(torch.stack([-query, 2 * query, across]))
        assert method.choose(cosines(query[None], method.keys)).tolist() == [[1, 2]]
        losses[weight] = method.loss(images, labels)
        method.keys.requires_grad_(True)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(method.loss(images, labels).sum(), method.keys)
        # Towards the query: a key along it has nowhere to go, a key across it goes by weight / its norm.
        torch.testing.assert_close(gradient[:2], torch.zeros(2, 24), atol=1e-6, rtol=0)
        torch.testing.assert_close(gradient[2], -weight * query / query.norm() / across.norm(), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(losses[0.0] - losses[0.5], torch.tensor([0.5]), atol=1e-5, rtol=0)


@torch.no_grad()
def test_prompts_have_the_class_tokens_position_only_when_asked(tiny_backbone: MakeBackbone) -> None:
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    plain, placed = (make_l2p(tiny_backbone(), **SMALL, prompt_position=choice) for choice in ("none", "class-token"))
    assert not torch.allclose(plain.eval().features(images), placed.eval().features(images))
    plain.prompts.add_(plain.backbone.pos_embed[0, 0])
    torch.testing.assert_close(plain.features(images), placed.features(images))


def test_answers_depend_on_the_batch_only_when_images_vote_at_test(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream = tiny_stream(num_tasks=1, classes_per_task=4)
    for votes in (False, True):
        # Wide keys, so that images differ in what they choose.
        method = make_l2p(tiny_backbone(), **SMALL, epochs=1, prompt_start="wide", vote_at_test=votes)
        learn(context(), method, stream.tasks)
        method.keys.data.copy_(method.queries(context().transforms.test(stream.test.batch(torch.arange(0, 24, 5))[0])))
        small, large = (predict_logits(context(eval_batch_size=size), method, stream.test) for size in (1, 24))
        assert torch.allclose(small, large, atol=1e-5) != votes


def test_the_start_is_the_official_one_unless_the_ports_is_asked(tiny_backbone: MakeBackbone) -> None:
    for start, low, high in (("small", 0.0, 0.01), ("wide", -1.0, 1.0)):
        method = make_l2p(tiny_backbone(), prompt_start=start)
        assert method.prompts.shape == (10, 10, 24)
        for values in (method.prompts, method.keys):
            assert low <= float(values.min()) < low + 0.1 * (high - low)
            assert high - 0.1 * (high - low) < float(values.max()) <= high


@pytest.mark.parametrize(("form", "zero"), [("linear", True), ("cosine", False)])
def test_rows_start_at_zero_where_that_has_a_gradient(tiny_backbone: MakeBackbone, form: str, zero: bool) -> None:
    method = make_l2p(tiny_backbone(), **SMALL, head={"form": form})
    with torch.no_grad():
        next(method.learn(TaskInfo(0, ("a", "b"))))
    assert bool((method.head.block == 0).all()) == zero


def test_more_prompts_than_the_pool_has_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"'method' cannot be used: num_chosen is 4, but .*pool_size = 3 prompts"):
        build_settings(L2pSettings, {"pool_size": 3}, "method")


def test_a_position_that_does_not_exist_is_refused_at_once(tiny_backbone: MakeBackbone) -> None:
    backbone = tiny_backbone(no_embed_class=True)
    with pytest.raises(BackboneError, match=r"no position embedding.*`method\.prompt_position` to none"):
        make_l2p(backbone, prompt_position="class-token")
    make_l2p(backbone)
