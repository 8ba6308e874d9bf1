"""Intervals against their definitions, step by step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.base.interval import NEVER, Interval, parse_duration, parse_start, parse_steps
from tests.messages import Messages

counts = st.integers(1, 60)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (500, Interval(steps=500)),
        ("500", Interval(steps=500)),
        (" 1 ", Interval(steps=1)),
        ("1ep", Interval(epochs=1)),
        ("2ep", Interval(epochs=2)),
        ("10/ep", Interval(per_epoch=10)),
        ("10min", Interval(seconds=600)),
        ("90s", Interval(seconds=90)),
        ("1.5h", Interval(seconds=5400)),
        ("1h30min", Interval(seconds=5400)),
        ("1h 30m", Interval(seconds=5400)),
        ("2d", Interval(seconds=172800)),
        ("5 sec", Interval(seconds=5)),
        ("11:30:00", Interval(seconds=41400)),
        ("1-02:00:05", Interval(seconds=93605)),
    ],
)
def test_every_form(value: str | int, expected: Interval) -> None:
    assert Interval.parse(value, setting="x") == expected


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "0", 0, -1, "-5", "1.5", 500.0, "0ep", "0/ep", "1.5ep", "ep", "/ep", "1/", "10/epoch",
        "2 ep", "1e3", "0s", "0min", "5x", "5mm", ".5h", "h", "1h-5min", "5 minutes", True, False, None,
        "nan", "inf",
        "9" * 30, "9" * 5000, "9" * 5000 + "s", "1_000", "٣x", [1],
    ],
)  # fmt: skip
def test_bad_values_name_setting_value_and_forms(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Interval.parse(value, setting="log_every")  # type: ignore[arg-type]
    assert caught.value.setting == "log_every"
    assert repr(value) in str(caught.value)
    assert "10/ep" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "10", "0s", "1ep", "s", "-5s", "1h2", "tomorrow", "0:00:00", "10:00", "9" * 400 + "d"]
)
def test_bad_durations(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(text, setting="max_time")
    assert caught.value.setting == "max_time" and repr(text) in str(caught.value)


def test_only_zero_itself_may_be_zero() -> None:
    assert parse_duration("0s", setting="remote.wait", may_be_zero=True) == 0
    for text in ("", "0", "-0s", "soon"):
        with pytest.raises(ConfigError):
            parse_duration(text, setting="remote.wait", may_be_zero=True)


def test_what_a_bad_value_is_told(messages: Messages) -> None:
    for parse in (Interval.parse, parse_duration, parse_start):
        with pytest.raises(ConfigError) as caught:
            parse("soon", setting="x")
        messages.check(caught.value)


def _due(interval: Interval, step: int, steps_per_epoch: int) -> bool:
    """The definition: whether something happens in step ``step``, counted from 1."""
    if interval.steps:
        return step % interval.steps == 0
    if interval.epochs:
        return step % (interval.epochs * steps_per_epoch) == 0
    # The k-th of n times an epoch comes with the step in which k/n of the epoch is reached.
    inside = (step - 1) % steps_per_epoch + 1
    times = interval.per_epoch
    return any((inside - 1) * times < k * steps_per_epoch <= inside * times for k in range(1, times + 1))


intervals = st.one_of(
    st.builds(lambda n: Interval(steps=n), counts),
    st.builds(lambda n: Interval(epochs=n), st.integers(1, 4)),
    st.builds(lambda n: Interval(per_epoch=n), counts),
)


@given(intervals, st.integers(0, 300), counts)
def test_next_step_is_the_first_due_one_after(interval: Interval, step: int, steps_per_epoch: int) -> None:
    first = next(n for n in range(step + 1, step + 2000) if _due(interval, n, steps_per_epoch))
    assert interval.next_step(step, steps_per_epoch) == first


@given(counts, counts)
def test_times_an_epoch_hit_its_last_step(times: int, steps_per_epoch: int) -> None:
    interval, step, due = Interval(per_epoch=times), 0, []
    while step < 3 * steps_per_epoch:
        due.append(step := interval.next_step(step, steps_per_epoch))
    for epoch in range(3):
        inside = [n for n in due if epoch * steps_per_epoch < n <= (epoch + 1) * steps_per_epoch]
        assert len(inside) == min(times, steps_per_epoch)
        assert inside[-1] == (epoch + 1) * steps_per_epoch


def test_fewer_batches_than_times_an_epoch_makes_every_step_due() -> None:
    interval = Interval.parse("10/ep", setting="log_every")
    assert [interval.next_step(step, 3) for step in range(6)] == [1, 2, 3, 4, 5, 6]


def test_large_numbers_stay_exact() -> None:
    steps_per_epoch = 10**17 + 1  # a float would be off by several steps
    interval = Interval(per_epoch=3)
    assert interval.next_step(0, steps_per_epoch) == -(-steps_per_epoch // 3)
    assert interval.next_step(steps_per_epoch - 1, steps_per_epoch) == steps_per_epoch


def test_a_time_has_no_step() -> None:
    assert Interval(seconds=5).next_step(7, 10) == NEVER


@given(intervals)
def test_text_can_be_read_back(interval: Interval) -> None:
    assert Interval.parse(str(interval).removesuffix(" steps"), setting="x") == interval


def test_a_duration_is_written_in_seconds() -> None:
    assert str(Interval.parse("10min", setting="x")) == "600s"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, None), ("0", None), (" 0 ", None), (500, Interval(steps=500)), ("5ep", Interval(epochs=5))],
)
def test_a_beginning(value: str | int, expected: Interval | None) -> None:
    assert parse_start(value, setting="x") == expected


@pytest.mark.parametrize("value", ["", "10/ep", "10min", -1, "-0", "0ep", "0.5"])
def test_no_beginning(value: str | int) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_start(value, setting="x")
    assert caught.value.setting == "x" and repr(value) in str(caught.value) and "500" in str(caught.value)


def test_never() -> None:
    never = Interval.parse("never", setting="x")
    assert never.next_step(7, 10) == NEVER and str(never) == "never" and never.seconds == 0
    with pytest.raises(ConfigError):
        parse_steps("never", setting="x")
