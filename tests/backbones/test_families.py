"""One table of timm models: adapters join each and leave no trace, exports agree, and what does not work says so."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clare.backbones.families import family_of
from clare.backbones.stages import part_sizes, read
from clare.backbones.vit import Backbone, BackboneSettings, fingerprint, load_backbone
from clare.data.transforms import Transforms, TransformSettings
from clare.engine.context import Context, Silence
from clare.engine.learn import learn_task
from clare.engine.passes import predict_logits
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.errors import BackboneError, ModelError
from clare.export.export_check import find_pictures
from clare.export.export_source import Source
from clare.export.onnx_export import export_onnx
from clare.export.timm_export import check_portable
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.protocols import tiny_settings
from clare.model.records import ClassInfo
from clare.settings import build_settings
from clare.testing.world import tiny_stream
from clare.tuners.adapter import AdapterSettings, FlatAdapter
from clare.tuners.limits import ON_EVERY_BACKBONE

SIDE = 32
TOKENS = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 8}
WINDOWS = {"embed_dim": 12, "depths": (1, 1, 2), "num_heads": (1, 2, 2), "window_size": 4}
MAPS = {"dims": (8, 12, 16, 24), "depths": (1, 1, 2, 1)}
LORA, PREFIXES, PROMPTS = {"inflora", "loda", "macil", "sdlora"}, {"coda-prompt", "dualprompt"}, {"l2p"}
NO_CLASS = {"care"}
STAGES = NO_CLASS | LORA | PREFIXES | PROMPTS | {"min"}
NOTHING: set[str] = set()
TABLE: dict[str, tuple[dict[str, Any], set[str]]] = {
    "vit_tiny_patch16_224": (TOKENS, NOTHING),
    "flexivit_small": (TOKENS, NOTHING),
    "vit_base_patch16_clip_224": (TOKENS, NOTHING),
    "vit_base_patch32_clip_quickgelu_224": (TOKENS, NOTHING),
    "vit_small_patch14_dinov2": (TOKENS, NOTHING),
    "vit_small_patch14_reg4_dinov2": (TOKENS, NOTHING),
    "vit_base_patch16_siglip_224": (TOKENS, NO_CLASS),
    "vit_base_patch16_siglip_gap_224": (TOKENS, NO_CLASS),
    "vit_base_patch16_rpn_224": (TOKENS, NO_CLASS | PREFIXES),
    "vit_base_patch16_xp_224": (TOKENS, LORA | PREFIXES),
    "vit_small_patch16_18x2_224": (TOKENS, LORA | PREFIXES),
    "vit_dpwee_patch16_reg1_gap_256": (TOKENS, NO_CLASS | LORA | PREFIXES),
    "deit_tiny_patch16_224": (TOKENS, NOTHING),
    "deit_tiny_distilled_patch16_224": (TOKENS, NOTHING),
    "deit3_small_patch16_224": (TOKENS, NOTHING),
    "eva_giant_patch14_224": (TOKENS, LORA | PREFIXES),
    "eva02_tiny_patch14_224": (TOKENS, LORA | PREFIXES | PROMPTS),
    "eva02_base_patch16_clip_224": (TOKENS, LORA | PREFIXES | PROMPTS),
    "eva02_enormous_patch14_clip_224": (TOKENS, LORA | PREFIXES),
    "vit_small_patch16_dinov3": (TOKENS, PREFIXES | PROMPTS),
    "vit_small_patch16_dinov3_qkvb": (TOKENS, LORA | PREFIXES | PROMPTS),
    "vit_small_patch16_rope_mixed_224": (TOKENS, PREFIXES | PROMPTS),
    "beit_base_patch16_224": (TOKENS, LORA | PREFIXES | PROMPTS),
    "beitv2_base_patch16_224": (TOKENS, LORA | PREFIXES | PROMPTS),
    "swin_tiny_patch4_window7_224": (WINDOWS, STAGES),
    "swinv2_tiny_window8_256": (WINDOWS, STAGES),
    "convnext_tiny": (MAPS, STAGES),
    "convnext_tiny_hnf": (MAPS, STAGES),
    "convnextv2_atto": (MAPS, STAGES),
}
"""Sizes that make each of them small, and the methods that do not work with it."""
EXPORTED_FAST = ("vit_small_patch16_dinov3", "convnext_tiny")
DOCS = Path(__file__).parents[2] / "docs/own_backbone.md"
IMAGES = torch.rand(3, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


@cache
def made(name: str, side: int) -> Backbone:
    """Return a small frozen model with random weights, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {**TABLE[name][0], "in_chans": 1}
        settings = BackboneSettings(name=name, weights="random", image_size=side, architecture=sizes)
        backbone = load_backbone(settings)
        # Of scales and last norms that start at zero, nothing would be seen.
        for parameter in backbone.vit.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return Backbone(backbone.vit, settings, backbone.mean, backbone.std, fingerprint(backbone.vit))


