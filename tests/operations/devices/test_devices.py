from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.base.system import process_identity
from roost.devices import inventory, lease
from roost.devices.lease import LeaseHolder
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.task import PENDING, RUNNING
from roost.operations import lab
from roost.operations.devices import devices
from roost.operations.devices.device_list import CardStatus
from roost.operations.devices.devices import DeviceChange
from roost.operations.queue.resources import require_satisfiable
from tests.devices.leasing import at_once, take
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:3x24GB")
    with own.here():
        yield own
    own.close()


def shown() -> list[CardStatus]:
    return devices.show().cards


def allowed() -> list[int]:
    return [card.number for card in shown() if card.allowed]


def drained() -> list[int]:
    return [card.number for card in shown() if card.drained]


def test_who_is_on_a_card(here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = {
        "cards": "3x24GB",
        "processes": [{"card": "SIM-1", "pid": 4711, "user": "ann", "memory": "10GB"}],
        "failures": [{"card": "SIM-2", "trouble": "GPU is lost"}],
    }
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    monkeypatch.setenv("ROOST_DEVICES", f"sim:{tmp_path / 'scenario.json'}")
    task = here.queue(FOREVER, need=ResourceRequest(cards=1, memory_mb=4000))
    card = inventory.read_cards()[0]
    with here.store() as store:
        store.start(task, [card], 4000)
    held = take(card, mb=500)
    own = lease.take([card], 600, LeaseHolder.this_process())
    gone = lease.take([card], 700, LeaseHolder(4_000_000, 1, process_identity.boot_id(), "/runs/b", ""))
    first, second, third = shown()
    for one in (held, own, gone):
        one.close()
    assert [(one.id, one.name, one.state, one.mb) for one in first.tasks] == [
        (task.id, task.name, "starting", 4000)
    ]
    assert [(one.mb, one.pid, one.package, one.task) for one in first.leases] == [
        (500, None, "/runs/a", "a task"),
        (600, os.getpid(), "", ""),
        (700, None, "/runs/b", ""),
    ]
    with here.store() as store:
        assert first.tasks[0].short == store.unique_prefixes([task.id])[task.id]
    assert [(one.pid, one.user, one.mb) for one in second.processes] == [(4711, "ann", 10240)]
    assert second.free_mb == 14336 and not second.leases and not second.tasks
    assert third.trouble is not None and "GPU is lost" in third.trouble


def test_a_task_is_shown_once_though_it_holds_a_lease_too(here: Lab) -> None:
    id = here.submit(FOREVER, need=ResourceRequest(cards=1))
    here.wait_for(id, RUNNING)
    (card,) = [card for card in shown() if card.tasks or card.leases]
    assert [task.id for task in card.tasks] == [id] and not card.leases


def test_the_process_of_a_lease_holder_is_not_foreign(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = take(inventory.read_cards()[0])
    me = shown()[0].leases[0].user
    processes = [{"card": "SIM-0", "pid": 1, "user": me}, {"card": "SIM-0", "pid": 2, "user": f"not-{me}"}]
    (tmp_path / "scenario.json").write_text(json.dumps({"cards": "1x24GB", "processes": processes}))
    monkeypatch.setenv("ROOST_DEVICES", f"sim:{tmp_path / 'scenario.json'}")
    assert [one.pid for one in shown()[0].processes] == [2]
    held.close()


def test_how_many_tasks_of_the_cpu_run_at_once(here: Lab, messages: Messages) -> None:
    usual = devices.show().cores
    devices.change(DeviceChange(cores=1))
    assert devices.show().cores == 1
    ids = [here.submit(FOREVER) for _ in range(2)]
    here.wait_for(ids[0], RUNNING)
    wait_for(lambda: here.one(ids[1]).reason.startswith("cores:"))
    devices.change(DeviceChange(cores=0))
    with pytest.raises(Refused) as refused:
        require_satisfiable([ResourceRequest()])
    assert "--cores" in str(refused.value)
    messages.check(refused.value)
    devices.change(DeviceChange(cores="any"))  # the daemon is woken
    here.wait_for(ids[1], RUNNING)
    assert devices.show().cores == usual


def test_a_look_makes_no_queue(here: Lab) -> None:
    assert len(shown()) == 3
    assert not here.state.exists()


def test_the_lab_uses_what_it_may(here: Lab) -> None:
    devices.change(DeviceChange(allowed="1"))
    ids = [here.submit(FOREVER, need=ResourceRequest(cards=1)) for _ in range(2)]
    here.wait_for(ids[0], RUNNING)
    assert here.one(ids[0]).cards == ("SIM-1",)
    wait_for(lambda: here.one(ids[1]).reason)
    assert here.one(ids[1]).state == PENDING
    devices.change(DeviceChange(allowed="all"))  # the daemon is woken
    assert here.wait_for(ids[1], RUNNING).cards != ("SIM-1",)


def test_on_a_drained_card_nothing_more_begins_and_what_runs_goes_on(here: Lab) -> None:
    devices.change(DeviceChange(allowed="0"))
    running = here.submit(FOREVER, need=ResourceRequest(cards=1, memory_mb=1000))
    here.wait_for(running, RUNNING)
    devices.drain("all")
    waits = here.submit(FOREVER, need=ResourceRequest(cards=1, memory_mb=1000))
    wait_for(lambda: here.one(waits).reason.startswith("drained:"))
    assert here.one(running).state == RUNNING
    devices.drain("0", off=True)
    here.wait_for(waits, RUNNING)
    assert drained() == [1, 2]


def test_a_list_names_cards_by_number_or_id(here: Lab) -> None:
    devices.change(DeviceChange(allowed="0, SIM-2,0"))
    assert allowed() == [0, 2]
    devices.change(DeviceChange(allowed="all"))
    assert allowed() == [0, 1, 2]


@pytest.mark.parametrize("text", ["0,7", "", "0,,1", "one", "SIM-", "-1", "0-1", "1.0", "²"])
def test_a_list_that_means_no_cards_is_refused_and_the_old_one_stays(
    here: Lab, text: str, messages: Messages
) -> None:
    devices.change(DeviceChange(allowed="1"))
    devices.drain("2")
    with pytest.raises(UsageError) as refused:
        devices.change(DeviceChange(allowed=text, most_per_card=1))
    assert refused.value.setting == "-d"
    assert all(fact in str(refused.value) for fact in ("0, 1, 2", repr(text)))
    messages.check(refused.value)
    with pytest.raises(UsageError) as refused:
        devices.drain(text)
    assert refused.value.setting == "CARD"
    assert all(fact in str(refused.value) for fact in ("0, 1, 2", repr(text)))
    messages.check(refused.value)
    assert (allowed(), drained(), devices.show().most_per_card) == ([1], [2], None)


def test_a_machine_without_cards_has_none_to_drain(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    with pytest.raises(NotFound) as refused:
        devices.drain("all")
    messages.check(refused.value)
    assert shown() == []


def test_what_is_not_asked_for_stays(here: Lab) -> None:
    devices.change(DeviceChange(most_per_card=2))
    devices.change(DeviceChange(foreign="avoid"))
    found = devices.show()
    assert (found.most_per_card, found.foreign) == (2, "avoid")
    devices.change(DeviceChange(most_per_card="any"))
    found = devices.show()
    assert (found.most_per_card, found.foreign) == (None, "avoid")


def test_as_it_was_at_first_nothing_is_set(here: Lab) -> None:
    devices.drain("0")
    devices.drain("0", off=True)
    with lab.open_queue() as store:
        assert store.settings() == {}


def test_a_missing_queue_is_reported(here: Lab, messages: Messages) -> None:
    here.queue(FOREVER)
    for file in here.state.glob("lab.db*"):
        file.unlink()
    with pytest.raises(Refused) as refused:
        devices.show()
    assert "roost lab rebuild" in str(refused.value)
    assert refused.value.where == here.state / "lab.db"
    messages.check(refused.value)


def test_a_card_that_is_gone_can_be_let_go(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    devices.drain("2")
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x24GB")
    devices.drain("all", off=True)
    monkeypatch.setenv("ROOST_DEVICES", "sim:3x24GB")
    assert drained() == []


def test_two_who_drain_different_cards_at_once_both_have_it(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "sim:8x24GB")
    assert at_once(8, lambda number: devices.drain(str(number))) == [0] * 8
    assert drained() == list(range(8))


def test_a_folder_that_others_may_look_into_is_refused(here: Lab) -> None:
    devices.drain("0")
    here.state.chmod(0o755)
    for what in (shown, lambda: devices.drain("1")):
        with pytest.raises(RoostError) as refused:
            what()
        assert all(fact in str(refused.value) for fact in ("755", "700", f"chmod 700 {here.state}"))
        assert refused.value.where == here.state
    here.state.chmod(0o700)
    assert drained() == [0]


def test_for_a_time_only_what_ends_before_begins(here: Lab) -> None:
    now = time.time()
    devices.drain("all", window=(now + 3600, now + 7200))
    devices.drain("all", window=(now + 3600, now + 7200))
    assert [len(card.windows) for card in shown()] == [1, 1, 1] and drained() == []
    waits = here.submit(FOREVER, need=ResourceRequest(cards=1, memory_mb=1000))
    short = here.submit(FOREVER, need=ResourceRequest(cards=1, memory_mb=1000, time_limit=60.0))
    here.wait_for(short, RUNNING)
    wait_for(lambda: here.one(waits).reason.startswith("reserved: GPU 0 "))
    devices.drain("1", off=True)
    assert here.wait_for(waits, RUNNING).cards == ("SIM-1",)
    assert [len(card.windows) for card in shown()] == [1, 0, 1]
    devices.drain("all", off=True)
    with lab.open_queue() as store:
        assert store.settings() == {}


def test_a_time_that_is_over_is_forgotten(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    devices.drain("0", window=(now, now + 60))
    assert len(shown()[0].windows) == 1
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert shown()[0].windows == []
    devices.drain("1")
    with lab.open_queue() as store:
        assert store.settings() == {"rules": {"drained": ["SIM-1"]}}


def test_what_stays_free_of_each_card(here: Lab, messages: Messages) -> None:
    assert devices.show().keep_free_mb == 512
    devices.change(DeviceChange(keep_free_mb=4000))
    with pytest.raises(UsageError) as refused:
        devices.change(DeviceChange(keep_free_mb=30_000, most_per_card=1))
    assert refused.value.setting == "--keep-free"
    assert "24.0 GB" in str(refused.value)
    messages.check(refused.value)
    assert (devices.show().keep_free_mb, devices.show().most_per_card) == (4000, None)
    with pytest.raises(RoostError) as refused:
        require_satisfiable([ResourceRequest(cards=1, memory_mb=21_000)])
    assert all(fact in str(refused.value) for fact in ("20.5 GB", "20.1 GB", "24.0 GB"))
    messages.check(refused.value)
