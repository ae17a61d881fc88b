"""Every method as ONNX: the same answers for any number of images, and a sentence where that cannot be."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from export_worlds import GREY, answers, facts, pictures_of, source_of
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.errors import ModelError
from clare.export import onnx_export
from clare.export.export_check import Agreement
from clare.export.export_source import Source
from clare.export.onnx_export import check_size, export_onnx, onnx_packages, run_onnx
from clare.methods import METHODS
from clare.methods.base import MethodSettings, bare_features
from clare.methods.finetune import FineTune
from clare.testing import world

SAME = "seed=1993"
# Settings of a method under which other code runs than under those of the tiny preset.
VARIANTS = [
    ("aper-adapter", "method.tuner=vpt-deep"),
    ("aper-adapter", "method.tuner=ssf"),
    ("clare", "method.features={blocks=2, patches=true}"),
    ("clare", "method.features={patches=true, centre=true}"),
    ("clare", "method.head={kind='quadratic', num_directions=3}"),
    ("clare", "method.features={views=3}"),
    ("ease", "method.bare_subspace=true"),
    ("l2p", "method.vote_at_test=true"),
    ("sema", "method.expandable_share=0.5"),
]


@pytest.fixture
def make(
    tiny_preset: Path, tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> Callable[..., Source]:
    """Return make(name, *overrides): a taught method."""
    return lambda name, *overrides: source_of(name, tiny_preset, tiny_stream(), context(), overrides)


@dataclass(frozen=True)
class Exported:
    """A taught method's file, how far it is off, and what the method was and answered before it was exported."""

    source: Source
    settings: MethodSettings
    before: Tensor
    data: bytes
    agreement: Agreement


@pytest.fixture(scope="module")
def exported(tiny_preset: Path) -> Callable[[str, str], Exported]:
    """Return exported(name, override): an export that is made once for all tests that only look at it."""

    @cache
    def exported(name: str, override: str) -> Exported:
        pictures = pictures_of(world.tiny_stream())
        source = source_of(name, tiny_preset, world.tiny_stream(), world.tiny_context(), (override,))
        settings, before = source.method.settings, source.logits(pictures.images)
        return Exported(source, settings, before, *export_onnx(source, pictures))

    return exported


QUICK = ("clare", "inflora", "l2p")
CASES = [
    pytest.param(name, override, marks=[] if override is SAME and name in QUICK else [pytest.mark.slow])
    for name, override in [*((name, SAME) for name in METHODS), *VARIANTS]
]


@pytest.mark.parametrize(("name", "override"), CASES)
def test_a_file_answers_as_the_method_for_any_number_of_images(
    exported: Callable[[str, str], Exported], tiny_stream: Callable[..., Stream], name: str, override: str
) -> None:
    found = exported(name, override)
    source = found.source
    assert found.agreement.difference <= 1e-3
    assert source.method.settings == found.settings
    assert torch.equal(source.logits(pictures_of(tiny_stream()).images), found.before)
    logits_of, scale = answers(source), source.method.head.scale
    generator = torch.Generator().manual_seed(3)
    for num_images in (1, 2, 9):
        images = torch.rand(num_images, 1, 28, 28, generator=generator)
        logits, probabilities = run_onnx(found.data, images)
        expected = logits_of(images)
        # Log posteriors far from all classes are large numbers.
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(probabilities, (scale * expected).softmax(1), atol=1e-4, rtol=0)


def test_a_file_knows_its_classes_and_no_place_on_this_machine(
    exported: Callable[[str, str], Exported],
) -> None:
    found = exported("simplecil", SAME)
    source, data = found.source, found.data
    session = onnx_packages()["onnxruntime"].InferenceSession(data, providers=["CPUExecutionProvider"])
    known = session.get_modelmeta().custom_metadata_map
    assert json.loads(known["classes"]) == ["class 00", "class 01", "class 02", "class 03"]
    assert (known["method"], known["backbone_hash"]) == ("simplecil", source.backbone.fingerprint)
    assert (known["image_size"], known["channels"]) == ("28", "1")
    assert [(entry.name, entry.shape[1:]) for entry in session.get_inputs()] == [("images", [1, 28, 28])]
    assert [entry.name for entry in session.get_outputs()] == ["logits", "probabilities"]
    assert b".py" not in data


@pytest.mark.slow
def test_low_rank_updates_are_in_the_weights(exported: Callable[[str, str], Exported]) -> None:
    sizes = [len(exported(name, SAME).data) for name in ("linear", "inflora", "sdlora")]
    # A linear head has one more number in a row than the cosine one, and nothing else may be added.
    assert max(sizes) - min(sizes) < 2000


def test_an_export_that_is_off_is_refused(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(data: bytes, inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits, probabilities = run_onnx(data, inputs)
        return logits + 0.002, probabilities

    monkeypatch.setattr(onnx_export, "run_onnx", off)
    with pytest.raises(ModelError, match=r"logits differ by 2\.0e-03 from the model's on the test images, and 1e-03"):
        export_onnx(make("simplecil"), pictures_of(tiny_stream()))


def test_one_image_alone_is_checked_too(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(data: bytes, inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits, probabilities = run_onnx(data, inputs)
        return logits + (0.002 if len(inputs) == 1 else 0), probabilities

    monkeypatch.setattr(onnx_export, "run_onnx", off)
    with pytest.raises(ModelError, match=r"on the first of the test images"):
        export_onnx(make("simplecil"), pictures_of(tiny_stream()))


class Peeking(FineTune):
    """A method that looks at a number in the image to decide what to do."""

    name = "peeking"

    def features(self, images: Tensor) -> Tensor:
        """Return other features for bright images."""
        return bare_features(self, images if images.mean().item() > 0.5 else -images)


def test_a_method_that_onnx_cannot_express_says_so(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream]
) -> None:
    backbone = tiny_backbone()
    method = Peeking(backbone, FineTune.settings_type(), 0)
    method.tasks = [("one", "two")]
    method.head.append(torch.randn(2, 24, generator=torch.Generator().manual_seed(1)))
    with pytest.raises(ModelError, match=r"the method peeking cannot be expressed in ONNX \(.+\); use it through"):
        export_onnx(facts(method, backbone, GREY), pictures_of(tiny_stream()))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr(onnx_export, "import_module", missing)
    with pytest.raises(
        ModelError, match=r"needs the package onnx, which is missing; run pip install 'clare\[export\]'"
    ):
        onnx_packages()


def test_a_model_that_does_not_fit_into_a_file_is_refused(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_size(2**31 - 2**20)
    with pytest.raises(ModelError, match=r"has 2\.5 GiB of weights, and an ONNX file holds 2 GiB; use --format timm"):
        check_size(5 * 2**29)
    source = make("ranpac")
    used = [*source.backbone.vit.parameters(), source.method.head.rows, source.method.head.projection]
    num_bytes = sum(tensor.nbytes for tensor in used) + source.method.tuner.values.nbytes + 100
    # The sums that later tasks need are not part of the file.
    monkeypatch.setattr(onnx_export, "MOST_BYTES", num_bytes)
    export_onnx(source, pictures_of(tiny_stream()))
    monkeypatch.setattr(onnx_export, "MOST_BYTES", num_bytes - 1000)
    with pytest.raises(ModelError, match=r"GiB of weights"):
        export_onnx(source, pictures_of(tiny_stream()))
