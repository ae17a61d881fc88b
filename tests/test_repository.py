"""The files for those who come to the repository say what the Makefile and pyproject.toml say."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from clare.version import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(name: str) -> Any:
    """Return what a YAML file of the repository says."""
    return yaml.safe_load((ROOT / name).read_text())


def recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_citation_names_this_version() -> None:
    citation = read("CITATION.cff")
    assert (citation["cff-version"], citation["title"], citation["license"]) == ("1.2.0", "CLARE", PROJECT["license"])
    assert str(citation["version"]) == __version__
    assert citation["authors"] == [{"name": "The CLARE developers"}]
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f'"{paper["title"]}"' in readme
    assert all(author["family-names"] in readme for author in paper["authors"])


def test_the_hooks_are_what_make_check_runs() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == recipe("check")
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in repository["hooks"])


def test_the_workflow_runs_on_every_promised_python() -> None:
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    promised = [name.split(" :: ")[-1] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert job["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    commands = [step["run"].split()[:2] for step in job["steps"] if "run" in step]
    assert commands == [["make", "check"], ["make", "test"]]


def test_what_runs_on_a_clean_clone_holds_what_the_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (\S+)$", script, re.MULTILINE) == ["check", "test-all", "test-browser"]
    (some,), (every,) = recipe("test"), recipe("test-all")
    assert some == f'{every} -m "not browser and not slow"'
    named = re.findall(r"make [a-z-]+", (ROOT / "README.md").read_text())
    assert {"make run", "make test", "make test-all"} <= set(named)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_the_forms_have_what_their_page_needs(form: Path) -> None:
    values = yaml.safe_load(form.read_text())
    if form.name == "config.yml":
        assert values.keys() <= {"blank_issues_enabled", "contact_links"}
        return
    assert {"name", "description", "body"} <= values.keys()
    ids = [part["id"] for part in values["body"]]
    assert len(set(ids)) == len(ids)
    assert all(part["attributes"]["label"] for part in values["body"])


def test_the_image_copies_what_is_not_ignored() -> None:
    copied = set(re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    names = {name for line in copied for name in line.split()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert names == allowed
    assert all((ROOT / name).exists() for name in names)


def test_every_row_of_a_table_has_the_columns_of_its_heading() -> None:
    wrong = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        columns = 0
        for number, line in enumerate(page.read_text().splitlines(), 1):
            bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            wrong += [f"{page.relative_to(ROOT)}:{number}"] if columns and bars not in (0, columns) else []
            columns = columns or bars if bars else 0
    assert not wrong
