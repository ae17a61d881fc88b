"""Results made by hand, and a request for the tests of plans."""

from collections.abc import Mapping
from pathlib import Path

from clare.paper.estimate import Extent
from clare.paper.paper import Metric, Published, find_study, read_paper
from clare.paper.plan import Request, make_request
from clare.paper.results import Cell, Choice, Results, Setting
from clare.presets.load import make_experiment
from clare.report.groups import Spread

EXTENT = Extent(num_classes=6, num_train=60, num_test=30)


def request_of(
    name: str, preset: Path, root: Path, *overrides: str, seeds: tuple[int | None, ...] = (None,)
) -> Request:
    """Ask for an experiment on one preset."""
    return make_request(find_study(name), [str(preset)], seeds, overrides, root)


def results_of(
    name: str,
    finals: Mapping[str, float | None],
    *,
    is_paper: bool = False,
    has_numbers: bool = True,
    seconds: Mapping[str, float] | None = None,
    choices: Mapping[str, Choice] | None = None,
) -> Results:
    """Return results of an experiment on its first preset: final accuracies, and averages ten points above them."""
    study, paper = find_study(name), read_paper()
    stream = study.presets[0].partition("+")[0]
    experiment = make_experiment("quickdraw-20x10", study.rows[0].method)
    known = stream if has_numbers else None
    setting = Setting("here", experiment, known, has_numbers, is_paper, same_seeds=True, recipe={})
    cells = {}
    for row in study.rows:
        final = finals.get(row.key)
        spreads: dict[Metric, Spread] = {
            "average": Spread(None if final is None else final + 10, None),
            "final": Spread(final, None),
        }
        published = paper.cells(name, stream).get(row.key, Published()) if has_numbers else Published()
        reasons = ("it broke",) if final is None else ()
        time = Spread((seconds or {}).get(row.key), None)
        choice = (choices or {}).get(row.key)
        cells["here", row.key] = Cell(row, "here", spreads, time, (), reasons, published, choice)
    return Results(study, paper, (setting,), cells, (), (1993,))
