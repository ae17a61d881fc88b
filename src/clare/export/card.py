"""The model card that goes with an export: card.md, with how the files are used from use.md."""

import json
from pathlib import Path
from typing import Any

from clare.export.export_check import Agreement
from clare.export.export_source import Source
from clare.model.records import standing
from clare.plain import markdown
from clare.templates import fill_text
from clare.version import __version__

MARK = "<!-- written by clare export -->"
"""The first line of every card, by which an older one is known and may be replaced."""


def card_text(title: str, source: Source, usage: str, agreement: Agreement) -> str:
    """Return the card as Markdown."""
    weights, licence = _weights(source)
    return fill_text(
        "export/card.md",
        title=title,
        source=source,
        method=source.method,
        num_tasks=len({line.task for line in source.classes}),
        version=__version__,
        usage=usage,
        weights=weights,
        licence=licence,
        settings=json.dumps(source.method.settings.model_dump(mode="json"), indent=2),
        measured=[change for change in standing(source.history) if change.report.get("accuracy") is not None],
        check=agreement.sentence(),
        are_real=agreement.pictures.are_real,
        curve=source.unknown_curve,
    )


def usage_text(source: Source, onnx: str = "", weights: str | None = None) -> str:
    """Return how an ONNX file is used in a few lines, or the loader with a file of weights that timm does not fetch."""
    transforms = source.transforms
    return fill_text(
        "export/use.md",
        source=source,
        onnx=onnx,
        weights=weights,
        channels=source.backbone.channels,
        size=transforms.image_size,
        whole=transforms.resize,
        edge=round((transforms.resize - transforms.image_size) / 2),
        kernel=transforms.test_kernel,
    ).removesuffix("\n")


def _weights(source: Source) -> tuple[str, str]:
    """Say where the backbone's weights are from, and their licence."""
    settings = source.backbone.settings
    config: Any = source.backbone.vit.pretrained_cfg or {}
    weights = "built by hand" if settings is None else settings.weights
    if weights == "pretrained" and source.is_drawing_model:
        return weights, "Apache-2.0, as clare; trained on drawings of Quick, Draw! by Google, Inc. (CC BY 4.0)"
    if weights == "pretrained" and config.get("license"):
        return (
            weights,
            f"timm names {config['license']} for these weights; look at their own card before you pass them on",
        )
    if weights not in ("built by hand", "pretrained", "random"):
        weights = f"file {markdown(Path(weights).name)}"
    return weights, "not known to clare; look at where the weights come from before you pass them on"
