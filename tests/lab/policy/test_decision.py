"""The decision: who starts where, who makes room, and why each other one waits."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest

from roost.base.text.timestamps import format_clock, format_dated_clock
from roost.devices.card import CardProcess
from roost.devices.resource_request import CardRequirement
from roost.lab.policy.policy_state import Expectation, OtherLease, Placement, ReservedWindow, Rules
from roost.lab.policy.wait_reasons import format_approximate_clock
from roost.lab.queue.task import STOPPING, SUCCEEDED, Task
from tests.lab.policy.policy_examples import GB, NOW, card, cards, decided, placed, running, says, task
from tests.messages import Messages


def test_an_idle_machine_takes_what_there_is() -> None:
    found = decided(task("a"), task("b", gb=8), task("c", gpus=0), cards=cards(2))
    assert set(found.placements) == {
        Placement("a", ("GPU-0",)),
        Placement("b", ("GPU-1",), 8 * GB),
        Placement("c"),
    }
    assert not found.reasons and not found.preemptions and found.first_blocked is None


def test_nothing_is_nothing() -> None:
    assert decided().placements == ()
    (reason,) = decided(task("a")).reasons.values()
    assert says(reason, "impossible")


def test_tasks_share_a_card_by_memory_and_a_whole_card_is_shared_with_nobody() -> None:
    small = [task(f"{n}", gb=8) for n in range(3)]
    found = decided(*small, cards=cards(1))
    assert placed(found) == {"0": (0,), "1": (0,)}  # 24 GB but for the safety
    assert says(found.reasons["2"], "memory", "8.0 GB", "7.5 GB", "GPU 0")
    assert placed(decided(task("a"), cards=cards(1), live=[running(small[0], 0)])) == {}
    assert placed(decided(small[0], cards=cards(1), live=[running(task("a"), 0)])) == {}


def test_a_card_whose_driver_tells_no_memory_is_given_out_whole() -> None:
    unknown = [card(0, 0)]
    assert placed(decided(task("a"), task("b"), cards=unknown)) == {"a": (0,)}
    waits = decided(task("c", gb=4), cards=unknown, live=[running(task("a"), 0)])
    assert placed(waits) == {} and waits.reasons["c"].startswith("memory: ")


def test_the_number_of_tasks_on_a_card_is_limited() -> None:
    found = decided(*[task(f"{n}", gb=1) for n in range(3)], cards=cards(1), rules=Rules(most_per_card=2))
    assert len(found.placements) == 2 and says(found.reasons["2"], "memory", "1.0 GB")


def test_a_gang_starts_all_at_once_or_not_at_all(messages: Messages) -> None:
    gang = task("gang", gpus=3)
    assert placed(decided(gang, cards=cards(3))) == {"gang": (0, 1, 2)}
    found = decided(gang, cards=cards(3), live=[running(task("a", limit=3600), 1, started=NOW - 1200)])
    starts = format_approximate_clock(NOW + 2400, NOW)
    assert says(found.reasons["gang"], "cards", "3", "2", "GPU 1: train-a", starts)
    messages.check(found.reasons["gang"].replace(starts, "<time>"))
    assert (found.first_blocked, found.first_blocked_start) == ("gang", NOW + 2400)


def test_later_tasks_use_what_the_head_does_not_need_or_end_before_it(messages: Messages) -> None:
    live = [running(task("a", limit=3600), 0, started=NOW - 1200)]
    gang = task("gang", gpus=2, submitted=NOW - 900)
    fits = [task("short", limit=2400), task("long", limit=2401), task("endless")]
    assert placed(decided(gang, *fits, cards=cards(2), live=live)) == {"short": (1,)}
    for late in fits[1:]:
        found = decided(gang, late, cards=cards(2), live=live)
        starts = format_approximate_clock(NOW + 2400, NOW)
        reason = found.reasons[late.id]
        assert says(reason, "reservation", "GPU 0", "GPU 1", "train-gang", "(gang)", starts)
        messages.check(reason.replace(starts, "<time>"))
    assert placed(decided(gang, fits[1], cards=cards(4)[1:], live=live)) == {"gang": (1, 2), "long": (3,)}
    found = decided(task("gang", gpus=4, submitted=NOW - 900), fits[2], cards=cards(5), live=live)
    assert placed(found) == {"gang": (1, 2, 3, 4)}


def test_a_head_without_a_known_start_lets_in_whatever_ends(messages: Messages) -> None:
    gang = task("gang", gpus=2, submitted=NOW - 900)
    found = decided(
        gang, task("ends", limit=9e9), task("endless"), cards=cards(2), live=[running(task("a"), 0)]
    )
    assert placed(found) == {"ends": (1,)} and found.first_blocked_start is None
    assert says(found.reasons["endless"], "reservation", "GPU 0", "GPU 1", "train-gang", "(gang)")
    messages.check(found.reasons["endless"])


def test_only_one_is_the_head_and_nobody_is_who_never_fits_today(messages: Messages) -> None:
    live = [running(task("a", limit=3600), 0), running(task("b", limit=7200), 1)]
    first, second = task("0", gpus=3), task("1", gpus=2)
    found = decided(first, second, cards=cards(2), live=live)
    assert says(found.reasons["0"], "impossible", "3") and found.first_blocked == "1"
    found = decided(first, second, cards=cards(3), live=live, rules=Rules(drained=("GPU-2",)))
    assert found.first_blocked == "1"
    free = format_approximate_clock(NOW + 3540, NOW)
    assert says(found.reasons["0"], "cards", "3", free, "GPU 2", "roost drain 2 --off")
    messages.check(found.reasons["0"].replace(free, "<time>"))


def test_guaranteed_tasks_go_first_and_opportunistic_ones_make_room(messages: Messages) -> None:
    cheap, dear = (task(name, opportunistic=True) for name in ("cheap", "dear"))
    live = [running(dear, 0, started=NOW - 900), running(cheap, 1, started=NOW - 900)]
    saved = {"cheap": NOW - 10, "dear": NOW - 800}
    found = decided(task("a"), cards=cards(2), live=live, last_saved=saved)
    assert found.preemptions == ("cheap",) and placed(found) == {}
    assert says(found.reasons["a"], "cards", "train-cheap", "opportunistic")
    messages.check(found.reasons["a"])
    also = decided(task("a"), task("z", opportunistic=True), cards=cards(2), live=live)
    assert also.reasons["z"].startswith("cards: ")
    assert decided(task("z", opportunistic=True), cards=cards(2), live=live).preemptions == ()
    assert decided(task("a", gpus=2), cards=cards(2), live=live).preemptions == ("cheap", "dear")
    stopping = [live[0], running(cheap, 1, state=STOPPING)]
    waits = decided(task("a"), task("b", limit=1.0), cards=cards(2), live=stopping)
    assert waits.preemptions == () and waits.first_blocked == "a" and placed(waits) == {}
    assert waits.reasons["a"] == found.reasons["a"], "it is told so until that has ended"


def test_a_gang_is_told_who_makes_room_for_it_and_when(messages: Messages) -> None:
    gang, later = task("gang", gpus=2, submitted=NOW - 900), task("later", gpus=2)
    limited = running(task("o", limit=7200, opportunistic=True), 0, started=NOW)
    by_then = format_approximate_clock(NOW + 1800, NOW)
    for also, facts in (
        ([], ("2", "1", "GPU 0: train-o")),
        ([running(task("g", limit=1800), 1, started=NOW)], ("GPU 1: train-g", by_then, "train-o")),
        ([running(task("g"), 1)], ("train-g", "train-o")),
        ([running(task("p", opportunistic=True), 1)], ("2",)),
    ):
        found = decided(gang, task("long"), cards=cards(2), live=[limited, *also])
        assert says(found.reasons["gang"], "cards", "opportunistic", *facts), found.reasons
        messages.check(found.reasons["gang"].replace(by_then, "<time>"))
    found = decided(gang, task("long"), cards=cards(2), live=[limited])
    assert says(
        found.reasons["long"], "reservation", "GPU 0", "GPU 1", "train-gang", "(gang)", "opportunistic"
    )
    messages.check(found.reasons["long"])
    assert decided(later, cards=cards(2), live=[limited]).preemptions == ("o",)


def test_nobody_is_stopped_in_vain() -> None:
    live = [running(task("o", opportunistic=True), 0), running(task("g"), 1)]
    assert decided(task("a", gpus=2), cards=cards(2), live=live).preemptions == ()
    held, opportunistic = (
        {"GPU-0": [OtherLease("bob", 15 * GB)]},
        running(task("o", gb=2, opportunistic=True), 0),
    )
    assert (
        decided(task("a", gb=10), cards=cards(1), live=[opportunistic], other_leases=held).preemptions == ()
    )
    assert decided(task("a", gb=8), cards=cards(1), live=[opportunistic], other_leases=held).preemptions == (
        "o",
    )
    small = [running(task(f"{n}", gb=10, opportunistic=True), 0, started=NOW - n) for n in range(2)]
    assert decided(task("a", gb=8), cards=cards(1), live=small).preemptions == ("0",)


def test_what_others_hold_is_taken() -> None:
    held = {"GPU-0": [OtherLease("bob", None)], "GPU-1": [OtherLease("bob", 20 * GB)]}
    found = decided(task("a", gb=8), task("b"), cards=cards(2), other_leases=held)
    assert placed(found) == {} and found.first_blocked == "a"
    assert placed(decided(task("a", gb=3), cards=cards(2), other_leases=held)) == {"a": (1,)}


@pytest.mark.parametrize(
    ("foreign", "small", "whole"), [("avoid", None, None), ("fit", (0,), None), ("ignore", (0,), (0,))]
)
def test_processes_without_a_lease(
    foreign: str, small: tuple[int, ...] | None, whole: tuple[int, ...] | None, messages: Messages
) -> None:
    used = [card(0, free_mb=14 * GB, users=(CardProcess(123, "eve", 10 * GB),))]
    rules = Rules(foreign=foreign)  # type: ignore[arg-type]
    for one, expected in ((task("a", gb=8), small), (task("b"), whole)):
        found = decided(one, cards=used, rules=rules)
        assert placed(found).get(one.id) == expected
    large = decided(task("c", gb=16), cards=used, rules=rules)
    assert bool(placed(large)) == (foreign == "ignore")
    if foreign != "ignore":
        said = large.reasons["c"]
        assert said == decided(task("b"), cards=used, rules=rules).reasons["b"]
        assert says(said, "foreign", "GPU 0", "pid 123", "eve", "10.0 GB")
        messages.check(said)


def test_a_card_of_one_process_at_a_time_is_never_shared() -> None:
    """Nor with a process without a lease, whatever the rules say: the driver would refuse."""
    first, second = task("a", gb=4), task("b", gb=4)
    found = decided(first, second, cards=[card(0, exclusive=True)])
    assert placed(found) == {"a": (0,)} and says(found.reasons["b"], "memory", "4.0 GB")
    assert placed(decided(second, cards=[card(0, exclusive=True)], live=[running(first, 0)])) == {}
    both = decided(first, second, cards=[card(0, exclusive=True), card(1)])
    assert placed(both) == {"a": (0,), "b": (1,)}
    used = [card(0, exclusive=True, free_mb=20 * GB, users=(CardProcess(123, "eve", 4 * GB),))]
    for foreign in ("fit", "ignore"):
        alone = decided(first, cards=used, rules=Rules(foreign=foreign))  # type: ignore[arg-type]
        assert says(alone.reasons["a"], "foreign", "GPU 0", "pid 123")


def test_memory_that_nobody_owns_up_to_counts(messages: Messages) -> None:
    used = [card(0, free_mb=12 * GB)]
    (said,) = decided(task("a"), cards=used).reasons.values()
    assert says(said, "foreign", "12.0 GB", "GPU 0")
    messages.check(said)
    assert placed(decided(task("a", gb=12), cards=used)) == {}
    assert placed(decided(task("a", gb=11), cards=used)) == {"a": (0,)}
    assert placed(decided(task("a"), cards=[card(0, free_mb=23 * GB)])) == {"a": (0,)}  # the driver's own
    greedy = [running(task("g", gb=4), 0)]  # uses 12 GB of the 4 that it asked for
    assert placed(decided(task("a", gb=12), cards=used, live=greedy)) == {}
    assert placed(decided(task("a", gb=11), cards=used, live=greedy)) == {"a": (0,)}


def test_drained_broken_and_forbidden_cards() -> None:
    rules = Rules(drained=("GPU-0",), allowed=("GPU-0", "GPU-1"))
    machine = [card(0), card(1, trouble="GPU is lost"), card(2)]
    found = decided(task("a"), cards=machine, rules=rules)
    assert says(found.reasons["a"], "drained", "GPU 0", "roost drain 0 --off")
    lost = decided(task("a"), cards=machine[1:], rules=rules).reasons["a"]
    assert says(lost, "trouble", "GPU 1", ": GPU is lost")
    assert placed(decided(task("a"), cards=machine, rules=Rules(drained=("GPU-0",)))) == {"a": (2,)}


def test_a_card_that_is_reserved_takes_others_only_if_they_end_before() -> None:
    rules = Rules(reserved=(ReservedWindow(card="GPU-0", user="bob", begin=NOW + 600, end=NOW + 1200),))
    assert placed(decided(task("own", user="bob"), task("long"), cards=cards(1), rules=rules)) == {
        "own": (0,)
    }
    found = decided(task("long"), task("short", limit=600), cards=cards(1), rules=rules)
    assert placed(found) == {"short": (0,)}
    assert says(found.reasons["long"], "reserved", "GPU 0", "bob")
    over = Rules(reserved=(ReservedWindow(card="GPU-0", user="bob", begin=NOW - 600, end=NOW),))
    assert placed(decided(task("long"), cards=cards(1), rules=over)) == {"long": (0,)}


def test_behind_the_head_each_one_is_told_what_is_in_his_own_way() -> None:
    rules = Rules(reserved=(ReservedWindow(card="GPU-1", user="bob", begin=NOW + 600, end=NOW + 9000),))
    head = task("head", gpus=2, user="bob", priority=1)
    two = [task(user[0], user=user) for user in ("ann", "bob")]
    found = decided(head, *two, cards=cards(2), live=[running(task("x", limit=900), 0)], rules=rules)
    assert found.first_blocked == "head" and placed(found) == {}
    assert [found.reasons[id].partition(":")[0] for id in "ab"] == ["reserved", "reservation"]


def test_what_must_wait_waits(messages: Messages) -> None:
    found = decided(
        task("a", held=True),
        task("b", begin=NOW + 7200),
        task("c", after=("x",)),
        task("d", after=("y",)),
        task("e", after=("z",)),
        task("f", after=("w", "v")),
        task("g", begin=NOW, after=("w",)),
        task("h", after_any=("x",)),
        task("i", after_any=("y", "z", "w")),
        task("j", after_any=("d",)),
        task("k", begin=NOW + 10, attempt=2),
        cards=cards(9),
        dependency_states={"d": "pending", "x": "running", "y": "failed", "w": SUCCEEDED, "v": "pending"},
    )
    assert list(placed(found)) == ["g", "i"]
    again, later = format_clock(NOW + 10, seconds=True), format_dated_clock(NOW + 7200, now=NOW)
    for id, word, *facts in (
        ("h", "dependency", "x", "running"),
        ("j", "dependency", "y", "failed", "d"),
        ("k", "begin", again, "attempt 2"),
        ("a", "held", "roost release a"),
        ("b", "begin", later),
        ("c", "dependency", "x", "running"),
        ("d", "dependency", "y", "failed"),
        ("e", "dependency", "z"),
        ("f", "dependency", "v", "pending"),
    ):
        assert says(found.reasons[id], word, *facts), found.reasons[id]
        messages.check(found.reasons[id].replace(again, "<time>").replace(later, "<time>"))
    assert found.first_blocked is None


def test_a_sweep_keeps_its_limit_and_delays_nobody(messages: Messages) -> None:
    sweep = [task(f"{n}", sweep="s", most_parallel=2) for n in range(3)]
    found = decided(*sweep, task("z", submitted=NOW), cards=cards(3), live=[running(sweep[0], 0)])
    # Itself is live and pending here, but it is only counted.
    assert placed(found) == {"0": (1,), "z": (2,)}
    assert says(found.reasons["1"], "sweep", "2")
    messages.check(found.reasons["1"])
    on_cpu = [task(f"{n}", gpus=0, sweep="s", most_parallel=1) for n in range(2)]
    assert list(placed(decided(*on_cpu, rules=Rules(cores=4)))) == ["0"]


def test_tasks_of_the_cpu_wait_for_cores_only(messages: Messages) -> None:
    live = [running(task("x"), 0)]
    tasks = [task("gpu"), *[task(f"{n}", gpus=0) for n in range(3)]]
    found = decided(*tasks, cards=cards(1), live=live, rules=Rules(cores=2))
    assert list(placed(found)) == ["0", "1"] and found.reasons["gpu"].startswith("cards: ")
    assert says(found.reasons["2"], "cores", "2")
    messages.check(found.reasons["2"])
    none = decided(task("c", gpus=0), rules=Rules(cores=0))
    assert says(none.reasons["c"], "impossible")
    messages.check(none.reasons["c"])


def test_tasks_that_count_as_no_core_start_on_a_full_machine() -> None:
    live = [running(task("x", gpus=0)), running(task("y", gpus=0))]
    tasks = [task(f"a{n}", gpus=0, cores=0) for n in range(20)]
    found = decided(task("waits", gpus=0), *tasks, live=live, rules=Rules(cores=2))
    assert sorted(placed(found)) == sorted(one.id for one in tasks) and [*found.reasons] == ["waits"]
    found = decided(task("next", gpus=0), live=[running(one) for one in tasks], rules=Rules(cores=2))
    assert list(placed(found)) == ["next"], "and take none from others"


def test_what_is_learned_goes_before_what_was_asked() -> None:
    asked = task("a", gb=20)
    live = [running(task("b", gb=10), 0)]
    assert placed(decided(asked, cards=cards(1), live=live)) == {}
    found = decided(asked, cards=cards(1), live=live, expected={"a": Expectation(memory_mb=5 * GB)})
    assert found.placements == (Placement("a", ("GPU-0",), 5 * GB),)
    same = [task(f"{n}", gb=20) for n in range(3)]
    found = decided(*same, cards=cards(1), live=live, expected={"2": Expectation(5 * GB, 9.0)})
    assert placed(found) == {"2": (0,)}
    same = [task(f"{n}", gb=5, limit=9) for n in range(3)]
    more = {id: Expectation(20 * GB) for id in "01"}
    assert placed(decided(*same, cards=cards(1), live=live, expected=more)) == {"2": (0,)}
    gang = task("gang", gpus=2, submitted=NOW - 900)
    known = {"a": Expectation(seconds=100), "b": Expectation(seconds=400)}
    found = decided(gang, task("a"), cards=cards(2), live=[running(task("b"), 0)], expected=known)
    assert found.first_blocked_start == NOW + 340 and placed(found) == {"a": (1,)}
    known["b"] = Expectation(seconds=30)  # it should have ended long ago: nothing is known
    assert (
        decided(gang, cards=cards(2), live=[running(task("b"), 0)], expected=known).first_blocked_start
        is None
    )
    for late in (running(task("b", limit=30), 0), running(task("b"), 0, state=STOPPING)):  # it is being ended
        assert decided(gang, cards=cards(2), live=[late]).first_blocked_start == NOW + 60


def test_a_card_that_a_task_may_not_have_is_another_ones() -> None:
    tasks = (task("a", user="bob", submitted=NOW - 900), task("b"))
    closed = {"a": frozenset({"GPU-0", "GPU-7"})}
    found = decided(*tasks, cards=cards(1), closed_cards=closed)
    assert placed(found) == {"b": (0,)} and found.reasons["a"].startswith("closed: ")
    assert placed(decided(*tasks, cards=cards(2), closed_cards=closed)) == {"a": (1,), "b": (0,)}


def test_between_queues_a_priority_is_among_the_tasks_of_one_user() -> None:
    tasks = (task("a", submitted=NOW - 900), task("b", priority=9), task("c", user="bob", priority=-3))
    assert placed(decided(*tasks, cards=cards(1))) == {"b": (0,)}
    assert placed(decided(*tasks, cards=cards(1), has_other_queues=True, usage={"ann": 1.0})) == {"c": (0,)}
    assert set(placed(decided(*tasks, cards=cards(2), has_other_queues=True))) == {"b", "c"}


def test_a_lease_is_charged_ahead_as_a_task_is() -> None:
    tasks = (task("a"), task("b", user="bob", submitted=NOW))
    for end, first in ((math.inf, "b"), (NOW + 60, "b"), (NOW - 60, "a")):
        held = {"GPU-0": [OtherLease("ann", None, end)]}
        assert placed(decided(*tasks, cards=cards(2), other_leases=held)) == {first: (1,)}
    shared = {"GPU-0": [OtherLease("ann", 6 * GB)], "GPU-1": [OtherLease("bob", 12 * GB)]}
    assert placed(decided(*tasks, cards=cards(3), other_leases=shared)) == {"a": (2,)}


def test_the_end_of_a_lease_is_waited_for_as_that_of_a_task() -> None:
    gang = task("gang", gpus=2, submitted=NOW - 900)
    held = {"GPU-0": [OtherLease("bob", None, NOW + 500)]}
    found = decided(gang, task("a", limit=400), task("b", limit=600), cards=cards(2), other_leases=held)
    assert (found.first_blocked, found.first_blocked_start) == ("gang", NOW + 500) and placed(found) == {
        "a": (1,)
    }


def test_what_was_placed_just_now_counts_for_the_share() -> None:
    many = [task(f"{n}", submitted=NOW - 900 + n) for n in range(4)]
    late = [task(f"late{n}", user="bob") for n in range(2)]
    found = decided(*many, *late, cards=cards(4))
    assert set(placed(found)) == {"0", "1", "late0", "late1"}
    busy = [running(task("x", limit=1e5), 0)]
    found = decided(*many, *late, cards=cards(4), live=busy, usage={"ann": 60.0})
    assert set(placed(found)) == {"late0", "late1", "0"}


def test_whatever_the_order_of_the_rows_it_is_the_same_decision() -> None:
    tasks = [task(f"{n}", gb=n % 5 + 1, user=f"u{n % 3}") for n in range(20)]
    assert decided(*tasks, cards=cards(2)) == decided(*reversed(tasks), cards=cards(2))


def test_a_task_gets_only_cards_that_it_requires() -> None:
    """Of two models; the wait reason of a task for which the only such card is taken is that of the card."""
    both = [
        dataclasses.replace(card, name=name)
        for card, name in zip(cards(2), ("Tesla T4", "A100"), strict=True)
    ]
    required = CardRequirement(models=("a100",))

    def requiring(id: str) -> Task:
        one = task(id)
        return msgspec.structs.replace(one, need=msgspec.structs.replace(one.need, card=required))

    tasks = [requiring("a"), task("b"), requiring("c")]
    found = decided(*tasks, cards=both)
    assert placed(found) == {"a": (1,), "b": (0,)} and "c" in found.reasons
    alone = decided(requiring("c"), cards=both[:1])
    assert placed(alone) == {} and alone.reasons["c"].startswith("closed: it requires a GPU a100")
    idle = decided(tasks[2], task("b"), cards=both[:1])
    assert placed(idle) == {"b": (0,)}
