"""Joint training: the adapter sees all classes at once, which no stream allows; the bound for the others."""

from clare.methods.base import register
from clare.methods.finetune import FineTune
from clare.methods.protocols import LearnsAllAtOnce


@register
class Joint(FineTune, LearnsAllAtOnce):
    """The same learner as fine-tuning, on the stream merged into one task."""

    name = "joint"
    summary = "trains every coordinate of one adapter on all classes at once: an upper bound, not a continual learner"
