"""A task is learnt whole or not at all."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.errors import ModelError
from clare.methods.finetune import FineTune
from clare.testing.demands import everything


def test_classes_that_cannot_be_learnt_are_refused(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    first, second = tiny_stream(num_tasks=2).tasks
    method = FineTune(tiny_backbone(), FineTune.settings_type.model_validate({"epochs": 1}), 0)
    learn_task(context(), method, first, Journal())
    before = everything(method)
    for classes, reason in (
        (first.classes, "the class 'class 00' was learnt before; leave it out"),
        ((second.classes[0], "class 01"), "the class 'class 01' was learnt before; leave it out"),
        (("new", "new"), "names the class 'new' twice"),
        ((), "the task has no classes"),
    ):
        with pytest.raises(ModelError, match=reason):
            learn_task(context(), method, replace(second, classes=classes), Journal())
        assert everything(method) == before
    learn_task(context(), method, second, Journal())
    assert torch.isfinite(method.head.rows).all()
