"""What a classifier tells about itself: its classes, its history, how good it is and what room is left."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from clare.classifier.capacity import tasks_left
from clare.classifier.certainty import fitted_scale
from clare.classifier.defaults import is_drawing_backbone
from clare.classifier.labels import Labels, labels_of
from clare.classifier.memory import Memory
from clare.classifier.parts import Parts
from clare.classifier.pictures import Reader
from clare.classifier.unknown import threshold_of
from clare.methods.protocols import Capacity, ClaimsCoordinates, capacity_of
from clare.methods.state import packed_tensors
from clare.model.folder import Manifest
from clare.model.records import Change, ClassInfo, ClassReport, class_reports


@dataclass(frozen=True)
class State:
    """What counts of a classifier: its parts, what it remembers of its pictures, and what its manifest says."""

    parts: Parts
    memory: Memory
    manifest: Manifest

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that a folder keeps of it."""
        return {**packed_tensors(self.parts.method), **self.memory.tensors()}


class Facts(ABC):
    """What can be asked about the state that was read or committed last."""

    @property
    @abstractmethod
    def _state(self) -> State:
        """The state that counts."""

    @property
    def parts(self) -> Parts:
        """The method, its backbone and the transforms before it."""
        return self._state.parts

    @property
    def classes_(self) -> Labels:
        """The known classes as they were given, text or numbers, in the order of the columns of `predict_proba`."""
        known = self.classes
        if not known:
            raise AttributeError("there are no `classes_` before the first lesson; call fit, learn or partial_fit")
        return labels_of([info.name for info in known], known[0].kind)

    @property
    def classes(self) -> list[ClassInfo]:
        """The known classes in the same order, with task, date and number of pictures."""
        return [ClassInfo(**values) for values in self._state.manifest.state["classes"]]

    @property
    def version(self) -> int:
        """Number of the last change, which grows with every commit."""
        return self._state.manifest.version

    @property
    def history(self) -> list[Change]:
        """All changes, oldest first."""
        history = self._state.manifest.history
        return [Change(**{**values, "classes": tuple(values["classes"])}) for values in history]

    @property
    def reports(self) -> dict[str, ClassReport]:
        """The newest measurement of each class on its held-back pictures, and its date."""
        return class_reports(self.history)

    @property
    def num_undoable(self) -> int:
        """How many changes can be taken back, one after another."""
        return len(self._state.manifest.kept)

    @property
    def capacity(self) -> Capacity | None:
        """State of the coordinate pool, if the method has one."""
        return capacity_of(self.parts.method)

    @property
    def claims(self) -> list[list[int]] | None:
        """Coordinates that each task claimed in each layer, if the method keeps account of them."""
        method = self.parts.method
        return method.claims_by_layer() if isinstance(method, ClaimsCoordinates) else None

    @property
    def tasks_left(self) -> int | None:
        """About how many more tasks the free coordinates suffice for."""
        return tasks_left(self.parts.method)

    @property
    def backbone_name(self) -> str:
        """The backbone's name, with its weights file where it has one."""
        settings = self.parts.backbone.settings
        if settings is None:
            return "built by hand"
        is_file = settings.weights not in ("pretrained", "random")
        return f"{settings.name} ({settings.weights})" if is_file else settings.name

    @property
    def image_size(self) -> int:
        """Side of the square that the backbone sees."""
        return self.parts.transforms.image_size

    @property
    def channels(self) -> int:
        """3 for colour, 1 for grey."""
        return self.parts.backbone.channels

    @property
    def is_drawing_model(self) -> bool:
        """Whether the backbone is the one for drawings that comes with the package."""
        return is_drawing_backbone(self.parts.backbone.settings)

    @property
    def calibration(self) -> dict[str, Any] | None:
        """How probabilities and the score of being unknown come about; none before there is enough to fit them."""
        return cast(dict[str, Any] | None, self._state.manifest.state["calibration"])

    @property
    def threshold(self) -> float:
        """The score from which a picture is called unknown unless another is asked for."""
        return threshold_of(self.calibration)

    @property
    def scale(self) -> float:
        """Factor that turns logits into the arguments of a softmax, the head's own where nothing was fitted."""
        return fitted_scale(self.calibration, self.parts.method)

    def reader(self, skip_bad: bool = False) -> Reader:
        """Return what reads pictures as this model needs them."""
        return self.parts.reader(skip_bad)
