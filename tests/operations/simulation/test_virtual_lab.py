"""A lab in virtual time."""

from __future__ import annotations

import pytest

from roost.devices.resource_request import ResourceRequest
from roost.devices.simulated_cards import parse_cards
from roost.lab.policy.policy_state import ReservedWindow, Rules
from roost.lab.queue.task import PENDING, Task
from roost.operations.simulation.virtual_lab import Job, VirtualLab
from tests.messages import Messages


def job(
    id: str,
    seconds: float,
    *,
    submitted: float = 0.0,
    begin: float | None = None,
    after: tuple[str, ...] = (),
    after_any: tuple[str, ...] = (),
    **need: object,
) -> Job:
    known = {"cards": 1, **need}
    task = Task(
        id=id,
        name=id,
        package="",
        user="ann",
        state=PENDING,
        submitted=submitted,
        begin=begin,
        after=after,
        after_any=after_any,
        need=ResourceRequest(**known),  # type: ignore[arg-type]
    )
    return Job(task, seconds)


def run(*jobs: Job, cards: str = "1x24GB", rules: Rules | None = None) -> VirtualLab:
    lab = VirtualLab(jobs, parse_cards(cards, setting="cards"), rules or Rules())
    for _ in lab.passes():
        pass
    return lab


def times(lab: VirtualLab) -> dict[str, tuple[float | None, float | None]]:
    return {id: (job.started, job.ended) for id, job in lab.jobs.items()}


def test_tasks_run_one_after_the_other_to_their_end_or_limit() -> None:
    lab = run(job("a", 100.0), job("b", 50.0, time_limit=20.0), job("c", 5.0, submitted=500.0))
    assert times(lab) == {"a": (0.0, 100.0), "b": (100.0, 120.0), "c": (500.0, 505.0)}
    assert [one.waited for one in lab.jobs.values()] == [0.0, 100.0, 0.0]
    assert lab.jobs["b"].reason.startswith("cards: ") and lab.jobs["b"].reason.endswith("(GPU 0: a)")
    assert lab.ledger.total["ann"] == pytest.approx(125.0)
    assert not lab.pending and not lab.live


def test_a_part_of_the_memory_is_a_part_of_the_card() -> None:
    lab = run(job("a", 100.0, memory_mb=11_000), job("b", 100.0, memory_mb=11_000))
    assert times(lab)["b"] == (0.0, 100.0)
    assert 90 < lab.ledger.total["ann"] < 100
    assert lab.ledger.decayed["ann"] == lab.ledger.total["ann"]  # all of it was used just now


def test_usage_fades() -> None:
    lab = run(job("a", 100.0), job("b", 1.0, submitted=100.0 + 7 * 86400))
    assert lab.ledger.decayed["ann"] == pytest.approx(51.0, abs=0.01)


def test_a_preempted_task_continues_where_it_was() -> None:
    lab = run(job("low", 100.0, opportunistic=True), job("high", 50.0, submitted=30.0))
    assert times(lab) == {"low": (0.0, 150.0), "high": (30.0, 80.0)}


def test_a_beginning_is_waited_for_and_is_no_wait() -> None:
    lab = run(job("a", 10.0, begin=1000.0))
    assert times(lab) == {"a": (1000.0, 1010.0)} and lab.jobs["a"].waited == 0.0


def test_the_end_of_a_reserved_time_is_seen() -> None:
    window = ReservedWindow(card="SIM-0", user="bob", begin=0.0, end=700.0)
    assert times(run(job("a", 10.0), rules=Rules(reserved=(window,))))["a"] == (700.0, 710.0)


def test_a_task_that_never_starts_has_a_reason(messages: Messages) -> None:
    lab = run(job("a", 10.0, cards=2))
    assert lab.jobs["a"].waited is None and list(lab.pending) == ["a"]
    assert lab.jobs["a"].reason.startswith("impossible: ")
    messages.check(lab.jobs["a"].reason)


def test_a_task_waits_for_others_as_in_a_real_lab(messages: Messages) -> None:
    lab = run(
        job("a", 100.0),
        job("limited", 100.0, time_limit=60.0),
        job("b", 10.0, after=("a",), submitted=1.0),
        job("any", 10.0, after_any=("limited",), submitted=1.0),
        job("never", 10.0, after=("limited",), submitted=1.0),
        cards="4x24GB",
    )
    assert (lab.jobs["b"].started, lab.jobs["any"].started, lab.jobs["never"].started) == (100.0, 60.0, None)
    assert lab.jobs["b"].reason.startswith("dependency: ") and "(running)" in lab.jobs["b"].reason
    assert lab.jobs["never"].reason.startswith("dependency: limited ")
    for name in ("b", "never"):
        messages.check(lab.jobs[name].reason)
    assert lab.states == {
        "a": "succeeded",
        "limited": "stopped",
        "b": "succeeded",
        "any": "succeeded",
        "never": "pending",
    }
    assert lab.ended == 4


def test_what_makes_room_has_not_ended() -> None:
    lab = VirtualLab(
        [
            job("low", 100.0, opportunistic=True),
            job("high", 50.0, submitted=30.0),
            job("b", 1.0, after=("low",)),
        ],
        parse_cards("1x24GB", setting="cards"),
        Rules(),
    )
    said = [state.dependency_states["low"] for state, _ in lab.passes()]
    assert said[:2] == ["pending", "running"] and "pending" in said[2:], "as it was when that was decided"
    assert lab.jobs["b"].started == 150.0 and lab.states["low"] == "succeeded"
