"""Times and latencies: medians and quartiles by hand, by turns, and the paper's hours beside ours."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from experiment_worlds import results_of

from clare.paper.latency import (
    BARE,
    MAX_SECONDS,
    MIN_REPEATS,
    NUM_REPEATS,
    NUM_WARM_UPS,
    PLAIN,
    Latency,
    as_values,
    by_turns,
    efficiency_sheets,
    ratio,
    summarise_times,
    time_sheet,
)


def test_seconds_per_image_by_hand() -> None:
    found = summarise_times("x", 2, [4.0, 1.0, 2.0, 3.0, 5.0])
    assert (found.median, found.low, found.high, found.num_repeats) == (1.5, 1.0, 2.0, 5)


def test_calls_take_turns_and_warm_up() -> None:
    clock = 0.0
    order: list[str] = []

    def call(label: str, seconds: float) -> None:
        nonlocal clock
        order.append(label)
        clock += seconds

    calls = {"fast": lambda: call("fast", 0.001), "slow": lambda: call("slow", 0.002)}
    times = by_turns(calls, lambda: clock)
    assert order[:4] == ["fast", "slow", "fast", "slow"]
    assert len(order) == 2 * (NUM_WARM_UPS + NUM_REPEATS)
    assert times["fast"] == pytest.approx([0.001] * NUM_REPEATS)
    assert times["slow"] == pytest.approx([0.002] * NUM_REPEATS)


def test_slow_calls_are_repeated_less_often() -> None:
    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += MAX_SECONDS

    clock = ticks()
    assert len(by_turns({"slow": lambda: None}, lambda: next(clock))["slow"]) == MIN_REPEATS


def test_times_stand_beside_the_papers() -> None:
    results = results_of(
        "efficiency", {"clare": 50.0, "sdlora": 40.0, "ease": 45.0}, seconds={"clare": 7200.0, "sdlora": 9000.0}
    )
    sheet = time_sheet(results, "here")
    assert sheet.header[3] == "paper (imagenet-a-50x4, one L40)"
    assert sheet.rows == (
        ("CLARE", "2 h 00 min", "1.00", "4.37 h", "1.00"),
        ("SD-LoRA", "2 h 30 min", "1.25", "4.41 h", "1.01"),
        ("EASE", "-", "-", "-", "-"),
    )
    assert ratio(1.0, None) is None
    assert ratio(None, 1.0) is None


def test_latencies_are_multiples_of_the_bare_backbone() -> None:
    results = results_of("efficiency", {"clare": 50.0, "sdlora": 40.0, "ease": 45.0})
    latencies = [
        Latency(label, size, seconds / size, 0.9 * seconds / size, 1.1 * seconds / size, 30)
        for size in (1, 32)
        for label, seconds in ((BARE, 0.010), (PLAIN, 0.016))
    ]
    _, sheet = efficiency_sheets(results, {"here": latencies})
    assert sheet.rows[1] == (PLAIN, "16.000 [14.400, 17.600]", "1.60", "0.500 [0.450, 0.550]", "1.60")
    assert "of 30 calls" in sheet.title
    fewer = [replace(each, num_repeats=each.num_repeats if each.batch_size == 1 else 5) for each in latencies]
    assert "of 5 to 30 calls" in efficiency_sheets(results, {"here": fewer})[1].title
    assert len(efficiency_sheets(results, {})) == 1
    assert as_values({"here": latencies})["latency"]["here"][0]["median"] == 0.010
