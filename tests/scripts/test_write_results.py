"""From results/ to the pages: the same every time, decided by rule, and with no figure of their own."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from clare.errors import RunError
from clare.metrics.bootstrap import pooled_interval
from clare.report.groups import rank
from clare.report.record import read_run
from clare.report.standings import standing_sheets
from clare.report.tables import to_markdown

Script = Callable[[str], ModuleType]
Add = Callable[..., Path]
ROOT = Path(__file__).parents[2]
TEN, FIFTY = "cifar100-10x10+vits14-112", "cifar100-50x2+vits14-112"


def small_world(add: Add, tmp_path: Path) -> None:
    """Add runs on two streams, of several seeds and variants, with notes and a README."""
    for preset, random_skill in ((TEN, 0.75), (FIFTY, 0.4)):
        for seed in (1, 2):
            add(preset, "clare", skill=0.9, seed=seed)
            add(preset, "clare", "method.mask=random", skill=random_skill, seed=seed)
        add(preset, "clare", "method.two_stage=false", skill=0.999)
        add(preset, "clare", "method.mask=none", skill=0.5)
        add(preset, "clare", "method.head.strategy=prototype", skill=0.85)
        add(preset, "clare-plus", skill=0.95)
        add(preset, "linear", skill=0.7)
        add(preset, "ease", skill=0.6)
        add(preset, "ranpac", skill=0.99)
    add(TEN, "joint", skill=0.97)
    add(TEN, "clare", "stream.evaluate_on=validation", skill=0.31)
    docs = tmp_path / "docs"
    docs.mkdir()
    note = f"Without stages: {{{TEN}|clare, two_stage=false|final}}, {{{TEN}|clare - clare, mask=random|final}}."
    (docs / "results_notes.toml").write_text(f'intro = "Read this."\n[claims]\ntwo-stage = "{note}"\n')
    (tmp_path / "README.md").write_text("# x\n<!-- results:start -->\nstale\n<!-- results:end -->\nend\n")


def rows_of(page: str, *words: str) -> list[str]:
    """Return the lines of a page that hold all words."""
    return [line for line in page.splitlines() if all(word in line for word in words)]


def test_the_page_is_what_results_make_it(write: ModuleType) -> None:
    for path, text in write.render(ROOT).items():
        assert (ROOT / path).read_text() == text, f"{path} is out of date; run `make results`"
    for path in write.draw(ROOT):
        assert (ROOT / path).is_file(), f"{path} is missing; run `make results`"


def test_pages_and_plots_come_out_the_same_again(write: ModuleType, add: Add, tmp_path: Path) -> None:
    small_world(add, tmp_path)
    stale = tmp_path / "docs/images/results_old.svg"
    stale.parent.mkdir()
    stale.write_text("old")
    made = []
    for _ in range(2):
        assert write.main(["--root", str(tmp_path)]) is None
        made.append({path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".md", ".svg")})
    assert made[0] == made[1]
    names = {str(path.relative_to(tmp_path)) for path in made[0]}
    plots = {f"docs/images/results_{name}.svg" for name in ("cifar100-10x10_vits14-112", "cifar100-50x2_vits14-112")}
    assert names == {"README.md", "docs/results.md", *plots}
    for plot in plots:
        assert (tmp_path / plot).read_text().startswith("<?xml")
        assert f"]({plot.removeprefix('docs/')})" in (tmp_path / "docs/results.md").read_text()


def test_every_table_says_what_was_measured(write: ModuleType, add: Add, tmp_path: Path) -> None:
    small_world(add, tmp_path)
    page = write.render(tmp_path)["docs/results.md"]
    result = json.loads((tmp_path / f"results/runs/{TEN}/ease-1.json").read_text())
    (ease,) = rows_of(page.split(f"## {TEN}")[1].split("## ")[0], "| ease |")
    cells = [cell.strip() for cell in ease.split("|")]
    assert cells[2:7] == [
        "1",
        *(f"{100 * result[name]:.1f}" for name in ("average_accuracy", "final_accuracy", "forgetting")),
        f"{100 * result['new_task_accuracy']:.1f}",
    ]
    section = page.split(f"## {TEN}")[1].split(f"## {FIFTY}")[0]
    assert len(rows_of(section, "**clare**", "±", "reference")) == 1
    assert rows_of(section, "**clare-plus**")
    by_head = section.split("**Head: cosine, prototype**")[1].split("**Head:")[0]
    assert rows_of(by_head, "**clare**", "reference")
    (random_row,) = rows_of(section, "| mask=random |")
    assert re.search(r"\| -1\d\.\d \[-\d+\.\d, -\d+\.\d\] \(-\d+\.\d, -\d+\.\d\) \|", random_row)
    assert section.index("**Upper bound") > section.index("ranpac")
    assert len(rows_of(section, "| joint |")) == 1
    assert page.index(TEN + "\n") < page.index(FIFTY + "\n")


def test_validation_figures_enter_no_table_of_test_images(write: ModuleType, add: Add, tmp_path: Path) -> None:
    small_world(add, tmp_path)
    page = write.render(tmp_path)["docs/results.md"]
    before, after = page.split("## How the settings were chosen")
    result = json.loads((tmp_path / f"results/validation/{TEN}/clare-1.json").read_text())
    figure = f"| {100 * result['final_accuracy']:.1f} |"
    assert figure in after
    assert figure not in before


def test_claims_are_decided_by_rule(write: ModuleType, add: Add, tmp_path: Path) -> None:
    small_world(add, tmp_path)
    page = write.render(tmp_path)["docs/results.md"]
    table = page.split("## Claims")[1].split(f"## {TEN}")[0]

    def verdicts(start: str) -> list[str]:
        lines = table.splitlines()
        place = next(index for index, line in enumerate(lines) if line.startswith(f"| {start}"))
        found = [lines[place]]
        for line in lines[place + 1 :]:
            if not line.startswith("|  |"):
                break
            found.append(line)
        return [line.split("|")[-2].strip() for line in found]

    missing = ["not measured"] * 2
    assert verdicts("The learnt mask") == ["holds", "holds", *missing]
    assert verdicts("The lead of the learnt mask") == ["holds"]
    assert verdicts("Two stages") == ["does not hold", "does not hold", *missing]
    assert verdicts("A capacity-aware") == missing
    assert verdicts("Without a mask") == ["holds", "holds", *missing]
    # clare and clare-plus on each stream.
    assert verdicts("clare and clare-plus are ahead of RanPAC") == [*["does not hold"] * 4, *missing]
    assert verdicts("CLARE is ahead of the paper's") == ["not measured"] * 4
    assert rows_of(table, "1 of 8 rivals measured")
    assert verdicts("clare and clare-plus are ahead of every other") == ["holds", "holds", *missing]
    assert verdicts("The time") == ["holds", "not measured"]
    assert verdicts("The peak memory") == missing
    # Nothing else has the head that clare-plus has in these presets.
    assert verdicts("First of those") == ["holds"] * 2 + missing
    assert "Without stages: " in page
    assert "{" not in page


def test_times_on_a_shared_device_decide_nothing(
    boards: ModuleType, claims: ModuleType, script: Script, add: Add, tmp_path: Path
) -> None:
    path = tmp_path / "results/runs"
    folder = add(FIFTY, "clare")
    for shared, verdict in (([], "holds"), (["--shared-device"], "not measured")):
        script("collect_results").main([str(folder), "--results", str(tmp_path / "results"), *shared])
        found = claims.make_claims(boards.make_boards(script("result_files").read_results(path)))
        (claim,) = [claim for claim in found if claim.key == "time"]
        assert claim.findings[0].verdict == verdict


def test_the_readme_gets_its_block_and_nothing_else_changes(write: ModuleType, add: Add, tmp_path: Path) -> None:
    small_world(add, tmp_path)
    add("quickdraw-20x10", "clare")
    readme = write.render(tmp_path)["README.md"]
    assert readme.startswith("# x\n<!-- results:start -->\n")
    assert readme.endswith("\n<!-- results:end -->\nend\n")
    assert "stale" not in readme
    assert rows_of(readme, TEN, "(ease)") or rows_of(readme, TEN, "(linear)")
    assert not rows_of(readme, "quickdraw")
    assert rows_of(readme, "The learnt mask is ahead", "| 2 | 0 | 0 | 2 |")


def test_a_claim_about_a_mask_compares_like_with_like(
    boards: ModuleType, claims: ModuleType, script: Script, add: Add, tmp_path: Path
) -> None:
    prototype = "method.head.strategy=prototype"
    add(TEN, "clare", skill=0.9)
    add(TEN, "clare", prototype, skill=0.3)
    add(TEN, "clare", prototype, "method.mask=random", skill=0.6)
    found = boards.make_boards(script("result_files").read_results(tmp_path / "results/runs"))
    (claim,) = [claim for claim in claims.make_claims(found) if claim.key == "learnt-mask"]
    assert [finding.verdict for finding in claim.findings] == ["does not hold", *["not measured"] * 3]
    assert "clare (mask=random) at cosine, prototype" in claim.findings[0].figures


@pytest.mark.parametrize(
    ("by_seed", "deviation", "verdict"),
    [
        ((0.02,), 0.005, "holds"),
        ((0.02, 0.04), 0.005, "holds"),
        ((0.02,), 0.02, "undecided"),
        ((-0.02,), 0.02, "undecided"),
        ((-0.02,), 0.005, "does not hold"),
        ((0.0,), 0.0, "undecided"),
        ((0.02,), None, "holds"),
        ((-0.02,), None, "does not hold"),
        ((0.0,), None, "does not hold"),
    ],
)
def test_a_difference_is_judged_by_its_interval(
    boards: ModuleType, claims: ModuleType, by_seed: Sequence[float], deviation: float | None, verdict: str
) -> None:
    assert claims.judge(boards.Difference(tuple(by_seed), deviation)) == verdict


def test_nothing_shared_is_not_measured(claims: ModuleType) -> None:
    assert claims.judge(None) == "not measured"


def test_an_interval_is_the_closed_form_of_the_bootstrap(
    boards: ModuleType, script: Script, add: Add, tmp_path: Path
) -> None:
    for seed in (1, 2, 3):
        add(FIFTY, "clare", skill=0.8, seed=seed)
        add(FIFTY, "finetune", skill=0.7, seed=seed)
    (board,) = boards.make_boards(script("result_files").read_results(tmp_path / "results/runs"))
    ours, other = board.find("clare"), board.find("finetune")
    found = boards.difference(ours, other)
    drawn = pooled_interval(
        [run.evaluations for run in ours.runs],
        [run.evaluations for run in other.runs],
        [run.start.classes for run in ours.runs],
        num_samples=4000,
        random=np.random.RandomState(0),
    )
    assert found.mean == pytest.approx(drawn.difference, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((drawn.low, drawn.high), abs=0.002)
    assert len(found.by_seed) == 3


def test_differences_are_taken_over_shared_seeds_alone(
    boards: ModuleType, script: Script, add: Add, tmp_path: Path
) -> None:
    add(TEN, "clare", seed=1)
    add(TEN, "clare", seed=2)
    add(TEN, "finetune", seed=2)
    add(TEN, "linear", seed=3)
    (board,) = boards.make_boards(script("result_files").read_results(tmp_path / "results/runs"))
    ours = board.find("clare")
    assert len(boards.difference(ours, board.find("finetune")).by_seed) == 1
    assert boards.difference(ours, board.find("linear")) is None


def test_the_comparison_page_shows_what_clare_compare_prints(write: ModuleType, add: Add, tmp_path: Path) -> None:
    folders = [
        add("quickdraw-20x10", method, skill=skill, seed=seed, num_tasks=4)
        for method, skill in (("clare", 0.8), ("finetune", 0.6), ("joint", 0.9))
        for seed in (1, 2)
    ]
    page = write.render(tmp_path)["docs/compare_quickdraw.md"]
    assert "clare compare quickdraw-20x10 --methods clare,finetune,joint --seeds 1,2\n" in page
    for sheet in standing_sheets(rank([read_run(folder) for folder in folders])):
        assert to_markdown(sheet).strip() in page


def test_trials_and_choices_are_told(write: ModuleType, tmp_path: Path) -> None:
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
    folder = tmp_path / "results/tuning"
    folder.mkdir(parents=True)
    (folder / "one.json").write_text(json.dumps(tuning))
    page = write.render(tmp_path)["docs/results.md"]
    assert rows_of(page, "| clare | 3 | 1 | 50.0 | 55.0 | 60.0 | learning_rate 0.2 |")
    # Another file of trials on the same images belongs into the same table.
    more = {"method": "ease", "settings": {"learning_rate": 0.4}, "average_accuracy": 0.7, "final_accuracy": 0.3}
    lower = {**more, "settings": {"learning_rate": 0.2}, "average_accuracy": 0.7, "final_accuracy": 0.2}
    others = {**tuning, "trials": [lower, more], "chosen": {"ease": {"learning_rate": 0.4}}}
    (folder / "one-more.json").write_text(json.dumps(others))
    page = write.render(tmp_path)["docs/results.md"]
    assert page.count("chosen by final accuracy**") == 1
    assert rows_of(page, "| ease | 2 | 0 | 20.0 | 25.0 | 30.0 | learning_rate 0.4 (highest tried) |")
    # More trials of a method count with its first, and with them all its choice is made.
    further = {**more, "method": "clare", "settings": {"learning_rate": 0.3}, "final_accuracy": 0.6}
    wider = {**tuning, "trials": [{**further, "average_accuracy": 0.8}]}
    (folder / "one-wider.json").write_text(json.dumps(wider))
    page = write.render(tmp_path)["docs/results.md"]
    assert rows_of(page, "| clare | 4 | 1 | 50.0 | 60.0 | 60.0 | learning_rate 0.3 |")
    assert rows_of(page, "| simplecil | 1 | 0 | 40.0 | 40.0 | 40.0 | no choice |")
    assert rows_of(page, "| l2p | 1 | 1 | - | - | - | no trial ended |")
    (folder / "two.json").write_text("[]")
    with pytest.raises(RunError, match=r"two\.json is not what `clare tune` writes"):
        write.render(tmp_path)


def test_variants_alone_have_a_table_and_no_plot(write: ModuleType, add: Add, tmp_path: Path) -> None:
    add("quickdraw-20x10", "clare", "method.mask=random")
    assert write.main(["--root", str(tmp_path)]) is None
    page = (tmp_path / "docs/results.md").read_text()
    assert rows_of(page, "| mask=random |")
    assert "![" not in page
    assert not (tmp_path / "docs/compare_quickdraw.md").exists()


def test_without_results_the_page_says_so(write: ModuleType, tmp_path: Path) -> None:
    page = write.render(tmp_path)["docs/results.md"]
    assert "No run has been collected yet" in page
    assert "holds |" not in page


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        ("intro = [", r"results_notes\.toml is no valid TOML .*; correct it"),
        ('intros = "x"', r"has 'intros' \(did you mean 'intro'\?\); it holds intro, "),
        ("claims = 3", r"has 'claims'"),
        ('intro = "{a|clare|final}"', r"asks for 'clare' of 'a', which is not in results/runs"),
        (f'intro = "{{{TEN}|clarr|final}}"', r"asks for 'clarr' .*did you mean 'clare'.*; collect it or correct"),
        (f'intro = "{{{TEN}|clare|best}}"', r"asks for 'clare\|best'; write one of final, average, forgetting"),
        (f'intro = "{{{TEN}|clare - clare|average}}"', r"write one of final"),
    ],
)
def test_wrong_notes_end_in_a_sentence(write: ModuleType, add: Add, tmp_path: Path, notes: str, sentence: str) -> None:
    add(TEN, "clare")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/results_notes.toml").write_text(notes)
    said = write.main(["--root", str(tmp_path)])
    assert re.search(sentence, said), said
