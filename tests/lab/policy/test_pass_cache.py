"""What is kept from one decision to the next."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from roost.devices.card import CardProcess
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.card_capacity import Shape
from roost.lab.policy.pass_cache import CardCache, difference
from roost.lab.policy.policy_state import Expectation, OtherLease, PolicyState, Rules
from roost.lab.queue.task import STOPPING
from tests.lab.policy.policy_examples import GB, NOW, card, cards, running, task


def test_the_difference_of_two_lists() -> None:
    a, b, c, d, e = ([id] for id in "abcde")
    assert difference([a, b, c], [a, b, c]) == ([], [])
    assert difference([a, b, c, d], [b, d]) == ([a, c], [])
    assert difference([a, b, c], [a, c, d, e]) == ([b], [d, e])
    assert difference([a, b], [c, d]) == ([a, b], [c, d])
    assert difference([], [a]) == ([], [a]) and difference([a], []) == ([a], [])
    assert difference([a, b], [b, a]) == ([a], [a]), "it has gone and come again"
    other = list(a)
    gone, come = difference([a, b], [other, b]) or ([], [])
    assert gone[0] is a and come[0] is other, "it goes by what the objects are, not by what they hold"


def test_the_difference_is_not_looked_for_where_most_has_gone() -> None:
    many = [[n] for n in range(1000)]
    assert difference(many, many[:10]) == (many[10:], []), "the end of a list is seen at once"
    assert difference(many, many[500:]) is None


def test_who_has_gone_and_come_makes_the_same_room() -> None:
    kinds = [task(f"{n}", gb=4 + n, opportunistic=n == 3) for n in range(5)]
    live = [running(one, n % 3, started=NOW - n) for n, one in enumerate(kinds)]
    before = PolicyState(now=NOW, pending=(), live=live, cards=cards(4))
    after = replace(before, now=NOW + 9, live=[*live[1:3], live[4], running(task("9", gpus=2), 0, 3)])
    cache, shape = CardCache(before), Shape.from_need(ResourceRequest(cards=1, memory_mb=GB))
    cache.free_capacity.allocate([cache.free_capacity.occupancies[3]], shape, task("placed"))
    assert cache.update(after)
    fresh = CardCache(after)
    assert (cache.free_capacity.shared, cache.free_capacity.empty) == (
        fresh.free_capacity.shared,
        fresh.free_capacity.empty,
    )
    assert [place.live for place in cache.free_capacity.occupancies] == [
        place.live for place in fresh.free_capacity.occupancies
    ]
    assert [place.left_mb for place in cache.free_capacity.occupancies] == [
        place.left_mb for place in fresh.free_capacity.occupancies
    ]
    assert [place.opportunistic for place in cache.free_capacity.occupancies] == [0, 0, 0, 0]
    assert cache.running_tasks.charges() == fresh.running_tasks.charges()


@pytest.mark.parametrize(
    "change",
    [
        {"rules": Rules(most_per_card=1)},
        {"cards": [card(0), card(1, trouble="lost")]},
        {"other_leases": {"GPU-1": [OtherLease("bob", None)]}},
        {"expected": {"a": Expectation(seconds=9.0)}},
    ],
)
def test_what_else_changes_is_seen(change: dict[str, object]) -> None:
    state = PolicyState(now=NOW, pending=(), live=[running(task("a"), 0)], cards=cards(2))
    assert CardCache(state).update(replace(state, cards=cards(2), other_leases={}))
    assert not CardCache(state).update(replace(state, **change))  # type: ignore[arg-type]


def test_what_is_changed_in_place_is_seen() -> None:
    held: dict[str, list[OtherLease]] = {"GPU-0": []}
    state = PolicyState(now=NOW, pending=(), cards=cards(1), other_leases=held)
    cache = CardCache(state)
    held["GPU-0"].append(OtherLease("bob", None))
    assert not cache.update(state)


def test_a_card_that_others_use_is_looked_at_anew() -> None:
    used = [card(0, free_mb=20 * GB, users=(CardProcess(1, "eve", 4 * GB),)), card(1)]
    one = running(task("a", gb=4), 0)
    state = PolicyState(now=NOW, pending=(), live=[one], cards=used)
    assert CardCache(state).update(state)
    assert not CardCache(state).update(replace(state, live=[]))


def test_a_task_that_is_being_stopped_is_another_one() -> None:
    live = [running(task(id, limit=900), n) for n, id in enumerate("ab")]
    state = PolicyState(now=NOW, pending=(), live=live, cards=cards(2))
    cache = CardCache(state)
    assert cache.running_tasks.next_end == NOW + 840
    stopping = msgspec.structs.replace(live[0], state=STOPPING)
    assert cache.update(replace(state, live=[stopping, live[1]]))
    assert cache.running_tasks.next_end == NOW + 60
