"""Seeds as one, ranks at equal heads, and the difference to the reference."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import write_page, write_run

import clare
from clare.metrics.summary import summarise
from clare.report.groups import Spread, compare, group_runs, rank, spread
from clare.report.record import RunRecord, find_runs, read_run
from clare.report.standings import (
    COSTS,
    DEFINITIONS,
    Failure,
    comparison_sheet,
    part_of,
    spread_percent,
    standing_sheets,
    task_sheets,
    to_latex,
    to_page,
)
from clare.report.tables import count, task_sheet
from clare.report.write import write_report

ORDERS = ["abcdef", "fedcba", "bcdefa"]


def head(method: str, strategy: str) -> dict[str, Any]:
    """A preset's part that names a head."""
    return {"method": {"name": method, "head": {"form": "cosine", "kind": strategy}}}


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    """Three seeds of three methods, one of them at another head, and a bound."""
    for seed, classes in enumerate(ORDERS):
        for method, skill, strategy in (
            ("ease", 0.7, "aligned"),
            ("clare", 0.9, "aligned"),
            ("simplecil", 0.95, "prototype"),
            ("joint", 0.99, "aligned"),
        ):
            sizes = (6,) if method == "joint" else (2, 2, 2)
            write_run(
                tmp_path / f"{method}-{seed}",
                method,
                sizes,
                skill,
                seed=seed + len(method),
                classes=classes,
                preset={"seed": seed, **head(method, strategy)},
            )
    return find_runs([tmp_path])


def test_means_and_deviations() -> None:
    assert spread([0.2, 0.4]) == Spread(pytest.approx(0.3), pytest.approx(2**0.5 / 10))
    assert spread([0.2, None]) == Spread(0.2, None)
    assert spread([None]) == spread([]) == Spread(None, None)
    assert spread_percent(Spread(0.525, 0.004)) == "52.5 ± 0.4"
    assert spread_percent(Spread(0.525, None)) == "52.5"
    assert spread_percent(Spread(None, None)) == "-"


def test_counts_for_people() -> None:
    numbers = (0, 999, 1000, 9949, 52_300, 1_234_567, 85_800_000, 2_000_000_000)
    assert [count(number) for number in numbers] == ["0", "999", "1.0 k", "9.9 k", "52 k", "1.2 M", "86 M", "2.0 G"]
    assert count(None) == "-"


def test_runs_that_differ_in_their_seed_alone_are_one(runs: list[RunRecord]) -> None:
    groups = group_runs(runs)
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("clare", 3),
        ("ease", 3),
        ("joint", 3),
        ("simplecil", 3),
    ]
    assert groups[0].seeds == [0, 1, 2]
    finals = [summarise(run)["final_accuracy"] for run in runs if run.method == "clare"]
    assert groups[0].figures["final_accuracy"].mean == pytest.approx(np.mean(finals))  # type: ignore[arg-type]
    assert groups[0].figures["final_accuracy"].deviation == pytest.approx(np.std(finals, ddof=1))  # type: ignore[arg-type]
    pictures = {"num_pictures": None, "picture_bytes": None}
    assert groups[0].costs == {"num_trained": 1200, "num_stored": 3600, "passes_per_image": 2, **pictures}
    assert groups[0].seconds == 33.0


def test_other_settings_and_repetitions_are_not_taken_for_seeds(tmp_path: Path) -> None:
    write_run(tmp_path / "a", preset={"seed": 1, "batch": 8})
    write_run(tmp_path / "b", preset={"seed": 2, "batch": 16})
    write_run(tmp_path / "c", "ease", preset={"seed": 1})
    write_run(tmp_path / "d", "ease", preset={"seed": 1})
    groups = group_runs(find_runs([tmp_path]))
    assert [group.label for group in groups] == ["clare@a", "clare@b", "ease@c", "ease@d"]


def test_only_finished_runs_count_once_there_are_some(tmp_path: Path) -> None:
    for seed, num_tasks in enumerate((3, 2)):
        write_run(tmp_path / f"clare-{seed}", num_tasks=num_tasks, preset={"seed": seed}, seed=seed)
    (group,) = group_runs(find_runs([tmp_path]))
    assert (len(group.runs), group.seeds) == (2, [0])
    (sheet,) = standing_sheets(rank(find_runs([tmp_path / "clare-1"])))
    assert sheet.rows[0][0] == "clare (2 of 3 tasks)"


def test_methods_are_ranked_at_equal_heads_and_bounds_are_not(runs: list[RunRecord]) -> None:
    ranking = rank(runs)
    assert list(ranking) == ["cosine, aligned", "cosine, prototype"]
    assert [each.group.label for each in ranking["cosine, aligned"]] == ["clare", "ease", "joint"]
    assert [each.is_bound for each in ranking["cosine, aligned"]] == [False, False, True]
    assert [each.note for each in ranking["cosine, aligned"]] == ["reference", "", ""]
    assert [each.group.label for each in ranking["cosine, prototype"]] == ["simplecil"]


