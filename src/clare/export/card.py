"""The model card that goes with an export: card.md, with how the files are used from use_onnx.md or use_timm.md."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from clare.export.export_check import Agreement
from clare.export.export_source import Source
from clare.model.records import Change, standing
from clare.plain import code, markdown
from clare.version import __version__

MARK = "<!-- written by clare export -->"
"""The first line of every card, by which an older one is known and may be replaced."""
NUM_LISTED = 5


def card_text(title: str, source: Source, usage: str, agreement: Agreement) -> str:
    """Return the card as Markdown."""
    method, num_tasks = source.method, len({line.task for line in source.classes})
    weights, licence = _weights(source)
    drawings = "\n- It knows drawings of one style only: thin strokes on an even ground that fill the frame."
    return _filled(
        "card.md",
        title=markdown(title),
        num_classes=len(source.classes),
        num_tasks=num_tasks,
        tasks="task" if num_tasks == 1 else "tasks",
        method=code(method.name),
        backbone=code(source.backbone_name),
        version=__version__,
        usage=usage,
        classes="\n".join(
            f"| {index} | {markdown(line.name)} | {line.task} | {markdown(line.taught_at) or 'unknown date'} | "
            f"{line.num_images or 'unknown number'} |"
            for index, line in enumerate(source.classes)
        ),
        weights=weights,
        fingerprint=source.backbone.fingerprint,
        licence=licence,
        summary=method.summary,
        seed=method.seed,
        settings=json.dumps(method.settings.model_dump(mode="json"), indent=2),
        reports=_reports(source.history),
        check=_sentence(agreement),
        unknown=_unknown(source),
        scale=source.scale,
        fitted=_fitted(source),
        style=drawings if source.is_drawing_model else "",
    )


def onnx_usage(source: Source, file: str) -> str:
    """Return how the ONNX file is used in a few lines."""
    axes = ".transpose(2, 0, 1)[None]" if source.backbone.channels == 3 else "[None, None]"
    return _usage("use_onnx.md", source, axes=axes, file=file, num_classes=len(source.classes))


def timm_usage(source: Source, config: Mapping[str, Any]) -> str:
    """Return how the loader is used in a few lines."""
    axes = ".permute(2, 0, 1)[None]" if source.backbone.channels == 3 else "[None, None]"
    file = config["backbone"]["file"]
    if file is None:
        weights = f"timm fetches the weights of {code(source.backbone_name)}."
    elif source.is_drawing_model:
        weights = "The backbone's weights lie beside it."
    else:
        weights = f"Put the backbone's weights, {code(file)}, beside it, or name the file: `load(weights=...)`."
    return _usage("use_timm.md", source, axes=axes, weights=weights)


def _filled(template: str, **values: object) -> str:
    """Return a template of this folder with its values filled in."""
    return (files("clare.export") / template).read_text(encoding="utf-8").format(**values)


def _usage(template: str, source: Source, **values: object) -> str:
    """Return a template with the call that brings a picture to the model's size, and what the model takes."""
    transforms, channels = source.transforms, source.backbone.channels
    mode, kind = ("RGB", "RGB") if channels == 3 else ("L", "grey")
    size, whole = transforms.image_size, transforms.resize
    edge, kernel = round((whole - size) / 2), f"Image.Resampling.{transforms.test_kernel.upper()}"
    cut = f".crop(({edge}, {edge}, {edge + size}, {edge + size}))" if whole != size else ""
    picture = f'ImageOps.fit(upright(Image.open("picture.png"), "{mode}"), ({whole}, {whole}), {kernel}){cut}'
    inputs = (
        f"Input: float32 images of shape (N, {channels}, {size}, {size}), {kind} values in 0..1: upright, on white and "
        "in sRGB as `upright.py` brings them, which needs Pillow and NumPy alone, the shorter side resized to "
        f"{whole} ({transforms.test_kernel}), the central square of {size} cut out."
        + (" Images with a bright border are turned into their negatives inside the model." if source.inverts else "")
    )
    return _filled(template, picture=picture, inputs=inputs, **values).removesuffix("\n")


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


def _reports(history: tuple[Change, ...]) -> str:
    """List what was measured when."""
    measured = [change for change in standing(history) if change.report.get("accuracy") is not None]
    if not measured:
        return "The model folder holds no accuracy reports."
    lines = [
        f"- {markdown(change.at)}, {change.kind} of {_listed(change.classes)}: {_share(change)}" for change in measured
    ]
    return "\n".join(
        [*lines, "", "Each as it was measured on that day, on pictures that were held back from teaching."]
    )


def _listed(names: tuple[str, ...]) -> str:
    """Name a few classes, and count the others."""
    rest = len(names) - NUM_LISTED
    return ", ".join(map(markdown, names[:NUM_LISTED])) + (f" and {rest} more" if rest > 0 else "")


def _share(change: Change) -> str:
    """Return the share of the pictures that were named rightly, and of how many."""
    share = f"{100 * float(change.report['accuracy']):.1f} %"
    return f"{share} of {change.report['num_held_back']} pictures" if "num_held_back" in change.report else share


def _sentence(agreement: Agreement) -> str:
    """Return the outcome of the check, with a warning where no real picture was seen."""
    sentence = agreement.sentence()
    told = sentence[0].upper() + sentence[1:] + "."
    if not agreement.pictures.are_real:
        told += " No real pictures were at hand: `--check FOLDER` checks with yours."
    return told


def _fitted(source: Source) -> str:
    """Say whether probabilities tell how often answers are right."""
    if source.calibration is None or "scale" not in source.calibration:
        return "a factor that was not set against how often the answers are right."
    number = int(source.calibration["num_pairs"])
    return f"a factor fitted to {number} held-back pictures; of pictures unlike those it says nothing."


def _unknown(source: Source) -> str:
    """Say how to tell that a picture shows none of the classes, where that was calibrated."""
    curve = source.unknown_curve
    if curve is None:
        return "; nothing tells when it is none of them."
    slope, offset, threshold = curve["slope"], curve["offset"], curve["threshold"]
    return (
        f". The score that it is none of them is 1 / (1 + exp(-({slope:.6g} * best + {offset:.6g}))), where best is "
        f"the largest logit; from {threshold:g} on a picture counts as unknown. clare itself may go by distances, "
        "which tell more and which a file does not hold. The numbers are in the file's "
        "metadata, or in config.json, under `unknown`."
    )
