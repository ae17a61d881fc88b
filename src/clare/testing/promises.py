"""The promises that every method keeps; nothing here knows which method it holds."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from clare.backbones.vit import fingerprint
from clare.data.store import Canvas, ImageStore
from clare.data.stream import Stream
from clare.engine.context import Silence
from clare.engine.drive import Driver
from clare.engine.learn import learn_task
from clare.engine.run import run_experiment
from clare.engine.train import Place
from clare.errors import ModelError, SettingsError
from clare.methods.base import Method
from clare.methods.protocols import KeepsPictures, num_kept
from clare.methods.state import learnt_tensors, restore, snapshot_of
from clare.model.folder import load_model, save_model
from clare.settings import build_settings
from clare.steps import Group, Phase, Result, Step
from clare.testing.demands import (
    Stop,
    StopAtBatch,
    StopAtTask,
    all_bytes,
    events,
    everything,
    expect,
    keep,
    keep_same,
    outcome,
    same_bits,
)
from clare.testing.settings import a_wrong_setting_is_named, every_setting_is_typed_explained_and_bounded
from clare.testing.world import Case, heads_of, tiny_backbone, tiny_context

Promise = Callable[[Case], None]


def it_learns_every_task(case: Case) -> None:
    """After each task it tells the task's own classes apart, and gives one logit for every class so far."""
    context = tiny_context()
    longer = ["method.epochs=10"] if "epochs" in case.kind.settings_type.model_fields else []
    method, labels = case.method(*longer), case.stream.test.labels
    for task in case.stream.tasks:
        case.learn(method, task.index, context=context)
        logits, num_seen = case.logits(method), case.stream.num_seen(task.index)
        shape = (len(labels), num_seen)
        keep(logits.shape == shape, f"after task {task.index + 1} the logits are {tuple(logits.shape)}, not {shape}")
        known, classes = tuple(method.classes), case.stream.classes[:num_seen]
        keep(known == classes, f"after task {task.index + 1} its classes are {known}, not {classes}")
        first = num_seen - len(task.classes)
        is_new = (labels >= first) & (labels < num_seen)
        # Among the task's own classes: trained rows of different tasks are never set against each other.
        predicted = first + logits[is_new, first:].argmax(1)
        accuracy = float((predicted == labels[is_new]).float().mean())
        keep(accuracy > 0.8, f"task {task.index + 1} reaches {accuracy:.0%} among its own classes, not over 80%")


def a_loaded_model_answers_as_the_saved_one(case: Case) -> None:
    """A model that is saved and loaded is the same to the bit, gives the same logits and goes on learning alike."""
    method = case.learn(case.method(), 0, 1)
    transforms = case.context.transforms.settings
    save_model(case.folder, method, tiny_backbone(), transforms)
    loaded, _, loaded_transforms = load_model(case.folder, tiny_backbone())
    keeps = isinstance(method, KeepsPictures)
    if isinstance(method, KeepsPictures):
        keep(num_kept(method)[0] > 0, "saving it takes its pictures away")
        method.drop_pictures()
    keep_same(everything(loaded), everything(method), "the loaded model")
    keep(loaded.settings == method.settings, "the loaded model has other settings")
    keep(loaded_transforms == transforms, "the loaded model has other transforms")
    keep(same_bits(case.logits(loaded), case.logits(method)), "the loaded model gives other logits")
    if keeps:
        expect(ModelError, lambda: case.learn(loaded, 2), "it learns on without its pictures", "left behind")
        return
    for learner in (loaded, method):
        case.learn(learner, 2)
    keep_same(everything(loaded), everything(method), "the loaded model, after one more task,")


def a_snapshot_brings_everything_back(case: Case) -> None:
    """A snapshot restores the method, and makes a fresh one, so that both go on alike to the bit."""
    method = case.learn(case.method(), 0)
    snapshot, before, logits = snapshot_of(method), everything(method), case.logits(method)
    after = everything(case.learn(method, 1))
    keep(after != before, "a task changes nothing")
    for learner, which in ((method, "the restored method"), (case.method(), "a fresh method, restored,")):
        restore(learner, snapshot)
        keep_same(everything(learner), before, which)
        keep(same_bits(case.logits(learner), logits), f"{which} gives other logits")
        keep_same(everything(case.learn(learner, 1)), after, f"{which} after one more task")


