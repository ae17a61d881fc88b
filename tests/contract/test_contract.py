"""Every registered method keeps the same promises; nothing here knows which method it holds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from run_outcome import Stop, StopAtTask, events, outcome
from torch import Tensor, nn

from clare.backbones.vit import Backbone, fingerprint
from clare.data.store import Canvas, ImageStore
from clare.data.stream import Stream, Task
from clare.engine.context import Context, Silence
from clare.engine.journal import NoJournal
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.run import run_experiment
from clare.errors import ModelError, SettingsError
from clare.heads.cosine import HeadSettings
from clare.methods import METHODS
from clare.methods.base import Method
from clare.model.folder import load_model, save_model
from clare.presets.load import make_experiment
from clare.settings import Settings, build_settings
from clare.steps import Learning, Phase, TaskInfo

NAMES = list(METHODS)
STRATEGIES: tuple[str, ...] = get_args(HeadSettings.model_fields["strategy"].annotation)


def accepts(name: str, strategy: str) -> bool:
    """Tell whether a method can be used with a head strategy."""
    try:
        build_settings(METHODS.get(name).settings_type, {"head": {"strategy": strategy}}, "method")
    except SettingsError:
        return False
    return True


PAIRS = [(name, strategy) for name in NAMES for strategy in STRATEGIES]
CASES = [pair for pair in PAIRS if accepts(*pair)]
every_method = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize(("name", "strategy"), CASES)


@dataclass(frozen=True)
class World:
    """A stream, a context, and a way to make methods."""

    preset: Path
    stream: Stream
    context: Context
    make_backbone: Callable[..., Backbone]

    def method(self, name: str, strategy: str | None = None, seed: int = 0) -> Method:
        """Return a method that has learnt nothing, on a backbone of its own."""
        overrides = [f"method.head.strategy={strategy}"] if strategy else []
        settings = make_experiment(str(self.preset), name, overrides).method_settings()
        return METHODS.get(name)(self.make_backbone(), settings, seed)

    def learn(self, method: Method, *tasks: int) -> Method:
        """Teach a method some tasks of the stream."""
        for task in tasks:
            learn_task(self.context, method, self.stream.tasks[task], NoJournal())
        return method

    def logits(self, method: Method) -> Tensor:
        """Return the logits of all test images of the stream."""
        return predict_logits(self.context, method, self.stream.test)


@pytest.fixture
def world(
    tiny_preset: Path,
    tiny_stream: Callable[..., Stream],
    tiny_backbone: Callable[..., Backbone],
    context: Callable[..., Context],
) -> World:
    return World(tiny_preset, tiny_stream(), context(train="affine", eval_batch_size=7), tiny_backbone)


def all_bytes(module: nn.Module) -> dict[str, Any]:
    """Return type, shape and bytes of every tensor."""
    return {
        name: (tensor.dtype, tensor.shape, tensor.detach().numpy().tobytes())
        for name, tensor in module.state_dict().items()
    }


def everything(method: Method) -> dict[str, Any]:
    """Return all that makes a method what it is."""
    grads = [name for name, parameter in method.named_parameters() if parameter.requires_grad]
    return {**all_bytes(method), "structure": method.structure(), "grads": grads}


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors agree in shape and in every bit."""
    return one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


@every_case
def test_it_learns_every_task(
    world: World, context: Callable[..., Context], tmp_path: Path, name: str, strategy: str
) -> None:
    (tmp_path / "longer.toml").write_text(f'extends = "{world.preset}"\n[method]\nepochs = 10\n')
    world = replace(world, preset=tmp_path / "longer.toml", context=context())
    method = world.method(name, strategy)
    labels = world.stream.test.labels
    for task in world.stream.tasks:
        world.learn(method, task.index)
        logits, num_seen = world.logits(method), world.stream.num_seen(task.index)
        assert logits.shape == (len(labels), num_seen)
        assert tuple(method.classes) == world.stream.classes[:num_seen]
        first = num_seen - len(task.classes)
        is_new = (labels >= first) & (labels < num_seen)
        # Among the task's own classes: trained rows of different tasks are never set against each other.
        predicted = first + logits[is_new, first:].argmax(1)
        assert float((predicted == labels[is_new]).float().mean()) > 0.8


