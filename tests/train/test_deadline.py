"""An hour from moment 0 on, in numbers."""

from __future__ import annotations

import pytest

from roost.train.deadline import Deadline

HOUR = 3600.0


def test_before_a_save_was_seen_it_is_taken_to_need_a_quarter() -> None:
    hour = Deadline(HOUR, 0.0)
    assert not hour.is_measured
    assert hour.reserve() == 1.5 * 900 + 10
    assert not hour.is_due(HOUR - 1361)
    assert hour.is_due(HOUR - 1360)


def test_afterwards_by_the_longest_of_the_last_few() -> None:
    hour = Deadline(HOUR, 0.0)
    for seconds in (99.0, 4.0, 20.0, 4.0, 4.0, 6.0):
        hour.note_save(seconds)
    assert hour.is_measured
    assert (hour.save_seconds, hour.reserve()) == (20.0, 40.0)
    hour.note_step(4.0, now=100.0)
    assert hour.reserve() == 1.5 * (20 + 4) + 10


def test_the_longest_step_is_a_recent_one() -> None:
    day = Deadline(24 * HOUR, 0.0)
    day.note_step(40.0, now=10.0)  # the compilation of another shape, for example
    day.note_step(1.0, now=299.0)
    assert day.step_seconds == 40.0
    day.note_step(2.0, now=400.0)
    assert day.step_seconds == 40.0
    day.note_step(3.0, now=800.0)
    assert day.step_seconds == 3.0
    day.note_step(24 * HOUR, now=900.0)  # it hung; that tells nothing about the next
    assert day.step_seconds == 6 * HOUR


def test_it_asks_for_a_save_at_a_quarter_of_the_time() -> None:
    hour = Deadline(HOUR, 0.0)
    assert not hour.wants_save(899.0)
    assert hour.wants_save(900.0)
    assert not hour.wants_save(1500.0)  # so late there may not be time for another one
    hour.note_save(1.0)
    assert not hour.wants_save(900.0)


def test_a_save_that_leaves_no_time_for_another_is_the_last() -> None:
    hour = Deadline(HOUR, 0.0)
    hour.note_save(100.0)
    assert hour.allows_two(HOUR - 261)
    assert not hour.allows_two(HOUR - 260)


def test_saves_beside_the_training_hurry_at_first_and_near_the_end() -> None:
    hour = Deadline(HOUR, 0.0)
    assert hour.is_near(0.0)
    hour.note_save(100.0)
    assert not hour.is_near(HOUR - 961)
    assert hour.is_near(HOUR - 960)


def test_of_several_ranks_a_save_may_be_under_way_when_they_agree() -> None:
    hour = Deadline(HOUR, 0.0, saves=2)
    hour.note_save(100.0)
    assert hour.reserve() == 1.5 * 200 + 10


def test_where_nothing_was_trained_nothing_can_be_lost() -> None:
    short = Deadline(8.0, 0.0)
    assert short.reserve() == 1.5 * 2 + 0.8
    assert short.is_due(5.0) and not short.is_due(5.0, has_trained=False)
    assert short.is_due(5.3, has_trained=False)


@pytest.mark.parametrize(("seconds", "look"), [(2.0, 0.05), (8.0, 0.08), (HOUR, 1.0)])
def test_how_often_to_look(seconds: float, look: float) -> None:
    assert Deadline(seconds, 0.0).look_seconds == look


def test_one_that_was_past_when_it_began() -> None:
    past = Deadline(0.0, 5.0)
    assert past.reserve() == 0.0
    assert past.is_due(5.0, has_trained=False) and not past.wants_save(5.0)
