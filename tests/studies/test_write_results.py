"""From results to the pages: the same every time, and with no figure of their own."""

import csv
import html.parser
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clare.errors import RunError
from clare.report.groups import rank
from clare.report.record import read_run
from clare.report.standings import standing_sheets
from clare.report.tables import to_markdown

Script = Callable[[str], ModuleType]
Add = Callable[..., Path]
ROOT = Path(__file__).parents[2]
STUDY = ROOT / "studies" / "vits14-112"
TEN, FIFTY = "cifar100-10x10", "cifar100-50x2"


@pytest.fixture
def pages(write: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Return pages(): what is made of the results below tmp_path, by name, with short texts around it."""
    text = tmp_path / "made/text"
    text.mkdir(parents=True)
    (text / "results.md").write_text("# Results\n\n{claims}\n\n{streams}\n")
    (text / "choosing.md").write_text("# Choosing\n\n{streams}\n")
    (text / "notes.md").write_text("# Notes\n\n{tuning}\n")
    for name in ("claims.toml", "table.html"):
        (tmp_path / "made" / name).write_text((STUDY / name).read_text())
    monkeypatch.setattr(write, "HOME", tmp_path / "made")

    def pages() -> dict[str, str]:
        rendered = write.render(write.read_all(tmp_path / "home"), tmp_path)
        return {path.name: content for path, content in rendered.items()}

    return pages


@pytest.fixture
def trials_of(pages: Callable[[], dict[str, str]]) -> Callable[[], str]:
    """Return trials_of(): the page with the trials."""
    return lambda: pages()["notes.md"]


def small_world(add: Add, tmp_path: Path) -> None:
    """Add runs on two streams, of several seeds and rows, and a README."""
    for stream in (TEN, FIFTY):
        for seed in (1, 2):
            add(stream, "clare", skill=0.9, seed=seed)
            add(stream, "clare-random-mask", skill=0.6, seed=seed)
        add(stream, "clare-plus", skill=0.95)
        add(stream, "linear", skill=0.7)
        add(stream, "ease", skill=0.6)
        add(stream, "ranpac", skill=0.99)
    add(TEN, "joint", skill=0.97)
    add(TEN, "clare", "stream.evaluate_on=validation", skill=0.31)
    (tmp_path / "README.md").write_text("# x\n<!-- results:start -->\nstale\n<!-- results:end -->\nend\n")


def rows_of(page: str, *words: str) -> list[str]:
    """Return the lines of a page that hold all words."""
    return [line for line in page.splitlines() if all(word in line for word in words)]


def test_the_pages_are_what_results_make_them(write: ModuleType) -> None:
    results = write.read_all(STUDY)
    for path, text in write.render(results, ROOT).items():
        assert path.read_text() == text, f"{path.name} is out of date; run `make results`"
    for stream in results.study.titles:
        if any(line["stream"] == stream and line["images"] == "test" for line in results.table.lines):
            for kind in ("", write.COSTS):
                plot = ROOT / "docs" / write.plot_of(stream, kind)
                assert plot.is_file(), f"{stream} has no plot; run `make results`"


def test_the_page_of_results_can_be_read_at_one_sitting() -> None:
    assert len((ROOT / "docs/results.md").read_text().splitlines()) <= 200


def test_pages_and_plots_come_out_the_same_again(
    write: ModuleType, pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path
) -> None:
    small_world(add, tmp_path)
    stale = tmp_path / "docs/images/results_old.svg"
    stale.parent.mkdir(parents=True)
    stale.write_text("old")
    made = []
    for _ in range(2):
        assert write.main(["--root", str(tmp_path), "--home", str(tmp_path / "home")]) is None
        made.append({path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".md", ".svg", ".csv")})
    assert made[0] == made[1]
    plots = {path.name for path in made[0] if path.suffix == ".svg"}
    assert plots == {f"results_{stream}{kind}.svg" for stream in (TEN, FIFTY) for kind in ("", "_costs")}
    for stream in (TEN, FIFTY):
        assert f"](images/results_{stream}.svg)" in (tmp_path / "docs/results.md").read_text()


def test_the_table_of_a_stream_says_what_was_measured(
    pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path
) -> None:
    small_world(add, tmp_path)
    section = pages()["results.md"].split("## CIFAR-100, 10 tasks")[1].split("## CIFAR-100, 50 tasks")[0]
    result = json.loads((tmp_path / f"home/results/{TEN}/ease/1.json").read_text())
    (ease,) = rows_of(section, "| ease |")
    cells = [cell.strip() for cell in ease.split("|")]
    names = ("average_accuracy", "final_accuracy", "forgetting")
    assert cells[2:7] == ["prototype", "1", *(f"{100 * result[name]:.1f}" for name in names)]
    # clare's second seed has no counterpart, so the difference says to what it is.
    assert re.fullmatch(r"-\d+\.\d \[-\d+\.\d, -\d+\.\d\] to \d+\.\d", cells[7])
    assert len(rows_of(section, "**clare**", "±")) == 1
    assert rows_of(section, "**clare-plus**")
    assert not rows_of(section, "random")
    assert section.index("joint (bound)") > section.index("ease")


def test_methods_that_keep_more_than_the_training_images_take_are_marked(write: ModuleType) -> None:
    results = write.read_all(STUDY)
    page = (ROOT / "docs/results.md").read_text().split("## CIFAR-100, 10 tasks")[1].split("\n## ")[0]
    marked = {line.split("|")[1].strip(" *") for line in page.splitlines() if "†" in line}
    stored = {
        entry.row: 4 * int(entry["num_stored"])
        for entry in results.table.entries("test", TEN)
        if results.study.row(entry.row).is_plain and entry["num_stored"]
    }
    assert marked == {row for row, size in stored.items() if size > 50_000 * 32 * 32 * 3}
    assert {"clare-plus", "ranpac"} <= marked
    assert "clare" not in marked
    drawn = (ROOT / "docs" / write.plot_of(TEN, write.COSTS)).read_text()
    assert all(words in drawn for words in ("numbers stored", "passes for an image", "time to learn"))


def test_every_row_is_in_the_sortable_page_and_validation_figures_only_there(
    pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path
) -> None:
    small_world(add, tmp_path)
    made = pages()
    page = made["results_table.html"]
    rows = json.loads(page.split("const rows = ")[1].split(";\n")[0])
    assert len(rows) == 14
    result = json.loads((tmp_path / f"home/validation/{TEN}/clare/1.json").read_text())
    (validated,) = [row for row in rows if row[2] == "validation"]
    final = round(100 * result["final_accuracy"], 1)
    assert validated[:3] == ["CIFAR-100, 10 tasks", "clare", "validation"]
    assert final in validated
    assert f"| {final} |" not in made["results.md"]
    assert [f"{TEN}/clare-random-mask"] == [row[-1] for row in rows if row[:2] == [validated[0], "clare, mask=random"]]
    assert "http" not in page
    html.parser.HTMLParser().feed(page)
    (header,) = rows_of(page, "<thead>")
    assert header.count("<th>") == len(rows[0])


def test_the_csv_holds_one_line_for_each_run(pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path) -> None:
    small_world(add, tmp_path)
    lines = list(csv.DictReader(pages()["results.csv"].splitlines()))
    assert len(lines) == len(list((tmp_path / "home").rglob("*/*/*/*.json"))) == 18
    for line in lines:
        place = {"test": "results", "validation": "validation"}[line["images"]]
        path = tmp_path / f"home/{place}/{line['stream']}/{line['row']}/{line['seed']}.json"
        result = json.loads(path.read_text())
        assert float(line["final_accuracy"]) == result["final_accuracy"]
        assert [float(word) for word in line["seen_accuracy"].split()] == result["seen_accuracy"]
        assert line["settings_hash"] == result["settings_hash"]
        assert line["commit"] == ""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            '"row": "clare"',
            '"row": "linear"',
            r"says that it is cifar100-10x10/linear/1\.json; put it where it belongs",
        ),
        ('"row": "clare"', '"row": "clar"', r"no row 'clar' \(did you mean 'clare'\?\)"),
        ('"batch_size": 64', '"batch_size": 65', r"are not those of its settings_hash; restore the file"),
    ],
)
def test_a_result_that_is_not_what_it_says_is_refused(
    write: ModuleType, add: Add, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    add(TEN, "clare")
    path = tmp_path / f"home/results/{TEN}/clare/1.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RunError, match=sentence):
        write.read_all(tmp_path / "home")


def test_the_readme_gets_its_block_and_nothing_else_changes(
    pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path
) -> None:
    small_world(add, tmp_path)
    add("quickdraw-20x10", "clare")
    readme = pages()["README.md"]
    assert readme.startswith("# x\n<!-- results:start -->\n")
    assert readme.endswith("\n<!-- results:end -->\nend\n")
    assert "stale" not in readme
    assert rows_of(readme, "CIFAR-100, 10 tasks", "(linear)")
    assert not rows_of(readme, "Draw")


def test_the_comparison_page_shows_what_clare_compare_prints(pages: Callable[[], dict[str, str]], add: Add) -> None:
    folders = [
        add("quickdraw-20x10", method, skill=skill, seed=seed, num_tasks=4)
        for method, skill in (("clare", 0.8), ("finetune", 0.6), ("joint", 0.9))
        for seed in (1, 2)
    ]
    add("quickdraw-20x10", "clare-random-mask", num_tasks=4)
    page = pages()["compare_quickdraw.md"]
    assert "clare compare quickdraw-20x10 --methods clare,finetune,joint --seeds 1,2\n" in page
    assert "\n6 runs; " in page
    for sheet in standing_sheets(rank([read_run(folder) for folder in folders])):
        assert to_markdown(sheet).strip() in page


def test_trials_and_choices_are_told(trials_of: Callable[[], str], tmp_path: Path) -> None:
    tuning = {
        "preset": "cifar100-10x10",
        "seed": 1993,
        "num_tasks": 3,
        "chosen_by": "final_accuracy",
        "trials": [
            {"method": "clare", "settings": {"learning_rate": 0.1}, "average_accuracy": 0.7, "final_accuracy": 0.5},
            {"method": "clare", "settings": {"learning_rate": 0.2}, "average_accuracy": 0.7, "final_accuracy": 0.6},
            {"method": "clare", "settings": {"learning_rate": 9.0}, "error": "diverged"},
            {"method": "simplecil", "settings": {}, "average_accuracy": 0.7, "final_accuracy": 0.4},
            {"method": "l2p", "settings": {}, "error": "diverged"},
        ],
        "chosen": {"clare": {"learning_rate": 0.2}, "simplecil": {}},
    }
    folder = tmp_path / "home/tuning"
    folder.mkdir(parents=True)
    (folder / "one.json").write_text(json.dumps(tuning))
    page = trials_of()
    assert rows_of(page, "| clare | 3 | 1 | 50.0 | 55.0 | 60.0 | learning_rate 0.2 |")
    # Another file of trials on the same images belongs into the same table.
    more = {"method": "ease", "settings": {"learning_rate": 0.4}, "average_accuracy": 0.7, "final_accuracy": 0.3}
    lower = {**more, "settings": {"learning_rate": 0.2}, "average_accuracy": 0.7, "final_accuracy": 0.2}
    others = {**tuning, "trials": [lower, more], "chosen": {"ease": {"learning_rate": 0.4}}}
    (folder / "one-more.json").write_text(json.dumps(others))
    page = trials_of()
    assert page.count("chosen by final accuracy**") == 1
    assert rows_of(page, "| ease | 2 | 0 | 20.0 | 25.0 | 30.0 | learning_rate 0.4 (highest tried) |")
    # More trials of a method count with its first, and with them all its choice is made.
    further = {**more, "method": "clare", "settings": {"learning_rate": 0.3}, "final_accuracy": 0.6}
    wider = {**tuning, "trials": [{**further, "average_accuracy": 0.8}]}
    (folder / "one-wider.json").write_text(json.dumps(wider))
    page = trials_of()
    assert rows_of(page, "| clare | 4 | 1 | 50.0 | 60.0 | 60.0 | learning_rate 0.3 |")
    assert rows_of(page, "| simplecil | 1 | 0 | 40.0 | 40.0 | 40.0 | no choice |")
    assert rows_of(page, "| l2p | 1 | 1 | - | - | - | no trial ended |")
    (folder / "two.json").write_text("[]")
    with pytest.raises(RunError, match=r"two\.json is not what `clare tune` writes"):
        trials_of()


def test_without_results_the_pages_are_empty(pages: Callable[[], dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    made = pages()
    assert "holds:" not in made["results.md"]
    assert "## " not in made["results.md"]
    assert "const rows = [\n\n];" in made["results_table.html"]


@pytest.mark.parametrize(
    ("note", "sentence"),
    [
        ("{cub200-10x20|clare|final}", r"asks for 'cub200-10x20\|clare\|final', but 'clare' was not run; collect it"),
        (f"{{{TEN}|clarr|final}}", r"but 'clarr' \(did you mean 'clare'\?\) was not run"),
        (f"{{{TEN}|clare|best}}", r"asks for '.*best'; write one of final, average, forgetting"),
        (f"{{{TEN}|clare - clare|average}}", r"write one of final"),
        (f"{{drift|{TEN}|clare|frozen}}", r"which was not measured; measure it or correct it"),
    ],
)
def test_wrong_texts_end_in_a_sentence(
    write: ModuleType, pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path, note: str, sentence: str
) -> None:
    add(TEN, "clare")
    (tmp_path / "made/text/notes.md").write_text(note)
    said = write.main(["--root", str(tmp_path), "--home", str(tmp_path / "home")])
    assert re.search(sentence, str(said)), said


def test_texts_are_filled_with_figures(pages: Callable[[], dict[str, str]], add: Add, tmp_path: Path) -> None:
    for row, skill in (("clare", 0.9), ("linear", 0.5)):
        add(TEN, row, skill=skill)
        add(TEN, row, "stream.evaluate_on=validation", skill=skill)
    (tmp_path / f"home/drift/{TEN}/clare").mkdir(parents=True)
    (tmp_path / f"home/drift/{TEN}/clare/1.json").write_text('{"final_accuracy": {"frozen": 0.123}}')
    text = f"{{{TEN}|clare|final}} {{{TEN}|clare - linear|final}} {{validation|{TEN}|linear|average}}"
    (tmp_path / "made/text/notes.md").write_text(f"{text} {{drift|{TEN}|clare|frozen}} {{other}}")

    def result(place: str, row: str) -> Any:
        return json.loads((tmp_path / f"home/{place}/{TEN}/{row}/1.json").read_text())

    ours, other = (result("results", row)["final_accuracy"] for row in ("clare", "linear"))
    words = pages()["notes.md"].split("\n\n")[1]
    assert words.startswith(f"{100 * ours:.1f} {100 * (ours - other):+.1f} [")
    assert words.endswith(f"] {100 * result('validation', 'linear')['average_accuracy']:.1f} 12.3 {{other}}")