def a_stopped_run_goes_on_as_if_it_had_not_stopped(case: Case) -> None:
    """A run that was stopped ends with the same files, bit by bit, as one that was not."""
    straight, stopped = case.folder / "straight", case.folder / "stopped"
    run_experiment(case.experiment(), straight, Silence())
    last_task = len(events(straight)[0]["task_sizes"]) - 1
    expect(Stop, lambda: run_experiment(case.experiment(), stopped, StopAtTask(last_task)), "it swallows a stop")
    keep(not (stopped / "model").exists(), "a stopped run leaves a model")
    run_experiment(case.experiment(), stopped, Silence())
    keep_same(outcome(stopped), outcome(straight), "the run that was stopped")


def frozen_stays_frozen(case: Case) -> None:
    """No task changes a bit of the backbone, and none of it is saved with the method."""
    method = case.method()
    before, print_before = all_bytes(method.backbone), fingerprint(method.backbone)
    for task in case.stream.tasks:
        case.learn(method, task.index)
        keep_same(all_bytes(method.backbone), before, f"the backbone after task {task.index + 1}")
        keep(fingerprint(method.backbone) == print_before, "the backbone has another fingerprint")
        saved = [name for name in learnt_tensors(method) if name.startswith("backbone.")]
        keep(not saved, f"it saves {saved[:1]} of the backbone")


def a_phase_changes_nothing_but_its_groups(case: Case) -> None:
    """A phase trains its groups inside their masks, and no step changes anything else."""
    method = case.method()
    for task in case.stream.tasks[:2]:
        driver = Driver(case.context, method, task.train, task.index)

        def watched(step: Step, place: Place, driver: Driver = driver) -> Result:
            before = {key: tensor.clone() for key, tensor in method.state_dict().items()}
            result = driver.perform(step, place)
            name = getattr(step, "name", "a notice")
            keep_changes(method, name, step.groups if isinstance(step, Phase) else [], before)
            return result

        learn_task(case.context, method, task, perform=watched)


def keep_changes(method: Method, step: str, groups: list[Group], before: dict[str, Tensor]) -> None:
    """Demand that tensors outside the groups, and coordinates outside their masks, have kept every bit."""
    group_of = {id(group.parameter): group for group in groups}
    parameters, after = dict(method.named_parameters()), method.state_dict()
    for key, tensor in after.items():
        group = group_of.get(id(parameters.get(key)))
        if group is None:
            keep(same_bits(tensor, before[key]), f"the step '{step}' changes {key}, which is in none of its groups")
        elif group.mask is not None:
            outside = ~group.mask
            keep(same_bits(tensor[outside], before[key][outside]), f"'{step}' changes {key} outside its mask")
    moved = not groups or any(not torch.equal(after[key], before[key]) for key in before)
    keep(moved, f"the phase '{step}' trains nothing")


