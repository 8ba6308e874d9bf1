"""What is expected of tasks that wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.expectations import Expectations
from roost.lab.memory.memory_prediction import MemoryReservation, predict_memory
from roost.lab.policy.policy_state import Expectation, Rules
from roost.lab.queue import history
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import RUNNING, SUCCEEDED, Task
from tests.lab.queued import card, task

CARDS = [card(0), card(1)]
RULES = Rules()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def peak(mb: float, *, key: str = "p", device: str = "test", ranks: int = 1) -> MemoryPeak:
    return MemoryPeak(key, 8.0, mb, 400.0, ranks, device, 0.0)


def waiting(id: str = "a", *, cards: int = 1, profile: str = "p", **given: object) -> Task:
    return task(id=id, need=ResourceRequest(cards=cards), profile=profile, scale=8.0, **given)


def test_what_was_measured_counts_from_then_on(store: QueueStore) -> None:
    expectations = Expectations(store)
    asked = [waiting("a"), waiting("b", profile="other"), waiting("c", profile=""), waiting("d", cards=2)]
    assert expectations.for_tasks(asked, CARDS, RULES) == {}
    store.add_peak(peak(10_000.0))
    assert expectations.for_tasks(asked, CARDS, RULES) == {"a": Expectation(11_900)}
    store.add_peak(peak(10_000.0))
    store.add_peak(peak(5_000.0, key="other"))
    assert expectations.for_tasks(asked, CARDS, RULES) == {"a": Expectation(11_400), "b": Expectation(6_150)}
    assert Expectations(store).for_tasks(asked, CARDS, RULES) == expectations.for_tasks(asked, CARDS, RULES)


def test_the_end_of_a_run_renews_the_predictions_of_its_project_alone(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for project in ("p", "q"):
        store.add_peak(peak(10_000.0, key=project))
    expectations = Expectations(store)
    asked = [waiting("a"), waiting("b", profile="q"), waiting("c", profile="q", sweep="s")]
    before = expectations.for_tasks(asked, CARDS, RULES)
    store.add_peak(peak(10_100.0))
    predicted: list[object] = []

    def counted(*given: Any, **named: Any) -> MemoryReservation:
        predicted.append(given)
        return predict_memory(*given, **named)

    monkeypatch.setattr("roost.lab.memory.expectations.predict_memory", counted)
    after = expectations.for_tasks(asked, CARDS, RULES)
    assert len(predicted) == 1
    assert after["a"] != before["a"] and (after["b"], after["c"]) == (before["b"], before["c"])
    assert after == Expectations(store).for_tasks(asked, CARDS, RULES)


def test_nothing_is_read_twice(store: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_peak(peak(10_000.0))
    expectations = Expectations(store)
    many = [waiting(str(number)) for number in range(100)]
    assert len(expectations.for_tasks(many, CARDS, RULES)) == 100
    asked: list[object] = []
    monkeypatch.setattr(
        "roost.lab.memory.expectations.predict_memory", lambda *given, **named: asked.append(given)
    )
    assert len(expectations.for_tasks(many, CARDS, RULES)) == 100 and asked == []


def test_of_several_models_it_is_the_most_and_more_than_any_card_has_is_a_whole_one(
    store: QueueStore,
) -> None:
    large = replace(card(2, 80_000), name="large")
    store.add_peak(peak(10_000.0))
    store.add_peak(peak(20_000.0, device="large"))
    expectations = Expectations(store)
    assert expectations.for_tasks([waiting()], CARDS, RULES) == {"a": Expectation(11_900)}
    assert expectations.for_tasks([waiting()], [*CARDS, large], RULES) == {"a": Expectation(23_400)}
    assert expectations.for_tasks([waiting()], [*CARDS, large], Rules(allowed=("GPU-0",))) == {
        "a": Expectation(11_900)
    }
    store.add_peak(peak(22_000.0, key="big"))
    assert expectations.for_tasks([waiting(profile="big")], CARDS, RULES) == {"a": Expectation(0)}
    assert expectations.for_tasks([waiting()], [], RULES) == {}


def test_how_long_the_rest_of_a_sweep_takes(store: QueueStore) -> None:
    expectations = Expectations(store)
    rest = waiting("rest", sweep="s")
    store.submit([waiting(f"{n}", sweep="s") for n in range(3)] + [waiting("own"), rest])
    for number, name in enumerate(["own", "0", "1", "2"]):
        assert expectations.for_tasks([rest], CARDS, RULES) == {}
        begun = store.transition(store.start(store.task(name), [], None), RUNNING, started=100.0)
        store.transition(begun, SUCCEEDED, ended=110.0 + number)
    others = [rest, waiting("alone"), waiting("else", sweep="other")]
    assert expectations.for_tasks(others, CARDS, RULES) == {"rest": Expectation(None, 13.0)}
    assert history.SweepTaskDuration("s", "p", 8.0, 11.0) in store.durations_since(0)[1]
