"""Teach a method one task, all of it or nothing."""

import torch

from clare.data.stream import Task
from clare.engine.context import Context
from clare.engine.drive import Driver, Perform
from clare.engine.journal import Journal
from clare.errors import DataError, ModelError
from clare.methods.base import Method
from clare.methods.mistakes import in_one_sentence
from clare.methods.protocols import KeepsPictures, num_kept
from clare.methods.state import restore, snapshot_of
from clare.steps import TaskInfo


def learn_task(
    context: Context, method: Method, task: Task, journal: Journal | None = None, perform: Perform | None = None
) -> None:
    """Teach a method one task; if that fails, the method is what it was before."""
    check_new(method, task.classes)
    if isinstance(method, KeepsPictures) and method.tasks and not num_kept(method)[0]:
        raise ModelError(
            f"{method.name} learns from pictures that it kept of earlier tasks, and these have been left behind, as "
            "model folders never carry any; learn all tasks in one run of `clare train`"
        )
    check_images(task)
    before = (journal and journal.start()) or snapshot_of(method)
    try:
        with in_one_sentence(type(method)):
            driver = Driver(context, method, task.train, task.index, journal)
            num_steps = driver.run(method.learn(TaskInfo(task.index, task.classes, method.seed)), perform)
        if not num_steps:
            raise ModelError(
                f"{method.name} learns task {task.index + 1} without a single step; let `learn` yield what is to be "
                "trained, and end it with `yield from self.head.finish(len(task.classes))`"
            )
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
    known = sorted(set(classes) & set(method.classes), key=classes.index)
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
