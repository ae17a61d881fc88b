"""The record's one schema: what is written is read again, whatever an older version left out."""

import json
import math
from pathlib import Path

import pytest

from clare.record import EVENTS, EndEvent, Event, NoticeEvent, PhaseEvent, StartEvent, TaskEvent, read_events

TASK = TaskEvent(
    task=1,
    seen=0.5,
    new=math.nan,
    first=0.25,
    per_task=(0.25, math.nan),
    given=0.75,
    given_per_task=(0.5, math.nan),
    task_right=0.625,
    learn_seconds=2,
    evaluate_seconds=1,
    capacity_used=0.1,
    num_claimed=10,
    num_free=90,
    diagnosis={"movement": {"counts": [1, 2]}},
    peak_memory=1000,
    num_stored=20,
    passes_per_image=1,
)
EXAMPLES: list[Event] = [
    StartEvent(time=1, method="clare", classes=("a", "b"), task_sizes=(1, 1), num_coordinates=100, backbone_hash="abc"),
    PhaseEvent(task=0, phase="train", epochs=2, num_trained=10, loss=(0.5, math.nan), seconds=3),
    TASK,
    NoticeEvent(task=0, text="something"),
    EndEvent(time=2),
]


def test_every_kind_of_event_comes_back_as_it_was_written(tmp_path: Path) -> None:
    lines = [json.dumps({"event": each.kind, **each.as_json()}, allow_nan=False) for each in EXAMPLES]
    (tmp_path / "record.jsonl").write_text("\n".join(lines) + "\n")
    read = list(read_events(tmp_path / "record.jsonl"))
    assert [repr(each) for each in read] == [repr(each) for each in EXAMPLES]
    assert {each.kind for each in EXAMPLES} == set(EVENTS)


def test_a_task_has_its_parts_and_null_for_what_is_no_number() -> None:
    line = TASK.as_json()
    told = {"task_given": 0.75, "per_task_given": [0.5, None], "task_right": 0.625}
    assert line["accuracy"] == {"seen": 0.5, "new": None, "first": 0.25, "per_task": [0.25, None], **told}
    assert line["capacity"] == {"used": 0.1, "claimed": 10, "free": 90}
    assert line["seconds"] == {"learn": 2.0, "evaluate": 1.0}
    assert TASK.seconds == 3


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_field_says_what_it_is(kind: type[Event]) -> None:
    assert all(field.description for field in kind.model_fields.values())
    assert len(set(kind.places().values())) == len(kind.model_fields)
