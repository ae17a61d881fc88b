"""The model folder: safetensors for tensors, JSON for the rest, committed by the rename of model.json."""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.data.transforms import TransformSettings
from clare.errors import ModelError
from clare.files import write_bytes, write_json
from clare.methods import METHODS
from clare.methods.base import Method, Snapshot
from clare.settings import build_settings

FORMAT = 1
KEYS = ("method", "seed", "structure", "backbone", "backbone_hash", "transforms", "tensors")


def save_model(folder: Path, method: Method, backbone: Backbone, transforms: TransformSettings) -> None:
    """Write a model so that an interruption leaves the one that was there before."""
    snapshot = method.snapshot()
    data = save({name: tensor.to("cpu").contiguous() for name, tensor in snapshot.tensors.items()})
    file = _name_of(data)
    write_bytes(folder / file, data)
    write_json(
        folder / "model.json",
        {
            "format": FORMAT,
            "method": {"name": METHODS.name_of(type(method)), **method.settings.model_dump(mode="json")},
            "seed": method.seed,
            "structure": snapshot.structure,
            "backbone": backbone.settings.model_dump(mode="json") if backbone.settings else None,
            "backbone_hash": backbone.fingerprint,
            "transforms": transforms.model_dump(mode="json"),
            "tensors": file,
        },
    )
    for old in folder.glob("tensors-*.safetensors"):
        if old.name != file:
            old.unlink()


def load_model(folder: Path, backbone: Backbone | None = None) -> tuple[Method, Backbone, TransformSettings]:
    """Read a model; a backbone that was not loaded by name must be given again."""
    manifest = _read_manifest(folder)
    if backbone is None:
        if manifest["backbone"] is None:
            raise ModelError(
                f"{folder} was made with a backbone built by hand; give it again: clare.load(folder, backbone)"
            )
        backbone = load_backbone(build_settings(BackboneSettings, manifest["backbone"], "backbone"))
    if backbone.fingerprint != manifest["backbone_hash"]:
        raise ModelError(
            f"{folder} was made for the backbone {manifest['backbone_hash']}, this one is {backbone.fingerprint}; "
            "load the same weights"
        )
    values = dict(manifest["method"])
    kind = METHODS.get(values.pop("name"))
    method = kind(backbone, build_settings(kind.settings_type, values, "method"), int(manifest["seed"]))
    method.restore(Snapshot(manifest["structure"], _read_tensors(folder / manifest["tensors"])))
    method.eval()
    return method, backbone, build_settings(TransformSettings, manifest["transforms"], "transforms")


def _name_of(data: bytes) -> str:
    """Return the name of a file of tensors, which tells whether its bytes are those that were saved."""
    return f"tensors-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a model and make sure that they are the ones that were saved."""
    try:
        data = path.read_bytes()
        if _name_of(data) != path.name:
            raise ModelError(f"{path} is damaged: its content does not fit its name; restore the folder from a copy")
        tensors: dict[str, Tensor] = load(data)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the tensors {path} cannot be read ({error}); restore the folder from a copy") from error
    return tensors


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Read model.json and check its format."""
    path = folder / "model.json"
    if not path.is_file():
        raise ModelError(f"{folder} holds no model: model.json is missing; give the folder that was saved")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}); restore the folder from a copy") from error
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise ModelError(f"{path} is not a model's manifest: it names no format; restore the folder from a copy")
    if manifest["format"] != FORMAT:
        raise ModelError(
            f"{folder} has format {manifest['format']}, this version reads {FORMAT}; install a newer clare"
        )
    missing = [key for key in KEYS if key not in manifest]
    if missing:
        raise ModelError(f"{path} does not name {', '.join(missing)}; restore the folder from a copy")
    return manifest
