"""Files of tensors that rest on one another: what is written, and that it is read back as it was."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from clare.classifier.classifier import Classifier
from clare.errors import ModelError
from clare.model import tensors as files
from clare.model.folder import read_model
from clare.model.tensors import MORE, beyond, parts_of, read_tensors, write_state_tensors


@pytest.fixture(autouse=True)
def _small_savings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_SAVED", 0)


def a_state(num_rows: int, version: int = 0) -> dict[str, Tensor]:
    """Rows that grow, and a tensor that is new each time."""
    return {"rows": torch.arange(8.0 * num_rows).view(num_rows, 8), "curve": torch.tensor([float(version)])}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_beyond_is_the_new_rows_and_what_is_otherwise() -> None:
    found = beyond(a_state(3), {**a_state(5, 1), "new": torch.ones(2)})
    assert found is not None
    assert {name: tensor.shape[0] for name, tensor in found.items()} == {MORE + "rows": 2, "curve": 1, "new": 2}
    assert beyond(a_state(3), a_state(3)) == {}
    changed = beyond(a_state(3), {**a_state(3), "rows": torch.zeros(3, 8)})
    assert changed is not None
    assert list(changed) == ["rows"]
    assert beyond(a_state(3), {"rows": torch.ones(1)}) is None


def test_states_rest_on_those_before_and_come_back(tmp_path: Path) -> None:
    names: list[str] = []
    for number in range(40):
        names.append(write_state_tensors(tmp_path, a_state(20 + number, number), names[-1] if names else ""))
    assert parts_of(tmp_path, names[3]) == names[3::-1]
    assert max(len(parts_of(tmp_path, name)) for name in names) == files.MOST_PARTS
    for number, name in enumerate(names):
        assert same(read_tensors(tmp_path / name), a_state(20 + number, number))
    assert (tmp_path / names[1]).stat().st_size < 0.6 * (tmp_path / names[0]).stat().st_size


def test_a_state_of_which_most_is_new_is_written_whole(tmp_path: Path) -> None:
    first = write_state_tensors(tmp_path, a_state(4))
    other = {**a_state(20), "rows": torch.ones(20, 8)}
    assert parts_of(tmp_path, name := write_state_tensors(tmp_path, other, first)) == [name]


def test_a_file_that_lacks_what_it_rests_on_is_damaged(tmp_path: Path) -> None:
    first = write_state_tensors(tmp_path, a_state(20))
    second = write_state_tensors(tmp_path, a_state(21), first)
    (tmp_path / first).unlink()
    with pytest.raises(ModelError, match=rf"{first} cannot be read"):
        read_tensors(tmp_path / second)
    write_state_tensors(tmp_path, a_state(20))
    content = (tmp_path / first).read_bytes()
    (tmp_path / first).write_bytes(content[:-1] + b"\1")
    with pytest.raises(ModelError, match="damaged"):
        read_tensors(tmp_path / second)


def test_lessons_share_files_and_undo_brings_each_state_back(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    model = Classifier(tmp_path / "model", device="cpu", num_kept=2)
    states = []
    for number in range(4):
        names = [f"class {number} {letter}" for letter in ("abcde" if number == 0 else "a")]
        pictures = torch.randint(0, 256, (len(names), 6, 28, 28), dtype=torch.uint8, generator=generator)
        model.learn({name: list(own.numpy()) for name, own in zip(names, pictures, strict=True)}, mode="quick")
        states.append(read_model(tmp_path / "model")[1])
    found = parts_of(tmp_path / "model", read_model(tmp_path / "model")[0].state["tensors"])
    assert len(found) > 1
    on_disk = {path.name for path in (tmp_path / "model").glob(files.TENSORS)}
    assert set(found) <= on_disk
    for number in (2, 1):
        model.undo()
        assert same(read_model(tmp_path / "model")[1], states[number])
