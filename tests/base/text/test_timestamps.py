from __future__ import annotations

import time

import pytest

from roost.base.errors import UsageError
from roost.base.text.timestamps import format_clock, format_dated_clock, parse_timestamp
from tests.messages import Messages


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1795271400", 1795271400.0),
        (" 1795271400.25\n", 1795271400.25),
        ("2026-11-21T14:30:00", 1795267800.0),  # as squeue writes it: in the machine's own time zone
        ("2026-07-21 14:30", 1784637000.0),
        ("2026-11-21T14:30:00+00:00", 1795271400.0),
        ("2026-11-21T14:30Z", 1795271400.0),
    ],
)
def test_a_moment(text: str, seconds: float, in_berlin: None) -> None:
    assert parse_timestamp(text, setting="ROOST_DEADLINE") == seconds


@pytest.mark.parametrize("text", ["", "soon", "14:30", "nan", "inf", "11h30m", "2026-13-01", "1795271400000"])
def test_what_is_none(text: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse_timestamp(text, setting="ROOST_DEADLINE")
    messages.check(refused.value)
    assert refused.value.setting == "ROOST_DEADLINE"


def test_the_time_of_day_is_that_of_the_place(in_berlin: None) -> None:
    assert format_clock(1795267800.0) == "14:30"
    assert [format_clock(seconds) for seconds in (1e308, float("inf"))] == ["1e+308", "inf"]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (1795267800.0 + 3600, "14:30"),
        (1795267800.0 - 86400, "Sat 14:30"),
        (1795267800.0 + 86400, "Sat 14:30"),
        (1795267800.0 - 7 * 86400, "2026-11-21 14:30"),
        (1e308, "1.79527e+09"),
    ],
)
def test_the_day_is_told_where_it_is_another_one(now: float, said: str, in_berlin: None) -> None:
    assert format_dated_clock(1795267800.0, now=now) == said
