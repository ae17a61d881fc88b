"""The model card that goes with an export."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clare.export.export_check import Agreement
from clare.export.export_source import Source
from clare.model.records import Change
from clare.plain import code, markdown
from clare.version import __version__

MARK = "<!-- written by clare export -->"
"""The first line of every card, by which an older one is known and may be replaced."""
NUM_LISTED = 5


def card_text(title: str, source: Source, usage: str, agreement: Agreement) -> str:
    """Return the card as Markdown."""
    parts = [
        f"{MARK}\n# {markdown(title)}",
        _summary(source),
        f"## Use\n\n{usage}",
        f"## Classes\n\n{_class_table(source)}",
        f"## Backbone\n\n{_backbone(source)}",
        f"## Method\n\n{_method(source)}",
        f"## Accuracy\n\n{_reports(source.history)}",
        f"## Check\n\n{_sentence(agreement)}",
        f"## Limits\n\n{_limits(source)}",
    ]
    return "\n\n".join(parts) + "\n"


def onnx_usage(source: Source, file: str) -> str:
    """Return how the ONNX file is used in a few lines."""
    mode, axes = ("RGB", ".transpose(2, 0, 1)[None]") if source.backbone.channels == 3 else ("L", "[None, None]")
    return f"""```python
import json, numpy as np, onnxruntime
from PIL import Image, ImageOps
from upright import upright
session = onnxruntime.InferenceSession("{file}")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
picture = {_fitted(source, mode)}
images = (np.asarray(picture, np.float32) / 255){axes}
print(classes[session.run(["probabilities"], {{"images": images}})[0].argmax()])
```

{_inputs(source)} Normalisation is inside the model. Outputs: `logits` and `probabilities`, both (N, \
{len(source.classes)}), in the order of the classes below."""


def timm_usage(source: Source, config: Mapping[str, Any]) -> str:
    """Return how the loader is used in a few lines."""
    mode, axes = ("RGB", ".permute(2, 0, 1)[None]") if source.backbone.channels == 3 else ("L", "[None, None]")
    file = config["backbone"]["file"]
    if file is None:
        weights = f"timm fetches the weights of {code(source.backbone_name)}."
    elif source.is_drawing_model:
        weights = "The backbone's weights lie beside it."
    else:
        weights = f"Put the backbone's weights, {code(file)}, beside it, or name the file: `load(weights=...)`."
    return f"""```python
import numpy as np, torch
from PIL import Image, ImageOps
from load import load
from upright import upright
model, classes = load()
picture = {_fitted(source, mode)}
images = torch.from_numpy(np.asarray(picture, np.float32) / 255){axes}
print(classes[model.probabilities(images).argmax()])
```

`load.py` needs timm, torch and safetensors, and nothing of clare; run this in its folder. {weights} It refuses a \
backbone with another hash. {_inputs(source)} Normalisation is inside the model; `model(images)` returns logits."""


def _fitted(source: Source, mode: str) -> str:
    """Return the call that brings a picture to the model's size."""
    transforms = source.transforms
    size, whole = transforms.image_size, transforms.resize
    edge, kernel = round((whole - size) / 2), f"Image.Resampling.{transforms.test_kernel.upper()}"
    cut = f".crop(({edge}, {edge}, {edge + size}, {edge + size}))" if whole != size else ""
    return f'ImageOps.fit(upright(Image.open("picture.png"), "{mode}"), ({whole}, {whole}), {kernel}){cut}'


def _inputs(source: Source) -> str:
    """Say what the model takes."""
    transforms, channels = source.transforms, source.backbone.channels
    kind = "RGB" if channels == 3 else "grey"
    size = transforms.image_size
    return (
        f"Input: float32 images of shape (N, {channels}, {size}, {size}), {kind} values in 0..1: upright, on white and "
        "in sRGB as `upright.py` brings them, which needs Pillow and NumPy alone, the shorter side resized to "
        f"{transforms.resize} ({transforms.test_kernel}), the central square of {size} cut out."
        + (" Images with a bright border are turned into their negatives inside the model." if source.inverts else "")
    )


def _summary(source: Source) -> str:
    """Say in a sentence what the model is."""
    tasks = {line.task for line in source.classes}
    return (
        f"An image classifier of {len(source.classes)} classes, learnt in {len(tasks)} "
        f"{'task' if len(tasks) == 1 else 'tasks'} with the method {code(source.method.name)} on the frozen backbone "
        f"{code(source.backbone_name)}; exported by clare {__version__}."
    )


def _class_table(source: Source) -> str:
    """List every class with the task and the date it came with."""
    lines = ["| output | class | task | taught | images |", "| --- | --- | --- | --- | --- |"]
    for index, line in enumerate(source.classes):
        date, number = markdown(line.taught_at) or "unknown date", line.num_images or "unknown number"
        lines.append(f"| {index} | {markdown(line.name)} | {line.task} | {date} | {number} |")
    return "\n".join(lines)


def _backbone(source: Source) -> str:
    """Name the backbone, its weights, its hash and its licence."""
    settings = source.backbone.settings
    config: Any = source.backbone.vit.pretrained_cfg or {}
    weights = "built by hand" if settings is None else settings.weights
    if weights not in ("built by hand", "pretrained", "random"):
        weights = f"file {markdown(Path(weights).name)}"
    lines = [f"- name: {code(source.backbone_name)} (weights: {weights})", f"- hash: `{source.backbone.fingerprint}`"]
    if source.is_drawing_model and weights == "pretrained":
        licence = "Apache-2.0, as clare; trained on drawings of Quick, Draw! by Google, Inc. (CC BY 4.0)"
    elif weights == "pretrained" and config.get("license"):
        licence = f"timm names {config['license']} for these weights; look at their own card before you pass them on"
    else:
        licence = "not known to clare; look at where the weights come from before you pass them on"
    return "\n".join([*lines, f"- licence: {licence}"])


def _method(source: Source) -> str:
    """Name the method and all of its settings."""
    method = source.method
    settings = json.dumps(method.settings.model_dump(mode="json"), indent=2)
    return f"{code(method.name)}: {method.summary}. Seed {method.seed}.\n\n```json\n{settings}\n```"


def _reports(history: tuple[Change, ...]) -> str:
    """List what was measured when."""
    measured = [change for change in _standing(history) if change.report.get("accuracy") is not None]
    if not measured:
        return "The model folder holds no accuracy reports."
    lines = [
        f"- {markdown(change.at)}, {change.kind} of {_listed(change.classes)}: {_share(change)}" for change in measured
    ]
    return "\n".join(
        [*lines, "", "Each as it was measured on that day, on pictures that were held back from teaching."]
    )


def _standing(history: tuple[Change, ...]) -> list[Change]:
    """Return the changes that were not taken back."""
    standing: list[Change] = []
    for change in history:
        if change.kind == "undo":
            standing.pop()
        else:
            standing.append(change)
    return standing


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


def _limits(source: Source) -> str:
    """Say what the model does not do."""
    lines = [
        f"- It answers with one of its classes whatever the picture shows{_unknown(source)}",
        "- It cannot learn: teach the model folder and export again.",
        f"- Probabilities are a softmax of {source.scale:.6g} times the logits, {_fitted_to(source)}",
    ]
    if source.is_drawing_model:
        lines.append("- It knows drawings of one style only: thin strokes on an even ground that fill the frame.")
    return "\n".join(lines)


def _fitted_to(source: Source) -> str:
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
        f"the largest logit; clare calls a picture unknown from {threshold:g} on. The numbers are in the file's "
        "metadata, or in config.json, under `unknown`."
    )
