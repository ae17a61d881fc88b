"""Adapter and head for plain timm: the loader gives the same logits in a process that knows nothing of clare."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from export_worlds import answers, colour_backbone, pictures_of, saved_colour_model, source_of
from safetensors.torch import load_file, save_file
from torch import Tensor

from clare.data.stream import Stream
from clare.engine.context import Context
from clare.errors import ModelError
from clare.export.export import export_model
from clare.export.export_source import Source, open_source
from clare.export.timm_export import export_timm, portable_tensors
from clare.export.timm_loader import load
from clare.methods import METHODS
from clare.methods.finetune import FineTune
from clare.methods.protocols import Deploys

PORTABLE = [name for name in METHODS if issubclass(METHODS.get(name), Deploys)]
HEADS = [
    ("linear", "method.head.form=linear", "method.head.kind=trained"),
    ("clare", "method.head.kind=aligned"),
    ("clare", "method.head.kind=discriminant"),
    ("clare", "method.head.kind=discriminant", "method.head.form=linear"),
    ("clare", "method.head.kind=discriminant", "method.features.blocks=2"),
    ("clare", "method.head.kind=quadratic", "method.head.num_directions=3"),
    ("clare", "method.head.kind=quadratic", "method.head.form=linear", "method.features.blocks=2"),
    ("sdlora", "method.features.blocks=2", "method.features.patches=true"),
    ("clare-plus", "method.features={blocks=2, patches=true, centre=true}"),
    ("clare", "method.features={views=3}"),
    ("clare", "method.expand=wider", "method.sparsity=0.3", "method.penalty_weight=0"),
    ("clare", "method.expand=fresh", "method.sparsity=0.3", "method.penalty_weight=0"),
    ("inflora", "method.features={blocks=2, views=2}"),
]
# Without clare, whatever is installed: an import of it fails.
SCRIPT = """
import sys
sys.modules["clare"] = None
from pathlib import Path
from safetensors.torch import load_file, save_file
import importlib.util
for folder in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("load", Path(folder) / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, classes = module.load()
    images = load_file(Path(folder) / "images.safetensors")["images"]
    save_file({"logits": model(images).detach(), "probabilities": model.probabilities(images).detach()},
              Path(folder) / "answers.safetensors")
    print(len(classes))
"""
Start = Callable[..., subprocess.Popen[str]]


def run_alone(start_python: Start, folders: Sequence[Path]) -> list[dict[str, Tensor]]:
    """Return what the loaders of some exports answer to their images in a process of their own."""
    process = start_python("-c", SCRIPT, *folders, fresh=True)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert len(output.split()) == len(folders)
    return [load_file(folder / "answers.safetensors") for folder in folders]


@pytest.fixture
def make(
    tiny_preset: Path, tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> Callable[..., Source]:
    """Return make(name, *overrides): a taught method."""
    return lambda name, *overrides: source_of(name, tiny_preset, tiny_stream(), context(), overrides)


def test_the_loader_needs_no_clare_and_answers_alike(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream], tmp_path: Path, start_python: Start
) -> None:
    images = torch.rand(9, 1, 28, 28, generator=torch.Generator().manual_seed(4))
    folders, expected = [], []
    for number, case in enumerate([*((name,) for name in PORTABLE), *HEADS]):
        source = make(*case)
        files, agreement = export_timm(source, pictures_of(tiny_stream()))
        assert agreement.difference <= 1e-5
        folders.append(tmp_path / str(number))
        folders[-1].mkdir()
        for name, data in files.items():
            (folders[-1] / name).write_bytes(data)
        save_file({"images": images}, folders[-1] / "images.safetensors")
        expected.append((answers(source)(images), source.method.head.scale))
    for (logits, scale), found in zip(expected, run_alone(start_python, folders), strict=True):
        torch.testing.assert_close(found["logits"], logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(found["probabilities"], (scale * logits).softmax(1), atol=1e-5, rtol=0)


def test_the_files_hold_what_was_learnt_and_nothing_else(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream]
) -> None:
    adapted, bare = (set(portable_tensors(make(name).method)) for name in ("clare", "simplecil"))
    parts = ("down", "down_bias", "up", "up_bias")
    assert adapted == {"head.rows", *(f"adapter.{index}.{part}" for index in range(2) for part in parts)}
    assert bare == {"head.rows"}
    for name in ("inflora", "sdlora"):
        source = make(name)
        folded = portable_tensors(source.method)
        assert set(folded) == {"head.rows", *(f"backbone.blocks.{index}.attn.qkv.weight" for index in range(2))}
        frozen = source.method.backbone.state_dict()
        weight = next(value for key, value in frozen.items() if key.startswith("blocks.0.attn.qkv") and value.ndim == 2)
        # InfLoRA leaves queries alone, SD-LoRA keys; the other two thirds are new.
        changed = [
            not torch.equal(*pair)
            for pair in zip(folded["backbone.blocks.0.attn.qkv.weight"].chunk(3), weight.chunk(3), strict=True)
        ]
        assert changed == ([False, True, True] if name == "inflora" else [True, False, True])


@pytest.mark.parametrize("case", [("simplecil",), HEADS[2], HEADS[5]], ids=["cosine", "linear", "quadratic"])
def test_compact_rows_take_half_and_answer_nearly_alike(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream], case: tuple[str, ...]
) -> None:
    source, pictures = make(*case), pictures_of(tiny_stream())
    whole, compact = (portable_tensors(source.method, is_compact) for is_compact in (False, True))
    rows = {name: tensor for name, tensor in compact.items() if name.startswith("head.")}
    last = whole["head.rows"].unflatten(1, (-1, rows["head.rows"].shape[-1] + 1))[..., -1:]
    assert torch.equal(rows["head.last"], last)
    assert rows["head.rows"].dtype == torch.float16
    agreement = export_timm(source, pictures, compact=True)[1]
    assert 0 < agreement.difference < 1e-2
    assert ("every picture" in agreement.sentence()) == (agreement.num_other == 0)


def test_compact_is_for_timm(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="leave it out, or use --format timm"):
        export_model(tmp_path, "onnx", compact=True)


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(PORTABLE)))
def test_a_method_that_is_more_than_that_says_so(make: Callable[..., Source], name: str) -> None:
    with pytest.raises(ModelError, match=rf"the method {name} is neither one adapter nor .*; use --format onnx"):
        portable_tensors(make(name).method)


def test_a_head_of_random_features_says_so(make: Callable[..., Source]) -> None:
    source = make("clare", "method.head.kind=ridge", "method.head.num_projected=16")
    with pytest.raises(ModelError, match=r"the method clare is neither .* under plain rows.*; use --format onnx"):
        portable_tensors(source.method)


class Mirrored(FineTune):
    """An adapted method that does something else with its images."""

    name = "mirrored"

    def features(self, images: Tensor) -> Tensor:
        """Return the features of mirrored images."""
        return super().features(images.flip(3))


def test_a_method_of_ones_own_with_other_features_is_refused(
    make: Callable[..., Source], tiny_stream: Callable[..., Stream]
) -> None:
    source = make("finetune")
    source.method.__class__ = Mirrored
    with pytest.raises(ModelError, match=r"the export's logits differ by .*; it was not written"):
        export_timm(source, pictures_of(tiny_stream()))


def test_weights_from_a_file_are_asked_for_and_checked(tmp_path: Path) -> None:
    model = saved_colour_model(tmp_path)
    export = export_model(model, "timm", tmp_path / "out")
    assert "backbone.safetensors" not in export.names
    assert not export.agreement.pictures.are_real
    source = open_source(model)
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    loaded, classes = load(tmp_path / "out", tmp_path / "colour.safetensors")
    assert classes == ["sand", "sea", "sky"]
    torch.testing.assert_close(loaded(images), answers(source)(images), atol=1e-5, rtol=0)
    with pytest.raises(FileNotFoundError, match=r"colour\.safetensors"):
        load(tmp_path / "out")
    other = colour_backbone(tmp_path).vit.state_dict()
    other["norm.weight"] += 1
    save_file(other, tmp_path / "out" / "colour.safetensors")
    with pytest.raises(ValueError, match=rf"made for the backbone {source.backbone.fingerprint}; give load its"):
        load(tmp_path / "out")


def test_the_description_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    export_model(saved_colour_model(tmp_path), "timm", tmp_path / "out")
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["backbone"]["file"] == "colour.safetensors"
    assert (described["resize"], described["image_size"], described["channels"]) == (40, 32, 3)
    assert described["mean"] == [0.5, 0.5, 0.5]
    for name in ("config.json", "README.md"):
        assert str(tmp_path) not in (tmp_path / "out" / name).read_text()
