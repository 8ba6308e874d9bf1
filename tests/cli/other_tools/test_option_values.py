"""Values of other tools' options."""

from __future__ import annotations

import pytest

from roost.base.interval import parse_duration
from roost.base.text.byte_sizes import parse_memory
from roost.cli.other_tools import option_values


@pytest.mark.parametrize(
    ("typed", "mb"),
    [("4096", 4096), ("8G", 8192), ("8GB", 8192), ("512M", 512), ("2048K", 2), ("1T", 1 << 20)],
)
def test_a_size_keeps_its_meaning(typed: str, mb: int) -> None:
    assert parse_memory(str(option_values.memory(typed)), setting="--mem") == mb


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-12", 216_000), ("2-12:30", 217_800),
        ("1-02:00:00", 93_600), ("11h30m", 41_400),
    ],
)  # fmt: skip
def test_a_time_limit_keeps_its_meaning(typed: str, seconds: float) -> None:
    assert parse_duration(str(option_values.duration(typed)), setting="-t") == seconds


@pytest.mark.parametrize(
    ("typed", "here"),
    [("now+1hour", "+1h"), ("now+60", "+60s"), ("now+2days", "+2d"), ("+2h", "+2h"), ("22:30", "22:30"),
     ("tomorrow 08:00", "'tomorrow 08:00'")],
)  # fmt: skip
def test_a_begin_time_is_one_of_here(typed: str, here: str) -> None:
    assert option_values.begin(typed) == here


def test_memory_of_cores_is_multiplied() -> None:
    assert [option_values.memory_times(*one) for one in (("4G", 4), ("512", 2), ("4G", 0), ("x", 2))] == [
        "16GB",
        "1024MB",
        None,
        None,
    ]


def test_a_task_may_have_no_cards() -> None:
    found = [option_values.card_count_of_task(one) for one in ("0", "gpu:0", "gpu:a100:0", "10", "gpu:20")]
    assert found == ["0", "0", "0", "10", "20"]


@pytest.mark.parametrize(
    ("translate", "typed"),
    [
        (option_values.memory, "0"),  # of Slurm: all memory of the node
        (option_values.memory, "much"),
        (option_values.duration, "UNLIMITED"),
        (option_values.duration, "0"),
        (option_values.dependency, "singleton"),
        (option_values.dependency, "afternotok:3"),
        (option_values.dependency, "afterok:3?afterok:4"),
        (option_values.values_of_array, "0-9:2"),
        (option_values.device_type, "tpu"),
        (option_values.strategy, "deepspeed"),
        (option_values.precision, "fp8"),
        (option_values.card_count, "0"),
        (option_values.duration, "00:00"),
        (option_values.duration, "0-0"),
        (option_values.begin, "2099-01-01T00:00"),
        (option_values.begin, "midnight"),
        (option_values.own_priority, "TOP"),
        (option_values.own_priority, "4294967294"),
        (option_values.package_name, "-x"),
        (option_values.package_name, "a/b"),
    ],
)
def test_a_value_without_a_counterpart_has_none(translate: object, typed: str) -> None:
    assert callable(translate) and translate(typed) is None
