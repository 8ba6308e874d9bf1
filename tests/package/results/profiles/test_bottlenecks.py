from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roost.package.results.profiles.bottlenecks import (
    find_bottlenecks,
    format_bottleneck,
    notes,
    scale_interval,
)
from roost.package.results.profiles.profile_record import Activity, HotLine, OperatorTimes, ProfileRecord

WORKING = OperatorTimes(calls=200, work_share=0.97, kernel_ms=95.0, empty_us=0.5)
LAUNCHING = OperatorTimes(calls=200, work_share=0.04, kernel_ms=2.0, empty_us=0.5)


def record(**changed: Any) -> ProfileRecord:
    """100 steps of 100 ms with 32 samples, all of them computing."""
    base = ProfileRecord(
        first_step=11,
        last_step=110,
        seconds=10.0,
        samples=3200,
        cores=8,
        num_workers=4,
        parts={"data": 0.1, "to device": 0.1, "forward": 3.3, "backward": 6.0, "optimizer": 0.4},
        operators=WORKING,
    )
    return msgspec.structs.replace(base, **changed)


def waiting(**changed: Any) -> ProfileRecord:
    """Nine tenths of a step are a wait for its batch."""
    return record(parts={"data": 9.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}, **changed)


def test_a_run_that_computes_is_not_blamed_on_the_loader() -> None:
    (found,) = find_bottlenecks(record())
    assert found.kind == "compute" and found.setting is None and found.speedup is None
    assert "forward 33%" in found.text and "data 1%" in found.text


def test_a_slow_disk_is_mended_by_workers_which_need_no_cores() -> None:
    loading = Activity(seconds=10.0, computing=0.3)
    line = HotLine(part="worker", place="read Dataset.py:31", is_computing=False, number=400)
    found = find_bottlenecks(waiting(num_workers=1, cores=2, loading=loading, lines=[line]))[0]
    assert (found.kind, found.setting, found.received) == ("reading", "data.num_workers", "1")
    assert int(str(found.suggested)) == 12 and found.speedup is not None and 9 < found.speedup <= 10
    assert "read Dataset.py:31" in found.text and "90%" in found.text


def test_a_slow_transform_needs_cores() -> None:
    computes = Activity(seconds=10.0, computing=9.9)
    several = find_bottlenecks(waiting(num_workers=1, cores=4, loading=computes))[0]
    assert (several.kind, several.suggested) == ("transform", "4")
    assert several.speedup is not None and 3 < several.speedup < 4
    none_left = find_bottlenecks(waiting(num_workers=4, cores=4, loading=computes))[0]
    assert none_left.setting is None and "4 cores" in none_left.fix


def test_a_set_that_the_training_process_reads() -> None:
    found = find_bottlenecks(waiting(num_workers=0, loading=Activity(seconds=9.0, computing=8.9)))[0]
    assert (found.kind, found.received, found.suggested) == ("transform", "0", "8")


def test_an_unknown_loader_is_named_without_a_number() -> None:
    found = find_bottlenecks(waiting(num_workers=None))[0]
    assert found.kind == "loading" and found.setting is None and found.speedup == pytest.approx(10.0)


def test_idle_workers_do_not_count_as_load() -> None:
    """Their batches come in time on the whole: more of them would not help."""
    loading = Activity(seconds=10.0, computing=1.0, idle=9.0)
    parts = {"data": 2.0, "forward": 3.0, "backward": 4.5, "optimizer": 0.5}
    found = find_bottlenecks(record(parts=parts, num_workers=1, loading=loading))[0]
    assert found.kind == "transform" and found.suggested == "2"


def test_a_tiny_batch() -> None:
    found = find_bottlenecks(record(operators=LAUNCHING))[0]
    assert (found.kind, found.received, found.suggested) == ("launch", "32", "256")
    assert found.speedup is not None and 4 < found.speedup < 8 and "200 operators" in found.text


