"""The kinds of heads that a method can say it has: a union of the kinds' settings, distinguished by `kind`."""

from clare.heads.aligned import AlignedSettings
from clare.heads.discriminant import DiscriminantSettings
from clare.heads.gaussian import GaussianSettings
from clare.heads.head import TrainingSettings
from clare.heads.prototype import PrototypeSettings
from clare.heads.quadratic import QuadraticSettings
from clare.heads.realigned import RealignedSettings
from clare.heads.ridge import RidgeSettings
from clare.heads.trained import TrainedSettings


class PrototypeAfterTraining(PrototypeSettings, TrainingSettings):
    """Class means, after a task was trained with rows of its own."""


class AlignedAfterTraining(AlignedSettings, TrainingSettings):
    """Rows trained again, after a task was trained with rows of its own."""


class DiscriminantAfterTraining(DiscriminantSettings, TrainingSettings):
    """The linear discriminant, after a task was trained with rows of its own."""


class QuadraticAfterTraining(QuadraticSettings, TrainingSettings):
    """The quadratic discriminant, after a task was trained with rows of its own."""


class GaussianAfterTraining(GaussianSettings, TrainingSettings):
    """The quadratic discriminant that chooses its shrinkage, after a task was trained with rows of its own."""


class RidgeAfterTraining(RidgeSettings, TrainingSettings):
    """Ridge regression, after a task was trained with rows of its own."""


AnyHead = (
    TrainedSettings
    | PrototypeAfterTraining
    | AlignedAfterTraining
    | DiscriminantAfterTraining
    | QuadraticAfterTraining
    | GaussianAfterTraining
    | RidgeAfterTraining
    | RealignedSettings
)
"""For methods that train each task with rows of its own."""

StatisticsHead = (
    PrototypeSettings | AlignedSettings | DiscriminantSettings | QuadraticSettings | GaussianSettings | RidgeSettings
)
"""For methods that train no rows: a task's images are counted alone."""

FrozenHead = TrainedSettings | StatisticsHead
"""For methods that train rows where these are to stay as trained, and count otherwise."""
