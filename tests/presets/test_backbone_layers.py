"""A backbone is laid over a preset by its name or its file."""

from pathlib import Path

import pytest
import timm
from safetensors.torch import save_file

from clare.backbones.named import named_backbone
from clare.backbones.vit import BackboneSettings, build_embedded
from clare.errors import BackboneError, SettingsError
from clare.methods import METHODS
from clare.presets.load import backbone_names, find_backbone, make_experiment, preset_names, read_preset, with_backbone
from clare.runner.tune import tuned_preset


@pytest.mark.parametrize("backbone", backbone_names())
@pytest.mark.parametrize("method", list(METHODS))
def test_every_packaged_backbone_goes_over_a_preset_with_every_method(backbone: str, method: str) -> None:
    experiment = make_experiment(f"cifar100-10x10+{backbone}", method)
    assert experiment.name == f"cifar100-10x10+{backbone}"
    assert experiment.description == make_experiment("cifar100-10x10", method).description


def test_only_what_the_layer_names_changes() -> None:
    plain, layered = make_experiment("cub200-50x4"), make_experiment("cub200-50x4+vits14-dinov2")
    assert (layered.transforms.image_size, plain.transforms.image_size) == (112, 224)
    assert layered.backbone.name == "vit_small_patch14_dinov2.lvd142m"
    assert layered.stream == plain.stream
    assert layered.data == plain.data


