"""The page is whole, self-contained, safe, and holds the numbers."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_runs import write_run

from clare.report.compare import compare
from clare.report.groups import group_runs
from clare.report.page import write_page
from clare.report.provenance import differing_keys, flatten, reproduce_command, shared_facts
from clare.report.record import RunRecord, find_runs, read_run
from clare.report.standings import Failure, spread_percent
from clare.report.tables import percent, points

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Follows a page's elements, and keeps its text, attributes and any element out of place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.misplaced: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text())
    reader.close()
    return reader


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    write_run(tmp_path / "runs" / "a", "finetune", skill=0.6, decay=0.3, seed=1, preset={"batch": 32})
    write_run(tmp_path / "runs" / "b", "clare", seed=2, preset={"batch": 64, "overrides": ["method.epochs=2"]})
    write_run(tmp_path / "runs" / "c", "ease", num_tasks=2, seed=3, preset={"batch": 64})
    return find_runs([tmp_path / "runs"])


def test_the_page_is_well_formed_and_loads_nothing(runs: list[RunRecord], tmp_path: Path) -> None:
    reader = read(write_page(runs, tmp_path / "page.html", "A title"))
    assert not reader.misplaced
    assert not reader.open
    assert not {"script", "link", "iframe", "img"} & set(reader.seen)
    references = [value or "" for name, value in reader.attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert references
    assert all(value.startswith(("#", "data:")) for value in references)
    assert "url(" not in "".join(reader.words)
    assert not any("://" in (value or "") for _, value in reader.attributes)


def test_the_page_holds_the_numbers(runs: list[RunRecord], tmp_path: Path) -> None:
    words = "\n".join(read(write_page(runs, tmp_path / "page.html", "A title")).words)
    assert "A title" in words
    for each in compare(runs):
        for name in ("average_accuracy", "final_accuracy", "forgetting"):
            assert percent(each.summary[name]) in words  # type: ignore[literal-required]
        for interval in each.intervals.values():
            assert points(interval) in words
        for task in each.run.tasks:
            assert percent(task.seen) in words
    assert "2 of 3 tasks" in words
    assert "clare train quickdraw --method clare --seed 1993 --set method.epochs=2" in words
    assert "method.epochs" in words


def test_seeds_and_failures_are_on_the_page(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"clare-{seed}", seed=seed, preset={"seed": seed})
    runs = find_runs([tmp_path / "runs"])
    failures = [Failure("ease <i>", "", "it diverged & stopped")]
    reader = read(write_page(runs, tmp_path / "page.html", failures=failures))
    words = "".join(reader.words)
    assert not reader.misplaced
    assert "i" not in reader.seen
    assert "seeds 1, 2" in words
    assert spread_percent(group_runs(runs)[0].figures["final_accuracy"]) in words
    assert "ease <i> failed: it diverged & stopped" in words
    assert "Numbers stored beside the backbone" in words


def test_only_settings_that_differ_are_set_side_by_side(runs: list[RunRecord], tmp_path: Path) -> None:
    page = write_page(runs, tmp_path / "page.html").read_text()
    section = page[page.index("Settings that differ") : page.index("<h2>Environment")]
    assert '<th scope="row">batch</th><td>32</td><td>64</td><td>64</td>' in section
    assert "stream.num_tasks" not in section
    assert "overrides" not in section
    assert "method.name" not in section


def test_user_text_is_escaped(tmp_path: Path) -> None:
    nasty = "<script>alert('x')</script>-->"
    preset = {"name": nasty, "description": nasty, "data": {nasty: nasty}, "overrides": [nasty]}
    for name in ("a <i>&", "b"):
        write_run(tmp_path / "runs" / name, f"clare{nasty}", preset=preset | {"batch": f"{nasty} {name}"})
    path = write_page(find_runs([tmp_path / "runs"]), tmp_path / "page.html", nasty)
    reader = read(path)
    assert "script" not in reader.seen
    assert "i" not in reader.seen
    assert not reader.misplaced
    assert nasty in "".join(reader.words)


def test_a_run_without_a_task_has_a_page(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", num_tasks=0))
    reader = read(write_page([run], tmp_path / "page.html"))
    assert not reader.misplaced
    assert "svg" not in reader.seen
    assert "0 of 3 tasks" in "".join(reader.words)


def test_a_single_run_has_a_page(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", num_tasks=1))
    reader = read(write_page([run], tmp_path / "page.html"))
    assert not reader.misplaced
    assert "Settings that differ" not in "".join(reader.words)


def test_the_same_runs_give_the_same_page(runs: list[RunRecord], tmp_path: Path) -> None:
    first, second = (write_page(runs, tmp_path / name).read_bytes() for name in ("one.html", "two.html"))
    assert first == second


def test_the_command_is_quoted_for_the_shell(tmp_path: Path) -> None:
    preset = {"name": "my preset", "seed": 7, "overrides": ["data.name=a b", "x='y'"]}
    run = read_run(write_run(tmp_path / "run", "ease", preset=preset))
    expected = "clare train 'my preset' --method ease --seed 7 --set 'data.name=a b' --set 'x='\"'\"'y'\"'\"''"
    assert reproduce_command(run) == expected


def test_settings_are_flattened_and_compared() -> None:
    left = flatten({"a": {"b": 1, "c": [1, 2]}, "d": "x", "e": {}})
    right = flatten({"a": {"b": 2, "c": [1, 2]}, "d": "x", "own": None})
    assert left == {"a.b": "1", "a.c": "[1, 2]", "d": "x", "e": "{}"}
    assert differing_keys([left, right]) == ["a.b"]
    assert shared_facts([left, right]) == {"a.c": "[1, 2]", "d": "x"}
