"""In which order tasks are looked at."""

from __future__ import annotations

from roost.lab.policy.card_capacity import Shape
from roost.lab.policy.policy_state import Rules
from roost.lab.policy.queue_order import (
    Candidates,
    QueueOrder,
    TaskGroup,
    UserCharges,
    by_age,
    count_ahead,
    first_in_line,
    first_of_each_user,
)
from roost.lab.queue.task import Task
from tests.lab.policy.policy_examples import NOW, task


def order(*tasks: Task, charge: dict[str, float] | None = None, waits: str = "", shared: bool = False) -> str:
    """The ids, as they are offered; each that does not wait costs 10."""
    queue = QueueOrder(NOW, Rules(longest_wait=5000.0, longest_wait_of_several=2000.0), shared=shared)
    queue.add_groups([alike(one) for one in tasks])
    seen: list[str] = []

    def place(one: Task, alike: TaskGroup) -> float | None:
        seen.append(one.id)
        if one.id not in waits:
            return 10.0
        alike.reason = f"cards: {one.id}"
        return None

    queue.offer_tasks(UserCharges(lambda: {} if charge is None else charge), everybody, place)
    return "".join(seen)


def everybody(candidates: Candidates, _: UserCharges | None) -> Candidates:
    return candidates


def alike(*tasks: Task) -> TaskGroup:
    return TaskGroup(by_age(tasks), Shape.from_need(tasks[0].need), tasks[0].need.time_limit)


def test_age_then_id() -> None:
    assert order(task("b"), task("a"), task("c", submitted=NOW - 700)) == "cab"
    assert order() == ""


def test_class_then_priority_then_share_then_age() -> None:
    tasks = [
        task("o", opportunistic=True, priority=9),
        task("p", priority=1),
        task("a", user="rich", submitted=NOW - 900),
        task("b", user="poor"),
    ]
    assert order(*tasks, charge={"rich": 5.0}) == "pbao"
    assert order(*tasks) == "pabo"


def test_what_is_placed_counts_and_what_waits_does_not() -> None:
    tasks = [task(id, user="x") for id in "ab"] + [task(id, user="y") for id in "cd"]
    assert order(*tasks) == "acbd"
    assert order(*tasks, waits=("a", "b")) == "abcd"
    charge = {"y": 1.0}
    assert order(*tasks, charge=charge) == "acbd" and charge == {"x": 20.0, "y": 21.0}


def test_whoever_has_waited_too_long_goes_first_in_its_class() -> None:
    tasks = [
        task("p", priority=9),
        task("l", user="rich", submitted=NOW - 5001),
        task("g", user="rich", gpus=2, submitted=NOW - 2001),
        task("h", gpus=2, submitted=NOW - 1999),
        task("o", opportunistic=True, submitted=NOW - 9000),
    ]
    assert order(*tasks, charge={"rich": 100.0}) == "lgpho"


def test_nobody_asks_again_about_what_is_like_one_that_waits_or_was_not_chosen() -> None:
    a, b, c, d, e = (task(id, user=user) for id, user in ("ax", "by", "cx", "dy", "ez"))
    queue = QueueOrder(NOW, Rules())
    waits, starts, passed_over = alike(c, a, b), alike(d), alike(e)
    queue.add_groups([waits, starts, passed_over])
    seen: list[str] = []

    def place(one: Task, alike: TaskGroup) -> float | None:
        seen.append(one.id)
        if alike is starts:
            return 1.0
        alike.reason = "cards: none"
        return None

    queue.offer_tasks(
        UserCharges(dict),
        lambda candidates, _: [one for one in candidates if one[0] is not passed_over],
        place,
    )
    assert seen == ["a", "d"] and waits.reason == "cards: none" and not passed_over.reason


def test_the_too_old_of_one_kind_go_first_and_once() -> None:
    old, young = task("o", submitted=NOW - 8 * 86400), task("y")
    queue = QueueOrder(NOW, Rules())
    queue.add_groups([alike(task("p", priority=5)), alike(young, old)])
    seen: list[str] = []
    queue.offer_tasks(UserCharges(dict), everybody, lambda one, _: seen.append(one.id) or 1.0)
    assert seen == ["o", "p", "y"]


def test_first_of_each_user() -> None:
    tasks = [task(id, user=user) for id, user in ("ax", "by", "cx", "dz", "ey")]
    assert {one.id for one in first_of_each_user(tasks)} == set("abd")
    assert first_of_each_user(tasks[:1]) == tasks[:1]


def test_what_users_have_had_is_counted_when_two_are_compared() -> None:
    def count() -> dict[str, float]:
        asked.append(1)
        return {"x": 5.0}

    asked: list[int] = []
    charges = UserCharges(count)
    charges.add("x", 2.0)
    assert not asked
    assert (charges.charge_of("x"), charges.charge_of("y")) == (7.0, 0.0)
    charges.add("y", 1.0)
    assert (charges.charge_of("x"), charges.charge_of("y"), len(asked)) == (7.0, 1.0, 1)


def test_first_in_line() -> None:
    a, b, c = task("a", user="x"), task("b", user="y", submitted=NOW - 700), task("c", user="y")
    candidates: Candidates = [(one, one.tasks) for one in (alike(a, c), alike(b))]

    def first(**had: float) -> str | None:
        found = first_in_line(candidates, UserCharges(lambda: had))
        return found and found[0].id

    assert (first(y=1.0), first(x=1.0), first()) == ("a", "b", None)
    assert first_in_line(candidates, None) == (b, candidates[1][0]), "by age alone"
    candidates[1][0].reason = "cards: none"
    assert (first(x=1.0), first_in_line([], None)) == ("c", None)


def test_who_is_told_already_stands_in_nobodys_way() -> None:
    """Of the two users one has nobody who may start: what they have had does not matter."""
    told, may = alike(task("a", user="x")), alike(task("b", user="y"))
    told.reason = "sweep: full"
    queue, seen = QueueOrder(NOW, Rules()), []
    queue.add_groups([told, may])

    def choose(candidates: Candidates, _: UserCharges | None) -> Candidates:
        told.reason = "sweep: full"
        return candidates

    def count() -> dict[str, float]:
        raise AssertionError("nobody is compared")

    queue.offer_tasks(UserCharges(count), choose, lambda one, _: seen.append(one.id) or 1.0)
    assert seen == ["b"]


def test_the_places_are_those_of_the_order() -> None:
    rules = Rules(longest_wait=5000.0, longest_wait_of_several=2000.0)
    tasks = [
        task(
            f"{number:02}",
            submitted=NOW - (number * 1187) % 7000,
            priority=number % 3,
            opportunistic=number % 4 == 0,
            gpus=1 + number % 2,
        )
        for number in range(40)
    ]
    places = count_ahead(tasks, NOW, rules)
    assert "".join(sorted(places, key=places.__getitem__)) == order(*tasks)
    assert sorted(places.values()) == list(range(40))


def test_a_task_that_waits_for_something_else_has_no_place() -> None:
    tasks = [
        task("a", submitted=NOW - 9),
        task("b", submitted=NOW - 8, held=True),
        task("c", submitted=NOW - 7, reason="dependency: waits"),
        task("d", submitted=NOW - 6, reason="cards: none"),
    ]
    assert count_ahead(tasks, NOW, Rules()) == {"a": 0, "d": 1}
    assert count_ahead([*tasks, task("e", user="other")], NOW, Rules()) == {}
