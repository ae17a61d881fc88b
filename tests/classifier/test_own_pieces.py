"""Small pieces of a taught model: held-back pictures, default settings, how long the capacity lasts, its pictures."""

import io
import math
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from matplotlib.figure import Figure
from own_worlds import SIZES, drawings, tiny_weights, write_pictures
from PIL import Image

from clare.backbones.features import FeatureSettings
from clare.backbones.named import named_backbone
from clare.backbones.recognise import models_like
from clare.backbones.vit import BackboneSettings, load_backbone
from clare.classifier.capacity import LEAST_SHARE, num_tasks, tasks_left
from clare.classifier.defaults import DEFAULT_METHOD, default_settings, default_transforms
from clare.classifier.measure import counted
from clare.classifier.pictures import Reader, num_held_back
from clare.classifier.sources import find_source
from clare.errors import BackboneError, DataError, SettingsError
from clare.files import write_tensors
from clare.heads.discriminant import DiscriminantSettings
from clare.heads.quadratic import QuadraticSettings
from clare.methods.clare import Clare, ClareSettings
from clare.presets.load import find_backbone, make_experiment
from clare.report.model_plots import capacity_figure, confusion_figure
from clare.report.plots import to_png, to_svg


def test_a_fifth_of_each_class_is_held_back() -> None:
    assert [num_held_back(number) for number in (1, 4, 5, 9, 10, 100)] == [0, 0, 1, 1, 2, 20]
    examples = {**drawings("many", number=12), **drawings("few", number=4)}
    pictures = Reader(1, 28, seed=3).to_teach(examples)
    assert {name: len(images) for name, images in pictures.train.items()} == {"many": 10, "few": 4}
    assert {name: len(images) for name, images in pictures.held_back.items()} == {"many": 2, "few": 0}
    assert (pictures.num_train, pictures.num_held_back) == (14, 2)
    parts = [*pictures.train["many"], *pictures.held_back["many"]]
    assert sorted(part.tobytes() for part in parts) == sorted(image.tobytes() for image in examples["many"])


def test_what_is_held_back_depends_on_seed_and_name_alone() -> None:
    def held(seed: int, *names: str) -> bytes:
        found = Reader(1, 28, seed).to_teach(drawings(*names, number=20)).held_back["cat"]
        return b"".join(image.tobytes() for image in found)

    assert held(0, "cat") == held(0, "dog", "cat")
    assert held(0, "cat") != held(1, "cat")


def test_large_pictures_are_made_smaller_as_they_are_read(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200)).save(tmp_path / "large.png")
    assert Reader(1, 28, 0).image(tmp_path / "large.png").shape == (1, 28, 42)
    assert Reader(3, 500, 0).image(tmp_path / "large.png").shape == (3, 200, 300)


def test_unreadable_pictures_are_left_out_only_when_asked(tmp_path: Path) -> None:
    write_pictures(tmp_path, "cat", number=6)
    (tmp_path / "cat" / "bad.png").write_text("no image")
    with pytest.raises(DataError, match=r"bad\.png' cannot be read as an image"):
        Reader(1, 28, 0).to_teach(tmp_path)
    pictures = Reader(1, 28, 0, skip_bad=True).to_teach(tmp_path)
    assert pictures.num_train + pictures.num_held_back == 6
    assert pictures.skipped == [str(tmp_path / "cat" / "bad.png")]
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "bad.png").write_text("no image")
    with pytest.raises(DataError, match="'dog' has no images that can be read"):
        Reader(1, 28, 0, skip_bad=True).to_teach(tmp_path)


