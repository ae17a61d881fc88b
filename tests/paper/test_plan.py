"""Which runs an experiment needs, which it shares, and what is chosen."""

from pathlib import Path

import pytest
from experiment_worlds import EXTENT, request_of
from hypothesis import given
from hypothesis import strategies as st

from clare.errors import SettingsError
from clare.paper.estimate import count_all, task_extents
from clare.paper.paper import STUDIES, find_study
from clare.paper.plan import (
    AFTER,
    Entry,
    Run,
    Score,
    choose,
    make_request,
    plan_runs,
    plan_sheet,
    plan_trials,
    plan_words,
    score_trials,
    unique,
)


def test_every_row_has_a_run_for_every_seed(tiny_preset: Path, tmp_path: Path) -> None:
    request = request_of("table6", tiny_preset, tmp_path)
    planned = plan_runs(request, {}, {})
    assert [place[1] for place in planned] == ["clare", "sdlora"]
    assert [run.experiment.seed for run in planned[str(tiny_preset), "clare"]] == [1993, 1994, 1995]
    folders = [run.folder for runs in planned.values() for run in runs]
    assert len(set(folders)) == 6
    assert all(folder.parent == tmp_path / "runs" / "tiny" for folder in folders)


@pytest.mark.parametrize("name", STUDIES)
def test_the_papers_own_streams_are_planned_without_their_data(name: str, tmp_path: Path) -> None:
    study = find_study(name)
    request = make_request(study, study.presets, [None], [f"data.root={tmp_path}"], tmp_path)
    extents, remarks = count_all({preset: request.base(preset) for preset in study.presets}, expects=True)
    assert [remark.partition(": the data are not here")[0] for remark in remarks] == list(study.presets)
    first = {(preset, row.key): row.choices[0] for preset in study.presets for row in study.rows if row.choices}
    planned = plan_runs(request, extents, first)
    assert len(planned) == len(study.presets) * len(study.rows)
    for run in (run for runs in planned.values() for run in runs):
        tasks = task_extents(extents[run.preset], run.experiment, merged=False)
        assert tasks[-1].num_seen == extents[run.preset].num_classes


def test_rows_with_equal_settings_share_a_run(tiny_preset: Path, tmp_path: Path) -> None:
    clare = plan_runs(request_of("table3", tiny_preset, tmp_path), {}, {})[str(tiny_preset), "clare"]
    planned = plan_runs(request_of("table4", tiny_preset, tmp_path), {}, {})
    assert planned[str(tiny_preset), "clare"][0].folder == clare[0].folder
    assert planned[str(tiny_preset), "sparsity-90"][0].folder != clare[0].folder
    assert len(unique([*clare, *(run for runs in planned.values() for run in runs)])) == 4


def test_times_are_measured_on_runs_of_their_own(tiny_preset: Path, tmp_path: Path) -> None:
    planned = plan_runs(request_of("efficiency", tiny_preset, tmp_path), {}, {})
    assert planned[str(tiny_preset), "clare"][0].folder.parent == tmp_path / "timed" / "tiny"


def test_a_rows_own_settings_lie_over_the_users(tiny_preset: Path, tmp_path: Path) -> None:
    planned = plan_runs(request_of("table4", tiny_preset, tmp_path, "method.sparsity=0.5", "method.epochs=1"), {}, {})
    methods = [runs[0].experiment.method for runs in planned.values()]
    assert [method["sparsity"] for method in methods] == [0.9, 0.95, 0.975, 0.99]
    assert {method["epochs"] for method in methods} == {1}


def test_a_setting_goes_to_the_methods_that_have_it(tiny_preset: Path, tmp_path: Path) -> None:
    planned = plan_runs(request_of("table6", tiny_preset, tmp_path, "method.rank=3"), {}, {})
    assert planned[str(tiny_preset), "sdlora"][0].experiment.method["rank"] == 3
    assert planned[str(tiny_preset), "clare"][0].experiment.overrides == []
    with pytest.raises(SettingsError, match=r"no setting 'method\.ranc'"):
        request_of("table6", tiny_preset, tmp_path, "method.ranc=3")


def test_figure1_learns_all_classes_as_one_task(tiny_preset: Path, tmp_path: Path) -> None:
    planned = plan_runs(request_of("figure1", tiny_preset, tmp_path), {str(tiny_preset): EXTENT}, {})
    shares = [runs[0].experiment.method["share"] for runs in planned.values()]
    assert shares == [1.0, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001]
    assert {runs[0].experiment.method["head"]["kind"] for runs in planned.values()} == {"trained"}
    assert {runs[0].experiment.stream.first for runs in planned.values()} == {6}


