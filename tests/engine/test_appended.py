"""What a run adds to from task to task, worked out by hand."""

import itertools
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from run_outcome import Stop, StopAtTask, outcome
from torch import Tensor

from clare import files
from clare.engine.appended import Appended, GrowingRows, split_lists
from clare.engine.context import Silence
from clare.engine.folder import RunFolder
from clare.engine.run import run_experiment
from clare.files import bytes_of
from clare.methods.state import Snapshot
from clare.position import FINISHED, ROWS
from clare.presets.load import make_experiment
from clare.sealed import digest_of


def named(tensors: dict[str, Tensor]) -> dict[str, list[float]]:
    """Return the numbers of tensors."""
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def test_rows_that_came_are_added_and_all_else_is_written_anew() -> None:
    rows = GrowingRows()
    states = [
        {"rows": torch.tensor([1.0]), "moving": torch.tensor([1.0]), "count": torch.tensor(1)},
        {"rows": torch.tensor([1.0, 2.0]), "moving": torch.tensor([2.0]), "count": torch.tensor(1)},
        {"rows": torch.tensor([1.0, 2.0, 3.0]), "moving": torch.tensor([2.0]), "count": torch.tensor(1)},
        {"rows": torch.tensor([1.0, 2.0, 3.0]), "moving": torch.tensor([3.0]), "count": torch.tensor(1)},
        {"rows": torch.tensor([9.0, 2.0, 3.0]), "moving": torch.tensor([3.0]), "count": torch.tensor(1)},
    ]
    found, before = [], {}
    for state in states:
        added, changed = rows.split(before, state)
        found.append((named(added), sorted(changed)))
        before = state
    assert found == [
        ({}, ["count", "moving", "rows"]),
        ({"rows": [1.0, 2.0]}, ["count", "moving"]),
        ({"rows": [3.0], "moving": [2.0]}, ["count"]),
        ({}, ["count", "moving"]),
        ({}, ["count", "moving", "rows"]),
    ]
    assert rows.outdated == {"moving", "rows"}


def test_zeros_of_another_sign_are_another_state() -> None:
    zero = torch.zeros(2)
    assert GrowingRows().split({"x": zero}, {"x": -zero})[0] == {}
    nothing = torch.tensor([torch.nan])
    assert sorted(GrowingRows().split({"x": nothing}, {"x": nothing.clone()})[0]) == ["x"]


def test_rows_are_read_as_they_were_added() -> None:
    parts = [bytes_of({"x": torch.ones(1, 2), "old": torch.ones(3)}), b"", bytes_of({"x": torch.zeros(2, 2)})]
    rows = GrowingRows()
    tensors = rows.read(Path("rows.bin"), b"".join(parts), [len(part) for part in parts], ["old"])
    assert named(tensors) == {"x": [[1, 1], [0, 0], [0, 0]]}
    assert (rows.lengths, rows.outdated) == ({"x": 3}, {"old"})


def test_lists_go_on_where_they_stood() -> None:
    before = {"tasks": [["a"]], "sizes": [1]}
    after = {"tasks": [["a"], ["b"]], "sizes": [2], "number": 3, "new": [7]}
    assert split_lists(before, after) == ({"tasks": [["b"]], "new": [7]}, {"sizes": [2], "number": 3})


def test_what_is_behind_the_bytes_that_count_is_cut_off(tmp_path: Path) -> None:
    file = Appended(tmp_path, "lines")
    file.append(b"one")
    file.append(b"two")
    assert (file.num_bytes, file.digest) == (6, digest_of(b"onetwo"))
    again = Appended(tmp_path, "lines")
    again.cut(b"one")
    again.append(b"three")
    assert file.path.read_bytes() == b"onethree"
    assert (again.num_bytes, again.digest) == (8, digest_of(b"onethree"))


def state(num_tasks: int) -> Snapshot:
    """Return a learner with a row for each task, one number that always changes, and one tensor that never does."""
    tensors = {"rows": torch.ones(num_tasks, 50), "last": torch.full((3,), num_tasks), "fixed": torch.ones(2000)}
    return Snapshot({"tasks": [[f"class {task:04d}"] for task in range(num_tasks)], "size": 4}, tensors)


def test_a_commit_writes_no_more_after_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, whole, append = [0], files.write_bytes, Appended.append

    def write_bytes(path: Path, data: bytes) -> None:
        written[-1] += len(data)
        whole(path, data)

    def add(self: Appended, data: bytes) -> None:
        written[-1] += len(data)
        append(self, data)

    monkeypatch.setattr(files, "write_bytes", write_bytes)
    monkeypatch.setattr(Appended, "append", add)
    run = RunFolder(tmp_path, writes=True)
    run.begin({}, {})
    run.commit()
    for task in range(60):
        written.append(0)
        run.finish(0, {"x": torch.ones(1)})
        run.predictions(task, torch.ones(5), torch.ones(5))
        run.advance(state(task + 1))
    # The numbers of bytes have more digits as they grow.
    assert abs(written[-1] - written[10]) < 32
    again = RunFolder(tmp_path, writes=True)
    again.inspect({})
    snapshot = again.snapshot()
    assert snapshot is not None
    assert snapshot.structure == state(60).structure
    assert {name: tensor.tolist() for name, tensor in snapshot.tensors.items()} == {
        name: tensor.tolist() for name, tensor in state(60).tensors.items()
    }