def test_differences_are_pooled_over_seeds(runs: list[RunRecord]) -> None:
    standings = {each.group.label: each for standings in rank(runs).values() for each in standings}
    means = {label: each.group.figures["final_accuracy"].mean for label, each in standings.items()}
    for label in ("ease", "simplecil", "joint"):
        interval = standings[label].intervals["final_accuracy"]
        assert interval is not None
        assert interval.difference == pytest.approx((means[label] or 0) - (means["clare"] or 0), abs=1e-6)
        assert interval.low < interval.difference < interval.high
    alone = rank([run for run in runs if run.method in ("clare", "ease")])
    assert alone["cosine, aligned"][1].intervals["final_accuracy"] == standings["ease"].intervals["final_accuracy"]


def test_one_seed_has_the_interval_of_the_run(runs: list[RunRecord]) -> None:
    pair = [run for run in runs if run.preset["seed"] == 1 and run.method in ("clare", "ease")]
    of_runs = compare(pair)[1].intervals["final_accuracy"]
    interval = rank(pair)["cosine, aligned"][1].intervals["final_accuracy"]
    assert interval is not None
    expected = (of_runs.difference, of_runs.low, of_runs.high)
    assert (interval.difference, interval.low, interval.high) == pytest.approx(expected, abs=1e-6)


def test_runs_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "clare")
    write_run(tmp_path / "b", "ease", task_sizes=(3, 3))
    write_run(tmp_path / "c", "l2p", num_tasks=2)
    lost = write_run(tmp_path / "d", "sema")
    (lost / "predictions" / "task-0002.safetensors").unlink()
    notes = {each.group.label: each.note for each in rank(find_runs([tmp_path]))[""]}
    assert notes == {
        "clare": "reference",
        "ease": "different stream",
        "l2p": "unfinished",
        "sema": "no shared predictions",
    }


def test_sheets_name_heads_costs_seeds_and_failures(runs: list[RunRecord]) -> None:
    failures = [Failure("l2p-1", "cosine, prototype", "it diverged"), Failure("sema", "linear, trained", "it refuses")]
    aligned, prototype = standing_sheets(rank(runs), failures)
    assert aligned.title == "Comparison in percent; head: cosine, aligned"
    assert aligned.header == (
        "Method",
        "Seeds",
        "Average",
        "Final",
        "Forgetting",
        "Δ final",
        "Trained",
        "Stored",
        "Passes",
        "Time",
    )
    assert [row[0] for row in aligned.rows] == ["clare", "ease", "joint (bound)", "sema"]
    assert [row[0] for row in prototype.rows] == ["simplecil", "l2p-1"]
    assert aligned.marked == {0}
    assert not prototype.marked
    assert aligned.rows[0][5:] == ("reference", "1.2 k", "3.6 k", "2", "33.0 s")
    assert aligned.rows[2][2] == aligned.rows[2][4] == "-"
    assert aligned.rows[3][2:] == ("failed", *["-"] * 7)
    for sheet in (aligned, prototype):
        assert {len(row) for row in sheet.rows} == {len(sheet.header)}
    one_seed = [run for run in runs if run.preset["seed"] == 0]
    assert "Seeds" not in standing_sheets(rank(one_seed))[0].header


def test_a_sheet_is_cut_for_a_narrow_terminal(runs: list[RunRecord]) -> None:
    sheet = standing_sheets(rank(runs))[0]
    accuracies = part_of(sheet, ("Seeds", "Average", "Final", "Forgetting", "Δ final"), sheet.title)
    costs = part_of(sheet, COSTS, "Cost; head: cosine, aligned")
    assert accuracies.header == sheet.header[:6]
    assert costs.header == ("Method", *sheet.header[6:])
    assert [row[0] for row in accuracies.rows] == [row[0] for row in costs.rows] == [row[0] for row in sheet.rows]
    assert costs.rows[0] == ("clare", "1.2 k", "3.6 k", "2", "33.0 s")
    assert costs.title == "Cost; head: cosine, aligned"


def test_the_comparison_is_written_as_markdown(runs: list[RunRecord], tmp_path: Path) -> None:
    failures = [Failure("l2p-1", "", "it diverged; lower the learning rate")]
    page = write_report(runs, tmp_path / "out", "Methods compared", rank(runs), failures)
    text = page.with_name("comparison.md").read_text()
    assert text == to_page("Methods compared", standing_sheets(rank(runs), failures), failures, DEFINITIONS)
    assert text.startswith("# Methods compared\n\n**Comparison in percent; head: cosine, aligned**\n\n| Method |")
    assert "| **clare** | 3 |" in text
    assert "- l2p-1 failed: it diverged; lower the learning rate" in text
    assert "Δ: the difference to the reference" in text


def test_what_has_no_final_accuracy_ranks_last(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "clare", num_tasks=0)
    write_run(tmp_path / "b", "ease", skill=0.1)
    assert [each.group.label for each in rank(find_runs([tmp_path]))[""]] == ["ease", "clare"]


