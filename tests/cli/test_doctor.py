"""`clare doctor`: what is missing, harmful or mismatched is found, and what to do is said."""

import importlib
import re
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from rich.console import Console

from clare.backbones import suggest
from clare.backbones.suggest import SUGGESTED
from clare.cli import doctor
from clare.cli import main as main_module
from clare.cli.doctor import PACKAGES, Finding, doctor_command, examine, torchvision_finding

VERSIONS = dict.fromkeys(PACKAGES, "1.0")


def test_every_core_dependency_is_looked_at() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {re.match(r"[\w-]+", wanted)[0] for wanted in project["dependencies"]} == set(PACKAGES)  # type: ignore[index]


def versions(**changes: str | None) -> Callable[[str], str]:
    """Return a function that knows the version of every package but those that are changed to nothing."""
    known = {**VERSIONS, **changes}

    def version_of(name: str) -> str:
        found = known[name]
        if found is None:
            raise PackageNotFoundError(name)
        return found

    return version_of


def import_nothing(name: str) -> object:
    """Import a package that works."""
    return object()


def fail_with(error: Exception) -> Callable[[str], object]:
    """Return an import that fails."""

    def import_module(name: str) -> object:
        raise error

    return import_module


def wrong(findings: list[Finding]) -> list[Finding]:
    """Return what is not good."""
    return [finding for finding in findings if not finding.is_good]


@pytest.fixture(autouse=True)
def _speeds_are_hardly_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "SECONDS", 0.0)


def test_all_is_well_here() -> None:
    findings = list(examine(versions(), import_nothing))
    assert wrong(findings) == []
    said = "\n".join(finding.what for finding in findings)
    for name in PACKAGES:
        assert f"{name} 1.0" in said
    assert "torchvision works with torch" in said
    assert "GPU" in said
    assert "free on this disk" in said
    assert "embedded stream: 200 classes; backbone " in said
    for name in SUGGESTED:
        assert re.search(rf"{name}, \d+ MB, about \d+\.\d images/s here; weights are (here|fetched once)", said)
    assert re.search(r"this machine suits clare learn --backbone \S+; without a network \S+", said)
    assert not any(finding.remedy for finding in findings)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_named(name: str) -> None:
    findings = list(examine(versions(**{name: None}), fail_with(AssertionError("nothing is imported then"))))
    assert wrong(findings) == [Finding(False, f"{name} is not installed", f"run `make install`, or install {name}")]


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_a_compromised_lightning_is_refused(version: str) -> None:
    found = wrong(list(examine(versions(lightning=version), import_nothing)))
    assert found == [
        Finding(False, f"lightning {version} was a compromised release", "install another version at once")
    ]
    assert wrong(list(examine(versions(lightning="2.6.6"), import_nothing))) == []


def test_a_torchvision_of_another_build_is_recognised() -> None:
    error = RuntimeError("operator torchvision::nms does not exist")
    findings = list(examine(versions(torch="2.15.0+cpu", torchvision="0.29.2"), fail_with(error)))
    (found,) = wrong(findings)
    assert findings[-1] is found
    assert "torchvision 0.29.2 does not work with torch 2.15.0+cpu" in found.what
    assert "torchvision::nms" in found.what
    assert "pip uninstall torch torchvision" in found.remedy
    assert "make install" in found.remedy


def test_a_torchvision_that_fails_otherwise_is_told_as_it_is() -> None:
    found = torchvision_finding(versions(), fail_with(ImportError("libjpeg.so.62 is missing")))
    assert not found.is_good
    assert "libjpeg.so.62 is missing" in found.what
    assert found.remedy


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    assert next(examine(versions(), import_nothing)).remedy == "install Python 3.11 or newer"


@pytest.mark.parametrize(("is_good", "code", "verdict"), [(True, 0, "everything is in place"), (False, 2, "attention")])
def test_the_command_says_and_returns_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_good: bool, code: int, verdict: str
) -> None:
    findings = [Finding(True, "Python 3"), Finding(is_good, "a thing", "" if is_good else "mend it")]
    monkeypatch.setattr(doctor, "examine", lambda version_of, import_module: iter(findings))
    assert doctor_command(Console()) == code
    printed = capsys.readouterr().out
    assert "ok    Python 3" in printed
    assert verdict in printed
    assert ("→ mend it" in printed) is not is_good


def test_doctor_needs_no_package_that_may_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.split(".")[0] == "clare" or name in ("torch", "torchvision", "timm", "lightning"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("torch", "torchvision", "timm", "lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    fresh = importlib.import_module("clare.cli.main")
    assert importlib.import_module("clare.cli.doctor").PACKAGES == PACKAGES
    assert fresh.app is not None


def test_a_broken_torchvision_sends_other_commands_to_the_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(main_module, "app", fail)
    with pytest.raises(SystemExit) as leaving:
        main_module.main()
    assert leaving.value.code == 2
    message = capsys.readouterr().err
    assert message == "error: torchvision does not work with this torch; `clare doctor` says what to do\n"