def test_a_file_can_be_laid_over_and_its_settings_win(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text('[backbone]\nweights = "random"\n[methods.clare]\nlearning_rate = 0.5\n')
    experiment = make_experiment(with_backbone("quickdraw", str(layer)), "clare")
    assert experiment.name == "quickdraw+mine"
    assert experiment.backbone.weights == "random"
    assert experiment.method["learning_rate"] == 0.5
    assert experiment.method["probe_epochs"] == make_experiment("quickdraw", "clare").method["probe_epochs"]


def test_a_layer_can_speak_of_one_data_set_alone(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text(
        "[methods.clare]\nlearning_rate = 0.5\nepochs = 3\n"
        "[datasets.cub.methods.clare]\nlearning_rate = 0.25\n[datasets.cub.transforms]\nflip = 0.0\n"
    )
    birds, others = (make_experiment(f"{preset}+{layer}", "clare") for preset in ("cub200-10x20", "cifar100-10x10"))
    assert (birds.method["learning_rate"], others.method["learning_rate"]) == (0.25, 0.5)
    assert birds.method["epochs"] == others.method["epochs"] == 3
    assert (birds.transforms.flip, others.transforms.flip) == (0.0, 0.5)


def test_a_layer_can_speak_of_one_preset_alone(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text(
        "[methods.clare]\nlearning_rate = 0.5\n[datasets.cub.methods.clare]\nlearning_rate = 0.25\nepochs = 3\n"
        "[presets.cub200-50x4.methods.clare]\nlearning_rate = 0.125\n"
    )
    short, long = (make_experiment(f"{preset}+{layer}", "clare") for preset in ("cub200-10x20", "cub200-50x4"))
    assert (short.method["learning_rate"], long.method["learning_rate"]) == (0.25, 0.125)
    assert short.method["epochs"] == long.method["epochs"] == 3


def test_settings_of_a_preset_that_the_package_does_not_have_are_refused(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text("[presets.cub200-50x5.methods.clare]\nlearning_rate = 0.1\n")
    with pytest.raises(SettingsError, match=r"for the preset 'cub200-50x5' \(did you mean 'cub200-50x4'.*extends"):
        make_experiment(f"quickdraw+{layer}")


def test_a_layer_can_speak_of_the_users_own_preset(tmp_path: Path) -> None:
    own, layer = tmp_path / "own.toml", tmp_path / "mine.toml"
    own.write_text('extends = "quickdraw"\n')
    layer.write_text("[presets.own.methods.clare]\nlearning_rate = 0.125\n")
    assert make_experiment(f"{own}+{layer}", "clare").method["learning_rate"] == 0.125


@pytest.mark.parametrize("key", ["datasets", "presets"])
@pytest.mark.parametrize("text", ["KEY = 3", "KEY = {quickdraw = 3}"])
def test_settings_of_a_data_set_or_preset_that_are_no_table_are_refused(tmp_path: Path, key: str, text: str) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text(text.replace("KEY", key))
    with pytest.raises(SettingsError, match=rf"section '{key}' of quickdraw\+mine is no table.*{key}\.NAME"):
        make_experiment(f"quickdraw+{layer}")


def test_settings_of_an_unknown_data_set_are_refused(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text("[datasets.cub200.methods.clare]\nlearning_rate = 0.1\n")
    with pytest.raises(
        SettingsError, match=r"quickdraw\+mine has settings for the data set 'cub200' \(did you mean 'cub'"
    ):
        make_experiment(f"quickdraw+{layer}")


def test_without_a_backbone_the_preset_is_itself() -> None:
    assert with_backbone("quickdraw", None) == "quickdraw"


def test_a_file_whose_name_has_a_plus_is_one_preset(tmp_path: Path) -> None:
    path = tmp_path / "a+b.toml"
    path.write_text('extends = "quickdraw"\n')
    assert read_preset(str(path))["name"] == "a+b"


def test_an_unknown_backbone_is_named_with_the_nearest() -> None:
    sentence = r"no backbone 'vits14' \(did you mean 'vits14-dinov2'\?\); give a backbone preset \(.*a timm name"
    with pytest.raises(SettingsError, match=sentence):
        make_experiment("quickdraw+vits14")
    with pytest.raises(SettingsError, match=sentence):
        find_backbone("vits14")


TIMM = "vit_base_patch16_224.augreg_in21k"


def test_a_timm_name_means_the_same_over_a_preset_and_for_a_new_model(tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('extends = "cifar100-10x10"\n[backbone]\nweights = "random"\narchitecture = {depth = 2}\n')
    experiment = make_experiment(with_backbone(str(small), TIMM))
    assert experiment.backbone == find_backbone(TIMM) == BackboneSettings(name=TIMM)
    assert experiment.name == f"small+{TIMM}"
    assert find_backbone("vit-b16-in21k") == make_experiment("cifar100-10x10+vit-b16-in21k").backbone


def test_the_drawing_model_can_be_named() -> None:
    assert make_experiment("quickdraw+quickdraw-vit").backbone == find_backbone("quickdraw-vit") == BackboneSettings()


def test_a_weights_file_means_the_same_over_a_preset_and_for_a_new_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    save_file(build_embedded(depth=2).state_dict(), path)
    experiment = make_experiment(with_backbone("quickdraw", str(path)))
    assert experiment.name == "quickdraw+mine"
    assert experiment.backbone == find_backbone(str(path)) == named_backbone(str(path))
    assert experiment.backbone.weights == str(path)
    assert f"quickdraw+{path}" in tuned_preset(f"quickdraw+{path}", {})


def test_a_backbone_presets_file_serves_a_new_model(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text(f'[backbone]\nname = "{TIMM}"\nimage_size = 112\n[methods.clare]\nlearning_rate = 0.5\n')
    assert find_backbone(str(layer)) == BackboneSettings(name=TIMM, image_size=112)


def test_weights_that_timm_does_not_have_are_answered_with_those_it_has() -> None:
    with pytest.raises(
        BackboneError, match=r"timm knows no weights .* \(did you mean 'vit_base_patch16_224\.augreg_in21k"
    ):
        make_experiment("cifar100-10x10+vit_base_patch16_224.augreg_in22k")


def test_a_backbone_that_went_elsewhere_is_answered_with_where() -> None:
    with pytest.raises(SettingsError, match=r"no backbone preset 'vits14-112' any more: .* take vits14-dinov2"):
        make_experiment("cifar100-10x10+vits14-112")
    with pytest.raises(SettingsError, match=r"no preset 'vits14-112'"):
        make_experiment("vits14-112")


@pytest.mark.parametrize("backbone", backbone_names())
def test_the_weights_of_packaged_backbones_are_public(backbone: str) -> None:
    settings = make_experiment(f"cifar100-10x10+{backbone}").backbone
    assert settings.weights == "pretrained"
    assert timm.models.is_model_pretrained(settings.name)
    assert timm.get_pretrained_cfg(settings.name).hf_hub_id


def test_a_layer_can_extend_a_packaged_one(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text('extends = "vits14-dinov2"\n[backbone]\nweights = "random"\n')
    ours, packaged = (make_experiment(f"cub200-10x20+{name}", "ease") for name in (layer, "vits14-dinov2"))
    assert ours.method == packaged.method
    assert (ours.name, ours.backbone.weights) == ("cub200-10x20+mine", "random")
    layer.write_text('extends = "vits14-dino"\n')
    with pytest.raises(SettingsError, match=r"no backbone preset 'vits14-dino' \(did you mean 'vits14-dinov2'"):
        make_experiment(f"cub200-10x20+{layer}")


def test_a_tuned_preset_extends_preset_and_backbone_together(tmp_path: Path) -> None:
    layer = tmp_path / "mine.toml"
    layer.write_text('[backbone]\nweights = "random"\n')
    tuned = tmp_path / "tuned.toml"
    tuned.write_text(tuned_preset(f"quickdraw+{layer}", {"clare": {"learning_rate": 0.3}}))
    experiment = make_experiment(str(tuned), "clare")
    assert experiment.backbone.weights == "random"
    assert experiment.method["learning_rate"] == 0.3


def test_a_layer_that_extends_the_preset_it_belongs_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "circle.toml"
    path.write_text(f'extends = "quickdraw+{path}"\n')
    with pytest.raises(SettingsError, match="extends itself"):
        read_preset(str(path))


def test_the_lists_of_presets_and_backbones_are_apart() -> None:
    assert "vits14-dinov2" in backbone_names()
    assert not set(backbone_names()) & set(preset_names())