@every_case
def test_a_loaded_model_answers_as_the_saved_one(world: World, tmp_path: Path, name: str, strategy: str) -> None:
    method = world.learn(world.method(name, strategy), 0, 1)
    transforms = world.context.transforms.settings
    save_model(tmp_path, method, world.make_backbone(), transforms)
    loaded, _, loaded_transforms = load_model(tmp_path, world.make_backbone())
    assert everything(loaded) == everything(method)
    assert loaded.settings == method.settings
    assert loaded_transforms == transforms
    assert same_bits(world.logits(loaded), world.logits(method))
    assert everything(world.learn(loaded, 2)) == everything(world.learn(method, 2))


@every_case
def test_a_snapshot_brings_everything_back(world: World, name: str, strategy: str) -> None:
    method = world.learn(world.method(name, strategy), 0)
    snapshot, before, logits = method.snapshot(), everything(method), world.logits(method)
    after = everything(world.learn(method, 1))
    assert after != before
    fresh = world.method(name, strategy)
    for learner in (method, fresh):
        learner.restore(snapshot)
        assert everything(learner) == before
        assert same_bits(world.logits(learner), logits)
        assert everything(world.learn(learner, 1)) == after


@every_case
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(
    tiny_preset: Path, tmp_path: Path, name: str, strategy: str
) -> None:
    experiment = make_experiment(str(tiny_preset), name, [f"method.head.strategy={strategy}"])
    run_experiment(experiment, tmp_path / "straight", Silence())
    with pytest.raises(Stop):
        run_experiment(experiment, tmp_path / "stopped", StopAtTask(1))
    assert not (tmp_path / "stopped" / "model").exists()
    run_experiment(experiment, tmp_path / "stopped", Silence())
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


@every_case
def test_frozen_stays_frozen(world: World, name: str, strategy: str) -> None:
    method = world.method(name, strategy)
    before, print_before = all_bytes(method.backbone), fingerprint(method.backbone)
    for task in world.stream.tasks:
        world.learn(method, task.index)
        assert all_bytes(method.backbone) == before
        assert fingerprint(method.backbone) == print_before
        assert not any(name.startswith("backbone.") for name in method.tensors())


@every_case
def test_a_phase_changes_nothing_but_its_groups(world: World, name: str, strategy: str) -> None:
    method = world.method(name, strategy)
    learn = method.learn

    def watched(task: TaskInfo) -> Learning:
        learning = learn(task)
        step = next(learning, None)
        while step is not None:
            before = {key: tensor.clone() for key, tensor in method.state_dict().items()}
            result = yield step
            check_changes(method, step.groups if isinstance(step, Phase) else [], before)
            try:
                step = learning.send(result)
            except StopIteration:
                return

    method.learn = watched  # type: ignore[method-assign]
    world.learn(method, 0, 1)


def check_changes(method: Method, groups: list[Any], before: dict[str, Tensor]) -> None:
    """Assert that tensors outside the groups, and coordinates outside their masks, have kept every bit."""
    group_of = {id(group.parameter): group for group in groups}
    parameters = dict(method.named_parameters())
    for key, tensor in method.state_dict().items():
        group = group_of.get(id(parameters.get(key)))
        if group is None:
            assert same_bits(tensor, before[key]), key
        elif group.mask is not None:
            assert same_bits(tensor[~group.mask], before[key][~group.mask]), key
    assert not groups or any(not torch.equal(method.state_dict()[key], before[key]) for key in before)


@every_method
def test_a_run_depends_on_its_seed_alone(tiny_preset: Path, tmp_path: Path, name: str) -> None:
    torch.manual_seed(1)
    for run, seed in (("one", 3), ("two", 3), ("other", 4)):
        run_experiment(make_experiment(str(tiny_preset), name, seed=seed), tmp_path / run, Silence())
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    orders = [events(tmp_path / run)[0]["classes"] for run in ("one", "other")]
    assert orders[0] != orders[1]
    assert outcome(tmp_path / "one")["tensors"] != outcome(tmp_path / "other")["tensors"]


class GuardedStore(ImageStore):
    """A store that hands out only what is allowed, and notes what was asked for."""

    allowed: frozenset[int] = frozenset()
    asked: frozenset[int] = frozenset()

    def batch(self, indices: Tensor) -> Canvas:
        """Gather images of the current task."""
        self.asked |= frozenset(indices.tolist())
        assert self.asked <= self.allowed
        return super().batch(indices)