def test_a_tiny_batch_on_an_accelerator() -> None:
    """The kernels take 2 of the 97 ms; with 95 ms of kernels there is nothing to mend."""
    found = find_bottlenecks(record(device="cuda", operators=LAUNCHING))[0]
    assert found.kind == "launch" and "step_mode: compile" in found.fix
    assert find_bottlenecks(record(device="cuda"))[0].kind == "compute"


def test_a_slow_optimizer() -> None:
    parts = {"forward": 1.0, "backward": 2.0, "optimizer": 7.0}
    found = find_bottlenecks(record(parts=parts))[0]
    assert (found.setting, found.suggested) == ("gradient_accumulation_steps", "4")
    assert found.speedup == pytest.approx(1 / (1 - 0.7 * 0.75))


def test_the_transfer() -> None:
    parts = {"to device": 5.0, "forward": 2.0, "backward": 2.9, "optimizer": 0.1}
    assert find_bottlenecks(record(parts=parts))[0].kind == "transfer"


def between(seconds: float) -> dict[str, float]:
    """The parts of steps that leave so many of the ten seconds between them."""
    return {"forward": 0.3 * (10 - seconds), "backward": 0.7 * (10 - seconds)}


def test_a_row_each_step() -> None:
    hooks, calls = {"Records": 6.0, "Console": 0.5}, {"Records": 100}
    one = record(parts=between(7.0), hooks=hooks, calls=calls, intervals={"log_every": "1"})
    found = find_bottlenecks(one)[0]
    assert (found.kind, found.setting, found.received) == ("logging", "log_every", "1")
    assert found.suggested == "100" and "100 rows in 100 steps" in found.text


def test_statistics_each_step() -> None:
    hooks, calls = {"Records": 0.4, "Statistics": 6.0}, {"Records": 100, "Statistics": 100}
    one = record(parts=between(7.0), hooks=hooks, calls=calls, intervals={"statistics.every": "1"})
    assert find_bottlenecks(one)[0].setting == "statistics.every"


def test_an_own_hook() -> None:
    found = find_bottlenecks(record(parts=between(4.0), hooks={"Upload": 4.0}, calls={"Upload": 100}))[0]
    assert found.kind == "hook" and "Upload" in found.text


@pytest.mark.parametrize(
    ("part", "hook", "setting", "interval", "suggested"),
    [
        ("validate", "Validate", "validate_every", "10", "500"),
        ("validate", "Validate", "validate_every", "1ep", "50ep"),
        ("save", "Save", "checkpoint.every", "1min", "6000s"),
    ],
)
def test_what_is_done_too_often(part: str, hook: str, setting: str, interval: str, suggested: str) -> None:
    parts = {part: 8.0, "forward": 0.6, "backward": 1.4}
    one = record(parts=parts, calls={hook: 10}, intervals={setting: interval})
    found = find_bottlenecks(one)[0]
    assert (found.setting, found.received) == (setting, interval)
    assert found.suggested == suggested
    assert found.speedup is not None and 4 < found.speedup < 5
    assert find_bottlenecks(record(parts=parts, calls={hook: 1}))[0].setting != setting, "one says nothing"


def test_what_takes_most_comes_first() -> None:
    parts = {"data": 3.0, "validate": 5.0, "forward": 1.0, "backward": 1.0}
    assert [one.kind for one in find_bottlenecks(record(parts=parts, calls={"Validate": 5}))] == [
        "validation",
        "loading",
    ]


def test_intervals_are_scaled() -> None:
    assert scale_interval("50", 20) == "1000" and scale_interval("2ep", 5) == "10ep"
    assert scale_interval("10/ep", 5) == "2/ep" and scale_interval("10/ep", 20) == "2ep"
    assert scale_interval("10min", 2) == "1200s"
    assert scale_interval("never", 2) is None and scale_interval("often", 2) is None


def test_the_lines_name_setting_and_gain() -> None:
    first, second, *_ = format_bottleneck(find_bottlenecks(record(operators=LAUNCHING))[0])
    assert first.startswith("launch: ") and "data.batch_size: 32 → 256: about" in second and "×" in second


def test_a_busy_cpu_is_a_note() -> None:
    assert notes(record(cpu_wait=0.6)) and not notes(record(cpu_wait=0.1)) and not notes(record())
