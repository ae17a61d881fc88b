"""Programs that are recorded once for each kind, replayed, and checked before they are trusted."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine import capture
from clare.engine.capture import COMPILED, fuse
from clare.engine.context import Context, Silence, program_mode
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.errors import SettingsError
from clare.methods.base import prepare
from clare.methods.clare import Clare, ClareSettings
from clare.methods.clare_plus import ClarePlus, ClarePlusSettings
from clare.methods.state import learnt_tensors

SETTINGS = {
    "adapter": {"bottleneck": 4},
    "epochs": 2,
    "probe_epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.05,
    "sparsity": 0.8,
    "head": {"kind": "aligned", "align_epochs": 2},
}


class Replayed:
    """A graph that does its work again where there is no GPU to record it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let programs be recorded on a CPU, where a replay is the same work on the same tensors, and list them."""
    made: list[str] = []

    def record(work: Callable[[], None]) -> Replayed:
        made.append(type(work.__self__).__name__)  # type: ignore[attr-defined]
        for _ in range(capture.NUM_WARM_UPS):
            work()
        return Replayed(work)

    monkeypatch.setattr(capture, "record", record)
    monkeypatch.setattr(capture, "fuse", lambda function: function)
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)
    monkeypatch.setattr(Ranks, "can_capture", property(lambda _: True))
    return made


class Notes(Silence):
    """A listener that keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        """Keep it."""
        self.notices.append(text)


def learnt(
    context: Context, backbone: Backbone, stream: Stream, **settings: object
) -> tuple[dict[str, Tensor], Tensor]:
    """Learn the whole stream, and return what was learnt and the logits of the test images."""
    method = Clare(backbone, ClareSettings.model_validate({**SETTINGS, **settings}), 0).to(context.ranks.device)
    method.head.reserve(max(len(task.classes) for task in stream.tasks))
    for task in stream.tasks:
        learn_task(context, method, task, Journal())
    return learnt_tensors(method), predict_logits(context, method, stream.test)