def test_train_and_test_folders_are_told_from_classes(tmp_path: Path) -> None:
    write_pictures(tmp_path / "split" / "train", "cat", "dog", number=3)
    write_pictures(tmp_path / "split" / "test", "cat", number=2)
    assert set(find_source(tmp_path / "split").parts) == {"train", "test"}
    pictures = Reader(1, 28, 0).to_teach(tmp_path / "split")
    assert (pictures.classes, pictures.num_train) == (("cat", "dog"), 6)
    assert {name: len(images) for name, images in pictures.held_back.items()} == {"cat": 2, "dog": 0}
    write_pictures(tmp_path / "split" / "test", "cow", number=2)
    with pytest.raises(DataError, match=r"split/test' has the class 'cow', which '.*split/train' has not"):
        Reader(1, 28, 0).to_teach(tmp_path / "split")
    write_pictures(tmp_path / "classes", "train", "test", "bike", number=2)
    assert set(find_source(tmp_path / "classes").parts) == {""}


@pytest.mark.parametrize("method", ["clare", "finetune", "simplecil"])
def test_drawings_are_taught_with_the_settings_of_the_preset(method: str) -> None:
    experiment = make_experiment("quickdraw", method)
    backbone = load_backbone(BackboneSettings())
    ours = default_settings(backbone, method, {}).model_dump(mode="json")
    # Nobody chose a rate for pictures that are not known yet.
    guard = {"trust": 0.05} if method == "clare" else {}
    assert {"name": method, **ours} == experiment.model_dump(mode="json")["method"] | guard
    ours = default_transforms(backbone)
    # The embedded drawings are bright on dark already.
    assert ours.pop("invert") == "bright-border"
    assert {key: experiment.transforms.model_dump()[key] for key in ours} == ours


@pytest.mark.parametrize(
    ("sizes", "num_blocks"),
    [({"embed_dim": 384, "depth": 12, "num_heads": 6}, 6), ({"embed_dim": 768, "depth": 4, "num_heads": 12}, 3)],
)
def test_by_default_photos_are_read_as_far_as_a_square_matrix_allows(sizes: dict[str, int], num_blocks: int) -> None:
    settings = BackboneSettings(name="vit_tiny_patch16_224", weights="random", image_size=32, architecture=sizes)
    found = default_settings(load_backbone(settings), DEFAULT_METHOD, {})
    assert (found.head.kind, found.head.shrinkage, found.head.num_directions) == ("gaussian", "left-out", 4)
    assert found.reading == FeatureSettings(blocks=num_blocks, patches=True, views=3)


def test_the_users_settings_are_laid_over_ours(tmp_path: Path) -> None:
    backbone = load_backbone(tiny_weights(tmp_path))
    settings = default_settings(backbone, "clare", {"sparsity": 0.5, "head": {"align_epochs": 3}})
    assert isinstance(settings, ClareSettings)
    assert (settings.sparsity, settings.probe_epochs, settings.head.align_epochs) == (0.5, 3, 3)
    assert settings.head.kind == "aligned"
    assert default_settings(backbone, "l2p", {}).head.kind == "trained"
    with pytest.raises(SettingsError, match=r"the setting 'head\.align_epochs' got 0"):
        default_settings(backbone, "clare", {"head": {"align_epochs": 0}})


@pytest.mark.parametrize(("depth", "num_read"), [(2, 2), (8, 6)])
def test_clare_plus_reads_several_blocks_of_photos(depth: int, num_read: int) -> None:
    architecture = {"depth": depth, "embed_dim": 24, "num_heads": 2}
    photo = BackboneSettings(name="vit_tiny_patch16_224", weights="random", image_size=64, architecture=architecture)
    settings = default_settings(load_backbone(photo), "clare-plus", {"head": {"own_share": 0.2}})
    assert isinstance(settings.head, QuadraticSettings)
    assert (settings.head.shrinkage, settings.head.own_share, settings.reading.blocks) == ("auto", 0.2, num_read)
    assert default_settings(load_backbone(BackboneSettings()), "clare-plus", {}).reading.blocks == 1


def test_another_kind_of_head_keeps_of_ours_what_it_has_too(tmp_path: Path) -> None:
    settings = default_settings(load_backbone(tiny_weights(tmp_path)), "linear", {"head": {"kind": "discriminant"}})
    assert settings.head == DiscriminantSettings(shrinkage="auto")


