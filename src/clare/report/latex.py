"""Methods over seeds as LaTeX tables with booktabs."""

from collections.abc import Sequence

from clare.metrics.bootstrap import STATISTICS
from clare.report.groups import Group, Spread, group_runs
from clare.report.record import RunRecord

HEADER = {"average_accuracy": r"$\bar{A}$", "final_accuracy": "$A_T$", "forgetting": "Forgetting"}
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


def to_latex(runs: Sequence[RunRecord]) -> str:
    """One table for each preset: means and standard deviations over seeds in percent, the best in bold."""
    by_preset: dict[str, list[RunRecord]] = {}
    for run in (run for run in runs if not run.start.is_told_task):
        by_preset.setdefault(str(run.preset["name"]), []).append(run)
    tables = [_table(preset, group_runs(own)) for preset, own in by_preset.items()]
    return "\n".join(["% \\usepackage{booktabs}", *tables])


def _table(preset: str, groups: Sequence[Group]) -> str:
    """The methods on one preset."""
    best = {}
    for name in STATISTICS if len(groups) > 1 else ():
        means = [mean for group in groups if (mean := group.figures[name].mean) is not None]
        # Of forgetting the least is the best.
        best[name] = (min if name == "forgetting" else max)(means, default=None)
    lines = [f"% {preset}; percent, mean and standard deviation over seeds", r"\begin{tabular}{lrrrr}", r"\toprule"]
    lines += [" & ".join(["Method", "Seeds", *(HEADER[name] for name in STATISTICS)]) + r" \\", r"\midrule"]
    for group in groups:
        figures = [_figure(group.figures[name], group.figures[name].mean == best.get(name)) for name in STATISTICS]
        shown = f"{group.label} ({group.kept})" if group.kept else group.label
        lines.append(" & ".join([escaped(shown), str(len(group.counted)), *figures]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _figure(spread: Spread, is_best: bool) -> str:
    """A mean with its deviation in percent."""
    if spread.mean is None:
        return "--"
    mean = f"{100 * spread.mean:.1f}"
    shown = rf"\mathbf{{{mean}}}" if is_best else mean
    return f"${shown}$" if spread.deviation is None else rf"${shown} \pm {100 * spread.deviation:.1f}$"


def escaped(text: str) -> str:
    """A text in which LaTeX finds nothing to do."""
    return "".join(SPECIAL.get(character, character) for character in text)
