"""From a model folder to an export: what it is checked with, where it is written, and a card whose example runs."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_worlds import COLOUR, DATE, facts, saved_colour_model
from own_worlds import odds
from PIL import ExifTags, Image

from clare.backbones.vit import Backbone, BackboneSettings
from clare.classifier.classifier import Classifier, load
from clare.data.store import ImageStore
from clare.data.transforms import TransformSettings
from clare.errors import DataError, ModelError
from clare.export import export as export_module
from clare.export.card import MARK, card_text
from clare.export.export import export_model, places
from clare.export.export_check import Agreement, Pictures, compare, evenly, find_pictures
from clare.export.export_source import Source, open_source
from clare.export.onnx_export import run_onnx
from clare.methods import METHODS
from clare.model.records import Change

SHOWN = Pictures(ImageStore.from_array(np.zeros((2, 1, 28, 28), np.uint8)), "two pictures")


def simple_source(backbone: Backbone, transforms: TransformSettings = COLOUR) -> Source:
    """Return class means of two classes."""
    kind = METHODS.get("simplecil")
    method = kind(backbone, kind.settings_type(), 0)
    method.tasks = [("one",), ("two|three",)]
    method.head.append(torch.randn(2, 24, generator=torch.Generator().manual_seed(1)))
    return facts(method, backbone, transforms)


def draw_pictures(folder: Path, number: int, size: tuple[int, int] = (37, 52)) -> None:
    """Write pictures of random smooth colours."""
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    for index in range(number):
        coarse = Image.fromarray(random.randint(0, 256, (4, 5, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(folder / f"{index:03d}.png")


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows)


def test_small_differences_are_measured() -> None:
    original = logits([0.1, 0.2, 0.3], [0.5, 0.4, 0.1])
    exported = logits([0.1, 0.2, 0.3005], [0.5, 0.4, 0.1])
    agreement = compare(exported, original, SHOWN, 1e-3, "a test")
    assert agreement.difference == pytest.approx(5e-4, rel=1e-3)
    assert (
        "with a test on two pictures: the logits differ by at most 5.0e-04 (1e-03 is allowed)" in agreement.sentence()
    )


@pytest.mark.parametrize(
    ("exported", "message"),
    [
        (
            [0.1, 0.2, 0.4],
            r"logits differ by 1\.0e-01 from the model's on two pictures, and 1e-03 is allowed; it was not",
        ),
        ([0.1, 0.2, float("nan")], r"logits differ by nan"),
        ([0.1, float("inf"), 0.3], r"logits differ by inf"),
        ([0.1, 0.2], r"logits of shape \(1, 2\) where the model gives \(1, 3\)"),
    ],
)
def test_an_export_that_is_off_is_refused(exported: list[float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        compare(logits(exported), logits([0.1, 0.2, 0.3]), SHOWN, 1e-3, "a test")


def test_large_scores_are_compared_by_their_size() -> None:
    original = logits([400.0, 100.0], [-500.0, 0.0])
    agreement = compare(original + 0.05, original, SHOWN, 1e-3, "a test")
    assert agreement.difference == pytest.approx(1e-4, rel=1e-2)
    with pytest.raises(ModelError, match=r"logits differ by 2\.0e-03"):
        compare(original + 1.0, original, SHOWN, 1e-3, "a test")


def test_another_class_is_refused_unless_it_is_a_tie() -> None:
    with pytest.raises(ModelError, match="names another class than the model for 1 of two pictures"):
        compare(logits([1.0003, 1.0], [1.0, 0.0]), logits([1.0, 1.0002], [1.0, 0.0]), SHOWN, 1e-3, "a test")
    compare(logits([1.000002, 1.0]), logits([1.0, 1.000002]), SHOWN, 1e-3, "a test")


def test_places_are_spread_over_everything() -> None:
    assert evenly(3).tolist() == [0, 1, 2]
    assert evenly(64).tolist() == list(range(0, 64, 2))
    assert evenly(1000).max() == 968


def test_pictures_come_from_the_folder_the_drawings_or_nowhere(
    tiny_backbone: Callable[..., Backbone], tmp_path: Path
) -> None:
    colour = open_source(saved_colour_model(tmp_path))
    synthetic = find_pictures(colour, None)
    assert (len(synthetic.images), synthetic.are_real) == (32, False)
    assert "32 synthetic" in synthetic.description
    assert torch.equal(synthetic.images.flat, find_pictures(colour, None).images.flat)
    drawing = find_pictures(simple_source(tiny_backbone()), None)
    assert (drawing.are_real, drawing.images.canvas_size, drawing.images.channels) == (True, (28, 28), 1)
    draw_pictures(tmp_path / "mine" / "deep", 40, (80, 120))
    (tmp_path / "mine" / "notes.txt").write_text("no picture")
    mine = find_pictures(colour, tmp_path / "mine")
    assert (mine.description, mine.are_real, mine.images.channels) == ("32 pictures of mine", True, 3)
    # As large as the model needs them, which resizes to 40.
    assert mine.images.canvas_size == (60, 40)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has no pictures to check with; give --check a folder"):
        find_pictures(colour, tmp_path / "empty")
    with pytest.raises(DataError, match=r"there is no folder .*none to check with"):
        find_pictures(colour, tmp_path / "none")


def test_inputs_lack_nothing_but_the_normalisation(tmp_path: Path) -> None:
    source = open_source(saved_colour_model(tmp_path))
    pictures = find_pictures(source, None)
    inputs = source.inputs(pictures.images)
    assert inputs.shape == (32, 3, 32, 32)
    assert 0 <= float(inputs.min()) < float(inputs.max()) <= 1
    with torch.no_grad():
        expected = source.method((inputs - 0.5) / 0.5)
    torch.testing.assert_close(source.logits(pictures.images), expected)
    plain = replace(source, transforms=source.transforms.model_copy(update={"normalise": "none"}))
    assert plain.normalisation == ((0.0,) * 3, (1.0,) * 3)


def test_places_of_an_export(tmp_path: Path) -> None:
    model = tmp_path / "birds"
    assert places(model, "onnx", None) == (tmp_path / "birds-onnx", "model.onnx")
    assert places(model, "timm", None)[0] == tmp_path / "birds-timm"
    assert places(model, "onnx", tmp_path / "a" / "b.onnx") == (tmp_path / "a", "b.onnx")
    assert places(model, "onnx", tmp_path / "a") == (tmp_path / "a", "model.onnx")
    with pytest.raises(ModelError, match="is the model folder itself; give --out another folder"):
        places(model, "onnx", model)
    (tmp_path / "README.md").write_text("my project")
    with pytest.raises(ModelError, match=r"README\.md was not written by an export, and a card would replace it"):
        places(model, "onnx", tmp_path / "birds.onnx")
    (tmp_path / "README.md").write_text(f"{MARK}\n# an older card")
    assert places(model, "onnx", tmp_path / "birds.onnx") == (tmp_path, "birds.onnx")
    with pytest.raises(ModelError, match=r"README\.md is a file; give --out a folder"):
        places(model, "timm", tmp_path / "README.md")


def test_nothing_is_written_where_the_check_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ModelError("the export is off")

    monkeypatch.setattr(export_module, "export_timm", fail)
    with pytest.raises(ModelError, match="the export is off"):
        export_model(saved_colour_model(tmp_path), "timm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def example_of(card: Path) -> str:
    """Return the Python code of a card."""
    found = re.search(r"```python\n(.*?)```", card.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["onnx", "timm"])
def test_the_example_of_the_card_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model = saved_colour_model(tmp_path)
    draw_pictures(tmp_path / "mine", 8)
    out = tmp_path / "out"
    export = export_model(model, "onnx" if name == "onnx" else "timm", out, tmp_path / "mine")
    assert export.agreement.pictures.description == "8 pictures of mine"
    (out / "colour.safetensors").write_bytes((tmp_path / "colour.safetensors").read_bytes())
    monkeypatch.chdir(out)
    monkeypatch.syspath_prepend(out)
    taught = load(model, device="cpu")
    same = 0
    for picture in sorted((tmp_path / "mine").iterdir()):
        (out / "picture.png").write_bytes(picture.read_bytes())
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(example_of(out / "README.md"), {})
        same += printed.getvalue().split()[0] == taught.guess([picture])[0].guesses[0].name
        sys.modules.pop("load", None)
    # Pillow crops by a fraction of a pixel otherwise than clare does.
    assert same >= 7


def halves(dark: str) -> Image.Image:
    """Return a light picture that is dark at the top, on the left, everywhere or nowhere."""
    pixels = np.full((48, 48, 3), (230, 220, 210), np.uint8)
    pixels[{"top": np.s_[:24], "left": np.s_[:, :24], "all": np.s_[:], "none": np.s_[:0]}[dark]] = (60, 20, 10)
    return Image.fromarray(pixels)


def write_odd_pictures(folder: Path) -> None:
    """Write pictures that are transparent, turned, grey, CMYK, of 16 bits or of another colour space than sRGB."""
    folder.mkdir()
    for dark in ("top", "left"):
        image, turned = halves(dark), Image.Exif()
        see_through, grey = image.copy(), image.convert("L")
        see_through.putalpha(grey.point(lambda value: 255 * (value < 128)))
        turned[ExifTags.Base.Orientation] = 6
        name = str(folder / dark)
        see_through.save(f"{name}-hole.png")
        see_through.convert("LA").save(f"{name}-grey-hole.png")
        image.save(f"{name}-turned.jpg", exif=turned)
        grey.save(f"{name}-grey.png")
        image.convert("CMYK").save(f"{name}-cmyk.jpg")
        Image.fromarray(np.asarray(grey, np.uint16) * 257).save(f"{name}-16.png")


@pytest.mark.parametrize("name", ["onnx", "timm"])
def test_the_example_of_the_card_reads_odd_pictures_as_predict_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    saved_colour_model(tmp_path)
    weights, sizes = tmp_path / "colour.safetensors", {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 2}
    backbone = BackboneSettings(name="vit_tiny_patch16_224", weights=str(weights), architecture=sizes)
    model = Classifier(tmp_path / "halves", backbone=backbone, method="simplecil", device="cpu")
    model.learn({dark: [halves(dark)] * 5 for dark in ("top", "left", "all", "none")})
    write_odd_pictures(tmp_path / "odd")
    out = export_model(tmp_path / "halves", "onnx" if name == "onnx" else "timm").folder
    (out / "colour.safetensors").write_bytes(weights.read_bytes())
    monkeypatch.chdir(out)
    monkeypatch.syspath_prepend(out)
    example = example_of(out / "README.md")
    for picture in sorted((tmp_path / "odd").iterdir()):
        ran: dict[str, Any] = {}
        exec(example.replace("picture.png", str(picture)), ran)
        if name == "onnx":
            said = ran["session"].run(["probabilities"], {"images": ran["images"]})[0]
        else:
            said = ran["model"].probabilities(ran["images"]).detach().numpy()
        # Pillow crops by a fraction of a pixel otherwise than clare does.
        assert said[0] == pytest.approx(model.predict_proba(picture)[0], abs=0.01), picture.name
    for module in ("load", "upright"):
        sys.modules.pop(module, None)


def test_the_card_tells_all(tmp_path: Path, tiny_backbone: Callable[..., Backbone]) -> None:
    source = simple_source(tiny_backbone(), TransformSettings(image_size=28, resize=28, normalise="backbone"))
    history = (
        *source.history,
        Change(2, "learn", DATE, ("bad",), {"accuracy": 0.125, "num_held_back": 8}),
        Change(3, "undo", DATE, ("bad",), {}),
        Change(4, "learn", DATE, tuple("abcdefg"), {"accuracy": 0.5, "num_held_back": 8}),
        Change(5, "rename", DATE, ("a", "h"), {}),
    )
    curve = {"slope": -4.0, "offset": 1.5, "threshold": 0.5, "num_pairs": 9}
    source = replace(source, history=history, calibration=curve)
    text = card_text("birds", source, "USAGE", Agreement(SHOWN, 2e-7, 1e-3, "onnxruntime"))
    assert text.startswith(f"{MARK}\n# birds\n")
    assert "of 2 classes, learnt in 2 tasks with the method `simplecil`" in text
    assert f"| 1 | two\\|three | 2 | {DATE} | 12 |" in text
    assert f"`{source.backbone.fingerprint}`" in text
    assert json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])["head"]["kind"] == "prototype"
    assert f"- {DATE}, learn of one, two\\|three: 87.5 %\n" in text
    assert f"- {DATE}, learn of a, b, c, d, e and 2 more: 50.0 % of 8 pictures\n" in text
    assert "12.5 %" not in text
    assert "exp(-(-4 * best + 1.5))" in text
    assert "a softmax of 20 times the logits, a factor that was not set against how often" in text
    assert "differ by at most 2.0e-07 (1e-03 is allowed)" in text
    assert "licence: not known to clare" in text
    fitted = replace(source, calibration={**curve, "scale": 12.5})
    text = card_text("birds", fitted, "USAGE", Agreement(SHOWN, 2e-7, 1e-3, "onnxruntime"))
    assert "a softmax of 12.5 times the logits, a factor fitted to 9 held-back pictures" in text
    bare = replace(source, history=(), calibration=None)
    text = card_text("birds", bare, "USAGE", Agreement(replace(SHOWN, are_real=False), 2e-7, 1e-3, "onnxruntime"))
    assert "no accuracy reports" in text
    assert "nothing tells when it is none of them" in text
    assert "No real pictures were at hand" in text


def test_names_are_no_markdown_and_no_html_in_a_card(tmp_path: Path) -> None:
    odd = ["<img src=x onerror=alert(1)>", "[click](http://x.example)", "a | b", "`code`"]
    model = Classifier(tmp_path / "a <b> model", method="simplecil", device="cpu")
    model.learn({name: [np.full((28, 28), 60 * place, np.uint8)] * 5 for place, name in enumerate(odd)})
    export_model(tmp_path / "a <b> model", "timm", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    text = card.replace(MARK, "")
    assert not re.search(r"(?<!\\)<", text)
    assert "](" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\\](", "")
    assert "| 2 | a \\| b |" in text
    assert "\\`code\\`" in text


def test_a_model_without_classes_is_refused(tmp_path: Path) -> None:
    Classifier(method="simplecil", device="cpu").save(tmp_path / "new")
    with pytest.raises(ModelError, match="knows no classes yet; teach it some before it is exported"):
        export_model(tmp_path / "new", "timm")


def test_a_taught_drawing_model_carries_its_dates_its_backbone_and_its_curve(tmp_path: Path) -> None:
    tiles = {"dots": [[255, 0], [0, 0]], "lines": [[255, 255], [0, 0]], "bars": [[255, 0], [255, 0]]}
    examples = {name: [np.tile(np.array(tile, np.uint8), (14, 14))] * 10 for name, tile in tiles.items()}
    taught = Classifier(tmp_path / "drawings", method="simplecil", device="cpu")
    taught.learn(examples)
    export = export_model(tmp_path / "drawings", "timm")
    assert export.folder == tmp_path / "drawings-timm"
    assert "embedded drawings" in export.agreement.sentence()
    assert set(export.names) == {
        "classifier.safetensors",
        "config.json",
        "load.py",
        "upright.py",
        "backbone.safetensors",
        "README.md",
    }
    card = (export.folder / "README.md").read_text()
    assert "licence: Apache-2.0, as clare" in card
    assert f"| {taught.classes[0].taught_at} | 8 |" in card
    described = json.loads((export.folder / "config.json").read_text())
    assert described["classes"] == ["dots", "lines", "bars"]
    assert described["unknown"]["slope"] == taught.calibration["slope"]  # type: ignore[index]
    assert described["head"]["scale"] == taught.scale != taught.parts.method.head.scale


def test_an_exported_file_is_as_sure_as_the_model(tmp_path: Path) -> None:
    strokes = np.random.default_rng(0).integers(0, 2, (3, 28, 28)) * 255
    examples = {name: noisy(strokes[place], 12, place) for place, name in enumerate(("one", "two", "three"))}
    settings = {"head": {"kind": "discriminant"}}
    taught = Classifier(tmp_path / "drawings", method="linear", settings=settings, device="cpu")
    taught.learn(examples, mode="quick")
    export = export_model(tmp_path / "drawings", "onnx")
    (file,) = export.folder.glob("*.onnx")
    pictures = noisy(strokes[1], 4, 9)
    inputs = torch.from_numpy(np.stack(pictures)[:, None].astype(np.float32) / 255)
    _, probabilities = run_onnx(file.read_bytes(), inputs)
    for row, guess in zip(probabilities, taught.guess(pictures, top=3), strict=True):
        known = odds(guess)
        assert row.tolist() == pytest.approx([known[name] for name in examples], abs=1e-4)
    assert taught.scale != taught.parts.method.head.scale


def noisy(strokes: np.ndarray, number: int, seed: int) -> list[np.ndarray]:
    """Return pictures that resemble each other."""
    noise = np.random.default_rng(seed).normal(0, 90, (number, *strokes.shape))
    return list((strokes + noise).clip(0, 255).astype(np.uint8))
