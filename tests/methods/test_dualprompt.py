"""DualPrompt against the recorded port with key and value in their places, its slots, and its mistakes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import bits, learn
from prompt_golden import Golden, close, gradients, learning_steps, norm_of
from torch import Tensor

import clare
from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.passes import predict_logits
from clare.errors import ModelError, SettingsError
from clare.methods._shared.prompted import cosines
from clare.methods.base import prepare
from clare.methods.dualprompt import DualPrompt, DualPromptSettings
from clare.methods.state import learnt_tensors
from clare.steps import TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

PORT = {
    "num_tasks": 2,
    "num_general_blocks": 1,
    "num_expert_blocks": 1,
    "general_length": 2,
    "expert_length": 2,
    "prompt_start": "wide",
    "initial_rows": "drawn",
}
SMALL = {"num_general_blocks": 1, "num_expert_blocks": 1, "batch_size": 8, "learning_rate": 0.02, "epochs": 2}


def make_dualprompt(backbone: Backbone, **settings: Any) -> DualPrompt:
    return DualPrompt(backbone, DualPromptSettings.model_validate(settings), 0)


def slots_first(experts: Tensor) -> Tensor:
    """Turn (blocks, key/value, slots, tokens, heads, width) into (slots, blocks, key/value, tokens, heads * width)."""
    return experts.permute(2, 0, 1, 3, 4, 5).flatten(4)


@pytest.mark.parametrize("votes", [False, True])
@torch.no_grad()
def test_the_recorded_run_of_the_port_with_its_axes_corrected(votes: bool) -> None:
    golden = Golden("dualprompt")
    method = make_dualprompt(golden.backbone(), **PORT, vote_at_test=votes)
    method.general.copy_(golden["init.g_prompt"].flatten(3))
    method.experts.copy_(slots_first(golden["init.e_prompt.prompt"]))
    method.keys.copy_(golden["init.e_prompt.prompt_key"])
    for task in (0, 1):
        for name, phase, images, labels in learning_steps(method, golden, task, rate=0.03):
            assert phase.clip_norm == 1.0
            close(cosines(method.queries(images), method.keys), golden[f"{name}.similarity"])
            close(cosines(method.queries(images), method.keys)[:, task].mean(), golden[f"{name}.pull"])
            close(method.prompted(images, method.slot), golden[f"{name}.feature"])
            found = gradients(phase, images, labels)
            close(norm_of(found), golden[f"{name}.grad_norm"])
            if name.endswith("step0"):
                check_prefixes(method, golden, name, method.slot)
                close(found[0], golden[f"{name}.grad.g_prompt"].flatten(3))
                close(found[1], slots_first(golden[f"{name}.grad.e_prompt.prompt"]))
                close(found[2], golden[f"{name}.grad.e_prompt.prompt_key"])
                close(found[3], golden.rows(f"{name}.grad", task))
        close(method.general, golden[f"task{task}.after.g_prompt"].flatten(3))
        close(method.experts, slots_first(golden[f"task{task}.after.e_prompt.prompt"]))
        close(method.keys, golden[f"task{task}.after.e_prompt.prompt_key"])
        close(method.head.rows, golden.rows(f"task{task}.after")[: 3 * (task + 1)])
        check_test(method, golden, task, "batchwise." if votes else "")


def check_prefixes(method: DualPrompt, golden: Golden, name: str, slots: Tensor) -> None:
    """Compare keys and values of both blocks with what the recorded attention saw."""
    general, experts = method.prefixes_of(slots)
    close(torch.cat(general), golden[f"{name}.block0.prefix"].flatten(2))
    recorded = golden[f"{name}.block1.prefix"].flatten(3)
    close(torch.stack(experts, 1).expand_as(recorded), recorded)


def check_test(method: DualPrompt, golden: Golden, task: int, prefix: str) -> None:
    """Compare the inferred slots, the features and the logits of the test images with the recording."""
    images, name = golden.images("test"), f"{prefix}task{task}.test"
    similarity = cosines(method.queries(images), method.keys)
    close(similarity, golden[f"task{task}.test.similarity"])
    slots = method.infer(similarity)
    assert torch.equal(slots[:, None], golden[f"{name}.prompt_idx"])
    close(similarity.gather(1, slots[:, None]).mean(), golden[f"{name}.pull"])
    check_prefixes(method, golden, name, slots)
    close(method.features(images), golden[f"{name}.feature"])
    close(method(images), golden[f"{name}.logits"])


@torch.no_grad()
def test_the_next_task_starts_from_the_experts_of_the_one_before() -> None:
    golden = Golden("dualprompt")
    method = make_dualprompt(golden.backbone(), **PORT)
    method.experts.copy_(slots_first(golden["task0.after.e_prompt.prompt"]))
    method.tasks.append(("a",))
    keys = method.keys.clone()
    next(method.learn(TaskInfo(1, ("b",))))
    assert torch.equal(method.experts, slots_first(golden["task1.start.e_prompt.prompt"]))
    assert torch.equal(method.keys, keys)


def test_a_task_moves_its_own_slot_and_what_is_general(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_dualprompt(tiny_backbone(), **SMALL, num_tasks=4)
    for task in tiny_stream().tasks:
        before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
        learn(context(), method, [task])
        assert not torch.equal(method.general, before["general"])
        for name in ("experts", "keys"):
            ours, old = method.state_dict()[name], before[name]
            moved = [slot for slot in range(4) if bits(ours[slot]) != bits(old[slot])]
            assert moved == [task.index], name


@torch.no_grad()
@pytest.mark.parametrize(("num_general", "num_expert"), [(1, 2), (2, 1), (3, 3)])
def test_prefixes_are_in_the_blocks_that_the_counts_name(
    tiny_backbone: MakeBackbone, num_general: int, num_expert: int
) -> None:
    settings = {"num_general_blocks": num_general, "num_expert_blocks": num_expert, "num_tasks": 2}
    method = make_dualprompt(tiny_backbone(depth=6), **settings)
    method.general.copy_(torch.arange(num_general)[:, None, None, None].expand_as(method.general) + 0.0)
    method.experts.copy_(10 + torch.arange(num_expert)[:, None, None, None].expand_as(method.experts) + 0.0)
    method.experts[:, :, 1] += 100
    seen = [(float(keys.mean()), float(values.mean())) for keys, values in method.prefixes_of(torch.tensor([1, 0]))]
    assert seen == [(i, i) for i in range(num_general)] + [(10 + i, 110 + i) for i in range(num_expert)]
    # Only blocks from the first on, and only as many as there are prefixes, see one.
    with method.prefixes.joined(method.prefixes_of(torch.tensor([0]))):
        assert sorted(method.prefixes.prefixes) == list(range(num_general + num_expert))


@torch.no_grad()
def test_only_learnt_slots_compete_when_asked(tiny_backbone: MakeBackbone) -> None:
    similarity = torch.tensor([[0.1, 0.9, 0.2], [0.3, 0.2, 0.8]])
    for candidates, slots in (("all", [1, 2]), ("learnt", [1, 0])):
        method = make_dualprompt(tiny_backbone(), **SMALL, num_tasks=3, candidates=candidates)
        method.slot.fill_(1)
        assert method.infer(similarity).tolist() == slots


def test_answers_depend_on_the_batch_only_when_images_vote(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream = tiny_stream()
    for votes in (False, True):
        method = make_dualprompt(tiny_backbone(), **SMALL, num_tasks=3, prompt_start="wide", vote_at_test=votes)
        learn(context(), method, stream.tasks)
        method.keys.data.copy_(method.queries(context().transforms.test(stream.test.batch(torch.arange(0, 36, 12))[0])))
        small, large = (predict_logits(context(eval_batch_size=size), method, stream.test) for size in (1, 36))
        assert torch.allclose(small, large, atol=1e-5) != votes


@pytest.mark.parametrize(("num_general", "num_expert"), [(2, 3), (1, 2), (2, 1)])
def test_more_blocks_than_the_backbone_has_are_refused(
    tiny_backbone: MakeBackbone, num_general: int, num_expert: int
) -> None:
    message = rf"`method\.num_general_blocks` plus .*asks for {num_general + num_expert} blocks, .* has 2; lower it"
    with pytest.raises(SettingsError, match=message):
        make_dualprompt(tiny_backbone(), num_general_blocks=num_general, num_expert_blocks=num_expert)


def test_the_number_of_tasks_comes_from_the_stream_or_the_settings(tiny_backbone: MakeBackbone) -> None:
    unknown = make_dualprompt(tiny_backbone(), **SMALL)
    with pytest.raises(SettingsError, match=r"dualprompt keeps a slot for every task.*set `method\.num_tasks`"):
        prepare(unknown, None, 2)
    prepare(unknown, 3, 2)
    assert unknown.experts.shape == (3, 1, 2, 5, 24)
    assert unknown.keys.shape == (3, 24)
    known = make_dualprompt(tiny_backbone(), **SMALL, num_tasks=4)
    experts = known.experts
    for num_tasks in (None, 3, 4):
        prepare(known, num_tasks, 2)
        assert known.experts is experts
    with pytest.raises(SettingsError, match=r"`method\.num_tasks` is 4, but the stream has 5 tasks; set it to 5"):
        prepare(known, 5, 2)


def test_a_task_too_many_is_refused_and_the_method_stays(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method, tasks = make_dualprompt(tiny_backbone(), **SMALL, num_tasks=2), tiny_stream().tasks
    learn(context(), method, tasks[:2])
    before = {name: bits(tensor) for name, tensor in learnt_tensors(method).items() if tensor.is_floating_point()}
    with pytest.raises(ModelError, match=r"room for 2 tasks .* `method\.num_tasks` to 3 or more"):
        learn(context(), method, tasks[2:])
    assert {name: bits(tensor) for name, tensor in learnt_tensors(method).items() if name in before} == before
    with pytest.raises(SettingsError, match=r"set `method\.num_tasks`"):
        learn(context(), make_dualprompt(tiny_backbone(), **SMALL), tasks[:1])


def test_a_classifier_is_told_to_name_the_number_of_tasks() -> None:
    with pytest.raises(SettingsError, match=r"dualprompt keeps a slot.*`method\.num_tasks`"):
        clare.Classifier(method="dualprompt", device="cpu").learn({})
    assert clare.Classifier(method="dualprompt", settings={"num_tasks": 2}, device="cpu").classes == []
