"""What prompted methods share: tensors that stay in place, slots that a snapshot brings back, the recipe."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import all_bits, learn

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.passes import predict_logits
from clare.errors import ModelError
from clare.methods import METHODS
from clare.methods._shared.prompted import PromptedMethod, SlottedMethod
from clare.methods.base import passes_per_image, prepare
from clare.methods.state import restore, snapshot_of
from clare.steps import Adam, Phase, Solve, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

SETTINGS: dict[str, dict[str, Any]] = {
    "l2p": {"prompt_length": 2, "num_chosen": 2},
    "dualprompt": {"num_general_blocks": 1, "num_expert_blocks": 1},
    "coda-prompt": {"num_blocks": 2, "num_components": 12},
}
every_method = pytest.mark.parametrize("name", list(SETTINGS))
every_slotted_method = pytest.mark.parametrize("name", ["dualprompt", "coda-prompt"])


def make(name: str, backbone: Backbone, **settings: Any) -> PromptedMethod:
    kind = METHODS.get(name)
    values = {"epochs": 1, "batch_size": 8, "learning_rate": 0.02, **SETTINGS[name], **settings}
    method = kind(backbone, kind.settings_type.model_validate(values), 0)
    assert isinstance(method, PromptedMethod)
    return method


@every_method
def test_all_that_a_step_computes_with_stays_in_place(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, name: str
) -> None:
    method = make(name, tiny_backbone())
    prepare(method, 3, 2)
    places = {key: tensor.data_ptr() for key, tensor in method.state_dict().items() if key != "head.rows"}
    learn(context(), method, tiny_stream().tasks)
    for key, place in places.items():
        assert method.state_dict()[key].data_ptr() == place, key


@every_slotted_method
def test_slots_counted_by_the_stream_come_back_with_a_snapshot(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, name: str
) -> None:
    tasks = tiny_stream().tasks
    method, fresh = make(name, tiny_backbone()), make(name, tiny_backbone())
    prepare(method, 3, 2)
    learn(context(), method, tasks[:2])
    restore(fresh, snapshot_of(method))
    for learner in (method, fresh):
        assert isinstance(learner, SlottedMethod)
        assert learner.num_slots == 3
        learn(context(), learner, tasks[2:])
        with pytest.raises(ModelError, match=rf"{name} has room for 3 tasks"):
            learn(context(), learner, tiny_stream(num_tasks=4).tasks[3:])
    assert all_bits(fresh) == all_bits(method)


@every_slotted_method
def test_a_snapshot_from_before_the_slots_were_made_fits(tiny_backbone: MakeBackbone, name: str) -> None:
    method = make(name, tiny_backbone())
    before = snapshot_of(method)
    prepare(method, 3, 2)
    restore(method, before)
    assert isinstance(method, SlottedMethod)
    assert method.num_slots == 0


@every_method
def test_the_recipe_is_adam_as_set(tiny_backbone: MakeBackbone, name: str) -> None:
    for clip_norm, expected in ((0.0, None), (2.5, 2.5)):
        method = make(name, tiny_backbone(), clip_norm=clip_norm, schedule="cosine")
        prepare(method, 1, 2)
        with torch.no_grad():
            learning = method.learn(TaskInfo(0, ("a", "b")))
            step = next(learning)
            if isinstance(step, Solve):
                step = learning.send(step.function())
        assert isinstance(step, Phase)
        assert step.optimizer == Adam(0.02, schedule="cosine")
        assert (step.epochs, step.batch_size, step.clip_norm) == (1, 8, expected)
        assert any(group.parameter is method.head.block for group in step.groups)


@every_method
def test_prompts_act_and_the_query_is_that_of_the_bare_backbone(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, name: str
) -> None:
    method = make(name, tiny_backbone(), epochs=3)
    prepare(method, 3, 2)
    learn(context(), method, tiny_stream().tasks[:1])
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        bare = tiny_backbone().vit(images)
        assert torch.equal(method.queries(images), bare)
        assert not torch.allclose(method.features(images), bare, atol=1e-3)
        assert torch.equal(method.features_from(images, bare), method.features(images))
    assert passes_per_image(method) == 2


@pytest.mark.parametrize("name", ["l2p", "dualprompt"])
def test_keys_that_learn_from_plain_queries_never_feel_the_augmentation(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, name: str
) -> None:
    """Keys of the same task are alike under both augmentations; prompts, which learn from images, are not."""
    learnt: dict[tuple[str, str], PromptedMethod] = {}
    for queries in ("plain", "augmented"):
        for train in ("none", "affine"):
            method = make(name, tiny_backbone(), key_queries=queries, epochs=2)
            prepare(method, 3, 2)
            start = method.state_dict()["keys"].clone()
            learn(context(train=train), method, tiny_stream().tasks[:1])
            assert not torch.equal(method.state_dict()["keys"], start)
            learnt[queries, train] = method
    prompts = {"l2p": "prompts", "dualprompt": "general"}[name]
    for queries, are_alike in (("plain", True), ("augmented", False)):
        plain, affine = (all_bits(learnt[queries, train]) for train in ("none", "affine"))
        assert (plain["keys"] == affine["keys"]) == are_alike
        assert plain[prompts] != affine[prompts]


@pytest.mark.gpu
# The compiler remarks on speed.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("mode", "tolerance"), [("graph", 1e-5), ("fused", 1e-2)])
@every_method
def test_on_a_gpu_recorded_programs_agree_with_plain_ones(
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    context: MakeContext,
    name: str,
    mode: str,
    tolerance: float,
) -> None:
    stream, logits = tiny_stream(), {}
    for choice in ("off", mode):
        run = context(device="cuda", precision="fp32", eval_batch_size=32, compile=choice)
        method = make(name, tiny_backbone())
        prepare(method, 3, 2)
        learn(run, method.to("cuda"), stream.tasks)
        logits[choice] = predict_logits(run, method, stream.test)
    torch.testing.assert_close(logits[mode], logits["off"], rtol=0, atol=tolerance)