def make(name: str, side: int = SIDE) -> Backbone:
    """Return a model of the table to which nothing is attached."""
    return deepcopy(made(name, side))


def clare_on(backbone: Backbone, **values: Any) -> Method:
    """Return CLARE with a small adapter."""
    kind = METHODS.get("clare")
    few = {
        "epochs": 1,
        "probe_epochs": 1,
        "batch_size": 8,
        "learning_rate": 0.02,
        "penalty_weight": 0,
        "adapter": {"bottleneck": 8},
    }
    return kind(backbone, build_settings(kind.settings_type, {**few, **values}, "method"), 0)


def context_of(backbone: Backbone, **engine: Any) -> Context:
    """Return a context for small grey images."""
    settings = EngineSettings.model_validate(engine)
    values = TransformSettings(image_size=SIDE, resize=SIDE, train="none", normalise="backbone")
    return Context(Ranks(settings), Transforms(values, backbone.mean, backbone.std), settings, 0, Silence())


def all_read(backbone: Backbone, images: Tensor) -> Tensor:
    """Return all that can be read of a backbone."""
    model, family = backbone.vit, family_of(backbone.vit)
    return read(model, images, len(family.ends(model)), family.beside(model) != "nothing")


@pytest.mark.parametrize("name", TABLE)
def test_a_zero_adapter_changes_no_bit_a_trained_one_learns_and_none_leaves_a_trace(name: str) -> None:
    backbone = make(name)
    model, weights = backbone.vit, {key: value.clone() for key, value in backbone.vit.state_dict().items()}
    with torch.no_grad():
        bare, parts = model(IMAGES), all_read(backbone, IMAGES)
    adapter = FlatAdapter(model, AdapterSettings(bottleneck=3, dropout=0), torch.Generator().manual_seed(0))
    with torch.no_grad(), adapter.spread():
        assert torch.equal(model(IMAGES), bare)
        assert torch.equal(all_read(backbone, IMAGES), parts)
    adapter.values.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    for key, part in adapter.parts().items():
        # Far from zero, so that no hidden number is cut off and its gradient with it.
        part.data.add_(2.0 if key.endswith("down_bias") else 0.0)
    adapter.values.requires_grad_(True)
    with adapter.spread():
        tuned = model(IMAGES)
        (tuned * torch.randn(tuned.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    assert not torch.allclose(tuned, bare)
    assert adapter.values.grad is not None
    assert int((adapter.values.grad == 0).sum()) == 0
    adapter.detach(model)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(model.state_dict()[key], value) for key, value in weights.items())
    assert fingerprint(model) == backbone.fingerprint
    with torch.no_grad():
        assert torch.equal(model(IMAGES), bare)


@pytest.mark.parametrize("name", TABLE)
@torch.no_grad()
def test_blocks_are_read_as_timm_gives_them(name: str) -> None:
    model = make(name).vit
    family = family_of(model)
    num_ends, has_more = len(family.ends(model)), family.beside(model) != "nothing"
    assert num_ends >= 2
    parts = read(model, IMAGES, num_ends, has_more).split(part_sizes(model, num_ends, has_more), dim=1)
    # The usual feature comes last; what is beside it, before.
    torch.testing.assert_close(parts[-1], F.normalize(model(IMAGES), dim=1))
    step = 2 if has_more else 1
    maps = model.forward_intermediates(IMAGES, intermediates_only=True, output_fmt="NCHW")
    assert [found.shape[1] for found in maps] == [part.shape[1] for part in parts[step - 1 :: step]]
    if family.unit == "stages":
        for part, found in zip(parts[:-1], maps[:-1], strict=True):
            torch.testing.assert_close(part, F.normalize(found.mean((2, 3)), dim=1))
    elif family.beside(model) == "patches":
        found = model.fc_norm(model.norm(maps[0].flatten(2).mT).mean(1))
        torch.testing.assert_close(parts[0], F.normalize(found, dim=1))
    with pytest.raises(BackboneError, match=rf"`method\.features\.blocks` is 9, .* has {num_ends} {family.unit}"):
        part_sizes(model, 9, False)


@pytest.mark.parametrize("name", TABLE)
def test_two_tasks_of_clare_keep_every_frozen_bit(name: str) -> None:
    backbone = make(name)
    before = {key: value.clone() for key, value in backbone.vit.state_dict().items()}
    method, context = clare_on(backbone), context_of(backbone, device="cpu")
    initial, claims, stream = method.adapter.values.clone(), [], tiny_stream(2, 2, num_train=6, num_test=1)
    for task in stream.tasks:
        learn_task(context, method, task)
        claims.append((~method.ledger.free, method.adapter.values.clone()))
        after = {key.replace(".inner.", "."): value for key, value in backbone.vit.state_dict().items()}
        assert after.keys() == before.keys()
        assert all(torch.equal(after[key], value) for key, value in before.items())
    (first, kept), (both, values_now) = claims
    assert first.any()
    assert int(both.sum()) > int(first.sum())
    assert torch.equal(values_now[first], kept[first])
    assert torch.equal(values_now[~both], initial[~both])
    assert sum(method.diagnosis()["claimed_per_block"]) == int(both.sum() - first.sum())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", TABLE)
def test_on_a_gpu_recorded_steps_give_the_bits_of_plain_ones(name: str) -> None:
    stream, ends = tiny_stream(2, 2, num_train=6, num_test=4), []
    for mode in ("off", "graph"):
        backbone = make(name)
        context = context_of(backbone, device="cuda", precision="fp32", compile=mode, eval_batch_size=8)
        method = clare_on(backbone, adapter={"bottleneck": 8, "dropout": 0.0}).to("cuda")
        method.head.reserve(2)
        for task in stream.tasks:
            learn_task(context, method, task)
        ends.append(predict_logits(context, method, stream.test))
        assert bool(context.programs.captured) == (mode == "graph")
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in EXPORTED_FAST else [pytest.mark.slow]) for name in TABLE]
)
def test_the_onnx_file_gives_the_same_answers(name: str) -> None:
    backbone = make(name)
    family = family_of(backbone.vit)
    has_more = family.beside(backbone.vit) != "nothing"
    method = clare_on(backbone, features={"blocks": 2, "patches": has_more}, head={"kind": "prototype"})
    method.tasks = [("sand", "sea"), ("sky",)]
    method.head.append(torch.randn(3, method.head.num_features, generator=torch.Generator().manual_seed(5)))
    method.adapter.values.data.normal_(0, 0.3, generator=torch.Generator().manual_seed(6))
    transforms = TransformSettings(image_size=SIDE, resize=SIDE, train="none", normalise="backbone")
    classes = tuple(ClassInfo(label, 1, "2026-03-04T05:06:07Z", 12) for label in method.classes)
    source = Source(method.eval(), backbone, transforms, classes, ())
    data, agreement = export_onnx(source, find_pictures(source, None))
    assert len(data) > 0
    assert agreement.difference <= agreement.tolerance


