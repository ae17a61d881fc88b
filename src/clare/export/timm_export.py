"""What a method has learnt on top of its backbone, for plain timm: tensors, a description, and a small loader."""

import json
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor

from clare.backbones.families import Model, family_of
from clare.backbones.vit import EMBEDDED, EMBEDDED_ARCHITECTURE, EMBEDDED_WEIGHTS, BackboneSettings
from clare.errors import ModelError
from clare.export.export_check import Agreement, Pictures, compare
from clare.export.export_source import Source
from clare.export.timm_loader import load
from clare.files import write_bytes
from clare.methods.base import Method
from clare.methods.protocols import Deploys

TOLERANCE, COMPACT_TOLERANCE = 1e-5, 1e-2
FORMAT = 1
EMBEDDED_BASE = "vit_tiny_patch16_224"
"""The timm model that becomes the embedded one with other sizes."""


def export_timm(source: Source, pictures: Pictures, compact: bool = False) -> tuple[dict[str, bytes], Agreement]:
    """Return the files by name, after the loader among them gave the same logits as the original."""
    settings = source.backbone.settings
    if settings is None:
        raise ModelError("the backbone was built by hand, and timm cannot build it again by name; use --format onnx")
    check_portable(source.backbone.vit)
    files = {
        "classifier.safetensors": save(portable_tensors(source.method, compact)),
        "config.json": (json.dumps(describe(source, settings), indent=2, ensure_ascii=False) + "\n").encode(),
        "load.py": resources.files("clare.export").joinpath("timm_loader.py").read_bytes(),
    }
    file = weights_file(settings)
    if settings.name == EMBEDDED and file is not None:
        files["backbone.safetensors"] = file.read_bytes()
    with TemporaryDirectory() as folder, torch.no_grad():
        for name, data in files.items():
            write_bytes(Path(folder) / name, data)
        model, _ = load(folder, file)
        logits = model(source.inputs(pictures.images))
    original = source.logits(pictures.images)
    if compact:
        return files, compare(logits, original, pictures, COMPACT_TOLERANCE, "plain timm", is_rounded=True)
    return files, compare(logits, original, pictures, TOLERANCE, "plain timm")


def check_portable(model: Model) -> None:
    """Refuse a backbone that the loader cannot adapt or read: it knows timm's plain blocks alone."""
    kinds = {type(getattr(block, "inner", block)) for block in getattr(model, "blocks", [])}
    if not isinstance(model, VisionTransformer) or kinds != {Block} or family_of(model).beside(model) == "class":
        raise ModelError(
            f"the backbone is a {type(model).__name__}, and the loader for plain timm knows ViTs of plain blocks "
            "alone; use --format onnx"
        )


def portable_tensors(method: Method, compact: bool = False) -> dict[str, Tensor]:
    """Return the head's rows and what the method adds to the backbone; a method that adds more than that is refused.

    Where they shall be compact, rows go to half precision but for what all have in common, of which logits are made up
    most, and for their last column, in which biases are hundreds.
    """
    if not isinstance(method, Deploys) or method.head.finished_form == "ridge":
        raise ModelError(
            f"the method {method.name} is neither one adapter nor other weights under plain rows, so timm alone cannot "
            "run it; use --format onnx"
        )
    added = method.deployed()
    rows: dict[str, Tensor] = {"rows": method.head.rows}
    if compact:
        num_classes, size = method.head.rows.shape
        by_part = method.head.rows.view(num_classes, max(1, size // (method.head.num_features + 1)), -1)
        centre = by_part[..., :-1].mean(0)
        rows = {"rows": (by_part[..., :-1] - centre).half(), "centre": centre, "last": by_part[..., -1:]}
    parts = {"backbone": added.weights, "adapter": added.adapters, "head": rows}
    return {
        f"{part}.{name}": tensor.detach().clone().contiguous()
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }


def describe(source: Source, settings: BackboneSettings) -> dict[str, Any]:
    """Return all that the loader must know, and how images are brought to the model's size."""
    method, transforms, head = source.method, source.transforms, source.method.head
    scale = method.deployed().adapter_scale if isinstance(method, Deploys) else None
    mean, std = source.normalisation
    is_embedded = settings.name == EMBEDDED
    sizes = {**(EMBEDDED_ARCHITECTURE if is_embedded else {}), **settings.architecture}
    if settings.image_size is not None:
        sizes["img_size"] = settings.image_size
    file = weights_file(settings)
    return {
        "format": FORMAT,
        "backbone": {
            "name": settings.name,
            "timm_name": EMBEDDED_BASE if is_embedded else settings.name,
            "sizes": sizes,
            "file": None if file is None else "backbone.safetensors" if is_embedded else file.name,
            "fingerprint": source.backbone.fingerprint,
        },
        "mean": mean,
        "std": std,
        "adapter": {"scale": scale} if scale is not None else None,
        "head": {
            "form": head.finished_form,
            "scale": source.scale,
        },
        "features": method.settings.reading.model_dump(),
        "image_size": transforms.image_size,
        "resize": transforms.resize,
        "resample": transforms.test_kernel,
        "invert": transforms.invert,
        "channels": source.backbone.channels,
        "method": method.name,
        "unknown": source.unknown_curve,
        "classes": source.class_names,
    }


def weights_file(settings: BackboneSettings) -> Path | None:
    """Return the file with the backbone's weights; none where timm fetches them by name."""
    if settings.weights not in ("pretrained", "random"):
        return Path(settings.weights)
    if settings.weights == "pretrained" and settings.name == EMBEDDED:
        return Path(str(resources.files("clare") / EMBEDDED_WEIGHTS))
    return None
