"""The docs say what is so: pages build, links lead somewhere, commands parse, and what is generated is up to date."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag

import pytest
import typer

import clare
from clare.cli.main import app
from clare.presets.load import make_experiment, preset_names
from clare.registry import load_file
from clare.sparse.select import budget_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")

StartPython = Callable[..., "subprocess.Popen[str]"]


def script(name: str) -> ModuleType:
    """Load a script of the repository as a module."""
    return load_file(ROOT / "scripts" / f"{name}.py", "which a test of the docs needs")


def named(path: Path) -> str:
    """Return the path of a page from the repository's root."""
    return str(path.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words after `clare` of all commands in the code of a page; lines that show a syntax are no commands."""
    for language, code in FENCE.findall(text):
        if language not in ("", "console", "bash", "sh"):
            continue
        lines = code.replace("\\\n", " ").splitlines()
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for command in map(str.strip, lines):
            if not re.match(r"(clare|torchrun .* -m clare) ", command) or re.search(r"[\[…]|COMMAND", command):
                continue
            words = shlex.split(command, comments=True)
            yield words[words.index("clare") + 1 :]


def parse(words: list[str]) -> None:
    """Parse a command line without running it; an unknown command or option, or a wrong value, raises."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    commands[words[0]].make_context(words[0], list(words[1:]))


def options(words: list[str], name: str) -> list[str]:
    """Return the values of an option that may be given several times."""
    return [value for key, value in pairwise(words) if key == name]


def test_command_lines_are_found_and_mistakes_in_them_too() -> None:
    text = "```\nclare train quickdraw  # a run\nclare export MODEL [--out X]\n```\n"
    text += "```console\n$ clare show runs/a\n clare 1.0\n```\n"
    text += "```python\nclare train\n```\n```\ntorchrun --nproc-per-node 2 -m clare presets\n```\n"
    assert list(command_lines(text)) == [["train", "quickdraw"], ["show", "runs/a"], ["presets"]]
    parse(["train", "quickdraw", "--seed", "7"])
    for wrong in (["trian", "quickdraw"], ["train", "quickdraw", "--sede", "7"], ["train", "quickdraw", "--seed", "x"]):
        with pytest.raises(Exception, match=r"trian|sede|integer"):
            parse(wrong)


@every_page
def test_commands_in_the_docs_parse(page: Path) -> None:
    for words in command_lines(page.read_text(encoding="utf-8")):
        parse(words)
        known = words[0] == "train" and words[1].partition("+")[0] in preset_names()
        if known and not any(".py:" in word or ".toml" in word for word in words):
            make_experiment(words[1], *options(words, "--method") or [None], options(words, "--set"))


def test_the_tutorial_has_commands() -> None:
    assert len(list(command_lines((DOCS / "tutorial.md").read_text(encoding="utf-8")))) >= 8


@every_page
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        place = urldefrag(target).url
        if place and not place.startswith(("http://", "https://")):
            assert (page.parent / place).exists(), target


def test_reference_pages_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    for path, text in script("write_reference").pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python scripts/write_reference.py"


def test_the_python_reference_is_read_without_building_it() -> None:
    for name in ("use", "write", "parts", "records"):
        page = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
        assert not re.search(r"^:::", page, re.MULTILINE)
    use = (DOCS / "reference" / "use.md").read_text(encoding="utf-8")
    for name in set(clare.__all__) - {"__version__"}:
        assert f"\n### {name}" in use
        if isinstance(kind := getattr(clare, name), type):
            for member in vars(kind):
                assert member.startswith("_") or f"### {name}.{member}\n" in use or f"| `{member}` |" in use


def test_figures_are_what_the_script_draws() -> None:
    drawing = script("draw_method")
    for name, draw in drawing.FIGURES.items():
        assert (drawing.FOLDER / name).read_text(encoding="utf-8") == draw(), "run python scripts/draw_method.py"


def test_the_tutorial_shows_the_lines_that_were_chosen() -> None:
    shown = script("run_tutorial").shown
    lines = ["a", "b", "c", "d", "e"]
    assert shown(lines, " : ") == lines
    assert shown(lines, " :1 -2: ") == ["a", "…", "d", "e"]
    assert shown(lines, " 1:2 ") == ["…", "b", "…"]


def test_the_tutorial_is_run_as_a_reader_would(tmp_path: Path) -> None:
    tutorial = script("run_tutorial")
    page = '```python title="hello.py"\nprint("a\\n\\nb")\n```\n'
    page += "<!-- lines -1: -->\n```console\n$ python hello.py && ls\nold output\n```\n"
    steps = tutorial.run(page, tmp_path)
    assert steps == [{"command": "python hello.py && ls", "output": ["a", "", "b", "hello.py"]}]
    assert tutorial.written(page, steps) == page.replace("old output", "…\nhello.py")
    with pytest.raises(SystemExit, match="ended with code 3"):
        tutorial.run("<!-- lines : -->\n```console\n$ exit 3\n```\n", tmp_path)


def test_the_tutorial_shows_what_was_recorded() -> None:
    tutorial = script("run_tutorial")
    page, record = tutorial.PAGE.read_text(encoding="utf-8"), json.loads(tutorial.RECORD.read_text(encoding="utf-8"))
    assert tutorial.commands(page) == [step["command"] for step in record["steps"]], "run scripts/run_tutorial.py"
    assert tutorial.written(page, record["steps"]) == page, "run python scripts/run_tutorial.py --from-record"


def test_the_table_of_budgets_is_computed() -> None:
    text = (DOCS / "long_streams.md").read_text(encoding="utf-8")
    marker = re.search(r"<!-- budgets of (\d+) -->\n\|.*\n\|.*\n((?:\|.*\n)+)", text)
    assert marker is not None
    num_coordinates = int(marker[1])
    for row in marker[2].splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells == budget_row(num_coordinates, float(cells[0]))


def budget_row(num_coordinates: int, sparsity: float) -> list[str]:
    """Return a row of the table of budgets, task by task."""
    free, budgets, used = num_coordinates, [], []
    while free:
        budgets.append(budget_of(free, 1 - sparsity))
        free -= budgets[-1]
        used.append(1 - free / num_coordinates)
    shares = [f"{100 * used[num_tasks - 1]:.1f} %" for num_tasks in (10, 50, 100)]
    return [f"{sparsity:g}", *shares, f"{budgets[0]:,}", f"{budgets[100]:,}", f"{len(budgets):,}"]


class Html(HTMLParser):
    """What a built page loads, what it links to, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        values = {key: value or "" for key, value in attrs}
        self.places.add(values.get("id", ""))
        if tag in ("script", "img", "iframe", "source"):
            self.loads.append(values.get("src", ""))
        elif tag == "link":
            self.loads.append(values.get("href", ""))
        elif tag == "a":
            self.links.append(values.get("href", ""))


def test_the_site_builds_strictly_and_needs_no_network(tmp_path: Path, start_python: StartPython) -> None:
    process = start_python("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site", cwd=ROOT, fresh=True)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    site = tmp_path / "site"
    built = {path: Html(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert {site / "index.html", site / "reference" / "settings.html"} <= built.keys()
    assert json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    for path, html in built.items():
        assert not [load for load in html.loads if load.startswith(("http:", "https:", "//"))], path
        if path.name == "404.html":
            continue
        for link in html.links:
            if link.startswith(("http://", "https://", "mailto:", "javascript:")):
                continue
            place, fragment = urldefrag(link)
            target = (path.parent / unquote(place)).resolve() if place else path
            assert target.exists(), (path.name, link)
            if fragment and target in built:
                assert unquote(fragment) in built[target].places, (path.name, link)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_what_very_many_classes_take_is_as_measured() -> None:
    few, many = json.loads((ROOT / "results" / "many_classes.json").read_text())["found"]
    page = (ROOT / "docs" / "own_pictures.md").read_text()
    seconds = {name: round(many[name]["processor_seconds"]) for name in ("learn", "inspect", "predict")}
    assert (few["num_classes"], many["num_classes"]) == (1_000, 10_000)
    assert f"takes {seconds['learn']} s of one core and {many['learn']['peak_mib'] / 1024:.1f} GiB" in page
    assert f"(1,000 folders: {round(few['learn']['processor_seconds'])} s)" in page
    assert f"`clare inspect` of that model {seconds['inspect']} s, `clare predict` {seconds['predict']} s" in page