def test_choices_are_tried_on_validation_images(tiny_preset: Path, tmp_path: Path) -> None:
    request = request_of("table3", tiny_preset, tmp_path, seeds=(3, 4))
    (place, by_choice), *others = plan_trials(request, {}).items()
    assert place == (str(tiny_preset), "no-capacity")
    assert [other[0][1] for other in others] == ["no-capacity-start", "no-capacity-literal"]
    runs = [run for same in by_choice.values() for run in same]
    assert len(runs) == 8
    assert {run.experiment.stream.evaluate_on for run in runs} == {"validation"}
    assert [same[0].experiment.method["constant_share"] for same in by_choice.values()] == [0.1, 0.05, 0.025, 0.01]
    assert place not in plan_runs(request, {}, {})
    chosen = plan_runs(request, {}, {place: "method.constant_share=0.025"})[place]
    assert [run.experiment.method["constant_share"] for run in chosen] == [0.025, 0.025]
    assert {run.experiment.stream.evaluate_on for run in chosen} == {"test"}


def test_the_best_choice_is_taken_by_final_then_by_average_accuracy() -> None:
    assert choose({"a": (0.5, 0.9), "b": (0.6, 0.1), "c": None}) == "b"
    assert choose({"a": (0.5, 0.8), "b": (0.5, 0.9)}) == "b"
    assert choose({"a": (0.5, 0.9), "b": (0.5, 0.9)}) == "a"
    assert choose({"a": None}) is None


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_no_other_choice_is_better_than_the_chosen(scores: dict[str, Score]) -> None:
    chosen = choose(dict(scores))
    assert chosen is not None
    assert all(scores[chosen] >= score for score in scores.values())


def test_scores_are_means_over_seeds_and_a_failure_leaves_none(tiny_preset: Path, tmp_path: Path) -> None:
    request = request_of("table3", tiny_preset, tmp_path, seeds=(3, 4))
    by_choice = next(iter(plan_trials(request, {}).values()))
    failed = by_choice["method.constant_share=0.01"][1]

    def score_of(run: Run) -> Score | None:
        seed = run.experiment.seed
        return None if run is failed else (0.1 * seed, 0.2 * seed)

    scores = score_trials(by_choice, score_of)
    assert scores["method.constant_share=0.1"] == pytest.approx((0.35, 0.7))
    assert scores["method.constant_share=0.01"] is None


@pytest.mark.parametrize(
    ("name", "seeds", "overrides", "sentence"),
    [
        ("table6", (7,), (), "table6 measures how results vary over seeds, and --seeds got 7 alone; give at least two"),
        ("table1", (None,), ("stream.evaluate_on=validation",), "is validation for tiny: figures are measured on test"),
    ],
)
def test_wrong_requests_are_refused(
    tiny_preset: Path,
    tmp_path: Path,
    name: str,
    seeds: tuple[int | None, ...],
    overrides: tuple[str, ...],
    sentence: str,
) -> None:
    with pytest.raises(SettingsError) as caught:
        request_of(name, tiny_preset, tmp_path, *overrides, seeds=seeds)
    assert sentence in str(caught.value)


def test_a_plan_counts_a_shared_run_once(tiny_preset: Path, tmp_path: Path) -> None:
    request = request_of("table4", tiny_preset, tmp_path)
    planned = plan_runs(request, {}, {})
    entries = [Entry(place, "", runs) for place, runs in planned.items()]
    entries.append(Entry((str(tiny_preset), "clare"), AFTER, planned[str(tiny_preset), "clare"]))
    first, *others = (runs[0].folder for runs in planned.values())
    seconds: dict[Path, float | None] = {folder: 30.0 for folder in others}
    sheet = plan_sheet(request, entries, {first}, seconds)
    assert sheet.rows[0][2:] == ("1", "1", "-")
    assert sheet.rows[1][2:] == ("1", "0", "30.0 s")
    assert sheet.rows[4][2:] == ("shared", "0", "-")
    words = plan_words(entries, {first}, seconds, 3)
    assert words.startswith("3 of 4 runs are left, about 2 min one at a time; 3 at a time take at best 30.0 s.")
    assert plan_words(entries, {first, *others}, {}, 1) == "all 4 runs are done"
    seconds[others[0]] = None
    assert "and 1 for which nothing could be measured" in plan_words(entries, {first}, seconds, 1)
    assert plan_sheet(request, entries, {first}, seconds).rows[1][4] == "unknown"
