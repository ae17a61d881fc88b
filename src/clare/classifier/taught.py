"""A model folder that is taught: new classes, more pictures, other names, and every change can be taken back."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.classifier import teaching
from clare.classifier.certainty import fit_scale
from clare.classifier.classifier import Classifier
from clare.classifier.defaults import DEFAULT_METHOD, default_settings, default_transforms
from clare.classifier.measure import Counts, fall_in_words, fallen, kept_counts, report_of
from clare.classifier.memory import Memory
from clare.classifier.pictures import Pictures, check_name, labelled
from clare.classifier.unknown import best_logits, calibrate
from clare.data.examples import Examples
from clare.data.transforms import TransformSettings
from clare.engine.context import Context, Listener, Silence
from clare.engine.settings import EngineSettings
from clare.errors import ModelError, nearest
from clare.methods import METHODS
from clare.methods.base import Method, prepare
from clare.methods.protocols import CachesFeatures
from clare.methods.state import Snapshot, restore, snapshot_of
from clare.model import folder as files
from clare.model.folder import Manifest
from clare.model.lock import writing
from clare.model.records import Change, ClassInfo, Evaluation, Guess, Kind, Mode, standing
from clare.seeds import check_seed
from clare.settings import build_settings

__all__ = ["Change", "ClassInfo", "Evaluation", "Guess", "Mode", "TaughtModel"]


class TaughtModel(Classifier):
    """A classifier in a folder that learns; an object shows the state that it has read or committed last."""

    @classmethod
    def create(
        cls,
        path: str | Path,
        backbone: BackboneSettings | None = None,
        method: str | type[Method] = DEFAULT_METHOD,
        settings: Mapping[str, Any] | None = None,
        *,
        seed: int = 1993,
        device: str = "auto",
        num_kept: int = files.NUM_KEPT,
        wait: bool = True,
    ) -> "TaughtModel":
        """Make a folder for a model that knows no classes yet; an empty one that is there is replaced."""
        path = Path(path)
        check_seed(seed)
        # What cannot compute must not leave a folder behind.
        build_settings(EngineSettings, {"device": device}, "")
        if num_kept < 1:
            raise ModelError(f"{num_kept} kept states are too few; keep at least one, so that a change can be undone")
        frozen = load_backbone(backbone or BackboneSettings())
        kind = METHODS.named(method)
        built = kind(frozen, default_settings(frozen, METHODS.name_of(kind), settings or {}), seed)
        prepare(built, None, 0)
        transforms = build_settings(TransformSettings, default_transforms(frozen), "transforms")
        memory = Memory.empty(0, 0)
        with writing(path, wait, makes_folder=True):
            old = files.read_manifest(path) if (path / "model.json").exists() else None
            if old is not None and old.state["classes"]:
                raise ModelError(f"{path} holds a model already; teach that one, or choose another folder")
            name = files.write_state_tensors(path, {**snapshot_of(built).tensors, **memory.tensors()})
            state = files.make_state(built, frozen, transforms, name)
            if old is not None and (old.state, old.num_kept) == (state, num_kept):
                # What a process left that was killed before its first lesson is this model already.
                manifest = old
            else:
                change = Change(1 if old is None else old.version + 1, "create", _now(), (), {})
                manifest = Manifest(state, change.number, [_values(change)], [], num_kept)
                files.commit(path, manifest)
        return cls(path, manifest, (built, frozen, transforms), memory, device)

    @classmethod
    def open(
        cls, path: str | Path, *, device: str = "auto", backbone: Backbone | None = None, method: files.Named = None
    ) -> "TaughtModel":
        """Read what was committed last; a method in a file must be named. Never waits for a teacher."""
        path = Path(path)
        manifest, tensors = files.read_model(path)
        parts = files.build_model(path, manifest.state, tensors, backbone, method)
        return cls(path, manifest, parts, Memory.from_tensors(tensors, len(parts[0].classes)), device)

    def teach(
        self,
        examples: Examples | Pictures,
        *,
        mode: Mode = "learn",
        listener: Listener | None = None,
        wait: bool = True,
    ) -> Change:
        """Learn new classes as a task, quickly without claiming anything, or give known classes more pictures."""
        listener = listener or Silence()
        pictures = examples if isinstance(examples, Pictures) else self.reader().to_teach(examples)
        with self._changing(wait, listener):
            self._check_classes(pictures.classes, mode)
            started = time.perf_counter()
            context = replace(self._context, listener=listener)
            before = self._kept_counts(self._memory)
            memory = self._taught(context, pictures, mode)
            earlier = self._kept_counts(memory)
            held = [image for images in pictures.held_back.values() for image in images]
            features = teaching.features_of(context, self.method, held) if held else memory.held[:0]
            labels = [self._place(name) for name, images in pictures.held_back.items() for _ in images]
            memory = memory.holding(features, torch.tensor(labels, dtype=torch.int64))
            calibration = self._calibrated(memory)
            logits = teaching.logits_of(context, self.method, features)
            evaluation = self._measured(pictures.held_back, logits, calibration)
            seconds = time.perf_counter() - started
            report = report_of(pictures, evaluation, earlier, calibration, self.capacity, self.tasks_left, seconds)
            report["fallen"] = fallen(before, earlier)
            change = self._change(mode, pictures.classes, report)
            committed = self._commit(change, memory, self._dated(pictures, mode), calibration)
            if report["fallen"]:
                listener.notice(fall_in_words(report["fallen"], self.path))
            return committed

    def undo(self, *, wait: bool = True) -> Change:
        """Take back the last change: every byte of the model is what it was before."""
        with self._changing(wait, Silence()):
            if not self._manifest.kept:
                raise ModelError(
                    f"there is nothing to undo in {self.path}: it has no change whose state before is kept "
                    f"(the last {self._manifest.num_kept} are); nothing was done"
                )
            undone = standing(self.history)[-1]
            change = self._change("undo", undone.classes, {"undone": undone.number, "kind": undone.kind})
            self._manifest = files.step_back(self.path, self._manifest, _values(change))
            self._read_again()
            return change

    def rename(self, old: str, new: str, *, wait: bool = True) -> Change:
        """Give a class another name."""
        check_name(new)
        with self._changing(wait, Silence()):
            self._place(old)
            if new in self.method.classes:
                raise ModelError(f"there is a class '{new}' already; choose another name")
            self.method.tasks = [tuple(new if name == old else name for name in task) for task in self.method.tasks]
            classes = [replace(info, name=new) if info.name == old else info for info in self.classes]
            return self._commit(self._change("rename", (old, new), {}), self._memory, classes, self.calibration)

    def remove(self, name: str, *, wait: bool = True) -> Change:
        """Forget a class: its row, its own statistics and its name; coordinates and sums over all classes stay."""
        with self._changing(wait, Silence()):
            place = self._place(name)
            teaching.without_class(self.method, place)
            memory = self._memory.without(place)
            classes = [info for info in self.classes if info.name != name]
            return self._commit(self._change("remove", (name,), {}), memory, classes, self._calibrated(memory))

    @contextmanager
    def _changing(self, wait: bool, listener: Listener) -> Iterator[None]:
        """Be the only writer, start from what was committed last, and go back there if the change fails."""
        with self._threads, writing(self.path, wait, listener.notice):
            latest = files.read_manifest(self.path)
            if latest != self._manifest:
                self._manifest = latest
                self._read_again()
            before, manifest = snapshot_of(self.method), self._manifest
            try:
                yield
            except BaseException:
                if self._manifest is manifest:
                    restore(self.method, before)
                raise

    def _read_again(self) -> None:
        """Take over the tensors of the manifest."""
        state = self._manifest.state
        tensors = files.read_tensors(self.path / state["tensors"])
        same = ("method", "seed", "backbone_hash", "transforms")
        mine = files.make_state(self.method, self.backbone, self.transforms, "")
        if all(state[key] == mine[key] for key in same):
            restore(self.method, Snapshot(state["structure"], files.own_tensors(tensors)))
            self.method.eval()
        else:
            self._take(files.build_model(self.path, state, tensors))
        self._memory = Memory.from_tensors(tensors, len(self.method.classes))

    def _check_classes(self, classes: tuple[str, ...], mode: Mode) -> None:
        """Refuse new classes that are known, and updates of classes that are not."""
        known = self.method.classes
        for name in classes:
            if mode == "update":
                if not self._memory.counts[self._place(name)]:
                    raise ModelError(
                        f"{self.path} does not say from how many pictures it knows '{name}', so more cannot be weighed "
                        "against them; remove the class and learn it anew"
                    )
            elif name in known:
                raise ModelError(
                    f"the class '{name}' is known already; give it more pictures with --update (mode='update'), "
                    "or leave it out"
                )

    def _taught(self, context: Context, pictures: Pictures, mode: Mode) -> Memory:
        """Let the method learn, and return what there is to remember of the pictures."""
        images = labelled(pictures.train, pictures.classes.index, context.ranks.device)
        counts = torch.tensor([len(images) for images in pictures.train.values()], dtype=torch.float64)
        method, memory = self.method, self._memory
        if mode == "update":
            places = torch.tensor([self._place(name) for name in pictures.classes])
            teaching.teach_more(context, method, places, images, memory)
            return memory.added(places, counts)
        places = len(method.classes) + torch.arange(len(pictures.classes))
        follows = mode == "learn" and not isinstance(method, CachesFeatures) and len(memory.held) > 0
        flat = [image for name in pictures.train for image in pictures.train[name]]
        before = teaching.features_of(context, method, flat) if follows else None
        teach = teaching.teach_quickly if mode == "quick" else teaching.teach_task
        teach(context, method, pictures.classes, images)
        width = teaching.features_of(context, method, flat[:1]).shape[1]
        memory = memory.grown(len(method.classes), width).added(places, counts)
        if before is not None and before.shape[1] == width:
            after = teaching.features_of(context, method, flat)
            memory = memory.drifted(teaching.fit_move(method, before, after, images.labels.cpu()))
        return memory

    def _kept_counts(self, memory: Memory) -> Counts:
        """Count how many of the kept held-back pictures of each class are named rightly as the model is now."""
        if len(memory.held) == 0:
            return {}
        logits = teaching.logits_of(self._context, self.method, memory.held)
        return kept_counts(self.method.classes, memory, logits, not isinstance(self.method, CachesFeatures))

    def _calibrated(self, memory: Memory) -> dict[str, Any] | None:
        """Fit the score of being unknown, and the probabilities, to the held-back pictures of all classes so far."""
        if len(self.method.classes) < 2:
            return None
        logits = teaching.logits_of(self._context, self.method, memory.held)
        curve = calibrate(*best_logits(logits, memory.labels))
        return None if curve is None else {**curve, "scale": fit_scale(logits, memory.labels)}

    def _dated(self, pictures: Pictures, mode: Mode) -> list[ClassInfo]:
        """Return all classes, the new ones with today's date, and more pictures of those that got more."""
        more = {name: len(images) for name, images in pictures.train.items()}
        if mode == "update":
            return [replace(info, num_images=info.num_images + more.get(info.name, 0)) for info in self.classes]
        task, now = len(self.method.tasks), _now()
        return [*self.classes, *(ClassInfo(name, task, now, num_images) for name, num_images in more.items())]

    def _change(self, kind: Kind, classes: tuple[str, ...], report: dict[str, Any]) -> Change:
        """Return the next entry of the history."""
        return Change(self.version + 1, kind, _now(), classes, report)

    def _commit(
        self, change: Change, memory: Memory, classes: list[ClassInfo], calibration: dict[str, Any] | None
    ) -> Change:
        """Write a new state and make it the one that counts."""
        tensors = files.write_state_tensors(self.path, {**snapshot_of(self.method).tensors, **memory.tensors()})
        state = {
            **files.make_state(self.method, self.backbone, self.transforms, tensors),
            "classes": [asdict(info) for info in classes],
            "calibration": calibration,
        }
        self._manifest = files.advance(self.path, self._manifest, state, _values(change))
        self._memory = memory
        return change

    def _place(self, name: str) -> int:
        """Return the row of a class, or say which classes there are."""
        known = self.method.classes
        if name not in known:
            some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "") if known else "none"
            raise ModelError(f"{self.path} knows no class '{name}'{nearest(name, known)}; known: {some}")
        return known.index(name)


def _values(change: Change) -> dict[str, Any]:
    """Return a change as JSON holds it."""
    return {**asdict(change), "classes": list(change.classes)}


def _now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
