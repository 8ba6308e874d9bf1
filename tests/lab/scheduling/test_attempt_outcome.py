"""What follows on the end of an attempt; of ends without cards see `test_attempts`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roost.devices.resource_request import ResourceRequest
from roost.lab.executors.executor import INTERRUPTED_START, NEVER_STARTED, AttemptStatus
from roost.lab.memory.memory_prediction import OutOfMemory
from roost.lab.memory.memory_use import MemoryUse
from roost.lab.queue.task import CRASHED, EVICT, FAILED, PENDING, RUNNING, STOP, STOPPED, SUCCEEDED, Task
from roost.lab.scheduling.attempt_outcome import state_after
from tests.lab.queued import task
from tests.messages import Messages


def ran_out(reserved: int | None, peak: float, *, largest: int = 79_000, **more: Any) -> AttemptStatus:
    """On a card of which tasks may have 23,000 MB."""
    failed = OutOfMemory(reserved, 23_000, largest, peak, **more)
    told = MemoryUse(peak, 400.0, "test", False, failed)
    return AttemptStatus(FAILED, 1, reason="GPU 0 is out of memory", memory=told)


def live(**given: Any) -> Task:
    return task(state=RUNNING, **{"attempt": 1, "need": ResourceRequest(cards=1), **given})


def through(status: list[AttemptStatus], **given: Any) -> list[tuple[str, ResourceRequest]]:
    """What becomes of one task whose attempts end like this."""
    one, found = live(**given), []
    for each in status:
        state, changes = state_after(one, each)
        one = msgspec.structs.replace(one, need=changes.get("need", one.need))
        found.append((state, one.need))
    return found


def test_it_gets_more_then_a_whole_card_then_a_larger_one_then_it_has_failed() -> None:
    asked = ResourceRequest(cards=1, memory_mb=8_000)
    status = [ran_out(8_000, 7_900.0), ran_out(12_000, 11_900.0), ran_out(None, 22_000.0)]
    found = through([*status, ran_out(None, 78_000.0)], need=asked)
    more = msgspec.structs.replace(asked, least_mb=12_000, ran_out=1)
    whole = msgspec.structs.replace(more, whole=True, ran_out=2)
    larger = msgspec.structs.replace(whole, least_mb=23_001, ran_out=3)
    assert found == [(PENDING, more), (PENDING, whole), (PENDING, larger), (FAILED, larger)]


def test_each_step_is_told_with_its_numbers(messages: Messages) -> None:
    _, changes = state_after(
        live(need=ResourceRequest(cards=1, memory_mb=8_000)),
        ran_out(8_000, 900.0, asked_mb=9_000.0),
    )
    reason, facts = changes["reason"], ("attempt 1", "7.8 GB", "900 MB", "8.8 GB", "11.7 GB", "1 of 3")
    assert all(fact in reason for fact in facts)
    messages.check(reason)
    _, changes = state_after(live(), ran_out(None, 22_000.0))
    assert all(fact in changes["reason"] for fact in ("21.5 GB", "1 of 3"))
    messages.check(changes["reason"])
    need = ResourceRequest(cards=1, ran_out=1)
    _, changes = state_after(live(need=need), ran_out(8_000, 900.0))
    assert "2 of 3" in changes["reason"]
    messages.check(changes["reason"])


def test_where_nothing_larger_is_left_a_retry_does_not_help(messages: Messages) -> None:
    state, changes = state_after(
        live(retries=5, need=ResourceRequest(cards=1, ran_out=1)), ran_out(None, 22_000.0, largest=23_000)
    )
    assert state == FAILED and "retries" not in changes
    assert "data.batch_size" in changes["reason"]
    messages.check(changes["reason"])
    assert changes["reason"].endswith("(GPU 0 is out of memory)")


def test_a_neighbours_fault_is_not_charged_but_ends_too(messages: Messages) -> None:
    status = ran_out(8_000, 900.0, asked_mb=100.0, alone=False)
    state, changes = state_after(live(), status._replace(lost_in_a_row=2))
    assert (state, changes["need"].ran_out, changes["need"].least_mb) == (PENDING, 0, 8_000)
    messages.check(changes["reason"])
    state, changes = state_after(live(), status._replace(lost_in_a_row=3))
    assert state == FAILED and "3" in changes["reason"]
    messages.check(changes["reason"])


def test_accidents_in_vain_come_to_an_end_unless_retries_are_left(messages: Messages) -> None:
    status = AttemptStatus(CRASHED, 1, reason="the supervisor is gone", is_lost=True, lost_in_a_row=2)
    assert state_after(live(), status) == (PENDING, {"reason": "attempt 1: the supervisor is gone"})
    status = status._replace(lost_in_a_row=3)
    state, changes = state_after(live(), status)
    assert state == CRASHED and changes["reason"].endswith(": the supervisor is gone")
    messages.check(changes["reason"])
    state, changes = state_after(live(retries=2), status)
    assert (state, changes["retries"]) == (PENDING, 1)


@pytest.mark.parametrize(("attempt", "pause"), [(1, None), (2, 10.0), (3, 60.0), (9, 60.0)])
def test_the_next_attempt_after_a_short_one_waits_a_while(attempt: int, pause: float | None) -> None:
    begin = None if pause is None else 1003.0 + pause
    accident = AttemptStatus(
        CRASHED, 1, reason="gone", is_lost=True, lost_in_a_row=1, started=1000.0, ended=1003.0
    )
    assert state_after(live(attempt=attempt), accident)[1].get("begin") == begin
    failed = AttemptStatus(FAILED, 1, reason="no", started=1000.0, ended=1003.0)
    assert state_after(live(attempt=attempt, retries=3), failed)[1].get("begin") == begin
    assert "begin" not in state_after(live(attempt=attempt, retries=3), failed._replace(ended=1061.0))[1]
    assert "begin" not in state_after(live(attempt=attempt), failed)[1], "it never starts again"
    evicted = AttemptStatus(STOPPED, 1, started=1000.0, ended=1003.0)
    assert "begin" not in state_after(live(attempt=attempt, stop_asked=EVICT), evicted)[1]


def test_a_start_that_was_interrupted_is_a_lost_attempt() -> None:
    state, changes = state_after(live(), INTERRUPTED_START._replace(lost_in_a_row=1))
    assert state == PENDING and "during its start" in changes["reason"]
    assert state_after(live(attempt=3), INTERRUPTED_START._replace(lost_in_a_row=3))[0] == CRASHED
    assert state_after(live(stop_asked=STOP), INTERRUPTED_START)[0] == STOPPED


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (AttemptStatus(CRASHED, 1, reason="gone", is_lost=True, lost_in_a_row=1), CRASHED),
        (INTERRUPTED_START, CRASHED),
        (NEVER_STARTED, PENDING),
        (ran_out(8_000, 7_900.0), FAILED),
        (AttemptStatus(SUCCEEDED, 1, reason="done"), SUCCEEDED),
        (AttemptStatus(FAILED, 1, reason="the command exited with 1"), FAILED),
    ],
)
def test_what_must_not_run_twice_is_not_started_again(
    status: AttemptStatus, state: str, messages: Messages
) -> None:
    once = live(need=ResourceRequest(cards=1, memory_mb=8_000, no_restart=True))
    found, changes = state_after(once, status)
    assert found == state
    messages.check(changes["reason"])


@pytest.mark.parametrize(
    ("asked", "state", "follows"),
    [(STOP, FAILED, FAILED), (STOP, PENDING, STOPPED), (EVICT, STOPPED, PENDING), ("", SUCCEEDED, SUCCEEDED)],
)
def test_what_was_asked_of_it(asked: str, state: str, follows: str) -> None:
    status = ran_out(8_000, 7_900.0)._replace(state=state) if state == FAILED else AttemptStatus(state)
    assert state_after(live(stop_asked=asked), status)[0] == follows


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        ({}, AttemptStatus(STOPPED, 1, reason="signal"), None),
        ({"stop_asked": STOP}, AttemptStatus(STOPPED, 1, reason="signal"), None),
        ({"stop_asked": STOP}, AttemptStatus(STOPPED, 1, reason="killed"), None),
        ({"stop_asked": STOP}, AttemptStatus(SUCCEEDED, 1, reason="done"), ""),
        ({}, AttemptStatus(SUCCEEDED, 1, reason="early stop"), "early stop"),
        ({"stop_asked": STOP}, NEVER_STARTED, None),
        ({"stop_asked": STOP, "attempt": 2}, NEVER_STARTED, None),
        ({}, AttemptStatus(FAILED, 1, reason="the command exited with 1"), "the command exited with 1"),
    ],
)
def test_the_reason_is_in_words(
    given: dict[str, Any], status: AttemptStatus, reason: str | None, messages: Messages
) -> None:
    found = state_after(live(**given), status)[1]["reason"]
    if reason is None:
        messages.check(found)
    else:
        assert found == reason


def test_stuck_attempts_are_not_retried(messages: Messages) -> None:
    status = AttemptStatus(
        FAILED, 3, reason="ValueError: x", stuck="its last 3 attempts have ended at step 40"
    )
    state, changes = state_after(live(retries=98), status)
    assert state == FAILED and "retries" not in changes
    messages.check(changes["reason"])
    assert state_after(live(retries=0), status) == (FAILED, {"reason": "ValueError: x"})
    assert state_after(live(retries=98), status._replace(stuck=""))[0] == PENDING
