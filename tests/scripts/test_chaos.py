"""The attack that `make chaos` makes: a small part of it holds, and what would break a promise is noticed."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
KEPT = sorted((SCRIPTS.parent / "results" / "chaos").glob("*.json"))


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the parts of the attack be imported."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "chaos"]:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_small_attack_breaks_no_promise_and_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "small.json"
    environment = os.environ | {"PYTHONPATH": f"{SCRIPTS}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    seconds: list[float] = []
    for _ in range(2):
        command = [sys.executable, "-m", "chaos", "--count", "2.5", "--seed", "7", "--out", str(out)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.endswith("broken promises: 0\n")
        kept = json.loads(out.read_text())
        counts = {name: part["count"] for name, part in kept["parts"].items()}
        assert (counts["folders"], counts["bodies"]) == (50, 250)
        assert counts["kills"] >= 25
        assert kept["broken"] == []
        seconds.append(kept["parts"]["folders"]["seconds"])
    assert seconds[0] == seconds[1], "what was done was done again"


@pytest.mark.usefixtures("chaos")
def test_a_process_dies_at_the_write_that_was_chosen(tmp_path: Path) -> None:
    from chaos.forks import in_process

    here = tmp_path / "here"

    def write() -> None:
        with open("a", "wb") as file:
            file.write(b"x" * 1000)
            file.flush()
            os.fsync(file.fileno())
        os.replace("a", "b")
        os.write(1, b"done\n")

    outcomes = []
    for die_at in range(6):
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        ended = in_process(here, write, die_at, torn=0.25)
        outcomes.append((ended.was_killed, {path.name: path.stat().st_size for path in here.iterdir()}))
        assert ended.out == ("" if ended.was_killed else "done\n")
    whole = (False, {"b": 1000})
    # Open, before and after the sync, rename: what was not synced is torn, what was synced is not.
    assert outcomes == [whole, (True, {}), (True, {"a": 250}), (True, {"a": 1000}), (True, {"a": 1000}), whole]


@pytest.mark.usefixtures("chaos")
def test_a_command_that_leaves_half_of_its_work_is_noticed(tmp_path: Path) -> None:
    from chaos.folders import BrokenPromise
    from chaos.forks import in_process
    from chaos.kills import Target, kill_once, measure

    def careless() -> None:
        folder = Path("run")
        folder.mkdir(exist_ok=True)
        # Whoever finds the file believes that it is whole.
        if not (folder / "values.bin").exists():
            with (folder / "values.bin").open("wb") as file:
                file.write(b"x" * 1000)
                file.flush()
                os.fsync(file.fileno())

    target = Target("careless", lambda folder, **kill: in_process(folder, careless, **kill), "run", turn=2)
    (tmp_path / "world").mkdir()
    measure(target, tmp_path / "world", tmp_path / "here")
    with pytest.raises(BrokenPromise, match=r"careless killed at .*values\.bin"):
        kill_once(target, random.Random(0), tmp_path / "world", tmp_path / "here")


@pytest.mark.usefixtures("chaos")
def test_times_differ_and_nothing_else_may(tmp_path: Path) -> None:
    from chaos.folders import difference, told

    said = []
    for number, (at, state) in enumerate((("now", "0" * 16), ("later", "1" * 16))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"state-{state}.json").write_text(json.dumps({"at": at}))
        (folder / "model.json").write_text(json.dumps({"kept": [f"state-{state}.json"], "at": at}))
        said.append(told(folder))
    assert said[0] == said[1]
    (tmp_path / "1" / "tensors.safetensors").write_bytes(b"x")
    assert difference(said[0], told(tmp_path / "1")).startswith("tensors.safetensors: ")


@pytest.mark.usefixtures("chaos")
def test_a_part_of_an_attack_is_not_kept_beside_full_ones() -> None:
    from chaos.__main__ import OUT

    assert f"/{OUT.parts[0]}/" in (SCRIPTS.parent / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_attack_was_a_full_one_without_a_broken_promise(path: Path) -> None:
    kept = json.loads(path.read_text())
    assert kept["broken"] == []
    least = {"kills": 1000, "folders": 2000, "bodies": 10_000, "crowds": 40, "full disks": 40}
    assert all(kept["parts"][name]["count"] >= number for name, number in least.items())
    assert all(len(part["commit"]) == 40 for part in kept["parts"].values())