@pytest.mark.parametrize("mode", ["graph", "fused"])
def test_recorded_programs_learn_the_same(
    mode: str,
    recordings: list[str],
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream = tiny_stream(num_tasks=4)
    plain = learnt(context(train="affine", compile="off"), tiny_backbone(), stream)
    notes = Notes()
    replayed = learnt(
        context(train="affine", compile=mode, eval_batch_size=32, listener=notes), tiny_backbone(), stream
    )
    for name, tensor in plain[0].items():
        torch.testing.assert_close(replayed[0][name], tensor, msg=name)
    torch.testing.assert_close(replayed[1], plain[1])
    assert recordings == ["CapturedStep", "CapturedStep", "CapturedForward"]
    assert notes.notices == []


def test_a_hundred_tasks_need_one_recording_of_each_kind(
    recordings: list[str],
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream = tiny_stream(num_tasks=100, num_train=3, num_test=1)
    head = {"kind": "prototype"}
    learnt(context(compile="graph", eval_batch_size=64), tiny_backbone(), stream, epochs=1, probe_epochs=1, head=head)
    assert recordings == ["CapturedStep", "CapturedStep", "CapturedForward"]


def test_a_loss_that_gets_more_room_is_recorded_anew(
    recordings: list[str], context: Callable[..., Context], tiny_backbone: Callable[..., Backbone], tiny_stream: Any
) -> None:
    run = context(compile="graph", eval_batch_size=32)
    method = ClarePlus(tiny_backbone(), ClarePlusSettings.model_validate({**SETTINGS, "contrast": "seen"}), 0)
    prepare(method, None, 2)
    for task in tiny_stream(num_tasks=3).tasks:
        learn_task(run, method, task, Journal())
    # There is no room for earlier rows at first, and then for four, which the third task fills.
    assert recordings.count("CapturedStep") == 4


@pytest.mark.parametrize("expand", ["fresh", "wider"])
def test_an_expanded_pool_is_recorded_anew_and_computes_the_same(
    recordings: list[str],
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Any,
    expand: str,
) -> None:
    stream, changes = tiny_stream(num_tasks=4), {"expand": expand, "sparsity": 0.7}
    plain = learnt(context(compile="off"), tiny_backbone(), stream, **changes)
    replayed = learnt(context(compile="graph", eval_batch_size=32), tiny_backbone(), stream, **changes)
    for name, tensor in plain[0].items():
        torch.testing.assert_close(replayed[0][name], tensor, msg=name)
    torch.testing.assert_close(replayed[1], plain[1])
    # The third task finds 0.49 of the first pool free; wider than that, the fourth finds enough.
    assert recordings.count("CapturedStep") == 4


def test_a_compiler_that_errs_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
    recordings: list[str],
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream = tiny_stream(num_tasks=2)
    plain = learnt(context(compile="off"), tiny_backbone(), stream)
    unlike = torch.Generator().manual_seed(0)

    def fuse(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *inputs: function(*inputs) * (1 + 3 * torch.rand((), generator=unlike))

    monkeypatch.setattr(capture, "fuse", fuse)
    notes = Notes()
    checked = learnt(context(compile="fused", eval_batch_size=32, listener=notes), tiny_backbone(), stream)
    torch.testing.assert_close(checked[1], plain[1])
    assert [text.split(" gave ")[0] for text in notes.notices] == [
        "the compiled training step",
        "the compiled training step",
        "the compiled function features",
    ]


def test_what_cannot_be_recorded_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
    recordings: list[str],
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream = tiny_stream(num_tasks=2)
    plain = learnt(context(compile="off"), tiny_backbone(), stream)

    def record(work: Callable[[], None]) -> Replayed:
        work()
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(capture, "record", record)
    notes = Notes()
    result = learnt(context(compile="graph", eval_batch_size=32, listener=notes), tiny_backbone(), stream)
    for name, tensor in plain[0].items():
        torch.testing.assert_close(result[0][name], tensor, msg=name)
    torch.testing.assert_close(result[1], plain[1])
    reason = "could not be recorded (operation not permitted when stream is capturing), so it runs in another way"
    assert [text.split("could")[0] for text in notes.notices] == [
        "the training step ",
        "the training step ",
        "the function features ",
    ]
    assert all(reason in text for text in notes.notices)


def test_auto_records_where_it_can() -> None:
    assert program_mode("auto", can_capture=True) == "graph"
    assert program_mode("auto", can_capture=False) == "off"
    assert program_mode("fused", can_capture=True) == "fused"


@pytest.mark.parametrize("mode", ["graph", "fused"])
def test_recording_is_refused_without_a_gpu(mode: str, context: Callable[..., Context]) -> None:
    with pytest.raises(SettingsError, match=f"is {mode}, which needs one GPU and one process; set it to auto or off"):
        context(device="cpu", compile=mode)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("mode", "tolerance"), [("graph", 0.0), ("fused", 1e-2)])
def test_on_a_gpu_recorded_programs_agree_with_plain_ones(
    mode: str,
    tolerance: float,
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    stream = tiny_stream()
    engine = {"device": "cuda", "precision": "fp32", "eval_batch_size": 32}
    adapter = {"bottleneck": 4, "dropout": 0.0}
    plain = learnt(context(compile="off", **engine), tiny_backbone(), stream, adapter=adapter)
    recorded = learnt(context(compile=mode, **engine), tiny_backbone(), stream, adapter=adapter)
    torch.testing.assert_close(recorded[1], plain[1], rtol=0, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_hundred_tasks_compile_once_for_each_kind(
    context: Callable[..., Context], tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream]
) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    stream = tiny_stream(num_tasks=100, num_train=3, num_test=1)
    compiled = context(device="cuda", compile="fused", eval_batch_size=64)
    learnt(compiled, tiny_backbone(), stream, epochs=1, probe_epochs=1, head={"kind": "prototype"})
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    assert len(compiled.programs.captured) == 3


def test_what_one_method_recorded_does_not_answer_for_another(
    recordings: list[str],
    context: Callable[..., Context],
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
) -> None:
    shared, stream, expected, found = context(compile="graph", eval_batch_size=32), tiny_stream(), [], []
    for seed in (0, 1):
        method = Clare(tiny_backbone(), ClareSettings.model_validate({**SETTINGS, "epochs": 1}), seed)
        learn_task(context(compile="off"), method, stream.tasks[0], Journal())
        expected.append(predict_logits(context(compile="off"), method, stream.test))
        found.append(predict_logits(shared, method, stream.test))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(expected[0], expected[1])
    assert recordings == ["CapturedForward", "CapturedForward"]


def test_compiled_programs_are_kept_in_the_users_cache_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_utils = import_module("torch._inductor.runtime.runtime_utils")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setenv(COMPILED, str(tmp_path / "own"))
    fuse(len)
    assert runtime_utils.cache_dir() == str(tmp_path / "own")
    monkeypatch.delenv(COMPILED)
    fuse(len)
    assert runtime_utils.cache_dir() == str(tmp_path / "clare" / "compiled")
    monkeypatch.delenv(COMPILED)
