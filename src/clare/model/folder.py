"""The model folder: safetensors for tensors, JSON for the rest, committed by the rename of model.json.

model.json holds the state of the model (STATE), the number of its last change, the history, and the names of the files
of the states before the last changes. Files of tensors and of kept states are named by what they hold and never change;
model.json carries a digest of itself, unless an older release wrote it.
"""

import json
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from torch import Tensor

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.data.transforms import TransformSettings
from clare.errors import ModelError, nearest
from clare.files import write_bytes, write_json
from clare.locks import LOCK
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.protocols import KeepsPictures
from clare.methods.state import Snapshot, restore, snapshot_of, structure_of
from clare.model.checks import RESTORE, checked_history, checked_state
from clare.model.tensors import TENSORS, parts_of, read_named, read_tensors, short_digest, write_state_tensors
from clare.registry import how_to_name, is_file_name, shown
from clare.sealed import SEAL, check_seal, parse_json, read_bytes, seal
from clare.settings import build_settings
from clare.upgrade import upgraded_method

FORMAT = 3
OLDEST_FORMAT = 1
EXTRA = "taught."
"""How the names of tensors begin that are not the method's own."""
KEYS = ("method", "seed", "structure", "backbone", "backbone_hash", "transforms", "tensors")
STATE = (*KEYS, "classes", "calibration")
MANIFEST = "model.json"
KEPT, TEMPORARY = "state-*.json", ".*.tmp"
"""Names of the other files of a folder."""
NUM_KEPT = 5
NUM_TRIES = 5

State = dict[str, Any]
Named = str | type[Method] | None
"""The method as a person names it: a name, `path/to/file.py:Class` or a class; none leaves it to the folder."""


@dataclass(frozen=True)
class Manifest:
    """What model.json says."""

    state: State
    version: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    kept: list[dict[str, str]] = field(default_factory=list)
    """Files of the states before the last changes, oldest first."""
    num_kept: int = NUM_KEPT
    """How many such states are kept."""

    def following(self, state: State, change: dict[str, Any], kept: list[dict[str, str]]) -> "Manifest":
        """Return what model.json says once a change has made a state."""
        return replace(self, state=state, version=change["number"], history=[*self.history, change], kept=kept)


def make_state(method: Method, backbone: Backbone, transforms: TransformSettings, tensors: str) -> State:
    """Return what there is to say about a model whose tensors are in this file."""
    structure = structure_of(method)
    return {
        "method": {"name": METHODS.name_of(type(method)), **method.settings.model_dump(mode="json")},
        "seed": method.seed,
        "structure": structure,
        "backbone": backbone.settings.model_dump(mode="json") if backbone.settings else None,
        "backbone_hash": backbone.fingerprint,
        "transforms": transforms.model_dump(mode="json"),
        "tensors": tensors,
        "classes": undated_classes(structure),
        "calibration": None,
    }


def undated_classes(structure: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the classes of a model of which nobody wrote down when it learnt them, and from how many pictures."""
    tasks = enumerate(structure["tasks"], start=1)
    return [{"name": name, "task": task, "taught_at": "", "num_images": 0} for task, names in tasks for name in names]


def save_model(folder: Path, method: Method, backbone: Backbone, transforms: TransformSettings) -> None:
    """Write a model without a history so that an interruption leaves the one that was there before.

    Pictures that the method keeps are left behind: it answers without them.
    """
    whole = snapshot_of(method) if isinstance(method, KeepsPictures) else None
    if isinstance(method, KeepsPictures):
        method.drop_pictures()
    name = write_state_tensors(folder, snapshot_of(method).tensors)
    state = make_state(method, backbone, transforms, name)
    if whole is not None:
        restore(method, whole)
    commit(folder, Manifest(state, version=1))


def load_model(
    folder: Path, backbone: Backbone | None = None, named: Named = None
) -> tuple[Method, Backbone, TransformSettings]:
    """Read a model; a backbone that was not loaded by name, and a method that is in a file, must be given again."""
    manifest, tensors = read_model(folder)
    return build_model(folder, manifest.state, tensors, backbone, named)


def build_model(
    folder: Path, state: State, tensors: dict[str, Tensor], backbone: Backbone | None = None, named: Named = None
) -> tuple[Method, Backbone, TransformSettings]:
    """Make the model of a state and its tensors."""
    kind = method_of(folder, state, named)
    if backbone is None:
        if state["backbone"] is None:
            raise ModelError(
                f"{folder} was made with a backbone built by hand; give it again: clare.load(folder, backbone)"
            )
        backbone = load_backbone(build_settings(BackboneSettings, state["backbone"], "backbone"))
    if backbone.fingerprint != state["backbone_hash"]:
        raise ModelError(
            f"{folder} was made for the backbone {state['backbone_hash']}, this one is {backbone.fingerprint}; "
            "load the same weights"
        )
    values = {key: value for key, value in upgraded_method(state["method"]).items() if key != "name"}
    method = kind(backbone, build_settings(kind.settings_type, values, "method"), int(state["seed"]))
    restored(folder, method, Snapshot(state["structure"], own_tensors(tensors)))
    method.eval()
    return method, backbone, build_settings(TransformSettings, state["transforms"], "transforms")


def method_of(folder: Path, state: State, named: Named) -> type[Method]:
    """Return the class of a model's method; a file runs only where a person names it, and it is the folder's own."""
    read = str(state["method"].get("name"))
    if named is None:
        return METHODS.get(read, str(folder))
    if not METHODS.is_same(read, named):
        came = named if isinstance(named, str) else f"the class {named.__qualname__}"
        remedy = how_to_name("method", read) if is_file_name(read) else "leave it out"
        raise ModelError(
            f"{folder} was made by the method {shown(read)}, and {came} was named; {remedy}, or choose another folder"
        )
    return METHODS.named(named, read)


def restored(folder: Path, method: Method, snapshot: Snapshot) -> None:
    """Put a method where a folder says, whose structure may be no such method's."""
    try:
        restore(method, snapshot)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            f"the structure that {folder} names does not fit the method {method.name} ({error!r}); {RESTORE}"
        ) from error


