"""Why a task waits, in words."""

from __future__ import annotations

import pytest

from roost.base.text.timestamps import format_dated_clock
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy.policy_state import OtherLease, Rules
from roost.lab.policy.wait_reasons import dependency, format_approximate_clock, impossible
from tests.lab.policy.policy_examples import GB, NOW, card, cards, decided, running, says, task
from tests.messages import Messages


@pytest.mark.parametrize(
    ("need", "facts"),
    [
        (ResourceRequest(cards=2), None),
        (ResourceRequest(cards=1, memory_mb=79 * GB), None),
        (ResourceRequest(cards=3), ("3", "2")),
        (ResourceRequest(cards=1, memory_mb=80 * GB), ("80.0 GB", "GPU 1", "78.4 GB")),
        (ResourceRequest(cards=2, memory_mb=30 * GB), ("30.0 GB", "2", "1")),
        (ResourceRequest(), None),
    ],
    ids=["two", "large", "three", "too large", "two large", "none"],
)
def test_what_never_fits(need: ResourceRequest, facts: tuple[str, ...] | None, messages: Messages) -> None:
    machine = [card(0), card(1, 80, trouble="GPU is lost")]
    if need.memory_mb == 79 * GB:
        need = ResourceRequest(cards=1, memory_mb=78 * GB)
    reason = impossible(need, machine, Rules())
    assert (reason is None) == (facts is None)
    if reason is not None and facts is not None:
        assert all(fact in reason for fact in facts)
        messages.check(reason)


def test_what_the_rules_make_impossible(messages: Messages) -> None:
    none = impossible(ResourceRequest(cards=1), cards(2), Rules(allowed=()))
    assert none is not None
    messages.check(none)
    assert impossible(ResourceRequest(cards=2), cards(2), Rules(allowed=("GPU-1",))) is not None
    assert impossible(ResourceRequest(cards=2), cards(2), Rules(drained=("GPU-1",))) is None
    assert impossible(ResourceRequest(), [], Rules(cores=0)) is not None
    assert (
        impossible(ResourceRequest(cards=1, memory_mb=10**6), [card(0, 0)], Rules()) is None
    )  # nobody knows


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, 0), (61, 120), (541, 600), (601, 900), (2400, 2400), (7201, 7500)]
)
def test_times_are_coarse_moments(seconds: float, said: float) -> None:
    now = NOW - NOW % 300
    assert format_dated_clock(now + said, now=now) in format_approximate_clock(now + seconds, now)


def test_dependencies(messages: Messages) -> None:
    assert dependency("a", "succeeded") is None
    for state in ("crashed", "stopped"):
        reason = dependency("a", state)
        assert reason is not None and says(reason, "dependency", "a", state)
        messages.check(reason)


def test_what_can_never_start_names_the_first_cause(messages: Messages) -> None:
    chain = [task(f"t{n}", after=(f"t{n - 1}",), submitted=NOW - 100 + n) for n in range(1, 4)]
    found = decided(*chain, dependency_states={"t0": "failed", "t1": "pending", "t2": "pending"})
    assert says(found.reasons["t1"], "dependency", "t0", "failed")
    assert says(found.reasons["t2"], "dependency", "t0", "failed", "t1")
    assert says(found.reasons["t3"], "dependency", "t0", "failed", "t2")
    for id in ("t1", "t2", "t3"):
        messages.check(found.reasons[id])
    held = [task("t1", after=("t0",), held=True, submitted=NOW - 99), *chain[1:]]
    assert (
        decided(*held, dependency_states={"t0": "failed", "t1": "pending"}).reasons["t2"]
        == found.reasons["t2"]
    )


def test_who_has_the_cards_that_are_missing(messages: Messages) -> None:
    live = [running(task("a"), 0), running(task("long", name="n" * 99), 1)]
    others = {
        "GPU-2": [OtherLease("bob", None)],
        "GPU-3": [OtherLease("cid", None)],
        "GPU-4": [OtherLease("dora", None)],
    }
    why = decided(task("0", gpus=2), cards=cards(6), live=live, other_leases=others).reasons["0"]
    has = f"GPU 0: train-a, GPU 1: {'n' * 23}…, GPU 2: bob, 2 more"
    assert says(why, "cards", "2", "1", has)
    messages.check(why)
    drained = decided(task("0", gpus=2), cards=cards(2), live=live[:1], rules=Rules(drained=("GPU-0",)))
    assert says(drained.reasons["0"], "cards", "2", "1", "GPU 0: train-a")
    messages.check(drained.reasons["0"])


def test_the_numbers_of_what_is_missing(messages: Messages) -> None:
    live = [running(task("l", gb=12, limit=3600), 0, started=NOW - 1200), running(task("m", gb=20), 1)]
    first, second = task("0", gb=20), task("1", gb=20)
    found = decided(first, second, cards=cards(2), live=live)
    at = format_approximate_clock(NOW + 2400, NOW)
    for reason in (found.reasons["0"], found.reasons["1"]):
        assert says(reason, "memory", "20.0 GB", "11.5 GB", "GPU 0", at)
        messages.check(reason.replace(at, "<time>"))
    gang = decided(task("0", gpus=2, gb=10), cards=cards(2), live=live).reasons["0"]
    assert says(gang, "memory", "10.0 GB", "2", "1")
    messages.check(gang)
    whole = decided(task("0", gb=20, whole=True), cards=cards(2), live=live).reasons["0"]
    has = "GPU 0: train-l, GPU 1: train-m"
    assert says(whole, "cards", "20.0 GB", has, at)
    messages.check(whole.replace(at, "<time>"))
    drained = decided(first, cards=cards(3), live=live, rules=Rules(drained=("GPU-2",))).reasons["0"]
    assert says(drained, "drained", "GPU 2", "roost drain 2 --off")
    messages.check(drained)


def test_all_drained_cards_are_named_with_the_way_out(messages: Messages) -> None:
    rules = Rules(drained=("GPU-0", "GPU-1", "GPU-2"))
    some = decided(task("0", gpus=2), cards=[*cards(3), card(3, trouble="lost")], rules=rules).reasons["0"]
    assert says(some, "drained", "GPU 0", "GPU 1", "GPU 2", "roost drain 0,1,2 --off")
    messages.check(some)
    every = decided(task("0"), cards=cards(3), rules=rules).reasons["0"]
    assert says(every, "drained", "3", "roost drain all --off")
    messages.check(every)
