"""Presets: those of the package are whole, and from a file and flags to an experiment every mistake is named."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clare.errors import SettingsError
from clare.methods import METHODS
from clare.presets.load import make_experiment, merge, parse_override, preset_names, read_preset
from clare.presets.schema import Experiment


def write(folder: Path, text: str, name: str = "mine") -> str:
    """Write a preset and return its path as a user would give it."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def test_the_package_has_its_presets() -> None:
    assert {"quickdraw", "quickdraw-20x10", "quickdraw-20x10-literal", "quickdraw-100x2"} <= set(preset_names())


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("preset", preset_names())
def test_every_packaged_preset_resolves_for_every_method(preset: str, method: str) -> None:
    experiment = make_experiment(preset, method)
    assert experiment.name == preset
    assert experiment.description
    assert experiment.method_name == method
    assert isinstance(experiment.method_settings(), METHODS.get(method).settings_type)
    assert experiment.overrides == []
    again = Experiment.model_validate(experiment.model_dump(mode="json"))
    assert again == experiment


def test_the_streams_are_as_their_names_say() -> None:
    long, standard = make_experiment("quickdraw-100x2"), make_experiment("quickdraw-20x10")
    assert (long.stream.increment, standard.stream.increment) == (2, 10)
    assert long.model_copy(update={"name": "", "description": "", "stream": None}) == standard.model_copy(
        update={"name": "", "description": "", "stream": None}
    )


def test_the_literal_preset_reads_as_the_paper() -> None:
    settings = make_experiment("quickdraw-20x10-literal", "clare").method
    assert settings["head"]["kind"] == "trained"
    assert settings["penalty"] == "l1-subgradient"
    assert settings["probe_decay"] == "zero"
    assert (settings["learning_rate"], settings["epochs"], settings["probe_epochs"]) == (0.02, 20, 5)


def test_a_preset_lies_over_the_one_it_extends(tmp_path: Path) -> None:
    base = write(
        tmp_path,
        'description = "base"\nseed = 1\n[data]\ndataset = "quickdraw"\n[stream]\nincrement = 5\nnum_classes = 20\n'
        "[method]\nepochs = 7\n[method.head]\nkind = 'aligned'\nscale = 9\nshrinkage = 0.5",
        "base",
    )
    middle = write(tmp_path, f'extends = "{base}"\n[stream]\nincrement = 4', "middle")
    top = write(tmp_path, f'extends = "{middle}"\nseed = 2\n[method.head]\nscale = 3', "top")
    experiment = make_experiment(top)
    assert (experiment.name, experiment.description, experiment.seed) == ("top", "base", 2)
    assert (experiment.stream.increment, experiment.stream.num_classes) == (4, 20)
    assert (experiment.method["epochs"], experiment.method["head"]["scale"]) == (7, 3)
    assert experiment.method["head"]["shrinkage"] == 0.5


def test_a_preset_may_extend_one_of_the_package_with_its_own_name(tmp_path: Path) -> None:
    experiment = make_experiment(write(tmp_path, 'extends = "quickdraw"\nseed = 5', "quickdraw"))
    assert (experiment.name, experiment.seed) == ("quickdraw", 5)


def test_shared_settings_go_to_the_methods_that_have_them(tmp_path: Path) -> None:
    preset = write(
        tmp_path,
        'default_method = "finetune"\n[data]\ndataset = "quickdraw"\n[stream]\nincrement = 5\n'
        "[method]\nepochs = 3\nsparsity = 0.5\n[methods.clare]\nepochs = 4",
    )
    assert make_experiment(preset).method_name == "finetune"
    clare, finetune, simplecil = (make_experiment(preset, name).method for name in ("clare", "finetune", "simplecil"))
    assert (clare["epochs"], clare["sparsity"]) == (4, 0.5)
    assert finetune["epochs"] == 3
    assert "sparsity" not in finetune
    assert "epochs" not in simplecil


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("seed=3", {"seed": 3}),
        ("method.sparsity=0.9", {"method": {"sparsity": 0.9}}),
        ("method.sparsity = 1e-3", {"method": {"sparsity": 1e-3}}),
        ("method.two_stage=false", {"method": {"two_stage": False}}),
        ("method.mask=random", {"method": {"mask": "random"}}),
        ('method.mask="random"', {"method": {"mask": "random"}}),
        ("method.head.scale=5", {"method": {"head": {"scale": 5}}}),
        ("transforms.crop_scale=[0.5, 1.0]", {"transforms": {"crop_scale": [0.5, 1.0]}}),
        ("backbone.architecture={depth = 2}", {"backbone": {"architecture": {"depth": 2}}}),
        ("backbone.architecture.depth=2", {"backbone": {"architecture": {"depth": 2}}}),
        ("data.root=/mnt/a=b c", {"data": {"root": "/mnt/a=b c"}}),
        ("data.root=", {"data": {"root": ""}}),
    ],
)
def test_overrides_are_read_as_toml_or_text(text: str, value: dict[str, Any]) -> None:
    assert parse_override(text) == value