@every_case
def test_only_the_task_at_hand_is_seen(world: World, name: str, strategy: str) -> None:
    method = world.method(name, strategy)
    store = world.stream.test.store
    guarded = GuardedStore(store.flat, store.sizes, store.channels)
    for task in world.stream.tasks:
        guarded.allowed, guarded.asked = frozenset(task.train.indices.tolist()), frozenset()
        learn_task(world.context, method, replace(task, train=replace(task.train, store=guarded)), NoJournal())
        assert guarded.asked == guarded.allowed


def leaves(kind: type[Settings]) -> dict[str, FieldInfo]:
    """Return all fields of a settings class, those of nested classes included, by their dotted keys."""
    found: dict[str, FieldInfo] = {}
    for key, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            found |= {f"{key}.{name}": leaf for name, leaf in leaves(field.annotation).items()}
        else:
            found[key] = field
    return found


@every_method
def test_every_setting_is_typed_explained_and_bounded(name: str) -> None:
    for key, field in leaves(METHODS.get(name).settings_type).items():
        assert field.annotation is not None, key
        assert field.description, key
        assert field.description.endswith("."), key
        assert not field.is_required(), key
        if field.annotation in (int, float):
            assert any(isinstance(bound, Ge | Gt) for bound in field.metadata), key
            assert any(isinstance(bound, Le | Lt) for bound in field.metadata), key
        else:
            assert field.annotation is bool or get_origin(field.annotation) is Literal, key


@every_method
def test_a_wrong_setting_is_named(name: str) -> None:
    kind = METHODS.get(name).settings_type
    with pytest.raises(SettingsError, match=r"no setting 'method\.wrong'.*allowed here: .*head"):
        build_settings(kind, {"wrong": 1}, "method")
    with pytest.raises(SettingsError, match=r"no setting 'method\.head\.strateggy' \(did you mean 'strategy'\?\)"):
        build_settings(kind, {"head": {"strateggy": "trained"}}, "method")
    for key, field in leaves(kind).items():
        for bound in field.metadata:
            outside = {Le: lambda b: b.le + 1, Lt: lambda b: b.lt, Ge: lambda b: b.ge - 1, Gt: lambda b: b.gt}
            value: Any = outside[type(bound)](bound)
            for part in reversed(key.split(".")):
                value = {part: value}
            with pytest.raises(SettingsError, match=rf"the setting 'method\.{key}' got "):
                build_settings(kind, value, "method")


@every_method
def test_a_class_learnt_before_is_refused(world: World, name: str) -> None:
    method = world.learn(world.method(name), 0)
    before, logits = everything(method), world.logits(method)
    known, new = world.stream.tasks[0].classes[0], world.stream.tasks[1]
    for task in (world.stream.tasks[0], Task(1, (new.classes[0], known), new.train)):
        with pytest.raises(ModelError, match=f"the class '{known}' was learnt before; leave it out"):
            learn_task(world.context, method, task, NoJournal())
        assert everything(method) == before
        assert same_bits(world.logits(method), logits)
    world.learn(method, 1)


class StopAtBatch(Silence):
    """A listener that stops the run after some batches."""

    def __init__(self, num_batches: int) -> None:
        self.num_left = num_batches

    def batch(self) -> None:
        """Count down."""
        self.num_left -= 1
        if self.num_left == 0:
            raise Stop


@every_case
def test_a_task_that_is_cut_off_leaves_the_method_as_it_was(world: World, name: str, strategy: str) -> None:
    method = world.learn(world.method(name, strategy), 0)
    before, logits = everything(method), world.logits(method)
    for num_batches in (1, 4):
        listening = replace(world, context=replace(world.context, listener=StopAtBatch(num_batches)))
        with pytest.raises(Stop):
            listening.learn(method, 1)
        assert everything(method) == before
        assert same_bits(world.logits(method), logits)


@pytest.mark.parametrize(("name", "strategy"), [pair for pair in PAIRS if pair not in CASES])
def test_a_strategy_that_cannot_be_used_is_refused_with_those_that_can(name: str, strategy: str) -> None:
    allowed = [other for other in STRATEGIES if accepts(name, other)]
    assert allowed
    with pytest.raises(SettingsError, match=rf"'method\.head' cannot be used: .*{strategy}.*{', '.join(allowed)}"):
        build_settings(METHODS.get(name).settings_type, {"head": {"strategy": strategy}}, "method")
