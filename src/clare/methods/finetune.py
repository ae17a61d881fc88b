"""Sequential fine-tuning: every coordinate of the adapter is trained for every task."""

from clare.methods._shared.adapted import AdaptedMethod, AdaptedSettings
from clare.methods.base import register
from clare.steps import Group, Learning, TaskInfo


@register
class FineTune(AdaptedMethod):
    """The adapter trained on one task after another, with nothing to keep it from forgetting."""

    name = "finetune"
    summary = "trains every coordinate of one adapter on task after task"
    family = "references"
    fixed_shapes = True
    settings: AdaptedSettings

    def learn(self, task: TaskInfo) -> Learning:
        """Train the whole adapter with fresh rows, then finish the rows."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        yield self.phase("train", self.settings.epochs, [Group(self.adapter.values), *self.head.groups()])
        yield from self.head.finish(len(task.classes))
