"""How a classifier changes: from what was committed last, one writer at a time, and every change can go back."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clare.classifier import lesson, teaching
from clare.classifier.defaults import DEFAULT_METHOD
from clare.classifier.facts import Facts, State
from clare.classifier.labels import checked_kind, some_of
from clare.classifier.memory import Memory
from clare.classifier.parts import BackboneLike, Parts, frozen_backbone, new_parts
from clare.classifier.pictures import check_name
from clare.classifier.store import Store
from clare.engine.context import Listener, Silence
from clare.errors import ModelError, SettingsError, nearest
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.state import restore, snapshot_of
from clare.model import folder as files
from clare.model.checks import RESTORE
from clare.model.folder import Manifest
from clare.model.lock import writing
from clare.model.records import Change, ClassInfo, Kind, standing
from clare.model.tensors import write_state_tensors
from clare.seeds import check_seed
from clare.settings import build_settings, overlaid


class Changes(Facts):
    """A classifier that can be renamed, reduced, taken back and saved."""

    folder: str | Path | None
    backbone: BackboneLike | None
    method: str | type[Method] | None
    settings: Mapping[str, Any] | None
    seed: int
    device: str
    num_kept: int
    _store: Store
    _held: State | None
    _threads: threading.RLock

    def undo(self, *, wait: bool = True) -> Change:
        """Take back the last change: the model is what it was before, in a folder every byte of it."""
        with self._changing(wait, Silence()) as state:
            if not state.manifest.kept:
                raise ModelError(
                    f"there is nothing to undo in {self._store.label}: it has no change whose state before is kept "
                    f"(the last {state.manifest.num_kept} are); nothing was done"
                )
            undone = standing(self.history)[-1]
            change = self._change("undo", undone.classes, {"undone": undone.number, "kind": undone.kind})
            self._held = self._read(self._store.step_back(state.manifest, values_of(change)), state)
            return change

    def rename(self, old: str, new: str, *, wait: bool = True) -> Change:
        """Give a class another name."""
        check_name(new)
        with self._changing(wait, Silence()) as state:
            self._place(old)
            method = state.parts.method
            checked_kind([new], None, self.classes[0].kind, self._store.label)
            if new in method.classes:
                raise ModelError(f"there is a class '{new}' already; choose another name")
            method.tasks = [tuple(new if name == old else name for name in task) for task in method.tasks]
            classes = [replace(info, name=new) if info.name == old else info for info in self.classes]
            return self._commit(self._change("rename", (old, new), {}), state, classes, self.calibration)

    def remove(self, name: str, *, wait: bool = True) -> Change:
        """Forget a class: its row, its own statistics and its name; coordinates and sums over all classes stay."""
        with self._changing(wait, Silence()) as state:
            place = self._place(name)
            method = state.parts.method
            # The coordinates of its task and sums over all classes stay.
            teaching.require_rows(method, "removing a class")
            method.head.forget(place)
            method.tasks = [tuple(other for other in task if other != name) for task in method.tasks]
            rest = replace(state, memory=state.memory.without(place))
            classes = [info for info in self.classes if info.name != name]
            calibration = lesson.calibrated(rest.parts, rest.memory)
            return self._commit(self._change("remove", (name,), {}), rest, classes, calibration)

    def save(self, folder: str | Path) -> None:
        """Write a model folder with the history, and without the states before; an earlier save of it is replaced."""
        path = Path(folder)
        if self.folder is not None and path.resolve() == Path(self.folder).resolve():
            with self._changing(True, Silence()):
                return
        state = self._state
        with self._threads, writing(path, wait=True, makes_folder=True):
            if (path / files.MANIFEST).exists():
                there = files.read_manifest(path)
                if there.state["classes"] and there.history != state.manifest.history[: len(there.history) or None]:
                    raise ModelError(f"{path} holds another model, which would be lost; save to another folder")
            values = {**state.manifest.state, "tensors": write_state_tensors(path, state.tensors())}
            files.commit(path, replace(state.manifest, state=values, kept=[]))

    @property
    def _state(self) -> State:
        """The state that counts, read or made when it is first needed."""
        if self._held is not None:
            # Facts are told while another thread learns or predicts.
            return self._held
        with self._threads:
            if self._held is None:
                latest = self._store.latest()
                is_asked = any(value is not None for value in (self.backbone, self.method, self.settings))
                is_new = latest is None or (is_asked and not latest.state["classes"])
                self._held = self._new(latest) if is_new else self._opened()
            return self._held

    def _new(self, latest: Manifest | None) -> State:
        """Make a state that knows nothing, which nobody has written yet; it replaces an empty one."""
        if self.num_kept < 1:
            raise ModelError(
                f"{self.num_kept} kept states are too few; keep at least one, so that a change can be undone"
            )
        check_seed(self.seed)
        kind = METHODS.named(DEFAULT_METHOD if self.method is None else self.method)
        parts = new_parts(self.backbone, kind, self.settings, None, self.seed, self.device)
        change = Change(1 if latest is None else latest.version + 1, "create", now(), (), {})
        state = files.make_state(parts.method, parts.backbone, parts.transforms, "")
        return State(parts, Memory.empty(0, 0), Manifest(state, change.number, [values_of(change)], [], self.num_kept))

    def _opened(self) -> State:
        """Read what was committed last; nobody is waited for."""
        path = Path(str(self.folder))
        manifest, tensors = files.read_model(path)
        parts = self._build(manifest.state, tensors)
        own = parts.method.settings
        asked = overlaid(type(own), own.model_dump(mode="json"), self.settings or {})
        if build_settings(type(own), asked, "settings") != own:
            raise SettingsError(f"{path} was made with other settings; leave out `settings`, or choose another folder")
        return State(parts, Memory.from_tensors(tensors, len(parts.method.classes)), manifest)

    def _build(self, state: files.State, tensors: dict[str, Any]) -> Parts:
        """Make the parts that a folder's state names."""
        given = None if self.backbone is None else frozen_backbone(self.backbone)
        return Parts(*files.build_model(Path(str(self.folder)), state, tensors, given, self.method), self.device)

    def _fresh(self, state: State) -> State:
        """Return a state that has learnt nothing, made as this one was, or as was asked for since."""
        old, in_folder = state.parts, self.folder is not None
        kind = METHODS.named(self.method or DEFAULT_METHOD) if self.method or not in_folder else type(old.method)
        settings = old.method.settings if in_folder and kind is type(old.method) else None
        is_same = in_folder and self.backbone is None
        parts = new_parts(
            old.backbone.settings if is_same else self.backbone,
            kind,
            self.settings if self.settings is not None else settings,
            old.transforms if is_same else None,
            old.method.seed if in_folder else self.seed,
            self.device,
        )
        return replace(state, parts=parts, memory=Memory.empty(0, 0))

    def _read(self, manifest: Manifest, state: State) -> State:
        """Take over the tensors of a manifest."""
        parts, tensors = self._store.read(manifest, state.parts)
        return State(parts, Memory.from_tensors(tensors, len(parts.method.classes)), manifest)

    @contextmanager
    def _changing(self, wait: bool, listener: Listener) -> Iterator[State]:
        """Be the only writer, start from what was committed last, and go back there if the change fails."""
        # What cannot be made leaves no folder.
        made = self._state
        with self._threads, self._store.writing(wait, listener.notice):
            state = self._held = self._begun(made)
            before = snapshot_of(state.parts.method)
            try:
                yield state
            except BaseException:
                if self._held is state:
                    restore(state.parts.method, before)
                raise

    def _begun(self, state: State) -> State:
        """Return what was committed last; a state that nobody has written is committed first."""
        latest, is_written = self._store.latest(), bool(state.manifest.state["tensors"])
        if latest is None and state.manifest.state["classes"]:
            raise ModelError(f"{self._store.label} holds no model any more: model.json is missing; {RESTORE}")
        if latest is not None and is_written:
            return state if latest == state.manifest else self._read(latest, state)
        if latest is not None and latest.state["classes"]:
            # Another process was faster.
            return self._opened()
        return replace(state, manifest=self._store.begin(state.manifest, state.tensors(), state.parts))

    def _change(self, kind: Kind, classes: tuple[str, ...], report: dict[str, Any]) -> Change:
        """Return the next entry of the history."""
        return Change(self.version + 1, kind, now(), classes, report)

    def _commit(
        self, change: Change, state: State, classes: list[ClassInfo], calibration: dict[str, Any] | None
    ) -> Change:
        """Write a new state and make it the one that counts."""
        parts = state.parts
        values = {
            **files.make_state(parts.method, parts.backbone, parts.transforms, ""),
            "classes": [info.as_json() for info in classes],
            "calibration": calibration,
        }
        manifest = self._store.advance(state.manifest, values, state.tensors(), values_of(change), parts)
        self._held = replace(state, manifest=manifest)
        return change

    def _place(self, name: str) -> int:
        """Return the row of a class, or say which classes there are."""
        known = self.parts.method.classes
        if name not in known:
            raise ModelError(
                f"{self._store.label} knows no class '{name}'{nearest(name, known)}; known: {some_of(known)}"
            )
        return known.index(name)


def values_of(change: Change) -> dict[str, Any]:
    """Return a change as JSON holds it."""
    return {**asdict(change), "classes": list(change.classes)}


def now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