def test_a_weights_file_says_which_backbone_it_is_for(tmp_path: Path) -> None:
    sizes = {**SIZES, "embed_dim": 192, "num_heads": 3}
    drawing = load_backbone(BackboneSettings(weights="random", architecture=sizes))
    write_tensors(tmp_path / "drawing.safetensors", drawing.vit.state_dict())
    found = named_backbone(str(tmp_path / "drawing.safetensors"))
    assert (found.name, found.architecture) == ("quickdraw-vit", {"depth": 2})
    photo = BackboneSettings(name="vit_tiny_patch16_224", weights="random", image_size=64, architecture={"depth": 2})
    write_tensors(tmp_path / "photo.safetensors", load_backbone(photo).vit.state_dict())
    found = named_backbone(str(tmp_path / "photo.safetensors"))
    assert (found.name, found.image_size) == ("vit_tiny_patch16_224", 64)
    loaded = load_backbone(found)
    assert (loaded.image_size, loaded.channels, len(loaded.vit.blocks)) == (64, 3, 2)
    assert default_transforms(loaded)["train"] == "crop"
    # timm tests this model on nine tenths of the resized side.
    assert default_transforms(loaded)["resize"] == 71
    scaled = BackboneSettings(
        name="vit_small_patch14_dinov2", weights="random", image_size=28, architecture={"depth": 1}
    )
    write_tensors(tmp_path / "scaled.safetensors", load_backbone(scaled).vit.state_dict())
    found = named_backbone(str(tmp_path / "scaled.safetensors"))
    assert (found.name, found.image_size, len(load_backbone(found).vit.blocks)) == ("vit_small_patch14_dinov2", 28, 1)
    assert find_backbone(None) == BackboneSettings()
    assert named_backbone("vit_base_patch16_224.augreg_in21k").name == "vit_base_patch16_224.augreg_in21k"


def test_a_file_that_is_no_backbone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 150 models of the patch's size each would be built without numbers.
    monkeypatch.setattr("clare.backbones.named.models_like", lambda shapes: models_like(shapes)[:3])
    (tmp_path / "text.safetensors").write_text("no tensors")
    write_tensors(tmp_path / "other.safetensors", {"weight": torch.zeros(2)})
    wide = {"patch_embed.proj.weight": torch.zeros(100, 3, 16, 16), "pos_embed": torch.zeros(1, 197, 100)}
    wide["cls_token"] = torch.zeros(1, 1, 100)
    write_tensors(tmp_path / "wide.safetensors", wide)
    odd = {"patch_embed.proj.weight": torch.zeros(384, 3, 5, 5), "pos_embed": torch.zeros(1, 5, 384)}
    odd["cls_token"] = torch.zeros(1, 1, 384)
    write_tensors(tmp_path / "odd.safetensors", odd)
    for name, message in (
        ("text", "is not a readable safetensors file"),
        ("missing", "there is no weights file"),
        ("other", "holds no weights of a timm model that works"),
        ("wide", "holds no weights of a timm model that works"),
        ("odd", "as `backbone.name` of a preset"),
    ):
        with pytest.raises(BackboneError, match=message):
            named_backbone(str(tmp_path / f"{name}.safetensors"))


@given(st.floats(LEAST_SHARE, 1), st.floats(0.01, 0.99))
def test_the_last_task_gets_a_tenth_and_the_next_does_not(free: float, sparsity: float) -> None:
    number = num_tasks(free, sparsity)
    assert number >= 1
    assert free * sparsity ** (number - 1) >= LEAST_SHARE * (1 - 1e-6)
    assert free * sparsity**number < LEAST_SHARE * (1 + 1e-6)


