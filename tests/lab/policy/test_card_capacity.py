"""Which cards a task gets."""

from __future__ import annotations

from roost.devices.card import Card
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.card_capacity import FreeCapacity, Shape, capacity_mb, spare_mb
from roost.lab.policy.policy_state import PolicyState, Rules
from roost.lab.queue.task import Task
from tests.lab.policy.policy_examples import GB, NOW, card, cards, running, task

NONE: frozenset[int] = frozenset()


def room(machine: list[Card], *live: Task, rules: Rules | None = None) -> FreeCapacity:
    return FreeCapacity(PolicyState(now=NOW, pending=(), live=live, cards=machine, rules=rules or Rules()))


def found(
    of: FreeCapacity, cards: int = 1, gb: float | None = None, *, barred: frozenset[int] = NONE
) -> list[int] | None:
    shape = Shape.from_need(ResourceRequest(cards=cards, memory_mb=None if gb is None else int(gb * GB)))
    places = of.find(shape, barred)
    assert of.has_fit(shape, barred) == (places is not None)
    return None if places is None else [place.card.number for place in places]


def test_memory_goes_where_the_least_is_left_that_suffices() -> None:
    live = [running(task("a", gb=10), 1), running(task("b", gb=16), 2)]
    of = room(cards(3), *live)
    assert [found(of, gb=gb) for gb in (4, 8, 13.4, 20, 24)] == [[2], [1], [1], [0], None]
    assert found(of, gb=4, barred=frozenset([2])) == [1]
    assert found(of, 2, gb=8) == [1, 0]


def test_whole_cards_are_the_smallest_of_one_model_and_close_together() -> None:
    machine = [card(0, 80, name="H100"), card(1), card(2), card(3, 80, name="H100"), card(4), card(5)]
    assert found(room(machine)) == [1]
    assert found(room(machine, running(task("a"), 1)), 2) == [4, 5]
    assert found(room(machine, running(task("a"), 1), running(task("b"), 4)), 2) == [2, 5]
    assert found(room(machine, *(running(task(str(n)), n) for n in (1, 2, 4))), 2) == [0, 3]
    assert found(room(machine), 5) == [0, 1, 2, 3, 4]  # of two models, where one has not enough
    large = Shape.from_need(ResourceRequest(cards=1, memory_mb=30 * GB, whole=True))
    places = room(machine).find(large, NONE)
    assert places is not None and places[0].card.number == 0


def test_what_is_taken_is_gone() -> None:
    of = room(cards(1), rules=Rules(most_per_card=2))
    shape = Shape.from_need(ResourceRequest(cards=1, memory_mb=8 * GB))
    for left in ([0], [0], None):
        assert found(of, gb=8) == left
        if left:
            of.allocate(of.occupancies, shape, task("a"))
    assert found(of) is None and found(of, gb=1) is None


def test_a_card_of_unknown_memory_is_taken_whole() -> None:
    of = room([card(0, 0), card(1, 8)])
    assert (found(of), found(of, gb=4), found(of, 2)) == ([1], [1], [0, 1])
    of.allocate(of.occupancies[:1], Shape.from_need(ResourceRequest(cards=1)), task("a"))
    assert found(of) == [1]


def test_what_stays_free_of_each_card() -> None:
    assert (spare_mb(card(0, 24), Rules()), spare_mb(card(0, 80), Rules())) == (512, 1638)
    assert capacity_mb(card(0, 24), Rules(safety_mb=2000)) == 24 * GB - 2000


def test_what_is_learned_makes_the_shape() -> None:
    assert Shape.from_need(ResourceRequest(cards=1)) == (1, 0, True)
    assert Shape.from_need(ResourceRequest(cards=1), 500) == (1, 500, False)
    assert Shape.from_need(ResourceRequest(cards=2, memory_mb=900, whole=True)) == (2, 900, True)


def test_a_shape_takes_what_is_learned_and_no_less_than_it_ran_out_with() -> None:
    need = ResourceRequest(cards=1, memory_mb=4_000)
    assert Shape.from_need(need) == (1, 4_000, False) and Shape.from_need(need, 5_000) == (1, 5_000, False)
    assert Shape.from_need(need, 0) == Shape.from_need(ResourceRequest(cards=1)) == (1, 0, True)
    least = ResourceRequest(cards=1, memory_mb=4_000, least_mb=6_000)
    assert [Shape.from_need(least, mb).mb for mb in (None, 5_000, 7_000)] == [6_000, 6_000, 7_000]
    assert Shape.from_need(ResourceRequest(cards=1, least_mb=6_000)) == (1, 6_000, True)
