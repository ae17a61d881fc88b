"""What the child process of a job tells, and what it reads."""

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest
from fake_service import png
from hypothesis import given
from hypothesis import strategies as st

from clare.classifier.pictures import Reader
from clare.serve.archives import StoredImage
from clare.serve.limits import Limits, Refusal
from clare.serve.teach import Reporter, expected, read_examples, write_examples

seconds = st.floats(0, 1e5)


def test_progress_follows_the_estimate_and_slows_down_beyond_it() -> None:
    assert expected(0, 10) == (0.0, 10.0)
    assert expected(5, 10) == (0.5, 5.0)
    progress, left = expected(10, 10)
    assert progress == pytest.approx(0.7 + 0.3 * (1 - np.exp(-1)), abs=1e-4)
    assert left == pytest.approx(10 * (1 - progress) / progress, abs=0.1)
    assert expected(3, None) == (0.0, None)
    assert expected(0, 0) == (0.0, 0)


@given(seconds, seconds, seconds)
def test_progress_never_goes_back_and_never_claims_the_end(first: float, second: float, estimate: float) -> None:
    (earlier, _), (later, left) = expected(min(first, second), estimate), expected(max(first, second), estimate)
    assert 0 <= earlier <= later <= 0.98
    assert left is not None
    assert left >= 0


def test_the_reporter_writes_a_line_for_every_step() -> None:
    out = io.StringIO()
    reporter = Reporter(out)
    reporter.begin(1000)
    reporter.task(0, 1, ("a",))
    reporter.step("probe", 3)
    reporter.epoch(1, 5)
    reporter.batch()
    reporter.step("means", 1)
    reporter.epoch(0, 5)
    reporter.notice("something")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["step"] for line in lines if "step" in line] == [
        "starting",
        "starting",
        "probe",
        "probe, epoch 2 of 3",
        "means",
        "means",
        "something",
    ]
    assert all(0 <= line["progress"] < 0.5 and line["seconds_left"] > 500 for line in lines)


def test_a_job_reads_its_images_by_class_and_names_a_damaged_one(tmp_path: Path) -> None:
    images = []
    damaged = png(4, (30, 30))[:60]
    for number, (label, content) in enumerate([("b", png(1)), ("a", png(2)), ("b", png(3)), ("c", damaged)]):
        path = tmp_path / f"part-{number}"
        path.write_bytes(content)
        images.append(StoredImage(label, f"picture {number}", path))
    reader = Reader(1, 28, 0)
    write_examples(tmp_path, images[:3], Limits(image_pixels=1000))
    examples = asyncio.run(read_examples(tmp_path, reader))
    assert list(examples) == ["b", "a"]
    assert [int(image[0, 0]) for image in examples["b"]] == [1, 3]
    write_examples(tmp_path, images, Limits(image_pixels=1000))
    with pytest.raises(Refusal, match="'picture 3'"):
        asyncio.run(read_examples(tmp_path, reader))


def test_a_job_gives_up_an_image_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(png(1))
    write_examples(tmp_path, [StoredImage("a", "slow.png", tmp_path / "part-0")], Limits(image_seconds=1e-6))
    with pytest.raises(Refusal, match=r"'slow\.png' took more than 1e-06 seconds"):
        asyncio.run(read_examples(tmp_path, Reader(1, 28, 0)))
