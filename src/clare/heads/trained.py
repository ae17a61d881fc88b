"""A head whose rows stay as a task's training left them."""

from typing import Literal

from pydantic import Field

from clare.errors import ModelError
from clare.heads.head import FormSettings, Head, TrainingSettings
from clare.heads.statistics import class_means
from clare.steps import Collect, Learning, Pass


class TrainedSettings(FormSettings, TrainingSettings):
    """Rows as training left them."""

    kind: Literal["trained"] = Field("trained", description="Rows as a task's training left them.")

    def make(self, num_features: int, seed: int) -> "TrainedHead":
        """Return the head of so many features."""
        return TrainedHead(num_features, self)


class TrainedHead(Head):
    """Rows of which nobody knows where a later task's training would take them."""

    follows_drift = False

    def finish(self, num_new: int) -> Learning:
        """Keep the block."""
        self.append(self.block.data[:num_new])
        yield from ()

    def finish_untrained(self, num_new: int) -> Learning:
        """Take class means in the place of rows that were not trained."""
        if self.settings.row_form == "linear":
            raise ModelError("class means are no rows of a trained linear head; learn without --quick")
        found = yield super().sweep(num_new)
        self.append(class_means(found))

    def sweep(self, num_classes: int) -> Pass | Collect:
        """Refuse: there is nothing to which more samples could be added."""
        raise self.refusal()
