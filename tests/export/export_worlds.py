"""Small taught models for the tests of exports."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.data.store import ImageStore
from clare.data.stream import Stream
from clare.data.transforms import TransformSettings
from clare.engine.context import Context
from clare.engine.journal import Journal
from clare.engine.learn import learn_task
from clare.export.export_check import Pictures
from clare.export.export_source import Source
from clare.files import write_tensors
from clare.methods import METHODS
from clare.methods.base import Method, prepare
from clare.model.folder import save_model
from clare.model.records import Change, ClassInfo
from clare.presets.load import make_experiment

GREY = TransformSettings(image_size=28, resize=28, train="none", normalise="backbone")
COLOUR = TransformSettings(image_size=32, resize=40, train="none", normalise="backbone")
DATE = "2026-03-04T05:06:07Z"


def source_of(
    name: str,
    preset: Path,
    stream: Stream,
    context: Context,
    overrides: tuple[str, ...] = (),
    num_tasks: int = 2,
) -> Source:
    """Return a method that has learnt tasks of the tiny stream on the backbone of the tiny preset."""
    experiment = make_experiment(str(preset), name, list(overrides))
    backbone = load_backbone(experiment.backbone)
    method = METHODS.get(name)(backbone, experiment.method_settings(), 0)
    tasks = stream.tasks[:num_tasks]
    prepare(method, len(stream.tasks), max(len(task.classes) for task in tasks))
    for task in tasks:
        learn_task(context, method, task, Journal())
    return facts(method, backbone, GREY)


def facts(method: Method, backbone: Backbone, transforms: TransformSettings) -> Source:
    """Return a method with a made-up history."""
    classes = [ClassInfo(name, task, DATE, 12) for task, names in enumerate(method.tasks, 1) for name in names]
    history = (Change(1, "learn", DATE, tuple(method.classes), {"accuracy": 0.875, "per_class": {"a": 1.0}}),)
    return Source(method.eval(), backbone, transforms, tuple(classes), history)


def colour_backbone(folder: Path) -> Backbone:
    """Return a tiny ViT for colour under a timm name, its weights in a file."""
    sizes = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 2}
    random = BackboneSettings(name="vit_tiny_patch16_224", weights="random", architecture=sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        write_tensors(folder / "colour.safetensors", load_backbone(random).vit.state_dict())
    return load_backbone(random.model_copy(update={"weights": str(folder / "colour.safetensors")}))


def saved_colour_model(folder: Path) -> Path:
    """Save a model of three classes whose rows are random, and return its folder."""
    backbone = colour_backbone(folder)
    kind = METHODS.get("finetune")
    method = kind(backbone, kind.settings_type.model_validate({"adapter": {"bottleneck": 3}}), 0)
    method.tasks = [("sand", "sea"), ("sky",)]
    generator = torch.Generator().manual_seed(5)
    method.head.append(torch.randn(3, 24, generator=generator))
    for parameter in method.adapter.parameters():  # type: ignore[attr-defined]
        parameter.data.normal_(0, 0.3, generator=generator)
    save_model(folder / "model", method, backbone, COLOUR)
    return folder / "model"


def pictures_of(stream: Stream) -> Pictures:
    """Return all test images of a stream."""
    return Pictures(ImageStore.from_array(stream.test.store.batch(stream.test.indices).pixels), "the test images")


def answers(source: Source) -> Callable[[Tensor], Tensor]:
    """Return the method as a function of images in 0..1."""
    mean, std = (torch.tensor(values)[:, None, None] for values in source.normalisation)

    @torch.no_grad()
    def logits(images: Tensor) -> Tensor:
        result: Tensor = source.method((images - mean) / std)
        return result

    return logits
