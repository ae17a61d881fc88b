"""Drive a method through one task: run the steps it yields, or replay those that are finished."""

import time

import torch
from torch import Tensor

from clare.data.store import LabelledImages
from clare.data.stream import Task
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.passes import run_sweep
from clare.engine.train import PhaseRun, Place, load_parameters
from clare.errors import DataError, ModelError
from clare.methods.base import Method
from clare.methods.state import restore, snapshot_of
from clare.seeds import derive_seed
from clare.steps import Collect, Notice, Pass, Phase, Result, Solve, Step, TaskInfo


def learn_task(context: Context, method: Method, task: Task, journal: Journal) -> None:
    """Teach a method one task; if that fails, the method is what it was before."""
    check_new(method, task.classes)
    check_images(task)
    before = snapshot_of(method)
    device = context.ranks.device
    with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            _drive(context, method, task, journal)
        except BaseException:
            restore(method, before)
            raise
    method.tasks.append(task.classes)


def check_new(method: Method, classes: tuple[str, ...]) -> None:
    """Refuse a task without classes, with a class twice, or with a class learnt before."""
    if not classes:
        raise ModelError("the task has no classes; give it at least one class with images")
    repeated = sorted({name for name in classes if classes.count(name) > 1})
    if repeated:
        raise ModelError(f"the task names the class '{repeated[0]}' twice; name every class once")
    known = [name for name in classes if name in set(method.classes)]
    if known:
        raise ModelError(
            f"the class '{known[0]}' was learnt before; leave it out of this task or give the new class another name"
        )


def check_images(task: Task) -> None:
    """Refuse a task with an empty class or with labels outside its classes."""
    labels = task.train.labels
    num_classes = len(task.classes)
    outside = labels[(labels < 0) | (labels >= num_classes)]
    if len(outside):
        raise DataError(
            f"a label of task {task.index + 1} is {int(outside[0])}, but it has {num_classes} classes; "
            f"labels go from 0 to {num_classes - 1}"
        )
    counts = torch.bincount(labels, minlength=num_classes)
    empty = [name for name, count in zip(task.classes, counts.tolist(), strict=True) if count == 0]
    if empty:
        raise DataError(f"the class '{empty[0]}' has no training images; add some or leave the class out")


def _drive(context: Context, method: Method, task: Task, journal: Journal) -> None:
    """Advance the method's generator until it ends."""
    learning = method.learn(TaskInfo(task.index, task.classes, method.seed))
    result: Result = {}
    step: Step
    for index in range(10_000):
        # A method that draws from the global random state between steps draws the same when it is replayed.
        torch.manual_seed(derive_seed(context.seed, task.index, index, "between"))
        try:
            step = next(learning) if index == 0 else learning.send(result)
        except StopIteration:
            return
        result = _perform(context, method, step, task.train, Place(task.index, index), journal)


def _perform(
    context: Context, method: Method, step: Step, images: LabelledImages, place: Place, journal: Journal
) -> Result:
    """Run one step, or put back what it left when it is already finished."""
    done = journal.finished(place.step)
    if isinstance(step, Notice):
        if done is None:
            context.listener.notice(step.text)
            journal.notice(step.text)
            journal.finish(place.step, {})
        return {}
    if isinstance(step, Phase):
        if done is None:
            _train(context, method, step, images, place, journal)
        else:
            load_parameters(step, done)
        return {}
    if done is None:
        context.listener.step(step.name, 1)
        done = _compute(context, method, step, images, place)
        journal.finish(place.step, done)
    return _on(done, context)


def _compute(
    context: Context, method: Method, step: Pass | Collect | Solve, images: LabelledImages, place: Place
) -> Result:
    """Return what a step without training finds."""
    if isinstance(step, Pass | Collect):
        return run_sweep(context, method, step, images, place)
    solved = step.function()
    # Ranks may round differently; what the first one found counts.
    return {name: context.ranks.broadcast_(solved[name].contiguous()) for name in sorted(solved)}


def _train(
    context: Context, method: Method, phase: Phase, images: LabelledImages, place: Place, journal: Journal
) -> None:
    """Run a phase from its last saved epoch."""
    context.listener.step(phase.name, phase.epochs)
    run = PhaseRun(context, method, phase, images, place)
    start_epoch = 0
    saved = journal.epoch(place.step)
    if saved is not None:
        start_epoch = saved[0]
        run.restore(saved[1])

    def save_epoch(epoch: int, tensors: dict[str, Tensor]) -> None:
        journal.save_epoch(place.step, epoch, tensors)

    started = time.perf_counter()
    losses = run.run(start_epoch, save_epoch)
    journal.phase_done(phase, losses, time.perf_counter() - started)
    journal.finish(place.step, run.parameters())


def _on(tensors: dict[str, Tensor], context: Context) -> Result:
    """Return the tensors on this rank's device."""
    return {name: tensor.to(context.ranks.device) for name, tensor in tensors.items()}
