"""Where the states of a classifier are kept: in a model folder, or in memory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from clare.classifier.parts import Parts
from clare.errors import ModelError
from clare.methods.state import Snapshot, restore
from clare.model import folder as files
from clare.model.folder import Manifest
from clare.model.lock import no_model_without_lesson, writing
from clare.model.tensors import read_tensors, write_state_tensors

Tensors = dict[str, Tensor]
Change = dict[str, Any]
Build = Callable[[files.State, Tensors], Parts]
"""Makes the parts of a state that was read."""


class InFolder:
    """States in a model folder, each committed by one rename, with one writer at a time."""

    def __init__(self, path: Path, build: Build) -> None:
        """Take the folder, and what makes the parts of a state that is read from it."""
        is_model = (path / files.MANIFEST).exists() or not path.exists()
        if not is_model and not (path.is_dir() and files.holds_leftovers_alone(path)):
            raise ModelError(f"{path} is there and is no model folder; choose another name for the model")
        self.path, self.label, self._build = path, str(path), build

    @contextmanager
    def writing(self, wait: bool, notice: Callable[[str], None]) -> Iterator[None]:
        """Hold the folder's lock; a folder for a new model is made, and goes again if its first lesson is refused."""
        with (
            no_model_without_lesson(self.path),
            writing(self.path, wait, notice, makes_folder=not (self.path / files.MANIFEST).exists()),
        ):
            yield

    def latest(self) -> Manifest | None:
        """Read model.json."""
        return files.read_manifest(self.path) if (self.path / files.MANIFEST).exists() else None

    def read(self, manifest: Manifest, parts: Parts) -> tuple[Parts, Tensors]:
        """Read the tensors of a state, into these parts where they are alike."""
        state, tensors = manifest.state, read_tensors(self.path / manifest.state["tensors"])
        own = files.make_state(parts.method, parts.backbone, parts.transforms, "")
        if all(state[key] == own[key] for key in ("method", "seed", "backbone_hash", "transforms")):
            return _restored(parts, state, tensors), tensors
        return self._build(state, tensors), tensors

    def begin(self, manifest: Manifest, tensors: Tensors, parts: Parts) -> Manifest:
        """Write the first state."""
        manifest = replace(manifest, state={**manifest.state, "tensors": write_state_tensors(self.path, tensors)})
        latest = self.latest()
        if latest is not None and (latest.state, latest.num_kept) == (manifest.state, manifest.num_kept):
            # What a process left that was killed before its first lesson is this model already.
            return latest
        return files.commit(self.path, manifest)

    def advance(
        self, manifest: Manifest, state: files.State, tensors: Tensors, change: Change, parts: Parts
    ) -> Manifest:
        """Write a new state."""
        state = {**state, "tensors": write_state_tensors(self.path, tensors, manifest.state["tensors"])}
        return files.advance(self.path, manifest, state, change)

    def step_back(self, manifest: Manifest, change: Change) -> Manifest:
        """Name the state before the last change in model.json again."""
        return files.step_back(self.path, manifest, change)


class InMemory:
    """States in this process alone."""

    label = "the classifier"

    def __init__(self) -> None:
        self._manifest: Manifest | None = None
        self._kept: dict[str, tuple[files.State, Tensors, Parts]] = {}

    def writing(self, wait: bool, notice: Callable[[str], None]) -> AbstractContextManager[None]:
        """Hold nothing: whoever changes a classifier in memory has it to himself."""
        return nullcontext()

    def latest(self) -> Manifest | None:
        """Return what was committed last."""
        return self._manifest

    def read(self, manifest: Manifest, parts: Parts) -> tuple[Parts, Tensors]:
        """Put the parts of a state where they were."""
        state, tensors, parts = self._kept[manifest.state["tensors"]]
        return _restored(parts, state, tensors), tensors

    def begin(self, manifest: Manifest, tensors: Tensors, parts: Parts) -> Manifest:
        """Keep the first state."""
        self._manifest = replace(manifest, state=self._remembered(manifest.version, manifest.state, tensors, parts))
        return self._manifest

    def advance(
        self, manifest: Manifest, state: files.State, tensors: Tensors, change: Change, parts: Parts
    ) -> Manifest:
        """Keep a new state beside those before it."""
        kept = [*manifest.kept, {"tensors": manifest.state["tensors"]}][-manifest.num_kept :]
        return self._commit(manifest.following(self._remembered(change["number"], state, tensors, parts), change, kept))

    def step_back(self, manifest: Manifest, change: Change) -> Manifest:
        """Take up the state before the last change."""
        before = self._kept[manifest.kept[-1]["tensors"]][0]
        return self._commit(manifest.following(before, change, manifest.kept[:-1]))

    def _remembered(self, number: int, state: files.State, tensors: Tensors, parts: Parts) -> files.State:
        """Keep a state under the number of its change."""
        state = {**state, "tensors": f"tensors of change {number}"}
        self._kept[state["tensors"]] = state, {key: tensor.to("cpu") for key, tensor in tensors.items()}, parts
        return state

    def _commit(self, manifest: Manifest) -> Manifest:
        """Make a manifest the one that counts, and drop what it does not name."""
        named = {manifest.state["tensors"], *(each["tensors"] for each in manifest.kept)}
        self._kept = {name: values for name, values in self._kept.items() if name in named}
        self._manifest = manifest
        return manifest


Store = InFolder | InMemory
"""Keeps the state that counts, and those before the last changes."""


def _restored(parts: Parts, state: files.State, tensors: Tensors) -> Parts:
    """Put a method where a state says."""
    restore(parts.method, Snapshot(state["structure"], files.own_tensors(tensors)))
    parts.method.eval()
    return parts
