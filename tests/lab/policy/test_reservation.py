"""What is kept for the head of the queue."""

from __future__ import annotations

import math

from roost.devices.card import Card, CardProcess
from roost.lab.policy.card_capacity import FreeCapacity, Shape
from roost.lab.policy.policy_state import OtherLease, PolicyState
from roost.lab.policy.reservation import ReleaseTimes, Reservation, reserve_cards
from roost.lab.queue.task import STOPPING, Task
from tests.lab.policy.policy_examples import GB, NOW, card, cards, running, task


def reserved(
    first_blocked: Task,
    machine: list[Card],
    *live: Task,
    other_leases: dict[str, list[OtherLease]] | None = None,
    barred: frozenset[int] = frozenset(),
) -> Reservation | None:
    state = PolicyState(now=NOW, pending=(), live=live, cards=machine, other_leases=other_leases or {})

    free_capacity, shape = FreeCapacity(state), Shape.from_need(first_blocked.need)
    limits = {one.id: one.need.time_limit for one in live}
    ends = {id: math.inf if limit is None else NOW + limit for id, limit in limits.items()}
    release_times = ReleaseTimes(free_capacity, lambda one: ends[one.id])
    return reserve_cards(
        first_blocked,
        shape,
        release_times,
        ends_are_fixed=False,
        now=NOW,
        barred=barred,
        cost=lambda one: float(one.id),
    )


def summary(found: Reservation | None) -> tuple[list[int], float | None] | None:
    if found is None:
        return None
    return [
        place.card.number for place in found.occupancies
    ], None if found.start is None else found.start - NOW


def test_the_cards_that_become_free_first() -> None:
    live = [running(task(f"{n}", limit=limit), n) for n, limit in enumerate((900, 300, 600, None))]
    assert summary(reserved(task("h"), cards(4), *live)) == ([1], 300)
    assert summary(reserved(task("h", gpus=3), cards(4), *live)) == ([1, 2, 0], 900)
    assert summary(reserved(task("h", gpus=4), cards(4), *live)) == ([1, 2, 0, 3], None)
    assert summary(reserved(task("h"), cards(4), *live, barred=frozenset([1]))) == ([2], 600)


def test_memory_that_several_tasks_give_back() -> None:
    live = [running(task(f"{n}", gb=7, limit=100 * (n + 1)), 0) for n in range(3)]
    assert summary(reserved(task("h", gb=16), cards(1), *live)) == ([0], 200)
    assert summary(reserved(task("h"), cards(1), *live)) == ([0], 300)
    assert summary(
        reserved(
            task("h", gb=16), cards(1), running(task("0", gb=2, limit=9), 0), running(task("1", gb=20), 0)
        )
    ) == (
        [0],
        None,
    )


def test_others_leave_at_an_unknown_time_and_processes_never() -> None:
    assert summary(reserved(task("h"), cards(1), other_leases={"GPU-0": [OtherLease("bob", 9)]})) == (
        [0],
        None,
    )
    foreign = [card(0, free_mb=20 * GB, users=(CardProcess(1, "eve", 4 * GB),))]
    assert reserved(task("h"), foreign) is None
    assert reserved(task("h", gb=21), foreign) is None
    assert summary(reserved(task("h", gb=18), foreign, running(task("0", gb=4, limit=50), 0))) == ([0], 50)


def test_opportunistic_tasks_that_lose_least_go() -> None:
    live = [running(task(f"{n}", opportunistic=True), n) for n in (3, 2, 1)]
    found = reserved(task("h", gpus=2), cards(4)[1:], *live)
    assert summary(found) == ([1, 2], 0) and found is not None and found.preemptions == ("1", "2")
    stopping = [running(task("9", opportunistic=True), 0, state=STOPPING), *live]
    found = reserved(task("h", gpus=1), cards(4), *stopping)
    assert summary(found) == ([0], 0) and found is not None and found.preemptions == ()
    assert summary(reserved(task("h", opportunistic=True), cards(4)[1:], *live)) == ([1], None)


def test_opportunistic_tasks_make_room_once_the_others_have_left() -> None:
    others = [running(task("1", limit=300), 1), running(task("3"), 3)]
    for limit in (None, 200, 900):
        live = [running(task("0", limit=limit, opportunistic=True), 0), *others]
        found = reserved(task("h", gpus=2), cards(2), *live)
        assert found is not None and {place.index for place in found.occupancies} == {0, 1}, limit
        assert found.start == NOW + 300 and found.preemptions == (), limit
        assert found.preempted == (() if limit == 200 else ("train-0",)), limit
        found = reserved(task("h", gpus=3), cards(4)[:2] + cards(4)[3:], *live)
        assert found is not None and found.start is None, limit
        assert found.preempted == ("train-0",), limit
    of_two = [running(task("0", gpus=2, opportunistic=True), 0, 1), running(task("2", limit=60), 2)]
    found = reserved(task("h", gpus=3), cards(3), *of_two)
    assert found is not None and found.preempted == ("train-0",), "one task of two cards is one"
    live = [running(task("0", gb=20, opportunistic=True), 0), running(task("1", gb=8, limit=50), 0)]
    assert summary(reserved(task("h", gb=20), cards(1), *live)) == ([0], 50), (
        "beside what stays it would not fit"
    )
    shared = [running(task("0", opportunistic=True), 0), running(task("1", limit=60), 1)]
    found = reserved(task("h", gpus=2), cards(3), *shared, running(task("2", limit=60), 2))
    assert summary(found) == ([1, 2], 60), "whoever need not make room is left where it is"


def test_what_was_found_is_remembered_until_somebody_comes_or_goes() -> None:
    live = [running(task(f"{n}", limit=900), n) for n in range(2)]
    free_capacity = FreeCapacity(PolicyState(now=NOW, pending=(), live=live, cards=cards(3)))
    ends, asked = {"0": NOW + 900, "1": NOW + 300, "new": NOW + 50}, []

    def end(one: Task) -> float:
        asked.append(one.id)
        return ends[one.id]

    release_times, shape = ReleaseTimes(free_capacity, end), Shape.from_need(task("h").need)
    assert release_times.when_free(shape, ends_are_fixed=True) == [
        NOW + 900,
        NOW + 300,
        -math.inf,
    ] and asked == ["0", "1"]
    free_capacity.allocate([free_capacity.occupancies[2]], shape, task("new"))
    assert release_times.when_free(shape, ends_are_fixed=True) == [
        NOW + 900,
        NOW + 300,
        NOW + 50,
    ] and asked[2:] == ["new"]
    assert free_capacity.update([live[0]], [])
    ends["1"] = NOW + 301
    assert release_times.when_free(shape, ends_are_fixed=True) == [-math.inf, NOW + 300, -math.inf], (
        "nobody asked again"
    )
    assert release_times.when_free(shape, ends_are_fixed=False) == [-math.inf, NOW + 301, -math.inf]
    ends["1"] = NOW + 302
    assert release_times.when_free(shape, ends_are_fixed=True)[1] == NOW + 302, (
        "what was not steady was forgotten"
    )
