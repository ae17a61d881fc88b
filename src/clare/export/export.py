"""A model folder as files for use without clare, checked against the original before they are written."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from clare.errors import ModelError
from clare.export.card import MARK, card_text, usage_text
from clare.export.export_check import Agreement, find_pictures
from clare.export.export_source import open_source
from clare.export.onnx_export import export_onnx, onnx_packages
from clare.export.timm_export import export_timm
from clare.files import check_writable, write_bytes
from clare.model.folder import Named

Format = Literal["onnx", "timm"]
CARD = "README.md"


@dataclass(frozen=True)
class Export:
    """What was written, and how it was checked."""

    folder: Path
    names: tuple[str, ...]
    agreement: Agreement


def export_model(
    model: Path,
    format: Format,
    out: Path | None = None,
    check: Path | None = None,
    method: Named = None,
    compact: bool = False,
) -> Export:
    """Export a model folder and write a card beside it; nothing is written where the check fails."""
    folder, file = places(model, format, out)
    if compact and format == "onnx":
        raise ModelError("--compact rounds the rows of the format timm alone; leave it out, or use --format timm")
    if format == "onnx":
        onnx_packages()
    check_writable(folder)
    source = open_source(model, method)
    pictures = find_pictures(source, check)
    title = model.resolve().name
    if format == "onnx":
        data, agreement = export_onnx(source, pictures)
        files, usage = {file: data}, usage_text(source, onnx=file)
    else:
        files, agreement = export_timm(source, pictures, compact)
        usage = usage_text(source, weights=json.loads(files["config.json"])["backbone"]["file"])
    files["upright.py"] = resources.files("clare.data").joinpath("upright.py").read_bytes()
    files[CARD] = card_text(title, source, usage, agreement).encode()
    for name, content in files.items():
        write_bytes(folder / name, content)
    return Export(folder, tuple(files), agreement)


def places(model: Path, format: Format, out: Path | None) -> tuple[Path, str]:
    """Return the folder to write to and the name of an ONNX file in it; refuse to write over what is not an export."""
    file = "model.onnx"
    folder = out or model.resolve().with_name(f"{model.resolve().name}-{format}")
    if format == "onnx" and folder.suffix == ".onnx":
        folder, file = folder.parent, folder.name
    elif folder.suffix == ".onnx":
        raise ModelError(f"{folder} names an ONNX file, and the format is {format}; add --format onnx")
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file; give --out a folder, or a name that ends in .onnx for that format")
    if folder.resolve() == model.resolve():
        raise ModelError(f"{folder} is the model folder itself; give --out another folder")
    taken = [path for path in (folder / file, folder / CARD) if path.is_dir()]
    if taken:
        raise ModelError(f"{taken[0]} is a folder, and a file of that name would be written; give --out another folder")
    card = folder / CARD
    if card.exists() and not card.read_bytes().startswith(MARK.encode()):
        raise ModelError(f"{card} was not written by an export, and a card would replace it; give --out another folder")
    return folder, file
