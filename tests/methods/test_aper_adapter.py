"""APER: one tuning on the first task, then class means of bare and tuned features; parity with the official code."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import bits
from clare_runs import learn as learn_tasks
from first_task_golden import Golden, Trained, learn, train
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.engine.passes import FeatureCache
from clare.errors import SettingsError
from clare.methods.aper_adapter import Aper, AperSettings
from clare.methods.base import passes_per_image
from clare.methods.protocols import capacity_of
from clare.methods.state import learnt_tensors
from clare.settings import build_settings
from clare.steps import Phase
from clare.tuners.scale_shift import places

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

TUNERS = ["adapter", "ssf", "vpt-deep", "vpt-shallow"]
PREFIXES = {"adapter": "", "ssf": "ssf.", "vpt-deep": "vpt.deep.", "vpt-shallow": "vpt.shallow."}
RATES = {"adapter": 0.5, "ssf": 0.2, "vpt-deep": 0.05, "vpt-shallow": 0.05}
RECIPE = {"adapter": {"bottleneck": 4}, "epochs": 2, "batch_size": 8, "learning_rate": 0.02, "weight_decay": 5e-2}


def make_aper(backbone: Backbone, seed: int = 0, **changes: Any) -> Aper:
    return Aper(backbone, AperSettings.model_validate({**RECIPE, **changes}), seed)


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden("aper_adapter")


def recorded(golden: Golden, tuner: str, where: str) -> Tensor:
    """Return recorded values of a tuner in the shape of our parameter."""
    if tuner == "adapter":
        return golden.adapter(f"{where}.adapter")
    if tuner == "ssf":
        names = [name.replace("patch_embed.norm", "patch_embed") for name in places(golden.backbone().vit)]
        return torch.cat([golden[f"ssf.{where}.{name}.{part}"] for part in ("scale", "shift") for name in names])
    return golden[f"{PREFIXES[tuner]}{where}.prompts"]


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_official_run_is_reproduced(golden: Golden, context: MakeContext, tuner: str) -> None:
    settings = {"adapter": {"bottleneck": 8, "scale": 2.0, "dropout": 0}, "learning_rate": RATES[tuner]}
    method = make_aper(golden.backbone(), tuner=tuner, **{**settings, "weight_decay": 5e-3})
    assert method.tuner is not None
    (values,) = method.tuner.parameters()
    values.data.copy_(recorded(golden, tuner, "task0.init"))
    prefix, ran = PREFIXES[tuner], list[Trained]()
    learn(
        golden,
        method,
        0,
        lambda phase: ran.append(train(golden, context(), method, phase, golden[f"{prefix}task0.init.head.weight"])),
    )
    for step in range(3):
        close(ran[0].losses[step], golden[f"{prefix}task0.step{step}.loss"])
        close(ran[0].logits[step], golden[f"{prefix}task0.step{step}.logits"])
    close(values, recorded(golden, tuner, "task0.after"))
    close(ran[0].rows, golden[f"{prefix}task0.after.head.weight"])
    close(ran[0].factor[None], golden[f"{prefix}task0.after.head.sigma"])
    close(method.head.rows, golden[f"{prefix}task0.prototypes"])
    features = method.features(golden.images("test"))
    close(features if tuner == "adapter" else features[:, 32:], golden[f"{prefix}test.features"])
    close(method(golden.images("test")), golden[f"{prefix}task0.test.logits"])
    learn(golden, method, 1, lambda phase: pytest.fail(f"the second task trained '{phase.name}'"))
    close(method.head.rows, golden[f"{prefix}task1.prototypes"])
    close(method(golden.images("test")), golden[f"{prefix}task1.test.logits"])
    if tuner == "adapter":
        for task in range(2):
            close(method.features(golden.task(task)[0]), golden[f"task{task}.features"])


@pytest.mark.parametrize("tuner", ["ssf", "vpt-deep", "vpt-shallow"])
def test_the_official_features_of_given_values(golden: Golden, tuner: str) -> None:
    method = make_aper(golden.backbone(), tuner=tuner).eval()
    assert method.tuner is not None
    (values,) = method.tuner.parameters()
    values.data.copy_(recorded(golden, tuner, "given"))
    close(method.tuned_features(golden.images("test")), golden[f"{PREFIXES[tuner]}given.test.features"])


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_tuner_moves_in_the_first_task_and_never_again(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, tuner: str
) -> None:
    stream, method = tiny_stream(), make_aper(tiny_backbone(), tuner=tuner)
    assert method.tuner is not None
    (values,) = method.tuner.parameters()
    before = values.detach().clone()
    learn_tasks(context(), method, stream.tasks[:1])
    tuned, rows = bits(values), bits(method.head.rows)
    assert tuned != bits(before)
    for task in stream.tasks[1:]:
        learn_tasks(context(train="affine"), method, [task])
        assert bits(values) == tuned
        assert bits(method.head.rows[:2]) == rows
    assert not any(name.startswith("backbone.") for name in learnt_tensors(method))


def test_features_are_bare_then_tuned_and_rows_their_class_means(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, run, method = tiny_stream(), context(eval_batch_size=7), make_aper(tiny_backbone())
    learn_tasks(run, method, stream.tasks)
    bare, means = tiny_backbone().vit, []
    for task in stream.tasks:
        canvas, labels = task.train.batch(torch.arange(len(task.train)))
        images = run.transforms.test(canvas)
        with torch.no_grad():
            features = method.features(images)
            assert torch.equal(features[:, :24], bare(images))
            assert torch.equal(features[:, 24:], method.tuned_features(images))
        assert not torch.allclose(features[:, :24], features[:, 24:], atol=1e-3)
        means += [features[labels == label].mean(0) for label in range(2)]
    torch.testing.assert_close(method.head.rows.detach(), torch.stack(means), rtol=1e-5, atol=1e-6)
    predicted, target, *_ = evaluate(run, method, stream, 2)
    assert torch.equal(predicted, target)
    assert passes_per_image(method) == 2
    assert capacity_of(method) is None


def test_the_cosine_is_one_over_both_halves(tiny_backbone: MakeBackbone) -> None:
    """Each half alone is orthogonal to its row, or equal to it: the larger half decides."""
    method = make_aper(tiny_backbone())
    method.head.append(torch.cat([3 * torch.eye(1, 24), 4 * torch.eye(1, 24)], 1))
    features = torch.cat([torch.eye(24)[1:2], 4 * torch.eye(1, 24)], 1)
    torch.testing.assert_close(method.classify(features), torch.tensor([[16 / (5 * 17**0.5)]]))


def test_an_image_is_looked_at_once_for_all_evaluations(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, run, method, kept = tiny_stream(), context(), make_aper(tiny_backbone()), FeatureCache()
    assert method.features_version is None
    seen: list[int] = []
    features = method.features

    def counted(images: Tensor) -> Tensor:
        seen.append(len(images))
        return features(images)

    for task in stream.tasks:
        learn_tasks(run, method, [task])
        method.features = counted  # type: ignore[method-assign]
        with_kept, *_ = evaluate(run, method, stream, task.index, kept)
        method.features = features  # type: ignore[method-assign]
        assert torch.equal(with_kept, evaluate(run, method, stream, task.index)[0])
        assert method.features_version == 0
    assert sum(seen) == len(stream.test.labels)


def test_the_rows_of_the_tuning_are_thrown_away(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_aper(tiny_backbone())
    phases: list[Phase] = []
    original = method.tune

    def watched(task: Any) -> Any:
        for step in original(task):
            phases.append(step)  # type: ignore[arg-type]
            yield step

    method.tune = watched  # type: ignore[method-assign]
    learn_tasks(context(), method, tiny_stream().tasks)
    (phase,) = phases
    tuner, rows, factor = phase.groups
    assert method.tuner is not None
    assert tuner.parameter is next(method.tuner.parameters())
    assert rows.parameter.shape == (2, 24)
    assert float(factor.parameter) != 1
    kept = {id(parameter) for parameter in method.parameters()}
    assert not kept & {id(rows.parameter), id(factor.parameter)}


def test_aligned_rows_of_both_forms(tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext) -> None:
    stream = tiny_stream()
    for form in ("cosine", "linear"):
        head = {"form": form, "kind": "aligned", "align_epochs": 5}
        method = make_aper(tiny_backbone(), head=head)
        learn_tasks(context(), method, stream.tasks)
        assert method.head.means.shape == (6, 48)
        predicted, target, *_ = evaluate(context(), method, stream, 2)
        assert float((predicted == target).float().mean()) > 0.9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tuner": "vpt"}, r"'method\.tuner' got 'vpt'; .*'adapter', 'ssf', 'vpt-deep' or 'vpt-shallow'"),
        ({"tuner": "none"}, r"'method\.tuner' got 'none'"),
        ({"num_prompts": 0}, r"'method\.num_prompts' got 0"),
        ({"adapter": {"width": 3}}, r"no setting 'method\.adapter\.width'.*bottleneck"),
        ({"head": {"kind": "trained"}}, r"'method\.head\.kind' got 'trained'; it is prototype, aligned"),
        ({"head": {"form": "linear"}}, r"'method\.head\.form' got 'linear'; it belongs to kind = aligned"),
    ],
)
def test_mistakes_in_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_settings(AperSettings, values, "method")
