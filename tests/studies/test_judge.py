"""Claims are data: each is decided by rule, with accuracies and differences over the same seeds."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from clare.errors import RunError
from clare.metrics.bootstrap import Pair, paired_intervals
from clare.report.record import read_run

Script = Callable[[str], ModuleType]
Add = Callable[..., Path]
Read = Callable[[], Any]
STUDY = Path(__file__).parents[2] / "studies" / "vits14-112"
TEN, FIFTY = "cifar100-10x10", "cifar100-50x2"


@pytest.fixture(scope="session")
def judge(script: Script) -> ModuleType:
    """Return the module under test."""
    return script("judge")


@pytest.fixture
def claim(read: Read) -> Callable[[str], Any]:
    """Return claim(key): the claim as the results below tmp_path decide it."""
    return lambda key: next(each for each in read().claims if each.key == key)


def verdicts(claim: Any) -> list[str]:
    """Return the verdict of each stream."""
    return [finding.verdict for finding in claim.findings]


def test_every_rule_decides(add: Add, read: Read) -> None:
    for stream, random_skill in ((TEN, 0.75), (FIFTY, 0.4)):
        for seed in (1, 2):
            add(stream, "clare", skill=0.9, seed=seed)
            add(stream, "clare-random-mask", skill=random_skill, seed=seed)
        add(stream, "clare-one-stage", skill=0.999)
        add(stream, "clare-no-mask", skill=0.5)
        add(stream, "clare-plus", skill=0.95)
        add(stream, "linear", skill=0.7)
        add(stream, "ease", skill=0.6)
        add(stream, "ranpac", skill=0.99)
    found = {claim.key: verdicts(claim) for claim in read().claims}
    missing = ["not measured"] * 2
    assert found["learnt-mask"] == ["holds", "holds", *missing]
    assert found["longer"] == ["holds", "not measured"]
    assert found["two-stage"] == ["does not hold", "does not hold", *missing]
    assert found["capacity"] == missing
    assert found["no-mask"] == ["holds", "holds", *missing]
    assert found["ranpac"] == found["ranpac-plus"] == ["does not hold", "does not hold", *missing]
    assert found["rivals"] == ["not measured"] * 4
    assert found["equal-head"] == ["holds", "holds", *missing]
    assert found["time"] == ["holds", "not measured"]
    assert found["memory"] == missing
    assert found["stored"] == ["holds", "holds", *missing]
    assert found["aim-final"] == ["holds", "holds"]
    assert found["aim-lead"] == ["holds", "holds", *missing]
    assert found["aim-lead-plus"] == ["not measured"] * 4


def test_accuracies_and_differences_are_of_the_same_seeds(add: Add, claim: Callable[[str], Any], read: Read) -> None:
    # With its second seed clare's mean is far above linear's; with the one that both have it is below.
    add(FIFTY, "clare", skill=0.6, seed=1)
    add(FIFTY, "clare", skill=0.99, seed=2)
    add(FIFTY, "linear", skill=0.7, seed=1)
    finding = claim("equal-head").findings[1]
    shown = re.fullmatch(r"([\d.]+), linear ([\d.]+): ([+-][\d.]+) \[.*\]", finding.figures)
    assert shown, finding.figures
    ours, theirs, difference = map(float, shown.groups())
    assert ours - theirs == pytest.approx(difference, abs=0.06)
    assert difference < 0
    assert finding.verdict == "does not hold"
    assert 100 * read().table.find(FIFTY, "clare").final > theirs


def test_the_kept_claims_do_not_contradict_themselves(script: Script) -> None:
    claims = script("write_results").read_all(STUDY).claims
    pairs = [
        pair
        for claim in claims
        for finding in claim.findings
        for pair in re.findall(r"(\d+\.\d\d), [^;]*? (\d+\.\d\d): ([+-]\d+\.\d)", finding.figures)
    ]
    assert len(pairs) > 30
    for ours, theirs, difference in pairs:
        assert float(ours) - float(theirs) == pytest.approx(float(difference), abs=0.061)


def test_equal_heads_are_all_among_the_rivals(judge: ModuleType, script: Script, study: Any) -> None:
    table = script("write_results").read_all(STUDY).table
    for key in ("equal-head", "equal-head-plus"):
        (told,) = [each for each in judge.read_claims(STUDY / "claims.toml") if each["key"] == key]
        for stream in judge.STREAMS:
            head = table.find(stream, told["ours"])["head"]
            others = [entry.row for entry in table.entries("test", stream) if entry["head"] == head]
            settings = {row: study.row(row).settings_on(stream) for row in others}
            alike = [row for row in others if all(each.startswith("method.head.") for each in settings[row])]
            methods = {study.row(row).method: row for row in alike}
            rivals = {row for method, row in methods.items() if method not in ("clare", "clare-plus", "joint")}
            assert rivals <= set(told["rivals"]), (key, stream)


def test_who_is_ahead_of_all_is_ahead_of_each(add: Add, claim: Callable[[str], Any]) -> None:
    add(TEN, "clare", skill=0.7)
    add(TEN, "linear", skill=0.2)
    assert claim("equal-head").findings[0].verdict == "holds"
    add(TEN, "finetune", skill=0.7)
    finding = claim("equal-head").findings[0]
    assert finding.verdict == "undecided"
    assert ", finetune " in finding.figures
    add(TEN, "aper-adapter", skill=0.99)
    assert claim("equal-head").findings[0].verdict == "does not hold"
    assert claim("aim-lead").findings[0].verdict == "does not hold"


def test_a_rival_that_was_not_run_leaves_a_claim_open_but_for_its_refutation(
    add: Add, claim: Callable[[str], Any]
) -> None:
    add(TEN, "clare", skill=0.6)
    add(TEN, "aper-adapter", skill=0.9)
    assert claim("rivals").findings[0].verdict == "not measured"
    add(TEN, "ease", skill=0.2)
    assert claim("rivals").findings[0].verdict == "not measured"
    assert claim("rivals").findings[0].figures.endswith("; 7 of 8 rivals not measured")
    add(TEN, "aper-adapter-prototype", skill=0.9)
    assert claim("rivals").findings[0].verdict == "does not hold"


def test_times_on_a_shared_device_decide_nothing(add: Add, claim: Callable[[str], Any], script: Script) -> None:
    folder = add(FIFTY, "clare")
    assert claim("time").findings[0].verdict == "holds"
    home = folder.parents[1] / "home"
    script("collect_results").main([str(folder), "--home", str(home), "--shared-device"])
    assert claim("time").findings[0].verdict == "not measured"


@pytest.mark.parametrize(
    ("mean", "interval", "verdict"),
    [
        (0.02, (0.01, 0.03), "holds"),
        (0.02, (-0.01, 0.05), "undecided"),
        (-0.02, (-0.05, 0.01), "undecided"),
        (-0.02, (-0.03, -0.01), "does not hold"),
        (0.0, (0.0, 0.0), "undecided"),
        (0.02, None, "holds"),
        (-0.02, None, "does not hold"),
        (0.0, None, "does not hold"),
    ],
)
def test_a_difference_is_judged_by_its_interval(
    judge: ModuleType, mean: float, interval: Sequence[float] | None, verdict: str
) -> None:
    assert judge.judge(judge.Difference(0.5 + mean, 0.5, (mean,), interval)) == verdict


def test_nothing_shared_is_not_measured(judge: ModuleType) -> None:
    assert judge.judge(None) == "not measured"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('judge = "ahead"', 'judge = "about"', r"claims\.toml holds no valid claims \('about'\); correct it"),
        ("rivals = [", "rival = [", r"'rival' \(did you mean 'rivals'\?\)"),
        ("[[claims]]", "[[claims", r"claims\.toml holds no valid claims"),
    ],
)
def test_wrong_claims_end_in_a_sentence(judge: ModuleType, tmp_path: Path, old: str, new: str, sentence: str) -> None:
    (tmp_path / "claims.toml").write_text((STUDY / "claims.toml").read_text().replace(old, new, 1))
    with pytest.raises(RunError, match=sentence):
        judge.read_claims(tmp_path / "claims.toml")


def test_an_interval_is_that_of_the_bootstrap_and_is_kept(add: Add, read: Read, script: Script, tmp_path: Path) -> None:
    folders = {
        row: [add(FIFTY, row, skill=skill, seed=seed) for seed in (1, 2, 3)]
        for row, skill in (("clare", 0.8), ("finetune", 0.7))
    }
    results = read()
    entries = [results.table.find(FIFTY, row) for row in folders]
    found = results.differences.between(*entries)
    runs = [[read_run(folder) for folder in each] for each in folders.values()]
    pairs = [Pair(mine.evaluations, other.evaluations, mine.start.classes) for mine, other in zip(*runs, strict=True)]
    drawn = paired_intervals(pairs, ["final_accuracy"], random=np.random.RandomState(0))["final_accuracy"]
    assert found.mean == pytest.approx(drawn.difference, abs=1e-6)
    assert found.interval == pytest.approx((drawn.low, drawn.high), abs=1e-6)
    assert len(found.by_seed) == 3
    # What is kept is taken until a run behind it changes.
    kept = results.home / "intervals.csv"
    line = next(line for line in results.differences.kept().splitlines() if line.startswith(f"{FIFTY},clare,finetune,"))
    kept.write_text(f"stream,row,other,runs,low,high\n{','.join(line.split(',')[:4])},-0.5,0.5\n")
    again = read()
    assert again.differences.between(*entries).interval == (-0.5, 0.5)
    path = tmp_path / f"home/results/{FIFTY}/clare/1.json"
    path.write_text(path.read_text().replace('"started": "2001', '"started": "2002'))
    changed = read()
    anew = [changed.table.find(FIFTY, row) for row in folders]
    assert changed.differences.between(*anew).interval == found.interval


@pytest.mark.parametrize("place", [0, -1])
def test_the_kept_intervals_are_those_of_the_results(script: Script, place: int) -> None:
    results = script("write_results").read_all(STUDY)
    key = sorted(results.differences.known)[place]
    entries = [results.table.find(key[0], row) for row in key[1:3]]
    anew = script("result_differences").Differences(STUDY, results.table)
    assert anew.between(*entries).interval == results.differences.known[key]


def test_differences_are_taken_over_shared_seeds_alone(add: Add, read: Read) -> None:
    for row, seeds in (("clare", (1, 2)), ("finetune", (2,)), ("linear", (3,))):
        for seed in seeds:
            add(TEN, row, seed=seed)
    results = read()
    ours, one, none = (results.table.find(TEN, row) for row in ("clare", "finetune", "linear"))
    assert len(results.differences.between(ours, one).by_seed) == 1
    assert results.differences.between(ours, none) is None


def test_runs_whose_answers_were_not_kept_are_taken_as_independent(add: Add, read: Read, tmp_path: Path) -> None:
    for row, skill in (("clare", 0.9), ("linear", 0.6), ("finetune", 0.5)):
        add(TEN, row, skill=skill)

    def found() -> Any:
        results = read()
        return results.differences.between(*(results.table.find(TEN, row) for row in ("clare", "linear")))

    def without_answers(row: str) -> None:
        path = tmp_path / f"home/results/{TEN}/{row}/1.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "final_answers": None}))

    paired = found()
    without_answers("linear")
    unpaired = found()
    assert (paired.is_paired, unpaired.is_paired) == (True, False)
    assert unpaired.mean == paired.mean
    num_images = 10 * 20
    expected = sum(a * (1 - a) / num_images for a in (paired.ours, paired.theirs)) ** 0.5
    assert unpaired.deviation == pytest.approx(expected, rel=1e-3)
    assert str(unpaired).endswith("] unpaired")
    # The third run still knows how many images there are; without it nobody does.
    without_answers("clare")
    assert found().deviation == pytest.approx(expected, rel=1e-3)
    without_answers("finetune")
    assert found().interval is None
    assert str(found()) == f"{100 * paired.mean:+.1f}"