def own_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the method's own tensors."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(EXTRA)}


def read_model(folder: Path) -> tuple[Manifest, dict[str, Tensor]]:
    """Read what was committed last; nobody is waited for."""
    manifest = read_manifest(folder)
    for _ in range(NUM_TRIES):
        try:
            return manifest, read_tensors(folder / manifest.state["tensors"])
        except ModelError:
            # A writer may have taken the files away between our two looks; then there is another state to read.
            latest = read_manifest(folder)
            if latest.version == manifest.version:
                raise
            manifest = latest
    raise ModelError(f"{folder} changes faster than it can be read; try again when fewer processes write it")


def read_manifest(folder: Path) -> Manifest:
    """Read model.json and check its format."""
    path = folder / MANIFEST
    if not path.is_file():
        if folder.exists():
            raise ModelError(f"{folder} holds no model: model.json is missing; give the folder that was saved")
        beside = [path.parent.name for path in folder.parent.glob(f"*/{MANIFEST}")]
        raise ModelError(f"there is no folder {folder}{nearest(folder.name, beside)}; give the folder of a model")
    values = parse_json(path, read_bytes(path, ModelError, RESTORE), ModelError, RESTORE)
    if not isinstance(values, dict) or "format" not in values:
        raise ModelError(f"{path} is not a model's manifest: it names no format; {RESTORE}")
    if values["format"] not in range(OLDEST_FORMAT, FORMAT + 1):
        raise ModelError(
            f"{folder} has format {values['format']}, this version reads {OLDEST_FORMAT} to {FORMAT}; "
            "install a newer clare"
        )
    # Only now: a newer format may have another way to tell of damage.
    check_seal(path, values, ModelError, RESTORE)
    needed = KEYS if values["format"] == OLDEST_FORMAT else (*STATE, "version", "history", "kept", "num_kept")
    missing = [key for key in needed if key not in values]
    if missing:
        raise ModelError(f"{path} does not name {', '.join(missing)}; {RESTORE}")
    if values["format"] == OLDEST_FORMAT:
        state = checked_state(path, {**{key: values[key] for key in KEYS}, "classes": [], "calibration": None})
        return Manifest({**state, "classes": undated_classes(state["structure"])})
    unknown = sorted(values.keys() - {*needed, "format", SEAL})
    if unknown:
        raise ModelError(f"{path} is damaged: a model names no '{unknown[0]}'; {RESTORE}")
    state = checked_state(path, {key: values[key] for key in STATE})
    return Manifest(state, *checked_history(path, values))


def commit(folder: Path, manifest: Manifest) -> Manifest:
    """Make a manifest the one that counts, and remove the files that it no longer names."""
    values = {
        "format": FORMAT,
        "version": manifest.version,
        **manifest.state,
        "history": manifest.history,
        "num_kept": manifest.num_kept,
        "kept": manifest.kept,
    }
    write_json(folder / MANIFEST, seal(values))
    named = {manifest.state["tensors"], *(name for kept in manifest.kept for name in kept.values())}
    named |= {part for name in named if fnmatch(name, TENSORS) for part in parts_of(folder, name)}
    for pattern in (TENSORS, KEPT, TEMPORARY):
        for path in folder.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)
    return manifest


def holds_leftovers_alone(folder: Path) -> bool:
    """Tell whether a folder holds nothing, or only what a process left that was killed while it made a model."""
    names = [path.name for path in folder.iterdir()]
    rest = [name for name in names if name != LOCK and not fnmatch(name, TEMPORARY)]
    # Making a model writes one file of tensors before model.json. More files are a model that has lost its model.json.
    return len(rest) <= 1 and all(fnmatch(name, TENSORS) for name in rest)


def has_whole_model(folder: Path) -> bool:
    """Tell whether there is a model in a folder; refuse one that is damaged."""
    if not folder.exists() or (folder.is_dir() and holds_leftovers_alone(folder)):
        return False
    read_model(folder)
    return True


def advance(folder: Path, manifest: Manifest, state: State, change: dict[str, Any]) -> Manifest:
    """Commit a change: a new state, while the one before it is kept."""
    content = state_bytes(manifest.state)
    name = f"state-{short_digest(content)}.json"
    write_bytes(folder / name, content)
    kept = [*manifest.kept, {"state": name, "tensors": manifest.state["tensors"]}][-manifest.num_kept :]
    return commit(folder, manifest.following(state, change, kept))


def step_back(folder: Path, manifest: Manifest, change: dict[str, Any]) -> Manifest:
    """Commit the state before the last change again, byte for byte."""
    path = folder / manifest.kept[-1]["state"]
    state = checked_state(path, parse_json(path, read_named("state", path), ModelError, RESTORE))
    read_tensors(folder / state["tensors"])
    return commit(folder, manifest.following(state, change, manifest.kept[:-1]))


def state_bytes(state: State) -> bytes:
    """Return the one way to write a state."""
    return (json.dumps({key: state[key] for key in STATE}, indent=2, ensure_ascii=False) + "\n").encode()
