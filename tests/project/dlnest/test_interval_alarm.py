from __future__ import annotations

import pytest

from roost.base.errors import ConfigError
from roost.base.interval import NEVER
from roost.project.dlnest.interval_alarm import IntervalAlarm
from roost.train.progress import Progress


def scheduled(interval: str | int, *, now: float = 0.0, **at: int) -> IntervalAlarm:
    """The alarm of an interval, scheduled at a position in epochs of ten batches."""
    alarm = IntervalAlarm(interval, setting="roost.log_every")
    alarm.schedule(Progress(**at), 10, now)
    return alarm


def test_steps() -> None:
    alarm = scheduled(4, step=4, batch=6)
    assert (alarm.step, alarm.batch) == (8, NEVER)
    assert not alarm.is_due(Progress(step=7, batch=9), 1e9)
    assert alarm.is_due(Progress(step=8, epoch=1), 0.0)


def test_parts_of_an_epoch_count_batches_as_a_skipped_one_is_no_step() -> None:
    alarm = scheduled("5/ep", step=11, epoch=1, batch=4)
    assert (alarm.step, alarm.batch) == (NEVER, 6)
    assert alarm.is_due(Progress(step=11, epoch=1, batch=6), 0.0)
    assert scheduled("2ep", epoch=2, batch=3).batch == 20


def test_a_time_that_is_still_to_come_stays() -> None:
    alarm = scheduled("10s", now=5.0)
    assert alarm.is_by_clock and alarm.second == 15.0
    alarm.schedule(Progress(), 10, 14.0)
    assert alarm.second == 15.0 and alarm.is_due(Progress(), 15.0)
    alarm.schedule(Progress(), 10, 16.0)
    assert alarm.second == 26.0


def test_never_and_an_epoch_of_unknown_length() -> None:
    alarm = scheduled("never")
    assert not alarm.is_due(Progress(step=10**9, batch=10**6), 1e9)
    unknown = IntervalAlarm("10/ep", setting="roost.log_every")
    unknown.schedule(Progress(), 0, 0.0)
    assert unknown.batch == NEVER
    with pytest.raises(ConfigError, match="interval"):
        IntervalAlarm("often", setting="roost.log_every")