def test_a_structure_may_lose_what_it_had(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, writes=True)
    run.begin({}, {})
    run.commit()
    structures: list[dict[str, Any]] = [
        {"tasks": [["a"]], "sizes": [1]},
        {"tasks": [["a"], ["b"]]},
        {"tasks": [["a"], ["c"]], "sizes": [1, 2]},
        {"tasks": [["a"], ["b"], ["d"]], "sizes": [1, 2]},
    ]
    for structure in structures:
        run.advance(Snapshot(structure, {"x": torch.ones(1)}))
        again = RunFolder(tmp_path, writes=False)
        again.inspect({})
        snapshot = again.snapshot()
        assert snapshot is not None
        assert snapshot.structure == structure


def test_what_a_method_goes_on_with_is_what_it_was_when_it_was_committed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, writes=True)
    run.begin({}, {})
    run.commit()
    inner, pairs = [1], [(1, 2.0)]
    run.advance(Snapshot({"tasks": [["a"]], "inner": [inner], "pairs": pairs, "best": [math.inf]}, {}))
    inner.append(2)
    run.advance(Snapshot({"tasks": [["a"], ["b"]], "inner": [inner], "pairs": pairs, "best": [math.inf, 1.0]}, {}))
    again = RunFolder(tmp_path, writes=False)
    again.inspect({})
    assert again.position.whole_structure == {
        "tasks": [["a"], ["b"]],
        "inner": [[1, 2]],
        "pairs": [[1, 2.0]],
        "best": [math.inf, 1.0],
    }
    assert "pairs" in again.position.lists


STATES = [
    {"rows": torch.ones(1, 2), "none": torch.zeros(0), "one": torch.tensor(1.0), "flags": torch.ones(2) > 0},
    {"rows": torch.ones(3, 2), "none": torch.zeros(0), "one": torch.tensor(1.0), "flags": torch.ones(1) > 0},
    {"rows": torch.ones(4, 2), "none": torch.ones(2), "flags": torch.ones(3) > 0},
    {"rows": torch.ones(5, 2).double(), "none": torch.ones(1), "one": torch.ones(1)},
    {"rows": torch.ones(6, 2).double(), "none": torch.ones(3), "one": torch.ones(2)},
]
"""Tensors that grow, shrink, come, go, and change their type."""


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    """Tell whether tensors are the same in name, type and number."""
    return ours.keys() == theirs.keys() and all(
        (own.dtype, own.tolist()) == (theirs[name].dtype, theirs[name].tolist()) for name, own in ours.items()
    )


def taken_up(folder: Path) -> RunFolder:
    """Begin a run or go on with it."""
    run = RunFolder(folder, writes=True)
    run.inspect({})
    run.begin({}, {})
    return run


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_kill_at_any_write_leaves_the_state_of_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_torn: bool
) -> None:
    whole, append, left = files.write_bytes, Appended.append, [0]

    def is_killed() -> bool:
        left[0] -= 1
        return left[0] == 0

    def write_bytes(path: Path, data: bytes) -> None:
        if is_killed():
            if is_torn:
                (tmp_path / f".{path.name}.1.tmp").write_bytes(data[:9])
            raise Stop
        whole(path, data)

    def add(self: Appended, data: bytes) -> None:
        if is_killed():
            if is_torn:
                append(self, data[:9])
            raise Stop
        append(self, data)

    monkeypatch.setattr(files, "write_bytes", write_bytes)
    monkeypatch.setattr(Appended, "append", add)

    taken_up(tmp_path).commit()
    for task, tensors in enumerate(STATES):
        # One write later each time, until there is none that is cut off.
        for place in itertools.count(1):
            run = taken_up(tmp_path)
            before = run.snapshot()
            assert run.position.task == task
            assert before is None if task == 0 else before and same(before.tensors, STATES[task - 1])
            left[0] = place
            with suppress(Stop):
                run.predictions(task, torch.ones(2), torch.ones(2))
                run.advance(Snapshot({"tasks": [["a"]] * (task + 1)}, tensors))
                break
        assert place in (5, 6)


def test_a_run_that_stands_on_the_rows_of_earlier_tasks_goes_on(tiny_preset: Path, tmp_path: Path) -> None:
    experiment = make_experiment(str(tiny_preset), "simplecil")
    run_experiment(experiment, tmp_path / "straight", Silence())
    with pytest.raises(Stop):
        run_experiment(experiment, tmp_path / "run", StopAtTask(2))
    with (tmp_path / "run" / ROWS).open("ab") as rows:
        rows.write(b"cut o")
    with (tmp_path / "run" / FINISHED).open("ab") as lines:
        lines.write(b"cut o")
    run_experiment(experiment, tmp_path / "run", Silence())
    assert outcome(tmp_path / "run") == outcome(tmp_path / "straight")
    rows_of = [(tmp_path / name / ROWS).read_bytes() for name in ("run", "straight")]
    assert rows_of[0] == rows_of[1] != b""
