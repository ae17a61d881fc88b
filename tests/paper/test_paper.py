"""The paper's numbers: whole, typed, and matched only with runs on the same data and backbone."""

import pytest

from clare.errors import SettingsError
from clare.methods import METHODS
from clare.paper.paper import (
    STUDIES,
    Study,
    find_study,
    has_paper_backbone,
    read_paper,
    recipe_differences,
    stream_in_paper,
)
from clare.presets.load import make_experiment

PAPER = read_paper()


@pytest.mark.parametrize(
    ("study", "stream", "row", "average", "final"),
    [
        ("table1", "imagenet-r-50x4", "clare", 83.00, 76.52),
        ("table1", "omnibenchmark1k-100x10", "sdlora", 53.97, 28.15),
        ("table1", "imagenet-a-50x4", "coda-prompt", 38.24, 26.60),
        ("table2", "objectnet-10x20", "sema", 67.95, 54.92),
        ("table2", "cifar100-20x5", "l2p", 85.94, 79.93),
        ("table3", "omnibenchmark1k-100x10", "no-capacity", 64.20, 53.17),
        ("table4", "imagenet-r-10x20", "sparsity-90", 83.88, 84.04),
        ("table5", "imagenet-r-10x20", "independent", 58.32, 32.33),
        ("table7", "imagenet-r-50x4", "width-128", None, 76.65),
    ],
)
def test_numbers_are_those_that_were_printed(
    study: str, stream: str, row: str, average: float | None, final: float
) -> None:
    cell = PAPER.cells(study, stream)[row]
    assert (cell.average, cell.final) == (average, final)


# Sums over the printed rows of each stream, added up apart from the file under test.
SUMS: dict[str, list[tuple[float, float]]] = {
    "table1": [(637.01, 574.55), (479.84, 367.71), (565.85, 421.85)],
    "table2": [
        *((712.22, 663.90), (672.26, 614.78), (821.52, 778.88)),
        *((812.30, 760.20), (539.25, 446.53), (623.55, 521.00)),
    ],
    "table3": [(418.95, 397.49), (346.11, 289.48)],
    "table4": [(329.76, 316.26), (308.46, 258.19)],
    "table5": [(609.46, 509.71), (496.10, 401.40)],
    "table6": [(0, 156.98), (0, 98.82), (0, 80.37)],
    "table7": [(0, 305.96)],
}


@pytest.mark.parametrize("name", SUMS)
def test_no_number_is_mistyped(name: str) -> None:
    found = [
        (sum(cell.average or 0 for cell in cells.values()), sum(cell.final or 0 for cell in cells.values()))
        for cells in PAPER.numbers[name].values()
    ]
    assert found == [pytest.approx(expected) for expected in SUMS[name]]


def test_seeds_and_hours_are_those_that_were_printed() -> None:
    cell = PAPER.cells("table6", "omnibenchmark1k-100x10")["sdlora"]
    assert (cell.final, cell.deviation) == (13.27, 12.83)
    hours = PAPER.cells("efficiency", "imagenet-a-50x4")
    assert (hours["clare"].hours, hours["sdlora"].hours) == (4.37, 4.41)


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in ("figure1", "efficiency")])
def test_every_row_has_a_number_on_every_stream_and_no_number_is_without_a_row(name: str) -> None:
    study = find_study(name)
    assert tuple(PAPER.numbers[name]) == study.presets
    for cells in PAPER.numbers[name].values():
        assert set(cells) == {row.key for row in study.rows}
        for cell in cells.values():
            assert all((cell.average if metric == "average" else cell.final) is not None for metric in study.metrics)


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_row_is_a_method_with_settings_that_it_has(study: Study) -> None:
    for row in study.rows:
        METHODS.get(row.method)
        for choice in row.choices or (None,):
            make_experiment("quickdraw", row.method, [*row.overrides, *([choice] if choice else [])])


def test_rows_have_keys_of_their_own_and_a_reference() -> None:
    for study in STUDIES.values():
        keys = [row.key for row in study.rows]
        assert len(set(keys)) == len(keys)
        assert study.row(study.reference).key == study.reference