def test_a_single_run_has_a_standing(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", "joint", task_sizes=(6,)))
    ((standing,),) = rank([run]).values()
    assert (standing.note, standing.is_bound) == ("reference", False)


def test_backbones_are_ranked_apart_and_compared_each_with_its_own(tmp_path: Path) -> None:
    for backbone, skill in (("small", 0.6), ("large", 0.95)):
        for method, behind in (("clare", 0.0), ("ease", 0.2), ("l2p", 0.4)):
            if (backbone, method) != ("large", "l2p"):
                preset = {"name": f"c+{backbone}", "backbone": {"name": backbone}, **head(method, "aligned")}
                folder = write_run(tmp_path / backbone / method, method, skill=skill - behind, preset=preset)
                record = (folder / "record.jsonl").read_text()
                (folder / "record.jsonl").write_text(record.replace('"abc"', f'"{backbone}-hash"'))
    runs = find_runs([tmp_path / "small", tmp_path / "large"])
    ranking = rank(runs)
    assert {place: [each.group.method for each in standings] for place, standings in ranking.items()} == {
        "cosine, aligned; backbone: large (large-ha)": ["clare", "ease"],
        "cosine, aligned; backbone: small (small-ha)": ["clare", "ease", "l2p"],
    }
    for standings in ranking.values():
        assert standings[0].note == "reference"
        for each in standings[1:]:
            assert each.against is standings[0].group
            assert each.intervals
            assert each.intervals["final_accuracy"].difference < 0
    for comparison in compare(runs):
        assert comparison.note == ("reference" if comparison.run.method == "clare" else "")
        assert comparison.against.label == f"clare@{comparison.run.folder.parent.name}/clare"
    others = find_runs([tmp_path / "small/clare", tmp_path / "large/ease"])
    assert [each.note for each in compare(others)] == ["reference", "different backbone"]
    assert {each.note for standings in rank(others).values() for each in standings} == {
        "reference",
        "different backbone",
    }
    page = write_page(runs, tmp_path / "page.html").read_text()
    assert "<b>ease@large/ease</b>: -" in page.partition("</header>")[0]


def test_there_is_one_call_of_the_bootstrap() -> None:
    root = Path(clare.__file__).parents[2]
    sources = [*(root / "src").rglob("*.py"), *(root / "studies").rglob("*.py"), *(root / "scripts").rglob("*.py")]
    calling = {path.name for path in sources if "paired_intervals(" in path.read_text(encoding="utf-8")}
    assert calling == {"bootstrap.py", "groups.py"}


def test_who_is_told_the_task_stands_in_the_table_with_the_task_given_only(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "clare", given=0.8)
    write_run(tmp_path / "b", "masks", given=0.95, is_told=True)
    write_run(tmp_path / "c", "joint", task_sizes=(6,), given=0.99)
    write_run(tmp_path / "d", "ease")
    runs = find_runs([tmp_path])
    ranking = rank(runs)
    (sheet,), (given,) = standing_sheets(ranking), task_sheets(ranking)
    assert [row[0] for row in sheet.rows] == ["clare", "ease", "joint (bound)"]
    assert given.header == ("Method", "Head", "Average", "Final", "Forgetting", "Task right")
    assert given.rows == (
        ("masks", "-", "95.0", "95.0", "0.0", "-"),
        ("clare", "-", "80.0", "80.0", "0.0", "50.0"),
    )
    assert [each.note for each in compare(runs)] == ["reference", "told the task", "different stream", ""]
    page = write_report(runs, tmp_path / "out", "Tasks", ranking)
    assert "With the task given, in percent" in page.with_name("comparison.md").read_text()
    assert page.read_text().count("With the task given, in percent") == 1
    summary = json.loads(page.with_name("summary.json").read_text())
    assert (summary["masks"]["final_given"], summary["masks"]["final_accuracy"]) == (0.95, None)
    assert (summary["masks"]["is_told_task"], summary["clare"]["task_right"]) == (True, 0.5)
    assert "masks" not in to_latex(runs)
    told = rank([run for run in runs if run.method == "masks"])
    assert not standing_sheets(told)
    assert len(task_sheets(told)) == 1
    write_report([run for run in runs if run.method == "masks"], tmp_path / "alone", "Told", told)
    assert not task_sheets(rank([run for run in runs if run.method == "ease"]))


def test_kept_pictures_stand_beside_the_name_wherever_a_method_stands(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "clare", given=0.8)
    write_run(tmp_path / "b", "er", given=0.9, num_pictures=2000)
    runs = find_runs([tmp_path])
    ranking = rank(runs)
    said = "er (keeps 2,000 pictures, 1.6 MB)"
    for sheet in (*standing_sheets(ranking), *task_sheets(ranking), comparison_sheet(compare(runs))):
        assert {row[0] for row in sheet.rows} == {"clare", said}
    assert said in to_latex(runs)
    assert task_sheet(runs[1]).title == "er (keeps 2,000 pictures, 1.6 MB), in percent"
    page = write_report(runs, tmp_path / "out", "Pictures", ranking)
    assert said in page.read_text()
    assert said in page.with_name("comparison.md").read_text()
    summary = json.loads(page.with_name("summary.json").read_text())
    assert (summary["er"]["num_pictures"], summary["er"]["picture_bytes"]) == (2000, 784 * 2000)
    assert summary["clare"]["num_pictures"] is None
