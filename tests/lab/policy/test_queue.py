"""In which order tasks are looked at."""

from __future__ import annotations

from roost.lab.policy.queue import Queue, by_age
from roost.lab.policy.state import Rules
from roost.lab.task import Task
from tests.lab.policy.made import NOW, task


def order(*tasks: Task, charge: dict[str, float] | None = None, waits: tuple[str, ...] = ()) -> str:
    """The ids, as they are offered; each that does not wait costs 10."""
    queue = Queue(NOW, Rules(longest_wait=5000.0, longest_wait_of_several=2000.0))
    for one in by_age(tasks):
        queue.add(one)
    seen: list[str] = []

    def place(one: Task) -> float | None:
        seen.append(one.id)
        return None if one.id in waits else 10.0

    queue.walk({} if charge is None else charge, place)
    return "".join(seen)


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