def unfit_methods(name: str) -> dict[str, str]:
    """Return the methods that refuse a model, with their sentences."""
    refused = {}
    for method in METHODS:
        kind = METHODS.get(method)
        settings = build_settings(kind.settings_type, tiny_settings(kind), "method")
        try:
            kind(make(name), settings, 0)
        except BackboneError as error:
            refused[method] = str(error)
    return refused


@pytest.mark.parametrize("name", TABLE)
def test_methods_that_do_not_work_say_so_and_name_those_that_do(name: str) -> None:
    refused = unfit_methods(name)
    assert set(refused) == TABLE[name][1]
    for sentence in refused.values():
        assert "cannot join a" in sentence
        assert sentence.endswith(ON_EVERY_BACKBONE)


def test_the_methods_for_every_backbone_are_those_that_none_refuses() -> None:
    assert set(ON_EVERY_BACKBONE.split(", ")) == set(METHODS) - set.union(*(refused for _, refused in TABLE.values()))


@pytest.mark.parametrize("tuner", ["ssf", "vpt-deep", "vpt-shallow"])
@pytest.mark.parametrize("name", ["convnext_tiny", "swin_tiny_patch4_window7_224", "beit_base_patch16_224"])
def test_tuners_that_need_tokens_or_layers_say_so(name: str, tuner: str) -> None:
    kind = METHODS.get("aper-adapter")
    with pytest.raises(BackboneError, match=r"(token prompts|scales and shifts of all layers) cannot join a"):
        kind(make(name), build_settings(kind.settings_type, {"tuner": tuner}, "method"), 0)