def a_run_depends_on_its_seed_alone(case: Case) -> None:
    """The same seed gives the same run to the bit, whatever was drawn before; another seed gives another."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for run, seed in (("one", 3), ("two", 3), ("other", 4)):
            run_experiment(case.experiment(seed=seed), case.folder / run, Silence())
    one, two, other = (outcome(case.folder / run) for run in ("one", "two", "other"))
    keep_same(two, one, "a second run with the same seed")
    keep(one["events"][0]["classes"] != other["events"][0]["classes"], "another seed gives the same order of classes")
    keep(one["tensors"] != other["tensors"], "another seed gives the same tensors")


class GuardedStore(ImageStore):
    """A store that hands out only what is allowed, and notes what was asked for."""

    allowed: frozenset[int] = frozenset()
    asked: frozenset[int] = frozenset()

    def batch(self, indices: Tensor) -> Canvas:
        """Gather images of the current task."""
        self.asked |= frozenset(indices.tolist())
        keep(self.asked <= self.allowed, "it asks for images of another task")
        return super().batch(indices)


def only_the_task_at_hand_is_seen(case: Case) -> None:
    """A task is learnt from all of its own training images and from no others, but for pictures that are declared."""
    method = case.method()
    store = case.stream.test.store
    guarded = GuardedStore(store.flat, store.sizes, store.channels)
    for task in case.stream.tasks:
        guarded.allowed, guarded.asked = frozenset(task.train.indices.tolist()), frozenset()
        learn_task(case.context, method, replace(task, train=replace(task.train, store=guarded)))
        num_missed = len(guarded.allowed - guarded.asked)
        keep(not num_missed, f"task {task.index + 1} leaves {num_missed} of its images unseen")
        if isinstance(method, KeepsPictures):
            keep_declared(method, case.stream, task.index)


def keep_declared(method: KeepsPictures, stream: Stream, task: int) -> None:
    """Demand that kept pictures are training images of the tasks so far, each under its own class, and no others."""
    pictures, classes = method.kept
    known: dict[bytes, int] = {}
    for each in stream.tasks[: task + 1]:
        first = stream.num_seen(each.index) - len(each.classes)
        for place, label in enumerate(each.train.labels.tolist()):
            known[each.train.batch(torch.tensor([place]))[0].pixels.numpy().tobytes()] = first + label
    parts = torch.split(pictures.pixels, (pictures.sizes.prod(1) * pictures.channels).tolist())
    keep(len(parts) > 0, f"after task {task + 1} it keeps no picture at all")
    for part, label in zip(parts, classes.tolist(), strict=True):
        keep(known.get(part.numpy().tobytes()) == label, f"after task {task + 1} a kept picture is none of its class")


def a_task_that_is_cut_off_leaves_the_method_as_it_was(case: Case) -> None:
    """A task that fails in the middle leaves no trace."""
    method = case.learn(case.method(), 0)
    before, logits = everything(method), case.logits(method)
    for num_batches in (1, 4):
        context = replace(case.context, listener=StopAtBatch(num_batches))
        expect(
            Stop,
            lambda context=context: case.learn(method, 1, context=context),  # type: ignore[misc]
            f"it learns a task in fewer than {num_batches} batches",
        )
        keep_same(everything(method), before, f"the method, cut off after {num_batches} batches,")
        keep(same_bits(case.logits(method), logits), f"cut off after {num_batches} batches it gives other logits")


def it_reads_what_its_features_say(case: Case) -> None:
    """A method with `features` can read two blocks and their patches; another has no such table."""
    words = tuple(f"method.features.{word}" for word in ("blocks=2", "patches=true", "centre=true", "views=2"))
    if "features" not in case.kind.settings_type.model_fields:
        expect(SettingsError, lambda: case.method(*words), "it takes them", r"no setting 'method\.features'")
        return
    method = case.learn(case.method(*words), 0, 1)
    save_model(case.folder, method, tiny_backbone(), case.context.transforms.settings)
    loaded, _, _ = load_model(case.folder, tiny_backbone())
    keep(same_bits(case.logits(loaded), case.logits(method)), "reading two blocks, the loaded model gives other logits")
    usual = case.logits(case.learn(case.method(), 0, 1))
    is_usual = torch.allclose(case.logits(method), usual, rtol=0, atol=1e-5)
    keep(not is_usual, "it gives the same logits whether it reads one block or two")


def a_head_that_it_cannot_have_is_refused_with_those_that_it_can(case: Case) -> None:
    """A kind of head that does not fit the method is refused in a sentence that names those that do."""
    allowed = heads_of(case.name)
    keep(bool(allowed), "it has no kind of head")
    expect(
        SettingsError,
        lambda: build_settings(case.kind.settings_type, {"head": {"kind": case.head}}, "method"),
        f"it accepts the head {case.head}",
        rf"'method\.head\.kind' got '{case.head}'; it is {', '.join(allowed[:-1])}.*{allowed[-1]}",
    )


FOR_EACH_HEAD: tuple[Promise, ...] = (
    it_learns_every_task,
    a_loaded_model_answers_as_the_saved_one,
    a_snapshot_brings_everything_back,
    a_stopped_run_goes_on_as_if_it_had_not_stopped,
    frozen_stays_frozen,
    a_phase_changes_nothing_but_its_groups,
    only_the_task_at_hand_is_seen,
    a_task_that_is_cut_off_leaves_the_method_as_it_was,
)
FOR_EACH_METHOD: tuple[Promise, ...] = (
    a_run_depends_on_its_seed_alone,
    every_setting_is_typed_explained_and_bounded,
    a_wrong_setting_is_named,
    it_reads_what_its_features_say,
)
FOR_EACH_REFUSED_HEAD: tuple[Promise, ...] = (a_head_that_it_cannot_have_is_refused_with_those_that_it_can,)
