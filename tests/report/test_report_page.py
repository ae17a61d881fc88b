"""The page is whole, self-contained, safe, and holds the numbers."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_runs import diagnose, write_page, write_run

from clare.identity import flatten
from clare.metrics.summary import summarise
from clare.report.groups import compare, group_runs
from clare.report.page import differing_keys
from clare.report.record import RunRecord, find_runs, read_run, reproduce_command
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
    assert not {"link", "iframe", "img", "image"} & set(reader.seen)
    references = [value or "" for name, value in reader.attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert references
    assert all(value.startswith("#") for value in references)
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert {value.removeprefix("#") for value in references} <= set(ids)
    assert not re.search(r"url\(|@import|import\(|fetch\(", "".join(reader.words))
    assert not any("://" in (value or "") for _, value in reader.attributes)


def test_the_page_holds_the_numbers(runs: list[RunRecord], tmp_path: Path) -> None:
    words = "".join(read(write_page(runs, tmp_path / "page.html", "A title")).words)
    assert "A title" in words
    for each in compare(runs):
        for name in ("average_accuracy", "final_accuracy", "forgetting"):
            assert percent(summarise(each.run)[name]) in words  # type: ignore[literal-required]
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
    failures = [Failure("ease <u>", "", "it diverged & stopped")]
    reader = read(write_page(runs, tmp_path / "page.html", failures=failures))
    words = "".join(reader.words)
    assert not reader.misplaced
    assert "u" not in reader.seen
    assert "seeds 1, 2" in words
    assert spread_percent(group_runs(runs)[0].figures["final_accuracy"]) in words
    assert "ease <u> failed: it diverged & stopped" in words
    assert "Numbers stored beside the backbone" in words
    assert "seed 1" in words


def test_only_settings_that_differ_are_set_side_by_side(runs: list[RunRecord], tmp_path: Path) -> None:
    page = write_page(runs, tmp_path / "page.html").read_text()
    section = page[page.index("<h2>Settings that differ") : page.index("<h2>Repeat")]
    # As they rank: clare, finetune, and ease, which is not finished.
    assert '<th scope="row">batch</th><td>64</td><td>64</td><td>32</td>' in section
    assert "stream.num_tasks" not in section
    assert "overrides" not in section
    assert "method.name" not in section


def test_user_text_is_escaped(tmp_path: Path) -> None:
    nasty = "<script>alert('x')</script>--><u onerror=x>\"' "
    preset = {"name": nasty, "description": nasty, "data": {nasty: nasty}, "overrides": [nasty]}
    for name in ("a <u>&", "b"):
        write_run(tmp_path / "runs" / name, f"clare{nasty}", preset=preset | {"batch": f"{nasty} {name}"})
    path = write_page(find_runs([tmp_path / "runs"]), tmp_path / "page.html", nasty)
    reader = read(path)
    assert reader.seen.count("script") == 1
    assert ("onerror", "x") not in reader.attributes
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


def test_what_is_the_same_everywhere_is_said_once(tmp_path: Path) -> None:
    for name, torch in (("a", "2.14"), ("b", "2.15")):
        folder = write_run(tmp_path / "runs" / name, name)
        (folder / "environment.json").write_text(json.dumps({"torch": torch, "device": "cpu", f"only-{name}": 1}))
    page = write_page(find_runs([tmp_path / "runs"]), tmp_path / "page.html").read_text()
    section = page[page.index("<h2>Environment") :]
    assert '<tr><th scope="row">device</th><td>cpu</td></tr>' in section
    assert '<th scope="row">torch</th><td>2.14</td><td>2.15</td>' in section
    assert "only-" not in section


def test_the_policy_allows_this_script_alone(runs: list[RunRecord], tmp_path: Path) -> None:
    page = write_page(runs, tmp_path / "page.html").read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


def test_what_the_engine_diagnoses_is_on_the_page(tmp_path: Path) -> None:
    diagnose(write_run(tmp_path / "runs" / "a"))
    write_run(tmp_path / "runs" / "b", "finetune", with_capacity=False)
    page = write_page(find_runs([tmp_path / "runs"]), tmp_path / "page.html").read_text()
    for words in ("Claimed in each layer by clare", "Sizes of updates", "threshold 2.0e-03", "Peak memory", "1.2 GB"):
        assert words in page
    without = write_page([read_run(tmp_path / "runs" / "b")], tmp_path / "other.html").read_text()
    for words in ("Claimed in each layer", "Sizes of updates", "threshold 2.0e-03", "Peak memory", 'href="#capacity"'):
        assert words not in without


def test_a_method_looks_the_same_in_every_figure(runs: list[RunRecord], tmp_path: Path) -> None:
    page = write_page(runs, tmp_path / "page.html").read_text()
    series = re.findall(r'data-key="(\d)" data-label="(\w+)".*?var\(--c(\d)\)', page)
    found = [(colour, key, label) for key, label, colour in series]
    assert len(found) > 10
    assert len(set(found)) == 3
    strong = re.findall(r'<g class="series strong"[^>]*data-label="(\w+)"', page)
    assert set(strong) == {"clare"}


def test_many_settings_are_listed_by_value(tmp_path: Path) -> None:
    for index in range(8):
        write_run(tmp_path / "runs" / str(index), f"m{index}", task_sizes=(1,), preset={"batch": 8 if index else 4})
    words = "".join(read(write_page(find_runs([tmp_path / "runs"]), tmp_path / "page.html")).words)
    assert re.search(r"batch8 \((m[1-7](, )?){7}\); 4 \(m0\)", words)


def test_gaps_in_what_was_measured_are_drawn_as_gaps(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", task_sizes=(1,) * 5)
    lines = (folder / "record.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        if event["event"] == "task":
            event["accuracy"]["per_task"] = [None if i == 2 else v for i, v in enumerate(event["accuracy"]["per_task"])]
    (folder / "record.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    page = write_page([read_run(folder)], tmp_path / "page.html").read_text()
    figure = page[page.index('id="figure-new-task"') :]
    (line,) = re.findall(r'data-label=.*?<path class="line" d="([^"]+)"', figure[: figure.index("</svg>")])
    assert line.count("M") == 2
    assert "nan" not in line