def test_capacity_lasts_only_where_it_is_claimed(tmp_path: Path) -> None:
    assert (num_tasks(0.05, 0.9), num_tasks(1.0, 0.0)) == (0, 1)
    for values in ({"mask": "none"}, {"capacity_aware": False}):
        settings = ClareSettings.model_validate(values)
        assert tasks_left(Clare(load_backbone(tiny_weights(tmp_path)), settings, 0)) is None
    assert tasks_left(Clare(load_backbone(tiny_weights(tmp_path)), ClareSettings(), 0)) == 45


def test_an_evaluation_counts_by_hand() -> None:
    logits = torch.tensor([[0.9, 0.1], [0.2, 0.4], [0.3, 0.8], [0.1, 0.2]])
    flagged = torch.tensor([False, True, False, True])
    found = counted(["a", "b"], ["a", "a", "b", "c"], logits, flagged, scale=10.0)
    assert (found.counts, found.correct, found.confusion) == ((2, 1), (1, 1), [[1, 1], [0, 1]])
    assert (found.num_flagged, found.strangers) == (1, {"c": (1, 1)})
    assert (found.accuracy, found.unknown_rate) == (2 / 3, 1 / 3)
    # The three answers to a, a and b differ by 8, 2 and 5; the second is wrong, and alone in its bin.
    sure = [1 / (1 + math.exp(-apart)) for apart in (8, 2, 5)]
    assert found.certainty == pytest.approx(sum(sure) / 3)
    assert found.calibration_error == pytest.approx((2 - sure[0] - sure[2] + sure[1]) / 3)
    assert counted(["a", "b"], ["a"], logits[:1], flagged[:1], scale=1.0).num_flagged == 0
    nothing = counted(["a", "b"], [], logits[:0], flagged[:0], scale=1.0)
    assert (nothing.certainty, nothing.calibration_error) == (None, None)
    assert (nothing.accuracy, nothing.unknown_rate, nothing.counts) == (None, None, (0, 0))


def pixels(figure: Figure) -> np.ndarray:
    """Draw a figure."""
    with Image.open(io.BytesIO(to_png(figure))) as image:
        return np.asarray(image.convert("RGB"))


def test_names_that_the_font_lacks_are_drawn_without_a_word() -> None:
    # Warnings are errors here.
    figure = confusion_figure(["猫", "🐈", "قط", "cat"], np.eye(4).tolist())
    assert pixels(figure).std() > 0
    assert "猫" in to_svg(figure, "names").decode()


def test_pictures_show_their_numbers() -> None:
    capacity = capacity_figure([[1, 3], [2, 0]], 20)
    heights = [patch.get_height() for patch in capacity.axes[0].patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([20, 10])
    layers = [patch.get_height() for patch in capacity.axes[1].patches]  # type: ignore[attr-defined]
    assert layers == pytest.approx([10, 30, 20, 0])
    confusion = confusion_figure(["$a$ [b]", "c"], [[3, 1], [0, 0]])
    assert [text.get_text() for text in confusion.axes[0].texts] == ["3", "1"]
    assert pixels(capacity).std() > 0
    assert pixels(confusion).std() > 0
    large = to_png(confusion_figure([str(number) for number in range(60)], np.eye(60).tolist()))
    assert large.startswith(b"\x89PNG")


def test_a_thousand_classes_of_few_pictures_are_counted_without_their_square() -> None:
    names = [f"class {place}" for place in range(3000)]
    logits = torch.zeros(4, 3000)
    logits[0, 5] = logits[1, 7] = logits[2, 7] = logits[3, 9] = 1.0
    found = counted(names, ["class 5", "class 5", "class 7", "stranger"], logits, torch.zeros(4, dtype=torch.bool), 1.0)
    assert found.taken == {5: {5: 1, 7: 1}, 7: {7: 1}}
    assert (found.counts[5], found.correct[5], found.counts[7], sum(found.counts)) == (2, 1, 1, 3)
    assert found.strangers == {"stranger": (1, 0)}
