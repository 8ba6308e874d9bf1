"""What a task asks of the lab, and what of that makes no sense."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, UsageError
from roost.devices.resource_request import HIGHEST_PRIORITY, ResourceRequest, Strategy, TaskOptions
from roost.operations import lab
from roost.operations.queue.resources import (
    begin_notes,
    find_task_ids,
    parse_begin,
    parse_window,
    require_satisfiable,
    task_conditions,
    with_card_count,
)
from tests.lab.queued import task
from tests.messages import Messages

NOON = datetime(2026, 11, 21, 12, 0).timestamp()
HOUR = 3600.0


@pytest.fixture(autouse=True)
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x80GB,1x24GB")


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("22:00", 10),
        ("9:30", 21.5),
        ("12:00", 24),
        ("+2h", 2),
        ("+1h30m", 1.5),
        ("2026-11-22T08:00", 20),
        (" 2026-11-21 13:00 ", 1),
        (str(NOON + HOUR), 1),
        ("tomorrow", 12),
        ("Tomorrow 08:00", 20),
        ("today 22:30", 10.5),
        ("today 11:00", -1),
        ("+ 2h", 2),
    ],
)
def test_moments(text: str, hours: float) -> None:
    assert parse_begin(text, now=NOON) == NOON + hours * HOUR


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorow",
        "next week",
        "tomorrow 25:00",
        "22h",
        "+",
        "+tomorrow",
        "25:00",
        "12:60",
        "+0h",
        "nan",
        "2026-13-01",
    ],
)
def test_what_is_no_moment(text: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse_begin(text, now=NOON)
    assert refused.value.setting == "--begin"
    assert repr(text) in str(refused.value)
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("given", "setting", "received"),
    [
        ({"priority": HIGHEST_PRIORITY + 1}, "--priority", "1000001"),
        ({"priority": -(10**30)}, "--priority", "-1000000"),
        ({"begin": str(NOON - 366 * 24 * HOUR)}, "--begin", "'2025-11-20 12:00'"),
        ({"begin": "9999-12-31"}, "--begin", "'9999-12-31 00:00'"),
        ({"begin": "+9999999999h"}, "--begin", "is 1,140,"),
    ],
)
def test_what_makes_no_sense(given: dict[str, Any], setting: str, received: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        task_conditions(TaskOptions(**given))
    assert refused.value.setting == setting and received in refused.value.detail
    messages.check(refused.value.fix)


@pytest.mark.parametrize(
    ("seconds", "said"), [(7199.4, "2h 00m"), (599.7, "10m 00s"), (29.6, "30.0s"), (-3, "0.0s")]
)
def test_what_is_said_back_is_what_was_typed(
    monkeypatch: pytest.MonkeyPatch, seconds: float, said: str
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON)
    assert begin_notes(NOON + seconds)[0].endswith(said) and begin_notes(None) == []


def test_values_are_checked_without_a_queue(tmp_path: Path) -> None:
    task_conditions(TaskOptions(begin="+1h", priority=HIGHEST_PRIORITY))
    assert not (tmp_path / "state").exists()


def test_tasks_are_meant_by_id_prefix_name_and_path_and_must_still_be_able_to_succeed(
    messages: Messages,
) -> None:
    first, second = task(id="0a1", name="one"), task(id="0b1", package="/nowhere/two")
    with lab.open_queue() as store:
        store.submit([first, second])
    assert find_task_ids([]) == ()
    assert find_task_ids(["one", "0b", "/nowhere/two", "0a1"]) == ("0a1", "0b1")
    with pytest.raises(NotFound) as refused:
        find_task_ids(["three"])
    assert "'three'" in str(refused.value)
    with pytest.raises(NotFound) as refused:
        find_task_ids(["one,0b"])
    assert refused.value.setting == "--after"
    assert all(fact in str(refused.value) for fact in ("'one,0b'", "--after one --after 0b"))
    messages.check(refused.value)
    with pytest.raises(UsageError) as refused:
        find_task_ids(["0"])
    assert all(fact in str(refused.value) for fact in ("'0'", "0a1 (one, pending)", "0b1 ("))
    messages.check(refused.value.fix)
    task_conditions(TaskOptions(after=("0a1", "0b1")))
    with lab.open_queue() as store:
        store.request_stop("0b1", "stop")
    with pytest.raises(Refused) as refused:
        task_conditions(TaskOptions(after=("0a1", "0b1")))
    assert refused.value.setting == "--after"
    assert all(fact in str(refused.value) for fact in ("stopped", "'0b1'"))
    messages.check(refused.value)


def test_what_did_not_succeed_is_called_by_its_name() -> None:
    first = task(name="k1", package="/nowhere/k1")
    with lab.open_queue() as store:
        store.submit([first])
        store.request_stop(first.id, "stop")
    with pytest.raises(Refused) as refused:
        task_conditions(TaskOptions(after=find_task_ids(["k1"])))
    assert refused.value.setting == "--after"
    assert all(fact in str(refused.value) for fact in ("stopped", "'k1'"))


def test_when_cards_are_drained(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON)
    assert parse_window(None, None) is None
    assert parse_window("+1h", "+2h") == (NOON + HOUR, NOON + 3 * HOUR)
    assert parse_window("13:00", "12:30") == (NOON + HOUR, NOON + 24.5 * HOUR)
    for begin, end in ((None, "2020-01-01"), ("2020-01-01", "2020-01-02"), ("13:00", "2025-11-21")):
        with pytest.raises(UsageError) as refused:
            parse_window(begin, end)
        assert refused.value.setting == "--until" and repr(end) in refused.value.detail
        assert "08:00" in str(refused.value.fix)
        messages.check(refused.value)
    assert "--from 13:00" in refused.value.detail


def test_a_sweep_names_all_its_tasks() -> None:
    with lab.open_queue() as store:
        store.submit([task(id=f"0c{n}", sweep="0s1") for n in (1, 2)])
    assert find_task_ids(["0s1", "0c1"]) == ("0c1", "0c2")
    with lab.open_queue() as store:
        store.request_stop("0c2", "stop")
    with pytest.raises(Refused) as refused:
        task_conditions(TaskOptions(after=find_task_ids(["0s"])))
    assert refused.value.setting == "--after"
    assert all(fact in str(refused.value) for fact in ("stopped", "'0c2'"))


@pytest.mark.parametrize(
    ("devices", "cards"),
    [("auto", 1), (2, 2), ([0, 1, 2], 3), (None, 1)],
    ids=["auto", "2", "list", "command"],
)
def test_as_many_cards_as_usual(monkeypatch: pytest.MonkeyPatch, devices: Any, cards: int) -> None:
    usual = TaskOptions()
    assert with_card_count(usual, devices).need.cards == cards
    assert with_card_count(TaskOptions(gpus=4), devices).need.cards == 4
    assert with_card_count(TaskOptions(gpus=0), devices).need.cards == 0
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    assert with_card_count(usual, devices).need.cards == 0


def test_what_is_about_cards_needs_some(messages: Messages) -> None:
    about_cards: dict[str, Any] = {"memory_mb": 5, "whole": True, "opportunistic": True}
    with pytest.raises(UsageError) as refused:
        with_card_count(TaskOptions(gpus=0, **about_cards), "auto")
    assert all(fact in str(refused.value) for fact in ("-m:", "--whole", "--opportunistic"))
    messages.check(refused.value)
    assert with_card_count(TaskOptions(**about_cards), "auto").need.cards == 1


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_several_processes_need_a_number(strategy: Strategy, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        with_card_count(TaskOptions(strategy=strategy), "auto")
    assert strategy in str(refused.value)
    messages.check(refused.value)
    assert with_card_count(TaskOptions(strategy=strategy), 2).need.cards == 2


@pytest.mark.parametrize(
    ("need", "numbers"),
    [
        (ResourceRequest(cards=3), ["3 cards", " 2 "]),
        (ResourceRequest(cards=1, memory_mb=90_000), ["GPU 0", "78.4 GB", "80.0 GB"]),
        (ResourceRequest(cards=2, memory_mb=40_000), ["39.1 GB", "2 cards", " 1 "]),
    ],
    ids=["cards", "memory", "memory of each"],
)
def test_what_could_never_start_is_refused_with_the_numbers(
    need: ResourceRequest, numbers: list[str], messages: Messages
) -> None:
    require_satisfiable(
        [ResourceRequest(), ResourceRequest(cards=2), ResourceRequest(cards=1, memory_mb=70_000)]
    )
    with pytest.raises(Refused) as refused:
        require_satisfiable([ResourceRequest(), need])
    assert all(number in refused.value.detail for number in numbers)
    messages.check(refused.value)


def test_the_rules_of_the_machine_count(messages: Messages) -> None:
    with lab.open_queue() as store:
        store.set_setting("rules", {"allowed": ["SIM-1"]})
    require_satisfiable([ResourceRequest(cards=1)])
    with pytest.raises(Refused) as refused:
        require_satisfiable([ResourceRequest(cards=2)])
    assert all(fact in str(refused.value) for fact in ("2 cards", " 1 "))
    messages.check(refused.value)