def test_later_overrides_win_and_are_kept() -> None:
    overrides = ["method.epochs=3", "seed=4", "method.epochs=5", "method.head.kind=trained"]
    experiment = make_experiment("quickdraw", "clare", overrides)
    assert (experiment.method["epochs"], experiment.seed, experiment.method["head"]["kind"]) == (5, 4, "trained")
    assert experiment.overrides == overrides
    assert make_experiment("quickdraw", "clare", overrides, seed=6).seed == 6


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sparsity", r"--set got 'sparsity'; write it as key=value"),
        ("=3", r"--set got '=3'; write it as key=value"),
        (
            "sparsity=3",
            r"no setting 'sparsity' \(did you mean 'method\.sparsity'\?\); a setting starts with one of data, stream",
        ),
        ("methd.sparsity=3", r"no setting 'methd' \(did you mean 'method'\?\); a setting starts with"),
        ("method=3", r"--set got a value for all of 'method'; name one of its settings, such as method\.NAME=VALUE"),
        ("method.name=finetune", r"the method is chosen with --method NAME"),
        ("method.sparsty=0.9", r"no setting 'method\.sparsty' \(did you mean 'sparsity'\?\); allowed here: "),
        ("method.head.scal=1", r"no setting 'method\.head\.scal' \(did you mean 'scale'\?\); allowed here: "),
        ("stream.incremnt=1", r"no setting 'stream\.incremnt' \(did you mean 'increment'\?\)"),
        ("method.sparsity=1", r"the setting 'method\.sparsity' got 1; input should be less than 1"),
        ("method.sparsity=much", r"the setting 'method\.sparsity' got 'much'; input should be a valid number"),
        ("method.epochs=2.5", r"the setting 'method\.epochs' got 2\.5; .*integer"),
        ("method.learning_rate=nan", r"the setting 'method\.learning_rate' got nan; "),
        ("method.mask=some", r"the setting 'method\.mask' got 'some'; input should be 'learnt', 'random' or 'none'"),
        ("method.head=3", r"the setting 'method\.head' got 3; "),
        ("engine.num_devices=0", r"the setting 'engine\.num_devices' got 0; .*greater than or equal to 1"),
        ("engine.device=tpu", r"the setting 'engine\.device' got 'tpu'; input should be 'auto', 'cpu' or 'cuda'"),
        ("seed=-1", r"the setting 'seed' got -1; "),
        ("seed.x=1", r"the setting 'seed' got \{'x': 1\}; "),
        ("data.dataset=quickdrow", r"the setting 'data\.dataset' got 'quickdrow'; .*did you mean 'quickdraw'"),
    ],
)
def test_a_wrong_override_is_named(override: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        make_experiment("quickdraw", "clare", [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[method]\nepoks = 1", r"no method has the setting 'method\.epoks' \(did you mean 'epochs'\?\)"),
        ("[methods.clar]\nepochs = 1", r"no method 'clar' \(did you mean 'clare'\?\); known: "),
        ("[methods]\nclare = 1", r"section 'clare' got 1; write it as a table"),
        ("method = 1", r"section 'method' got 1; write it as a table"),
        ("[strem]\nincrement = 1", r"no setting 'strem' \(did you mean 'stream'\?\); allowed here: "),
        ("[method]\nepochs = 0", r"the setting 'method\.epochs' got 0; "),
        ('default_method = "clar"', r"no method 'clar' \(did you mean 'clare'\?\)"),
    ],
)
def test_a_wrong_line_of_a_preset_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_experiment(write(tmp_path, f'extends = "quickdraw"\n{text}'))


def test_presets_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no preset 'quikdraw' \(did you mean 'quickdraw'\?\); known: .*TOML file"):
        make_experiment("quikdraw")
    with pytest.raises(SettingsError, match=r"no preset '.*missing\.toml'"):
        make_experiment(str(tmp_path / "missing.toml"))
    with pytest.raises(SettingsError, match=r"mine\.toml is not valid TOML: .*line 1.*; correct it"):
        make_experiment(write(tmp_path, "this is not TOML"))
    with pytest.raises(SettingsError, match=r"no preset 'nothing'"):
        make_experiment(write(tmp_path, 'extends = "nothing"'))
    with pytest.raises(SettingsError, match=r"there is no method 'clair' \(did you mean 'clare'\?\)"):
        make_experiment("quickdraw", "clair")
    with pytest.raises(SettingsError, match=r"the setting 'data' is missing; give it a value"):
        make_experiment(write(tmp_path, "[stream]\nincrement = 1"))


def test_a_preset_that_extends_itself_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path, f'extends = "{tmp_path / "two.toml"}"', "one")
    write(tmp_path, f'extends = "{one}"', "two")
    with pytest.raises(SettingsError, match=r"one\.toml' extends itself; remove `extends`"):
        read_preset(one)


values = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
tables = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the leaves of nested values by their paths; an empty table is a leaf."""
    if isinstance(value, dict) and value:
        return {key: leaf for name, part in value.items() for key, leaf in leaves(part, (*path, name)).items()}
    return {path: value}


@given(tables, tables)
def test_merging_keeps_all_of_the_upper_and_what_it_leaves_of_the_lower(
    lower: dict[str, Any], upper: dict[str, Any]
) -> None:
    merged, over = leaves(merge(lower, upper)), leaves(upper)
    for path, value in over.items():
        if value != {}:
            assert merged[path] == value
    for path, value in leaves(lower).items():
        if not any(path[: len(other)] == other or other[: len(path)] == path for other in over):
            assert merged[path] == value
    assert merge(merge(lower, upper), upper) == merge(lower, upper)
