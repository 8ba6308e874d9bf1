"""Why a task waits, in words."""

from __future__ import annotations

import pytest

from roost.lab.policy.state import Rules
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
    ("seconds", "said"),
    [
        (0, "1 min"),
        (61, "2 min"),
        (541, "10 min"),
        (601, "15 min"),
        (2400, "40 min"),
        (3500, "1 h"),
        (7201, "3 h"),
        (200_000, "3 days"),
    ],
)
def test_times_are_coarse(seconds: float, said: str) -> None:
    assert about(seconds) == f"in about {said}"


def test_dependencies() -> None:
    assert dependency("a", "succeeded") is None
    assert [str(dependency("a", state)).partition("a ")[2] for state in ("crashed", "stopped")] == [
        "has crashed, so it never starts",
        "was stopped, so it never starts",
    ]


def test_the_numbers_of_what_is_missing() -> None:
    live = [running(task("l", gb=12, limit=3600), 0, started=NOW - 1200), running(task("m", gb=20), 1)]
    first, second = task("0", gb=20), task("1", gb=20)
    found = decided(first, second, cards=cards(2), live=live)
    start = "memory: needs 20.0 GB on one card; the most free is 11.5 GB (GPU 0)"
    assert found.reasons == {
        "0": f"{start}, starts in about 40 min",
        "1": f"{start}, next free in about 40 min",
    }
    gang = decided(task("0", gpus=2, gb=10), cards=cards(2), live=live).reasons["0"]
    assert gang == "memory: needs 10.0 GB on each of 2 cards; 1 has as much free"
    whole = decided(task("0", gb=20, whole=True), cards=cards(2), live=live).reasons["0"]
    assert whole == "cards: needs one whole card of 20.0 GB; none is free, starts in about 40 min"
    drained = decided(first, cards=cards(3), live=live, rules=Rules(drained=("GPU-2",))).reasons["0"]
    assert drained == "drained: GPU 2 is drained: nothing more begins there"
