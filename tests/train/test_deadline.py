"""An hour from moment 0 on, in numbers."""

from __future__ import annotations

import math

import pytest

from roost.train.deadline import Deadline

HOUR = 3600.0


def trained(ends: float, *, saves: int = 1) -> Deadline:
    """Of a session that began at moment 0 and has taken a step."""
    deadline = Deadline(ends, 0.0, saves=saves)
    deadline.has_trained = True
    return deadline


def test_before_a_save_was_seen_it_is_taken_to_need_a_quarter() -> None:
    hour = trained(HOUR)
    assert not hour.is_measured
    assert hour.reserve() == 1.5 * 900 + 10
    assert not hour.is_due(HOUR - 1361)
    assert hour.is_due(HOUR - 1360)


@pytest.mark.parametrize(("seconds", "saves"), [(HOUR, 2), (40.0, 1), (40.0, 2)])
def test_what_is_not_known_takes_no_more_than_half_of_the_time(seconds: float, saves: int) -> None:
    session = trained(seconds, saves=saves)
    session.note_step(seconds, now=1.0)
    assert session.reserve() == seconds / 2


def test_afterwards_by_the_longest_of_the_last_few() -> None:
    hour = trained(HOUR)
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
    day.note_step(24 * HOUR, now=900.0)  # it hung; that says nothing about the next
    assert day.step_seconds == 6 * HOUR


@pytest.mark.parametrize("saves", [1, 2])
def test_it_asks_for_a_save_when_a_tenth_of_the_time_is_over(saves: int) -> None:
    hour = Deadline(HOUR, 0.0, saves=saves)
    assert not hour.needs_trial_save(400.0), "nothing is trained"
    hour.has_trained = True
    assert not hour.needs_trial_save(359.0)
    assert hour.needs_trial_save(360.0) and not hour.is_due(360.0) and hour.allows_two(360.0)
    assert hour.needs_trial_save(1789.0) and not hour.needs_trial_save(1790.0), "two of a quarter, and 10 s"
    hour.note_save(1.0)
    assert not hour.needs_trial_save(360.0)


def test_a_save_that_leaves_no_time_for_another_is_the_last() -> None:
    hour = trained(HOUR)
    hour.note_save(100.0)
    assert hour.allows_two(HOUR - 261)
    assert not hour.allows_two(HOUR - 260)


def test_saves_beside_the_training_hurry_at_first_and_near_the_end() -> None:
    hour = trained(HOUR)
    assert hour.is_near(0.0)
    hour.note_save(100.0)
    assert not hour.is_near(HOUR - 961)
    assert hour.is_near(HOUR - 960)


def test_of_several_ranks_a_save_may_be_under_way_when_they_agree() -> None:
    hour = trained(HOUR, saves=2)
    hour.note_save(100.0)
    assert hour.reserve() == 1.5 * 200 + 10


@pytest.mark.parametrize("saves", [1, 2])
def test_where_nothing_was_trained_nothing_can_be_lost(saves: int) -> None:
    short = Deadline(8.0, 0.0, saves=saves)
    assert short.reserve() == pytest.approx(2 + 0.8)
    assert short.is_due(5.3) and not short.is_due(5.0)


def ends_at(session: Deadline, *, trains: float, save: float, step: float) -> tuple[float, bool]:
    """When training stops, and whether all is over in time; a save that is asked for takes the training no
    time, one that is under way at the end is waited for."""
    now, saved = trains + step, 0.0
    while not session.is_due(now):
        session.has_trained = True
        session.note_step(step + 2 * session.check_interval_seconds, now)
        if saved and now >= saved and not session.is_measured:
            session.note_save(save)
        elif not saved and session.needs_trial_save(now):
            saved = now + save
        now += session.check_interval_seconds
    return now, max(now + step, saved) + save <= session.ends


@pytest.mark.parametrize("saves", [1, 2])
@pytest.mark.parametrize("limit", [8.0, 40.0, 100.0, 600.0, HOUR, 12 * HOUR])
def test_a_session_uses_its_time_and_ends_in_it(limit: float, saves: int) -> None:
    for save in (0.01, limit / 600, limit / 30, limit / 10, limit * 0.24):
        for trains in (0.0, limit / 10, limit / 3, limit / 2):
            step = limit / 1000
            now, is_in_time = ends_at(Deadline(limit, 0.0, saves=saves), trains=trains, save=save, step=step)
            assert is_in_time, (save, trains)
            if save <= limit / 600 and trains < limit / 2:
                assert now >= 0.8 * limit, (save, trains)
    tenth = Deadline(600.0, 0.0, saves=saves)
    assert ends_at(tenth, trains=5.0, save=1.0, step=0.1)[0] >= 0.85 * 600


@pytest.mark.parametrize(("seconds", "look"), [(2.0, 0.05), (8.0, 0.08), (HOUR, 1.0)])
def test_how_often_to_look(seconds: float, look: float) -> None:
    assert Deadline(seconds, 0.0).check_interval_seconds == look


def test_one_that_was_past_when_it_began() -> None:
    past = Deadline(0.0, 5.0)
    assert past.reserve() == 0.0
    assert past.is_due(5.0) and not past.needs_trial_save(5.0)


def test_without_a_deadline_nothing_is_due() -> None:
    none = Deadline(math.inf, 0.0)
    none.has_trained = True
    assert not none.is_set
    assert not none.is_due(9 * HOUR) and not none.is_near(9 * HOUR) and not none.needs_trial_save(9 * HOUR)
    assert none.allows_two(9 * HOUR)
    assert none.check_interval_seconds == 1.0


def test_a_notice_counts_from_its_moment_with_what_was_measured() -> None:
    """Two minutes, five hours after the start: a save of 20 s, or of unknown length."""
    known, unknown = Deadline(math.inf, 0.0), Deadline(math.inf, 0.0)
    known.note_save(20.0)
    for found in (known, unknown):
        found.has_trained = True
        found.note_step(2.0, now=5 * HOUR)
        found.move(5 * HOUR + 120, 5 * HOUR)
    assert known.reserve() == 1.5 * (20 + 2) + 10
    assert not known.is_due(5 * HOUR + 70) and known.is_due(5 * HOUR + 80)
    assert unknown.save_seconds == 30.0 and unknown.reserve() == 1.5 * (30 + 2) + 10


def test_the_upload_of_the_last_save_needs_time_too() -> None:
    session = trained(HOUR)
    session.note_save(10.0)
    before = session.reserve()
    session.upload_seconds = 120.0
    assert session.reserve() == before + 120.0
    assert session.is_due(HOUR - before - 120.0) and not session.is_due(HOUR - before - 121.0)
    session.upload_seconds = 10 * HOUR
    assert session.reserve() == before + HOUR / 4, "else nothing would be trained"
