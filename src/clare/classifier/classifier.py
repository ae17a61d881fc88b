"""The classifier: it learns classes lesson by lesson, answers, and takes back, in memory or in a folder."""

import inspect
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, NoReturn, Self, get_args

from clare.classifier import lesson
from clare.classifier.answers import Answers
from clare.classifier.changes import now
from clare.classifier.labels import check_known, checked_kind, quoted
from clare.classifier.measure import evaluation_of, fall_in_words, fallen, report_of
from clare.classifier.merging import check_mergeable, merged
from clare.classifier.parts import BackboneLike
from clare.classifier.pictures import Pictures
from clare.classifier.store import InFolder, InMemory
from clare.engine.context import Listener, Silence
from clare.errors import ModelError, SettingsError, nearest
from clare.methods.base import Method
from clare.model import folder as files
from clare.model.records import Change, Kind, Mode, lessons

LONGEST = 200
"""Characters of a parameter that are shown; of a timm model its type is."""


class Classifier(Answers):
    """A classifier of pictures that learns new classes without the pictures of the old ones.

    It lives in memory, or in a folder, where every change is committed. A folder that holds a model is opened; one that
    does not is made by the first lesson. To scikit-learn it is an estimator, without needing it.
    """

    _estimator_type: ClassVar[str] = "classifier"

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        backbone: BackboneLike | None = None,
        method: str | type[Method] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int = 1993,
        device: str = "auto",
        num_kept: int = files.NUM_KEPT,
    ) -> None:
        """Take a folder, and how a new model is made: what is left out is the folder's own, or our default.

        `backbone` is a name (of timm, or of a preset), a weights file, or a timm model, which a folder cannot hold and
        which is given again with it; `method` a name, `path/to/file.py:Class` or a class, with its `settings`;
        `num_kept` says how many changes can be undone.
        """
        self.folder, self.backbone, self.method, self.settings = folder, backbone, method, settings
        self.seed, self.device, self.num_kept = seed, device, num_kept
        # Predictions and changes of one object exclude each other, whichever threads ask for them.
        self._threads = threading.RLock()
        self._begin()

    def _begin(self) -> None:
        """Go to the folder, and open the model that is there."""
        self._held = None
        self._store = InMemory() if self.folder is None else InFolder(Path(self.folder), self._build)
        if self.path is not None and (self.path / files.MANIFEST).exists():
            self._held = self._state

    @property
    def path(self) -> Path | None:
        """The folder, if the classifier has one."""
        return None if self.folder is None else Path(self.folder)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what the classifier was made with; `deep` changes nothing, as no parameter has parameters."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Change what it is made with, which counts from the next `fit` on, or at once if nothing was learnt yet."""
        before = self.get_params()
        for name, value in params.items():
            if name not in before:
                raise SettingsError(
                    f"a classifier has no parameter '{name}'{nearest(name, before)}; known: {', '.join(before)}"
                )
            setattr(self, name, value)
        if self.folder is not before["folder"] or (self._held and not self._held.manifest.state["tensors"]):
            try:
                self._begin()
            except BaseException:
                vars(self).update(before)
                raise
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether any class is known."""
        return bool(self.classes)

    def learn(
        self, pictures: Any, *, mode: Mode = "learn", listener: Listener | None = None, wait: bool = True
    ) -> Change:
        """Learn new classes as a task, with mode "quick" out of statistics alone, or "update" known classes.

        `pictures` is a folder of class folders, a dict of pictures by class, or a data set. A fifth of each class is
        held back to measure and calibrate on.
        """
        if mode not in get_args(Mode):
            known = ", ".join(get_args(Mode))
            raise SettingsError(f"there is no mode '{mode}'{nearest(mode, get_args(Mode))}; known: {known}")
        given = pictures if isinstance(pictures, Pictures) else self.reader().to_teach(pictures)
        return self._lesson(given, mode, listener, wait)

    def update(self, pictures: Any, *, listener: Listener | None = None, wait: bool = True) -> Change:
        """Give known classes more pictures."""
        return self.learn(pictures, mode="update", listener=listener, wait=wait)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget all classes and learn these as one task; `undo` takes that back."""
        self._lesson(self.reader().to_teach(X, y), "fit", None, True)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn classes that are new as a task, and give those that are known more pictures."""
        pictures, known = self.reader().to_teach(X, y), set(self.parts.method.classes)
        more, new = (
            pictures.of([name for name in pictures.classes if (name in known) == is_known])
            for is_known in (True, False)
        )
        if more.classes:
            self._lesson(more, "update", None, True)
        try:
            if new.classes:
                self._lesson(new, "learn", None, True)
        except BaseException:
            if more.classes:
                self.undo()
            raise
        return self

    def merge(self, other: "Classifier", *, wait: bool = True) -> Change:
        """Take over what a model with the same frozen features has learnt elsewhere: statistics add up."""
        labels = (self._store.label, other._store.label)
        with self._changing(wait, Silence()) as state:
            theirs = other._state
            check_mergeable(state, theirs, labels, (self.history, other.history))
            together = checked_kind(
                [info.name for info in other.classes], other.classes[0].kind, self.classes[0].kind, labels[0]
            )
            found, classes, report = merged(state, theirs, self.classes, other.classes)
            classes = [replace(info, kind=together) for info in classes]
            report["pictures"] = list(lessons(other.history))
            change = self._change("merge", tuple(info.name for info in other.classes), report)
            return self._commit(change, found, classes, lesson.calibrated(found.parts, found.memory))

    def detach(self) -> None:
        """Leave the folder as it is: what changes from here on stays in memory until it is saved."""
        state, store = self._state, InMemory()
        store.label = self._store.label
        manifest = store.begin(replace(state.manifest, kept=[]), state.tensors(), state.parts)
        self.folder, self._store, self._held = None, store, replace(state, manifest=manifest)

    def _lesson(self, pictures: Pictures, kind: Kind, listener: Listener | None, wait: bool) -> Change:
        """Teach pictures, measure all classes anew, and commit what came of it."""
        listener = listener or Silence()
        mode: Mode = "update" if kind == "update" else "quick" if kind == "quick" else "learn"
        with self._changing(wait, listener) as state:
            known, begun = self.classes, state
            if kind == "fit":
                known, begun = [], self._fresh(state)
            self._check_classes(pictures.classes, mode, [info.name for info in known])
            known_kind = known[0].kind if known else pictures.kind
            together = checked_kind(pictures.classes, pictures.kind, known_kind, self._store.label)
            pictures = replace(pictures, kind=together)
            started = time.perf_counter()
            parts = begun.parts
            before = lesson.counts_of(parts, begun.memory)
            memory = lesson.taught(parts, listener, begun.memory, pictures, mode)
            earlier = lesson.counts_of(parts, memory)
            memory, features, logits = lesson.held_back(parts, memory, pictures)
            calibration, method = lesson.calibrated(parts, memory), parts.method
            unknown = lesson.unknown_scores(method, features, logits, calibration)
            evaluation = evaluation_of(method, pictures.held_back, (logits, unknown), calibration)
            seconds = time.perf_counter() - started
            report = report_of(pictures, method, evaluation, earlier, calibration, seconds)
            report["fallen"] = fallen(before, earlier)
            classes = lesson.dated(known, pictures, mode, len(parts.method.tasks), now())
            change = self._change(kind, pictures.classes, report)
            self._commit(change, replace(begun, memory=memory), classes, calibration)
            if report["fallen"]:
                how = "undo()" if self.path is None else f"clare undo {quote(str(self.path))}"
                listener.notice(fall_in_words(report["fallen"], how))
            return change

    def _check_classes(self, classes: Sequence[str], mode: Mode, known: Sequence[str]) -> None:
        """Refuse new classes that are known, and updates of classes that are not, or of unknown weight."""
        check_known(classes, known, mode, self._store.label)
        counts = self._state.memory.counts
        uncounted = [name for name in classes if mode == "update" and not counts[self._place(name)]]
        if uncounted:
            raise ModelError(
                f"{self._store.label} does not say from how many pictures it knows {quoted(uncounted)}, so more cannot "
                "be weighed against them; remove and learn them anew"
            )

    def __sklearn_clone__(self) -> Self:
        """Return a classifier with the same parameters that knows nothing, in memory: a folder has one owner."""
        params = self.get_params()
        return type(self)(**({**params, "folder": None} if "folder" in params else params))

    def __sklearn_tags__(self) -> Any:
        """Say that this is a classifier of pictures, for versions of scikit-learn from 1.6 on."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, three_d_array=True, string=True)
        target, kind = TargetTags(required=True, one_d_labels=True), ClassifierTags()
        return Tags(self._estimator_type, target, classifier_tags=kind, input_tags=inputs)

    def __repr__(self) -> str:
        """Show the parameters that are not the defaults."""
        parameters = list(inspect.signature(type(self).__init__).parameters.values())[1:]
        given = [
            (each.name, getattr(self, each.name)) for each in parameters if getattr(self, each.name) is not each.default
        ]
        shown = [(name, text if len(text := repr(value)) < LONGEST else type(value).__name__) for name, value in given]
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown)})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise ModelError(
            "a classifier is not pickled: save(folder) writes what it knows, clare.load(folder) reads it, and "
            "sklearn.base.clone makes another one that knows nothing"
        )


def load(
    folder: str | Path,
    backbone: BackboneLike | None = None,
    *,
    method: str | type[Method] | None = None,
    device: str = "auto",
) -> Classifier:
    """Open a model folder; a backbone built by hand and a method in a file must be given again."""
    # Says what is missing where there is no model.
    files.read_manifest(Path(folder))
    return Classifier(folder, backbone=backbone, method=method, device=device)