def test_a_wrong_experiment_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"no experiment 'tabel5' \(did you mean 'table5'\?\); known: table1, "):
        find_study("tabel5")


def test_a_stream_is_the_papers_only_when_nothing_is_left_out() -> None:
    def stream(*overrides: str) -> str | None:
        words = ["data.dataset=imagenet-r", "stream.increment=4", *overrides]
        return stream_in_paper(PAPER, make_experiment("quickdraw-20x10", "clare", words))

    assert stream() == "imagenet-r-50x4"
    assert stream("stream.increment=20") == "imagenet-r-10x20"
    assert stream("stream.first=4") == "imagenet-r-50x4"
    assert stream("stream.first=20") is None
    assert stream("stream.num_classes=100") is None
    assert stream("stream.train_per_class=10") is None
    assert stream("data.dataset=imagenet-a", "stream.increment=5") is None
    whole = make_experiment("quickdraw-20x10", "clare", ["data.dataset=imagenet-r", "stream.increment=20"])
    at_once = whole.model_copy(update={"stream": whole.stream.model_copy(update={"first": 200})})
    assert stream_in_paper(PAPER, at_once) is None
    assert stream_in_paper(PAPER, at_once, all_at_once=True) == "imagenet-r-10x20"


def test_a_backbone_is_the_papers_by_weights_and_size() -> None:
    def same(study: str, *overrides: str) -> bool:
        return has_paper_backbone(PAPER, study, make_experiment("quickdraw-20x10", "clare", overrides))

    right = "backbone.name=vit_base_patch16_224.augreg_in21k"
    assert not same("table1")
    assert same("table1", right)
    assert same("table1", right, "backbone.image_size=224")
    assert not same("table1", right, "backbone.image_size=112")
    assert not same("table1", right, "backbone.weights=mine.safetensors")
    assert not same("figure1", right)
    assert same("figure1", f"{right}_ft_in1k")


def test_settings_other_than_the_papers_are_named() -> None:
    assert recipe_differences(PAPER, make_experiment("quickdraw-20x10-literal", "clare")) == {}
    words = ["method.sparsity=0.9", "method.learning_rate=0.1", "method.adapter.bottleneck=32"]
    ours = {
        "penalty": ("l1-proximal", "l1-subgradient"),
        "probe_decay": ("initial", "zero"),
        "select_unmoved": ("false", True),
        "contrast": ("task", "seen-trained"),
        "head.kind": ("aligned", "trained"),
    }
    assert recipe_differences(PAPER, make_experiment("quickdraw-20x10", "clare", words)) == {
        **{"sparsity": ("0.9", 0.95), "learning_rate": ("0.1", 0.02), "adapter.bottleneck": ("32", 64.0)},
        **ours,
    }


PRINTED = [
    ("table3", "imagenet-r-10x20", "one-stage", -1.08),
    ("table4", "imagenet-r-10x20", "sparsity-90", +0.45),
    ("table5", "imagenet-r-10x20", "stage1-l2", -0.20),
    ("table5", "omnibenchmark1k-100x10", "lambda-1e-3", -0.58),
]
"""Differences of final accuracies as printed that do not follow from their rows."""


@pytest.mark.parametrize(("name", "stream", "row", "printed"), PRINTED)
def test_a_printed_difference_that_does_not_follow_is_remarked_on(
    name: str, stream: str, row: str, printed: float
) -> None:
    cells = PAPER.cells(name, stream)
    ours, reference = cells[row].final, cells["clare"].final
    assert ours is not None
    assert reference is not None
    assert round(ours - reference, 2) != printed
    assert any(f"{printed:+.2f}" in remark and stream in remark for remark in PAPER.remarks[name])


def test_the_figure_says_what_is_our_reading() -> None:
    assert any(
        "all classes are learnt at once" in remark and "our reading" in remark for remark in PAPER.remarks["figure1"]
    )
