"""Real processes: one that is killed while it saves, and two that teach the same folder at once."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from own_worlds import drawings, new_model, tiny_weights

from clare.classifier.classifier import Classifier, load
from clare.engine.context import Silence
from clare.errors import ModelError
from clare.model.lock import writing

Start = Callable[..., "subprocess.Popen[str]"]

# Each child is a process of its own that kills itself at its n-th sync, in the middle of a commit or after it.
KILLED = """
import json, os, shutil, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from own_worlds import content, drawings
from clare.classifier.classifier import Classifier, load

folder, outcomes = Path(sys.argv[1]), []
for number in range(1, 10):
    model = folder / f"model-{number}"
    shutil.copytree(folder / "model", model)
    child = os.fork()
    if child == 0:
        sync, count = os.fsync, iter(range(1, 100))
        def counted(descriptor):
            if next(count) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            sync(descriptor)
        opened = load(model, device="cpu")
        os.fsync = counted
        opened.remove("dog") if sys.argv[3] == "remove" else opened.undo()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    opened = load(model, device="cpu")
    said = [guess.guesses[0].name for guess in opened.guess(drawings("cat", seed=4)["cat"])]
    outcomes.append([os.WIFSIGNALED(status), opened.version, opened.parts.method.classes, said])
    opened.learn(drawings("tram"), mode="quick")
    temporary = [name for name in content(model) if name.endswith(".tmp")]
    assert not temporary, temporary
print(json.dumps(outcomes))
"""

HOLDS = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from own_worlds import drawings
from clare.engine.context import Silence
from clare.classifier.classifier import Classifier, load

class Holds(Silence):
    def step(self, name, num_epochs):
        (Path(sys.argv[1]) / "holding").touch()
        while not (Path(sys.argv[1]) / "go").exists():
            time.sleep(0.01)

model = load(Path(sys.argv[1]) / "model", device="cpu")
model.learn(drawings("bus", "van"), mode="quick", listener=Holds())
"""

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("change", ["remove", "undo"])
def test_a_process_killed_while_saving_leaves_a_whole_model(tmp_path: Path, start_python: Start, change: str) -> None:
    model = new_model(tmp_path)
    model.learn(drawings("cat", "dog", "bus"), mode="quick")
    if change == "undo":
        model.learn(drawings("van"), mode="quick")
    process = start_python("-c", KILLED, tmp_path, TESTS, change)
    printed, messages = process.communicate(timeout=200)
    assert process.returncode == 0, messages
    outcomes = json.loads(printed.splitlines()[-1])
    before, after = [2, ["cat", "dog", "bus"]], [3, ["cat", "bus"]]
    if change == "undo":
        before, after = [3, ["cat", "dog", "bus", "van"]], [4, ["cat", "dog", "bus"]]
    # The rename of model.json is done before the sync of its folder, and the sync before it is that of its content.
    num_syncs = 6 if change == "remove" else 2
    expected = [[True, *before]] * (num_syncs - 1) + [[True, *after]] + [[False, *after]] * (9 - num_syncs)
    assert [outcome[:3] for outcome in outcomes] == expected
    assert all(set(outcome[3]) == {"cat"} for outcome in outcomes)


def holder(tmp_path: Path, start_python: Start) -> "subprocess.Popen[str]":
    """Start a process that is in the middle of teaching bus and van, and stays there until it is told to go on."""
    new_model(tmp_path).learn(drawings("cat", "dog"), mode="quick")
    process = start_python("-c", HOLDS, tmp_path, TESTS)
    while not (tmp_path / "holding").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


def test_a_second_teacher_waits_or_is_refused_and_readers_go_on(tmp_path: Path, start_python: Start) -> None:
    process = holder(tmp_path, start_python)
    model = load(tmp_path / "model", device="cpu")
    assert [info.name for info in model.classes] == ["cat", "dog"]
    assert model.guess(drawings("cat", seed=4)["cat"][0])[0].guesses[0].name == "cat"
    for change in (
        lambda: model.learn(drawings("tram"), mode="quick", wait=False),
        lambda: model.undo(wait=False),
        lambda: model.rename("cat", "kitten", wait=False),
        lambda: model.remove("cat", wait=False),
    ):
        with pytest.raises(
            ModelError,
            match=r"another process \(\d+ on .*, since .* UTC\) is teaching .*model; try again when it is done",
        ):
            change()
    notices: list[str] = []

    class Notes(Silence):
        def notice(self, text: str) -> None:
            notices.append(text)

    waiting = threading.Thread(target=lambda: model.learn(drawings("tram"), mode="quick", listener=Notes()))
    waiting.start()
    while not notices:
        time.sleep(0.01)
    assert "waiting until it is done" in notices[0]
    (tmp_path / "go").touch()
    waiting.join()
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 0, messages
    for opened in (model, load(tmp_path / "model", device="cpu")):
        assert [info.name for info in opened.classes] == ["cat", "dog", "bus", "van", "tram"]
        assert [change.number for change in opened.history] == [1, 2, 3, 4]


def test_a_killed_teacher_gives_the_lock_back_and_leaves_the_model(tmp_path: Path, start_python: Start) -> None:
    process = holder(tmp_path, start_python)
    process.kill()
    process.wait()
    model = load(tmp_path / "model", device="cpu")
    assert [info.name for info in model.classes] == ["cat", "dog"]
    model.learn(drawings("tram"), mode="quick", wait=False)
    assert model.version == 3


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere cannot be written"), writing(tmp_path / "nowhere", wait=True):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="file is there and is no model folder"):
        Classifier(tmp_path / "file", backbone=tiny_weights(tmp_path), device="cpu")
