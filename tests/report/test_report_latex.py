"""Methods over seeds as tables for a paper."""

import re
import statistics
from pathlib import Path

import pytest
from fake_runs import write_run

from clare.report.record import read_run
from clare.report.standings import escaped, to_latex


def runs_in(folder: Path) -> list[Path]:
    """Write runs of two methods, one of them with two seeds."""
    return [
        write_run(folder / f"{method}-{seed}", method, skill=skill, seed=seed, preset={"seed": seed})
        for method, skill, seeds in (("clare", 0.9, (1, 2)), ("sd_lora", 0.6, (1,)))
        for seed in seeds
    ]


def test_means_and_deviations_are_those_of_the_runs(tmp_path: Path) -> None:
    runs = [read_run(folder) for folder in runs_in(tmp_path)]
    text = to_latex(runs)
    assert re.findall(r"\\(toprule|midrule|bottomrule)", text) == ["toprule", "midrule", "bottomrule"]
    assert text.count(r"\begin{tabular}{lrrrr}") == text.count(r"\end{tabular}") == 1
    (ours,) = [line for line in text.splitlines() if line.startswith("clare ")]
    finals = [100 * run.tasks[-1].seen for run in runs[:2]]
    mean, deviation = statistics.fmean(finals), statistics.stdev(finals)
    assert rf"$\mathbf{{{mean:.1f}}} \pm {deviation:.1f}$" in ours
    assert ours.startswith("clare & 2 & ")
    assert ours.endswith(r" \\")
    (other,) = [line for line in text.splitlines() if line.startswith(r"sd\_lora & 1 & ")]
    assert f"${100 * runs[2].tasks[-1].seen:.1f}$" in other
    assert r"\pm" not in other


def test_each_preset_has_a_table(tmp_path: Path) -> None:
    runs = [
        read_run(write_run(tmp_path / name, preset={"name": name, "seed": 1})) for name in ("first-stream", "second")
    ]
    text = to_latex(runs)
    assert text.count(r"\toprule") == 2
    assert [line for line in text.splitlines() if line.startswith("% first-stream;")]
    # Where there is nothing to compare nothing is bold.
    assert r"\mathbf" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a_b & 5 %", r"a\_b \& 5 \%"), ("x\\y", r"x\textbackslash{}y"), ("{~}", r"\{\textasciitilde{}\}")],
)
def test_names_are_no_commands(text: str, shown: str) -> None:
    assert escaped(text) == shown
