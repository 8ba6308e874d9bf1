"""Why a task waits, in words."""

from __future__ import annotations

import pytest

from roost.base.moment import dated_clock
from roost.lab.policy.state import Held, Rules
from roost.lab.policy.waiting import about, dependency, impossible
from roost.lab.task import Need
from tests.lab.policy.made import GB, NOW, card, cards, decided, running, task


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        (Need(cards=2), None),
        (Need(cards=1, memory_mb=79 * GB), None),
        (Need(cards=3), "needs 3 cards, and tasks may have 2 here"),
        (
            Need(cards=1, memory_mb=80 * GB),
            "needs 80.0 GB on one card; the largest, GPU 1, gives 78.4 GB of its 80.0 GB",
        ),
        (Need(cards=2, memory_mb=30 * GB), "needs 30.0 GB on each of 2 cards; 1 here has as much"),
        (Need(), None),
    ],
)
def test_what_never_fits(need: Need, reason: str | None) -> None:
    machine = [card(0), card(1, 80, trouble="GPU is lost")]
    if need.memory_mb == 79 * GB:
        need = Need(cards=1, memory_mb=78 * GB)
    assert impossible(need, machine, Rules()) == reason


def test_what_the_rules_make_impossible() -> None:
    none = "needs one card, and tasks may have none here"
    assert impossible(Need(cards=1), cards(2), Rules(allowed=())) == none
    assert impossible(Need(cards=2), cards(2), Rules(allowed=("GPU-1",))) is not None
    assert impossible(Need(cards=2), cards(2), Rules(drained=("GPU-1",))) is None
    assert impossible(Need(), [], Rules(cores=0)) is not None
    assert impossible(Need(cards=1, memory_mb=10**6), [card(0, 0)], Rules()) is None  # nobody knows


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, 0), (61, 120), (541, 600), (601, 900), (2400, 2400), (7201, 7500)]
)
def test_times_are_coarse_moments(seconds: float, said: float) -> None:
    now = NOW - NOW % 300
    assert about(now + seconds, now) == f"about {dated_clock(now + said, now=now)}"


def test_dependencies() -> None:
    assert dependency("a", "succeeded") is None
    assert [str(dependency("a", state)).partition("a ")[2] for state in ("crashed", "stopped")] == [
        "has crashed, so it never starts",
        "was stopped before its end, by somebody or by its time limit, so it never starts",
    ]


def test_what_can_never_start_names_the_first_cause() -> None:
    chain = [task(f"t{n}", after=(f"t{n - 1}",), submitted=NOW - 100 + n) for n in range(1, 4)]
    found = decided(*chain, states={"t0": "failed", "t1": "pending", "t2": "pending"})
    assert found.reasons["t1"] == "dependency: t0 has failed, so it never starts"
    assert found.reasons["t2"] == "dependency: t0 has failed, so t1 never starts, nor does this one"
    assert found.reasons["t3"] == "dependency: t0 has failed, so t2 never starts, nor does this one"
    held = [task("t1", after=("t0",), held=True, submitted=NOW - 99), *chain[1:]]
    assert decided(*held, states={"t0": "failed", "t1": "pending"}).reasons["t2"] == found.reasons["t2"]


def test_who_has_the_cards_that_are_missing() -> None:
    live = [running(task("a"), 0), running(task("long", name="n" * 99), 1)]
    others = {"GPU-2": [Held("bob", None)], "GPU-3": [Held("cid", None)], "GPU-4": [Held("dora", None)]}
    why = decided(task("0", gpus=2), cards=cards(6), live=live, held=others).reasons["0"]
    has = f"GPU 0: train-a, GPU 1: {'n' * 23}…, GPU 2: bob, 2 more"
    assert why == f"cards: needs 2 whole cards; 1 is free ({has})"
    drained = decided(task("0", gpus=2), cards=cards(2), live=live[:1], rules=Rules(drained=("GPU-0",)))
    assert drained.reasons["0"] == "cards: needs 2 whole cards; 1 is free (GPU 0: train-a, drained)"


def test_the_numbers_of_what_is_missing() -> None:
    live = [running(task("l", gb=12, limit=3600), 0, started=NOW - 1200), running(task("m", gb=20), 1)]
    first, second = task("0", gb=20), task("1", gb=20)
    found = decided(first, second, cards=cards(2), live=live)
    at = about(NOW + 2400, NOW)
    start = "memory: needs 20.0 GB on one card; the most free is 11.5 GB (GPU 0)"
    assert found.reasons == {
        "0": f"{start}, starts {at}",
        "1": f"{start}, next free {at}",
    }
    gang = decided(task("0", gpus=2, gb=10), cards=cards(2), live=live).reasons["0"]
    assert gang == "memory: needs 10.0 GB on each of 2 cards; 1 has as much free"
    whole = decided(task("0", gb=20, whole=True), cards=cards(2), live=live).reasons["0"]
    has = "GPU 0: train-l, GPU 1: train-m"
    assert whole == f"cards: needs one whole card of 20.0 GB; none is free ({has}), starts {at}"
    drained = decided(first, cards=cards(3), live=live, rules=Rules(drained=("GPU-2",))).reasons["0"]
    assert drained == "drained: GPU 2 is drained (roost drain 2 --off)"


def test_all_drained_cards_are_named_with_the_way_out() -> None:
    rules = Rules(drained=("GPU-0", "GPU-1", "GPU-2"))
    some = decided(task("0", gpus=2), cards=[*cards(3), card(3, trouble="lost")], rules=rules).reasons["0"]
    assert some == "drained: GPU 0, GPU 1 and GPU 2 are drained (roost drain 0,1,2 --off)"
    every = decided(task("0"), cards=cards(3), rules=rules).reasons["0"]
    assert every == "drained: all 3 cards are drained (roost drain all --off)"