@pytest.mark.parametrize(
    ("name", "kind", "nearest"),
    [
        ("resnet50", "is a ResNet", "convnext_tiny"),
        ("mobilenetv3_small_100", "is a MobileNetV3", "convnext_atto"),
        ("vit_small_r26_s32_224", "is a hybrid", "vit_small_patch16_224"),
        ("naflexvit_base_patch16_gap", "is a NaFlexVit", "vit_base_patch16_224"),
        ("vit_relpos_base_patch16_224", "is a VisionTransformerRelPos", "vit_base_patch16_224"),
        ("swinv2_cr_tiny_224", "is a SwinTransformerV2Cr", "swin_tiny_patch4_window7_224"),
    ],
)
def test_other_models_are_refused_before_weights_are_asked_for(
    name: str, kind: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("clare.backbones.vit.hub_file", lambda _: asked.append(1))
    monkeypatch.setattr("clare.backbones.weights.why_unreachable", lambda: "there is no network")
    monkeypatch.setattr("timm.models._builder.load_pretrained", lambda *_, **__: asked.append(1))
    with pytest.raises(BackboneError, match=rf"{kind}.*; the nearest that works is {nearest}$"):
        load_backbone(BackboneSettings(name=name))
    assert not asked


def test_sides() -> None:
    assert make("convnext_tiny", side=48).image_size == 48
    assert make("swin_tiny_patch4_window7_224", side=64).image_size == 64
    with pytest.raises(
        BackboneError, match=r"images of 28 pixels are too small .* `backbone\.image_size` to 32 or more"
    ):
        make("convnext_tiny", side=28)


def test_the_middle_is_of_patches() -> None:
    with pytest.raises(BackboneError, match=r"centre` averages the middle patches, .* set it to false"):
        part_sizes(make("beit_base_patch16_224").vit, 2, True, True)


def is_portable(model: Any) -> bool:
    """Tell whether the loader for plain timm knows a model."""
    try:
        check_portable(model)
    except ModelError:
        return False
    return True


def test_the_table_of_the_docs_is_true() -> None:
    """Every row names models of the table above, what is beside their features, and the methods that refuse them."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    told = {}
    for names, units, beside, without, export in rows:
        for name in names.replace("`", "").split(", "):
            model = make(name).vit
            family = family_of(model)
            assert (units, beside) == (family.unit, family.beside(model)), name
            assert set(without.split(", ")) - {"none"} == TABLE[name][1], name
            assert export == ("timm, ONNX" if is_portable(model) else "ONNX"), name
            told[name] = TABLE[name][1]
    assert set(told) == set(TABLE)
