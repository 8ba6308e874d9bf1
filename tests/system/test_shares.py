"""Daemons of several queues, which share nothing but the folder of the leases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.devices import demand, inventory
from roost.devices import lease as leases
from roost.devices.lease import LeaseHolder
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.task import SUCCEEDED
from tests.lab.labs import Lab, record_of
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


@contextmanager
def all_cards_held(lab: Lab) -> Iterator[None]:
    """Until every queue has published its demand."""
    with lab.here():
        lease = leases.take(inventory.read_cards(), None, LeaseHolder.this_process())
    try:
        yield
    finally:
        lease.close()


def wait_for_wants(lab: Lab, *counts: int) -> None:
    with lab.here():
        wait_for(lambda: sorted(len(post.record.wants) for post in demand.read_demands()) == sorted(counts))


def in_order_of_starts(*labs: Lab) -> str:
    tasks = [(record_of(task)["started"], lab.folder.name) for lab in labs for task in lab.wait_for_all()]
    return "".join(name[0] for _, name in sorted(tasks))


def test_two_queues_of_one_user_take_turns_by_age(tmp_path: Path) -> None:
    labs = [Lab(tmp_path / name, "sim:1x24GB", leases=tmp_path / "leases") for name in ("a", "b")]
    try:
        with all_cards_held(labs[0]):
            for _ in range(3):
                for lab in labs:
                    lab.queue("exit 0", need=ResourceRequest(cards=1))
            for lab in labs:
                lab.start()
            wait_for_wants(labs[0], 3, 3)
        assert in_order_of_starts(*labs) == "ababab"
        assert {task.state for lab in labs for task in lab.tasks()} == {SUCCEEDED}
        wait_for_wants(labs[0])
    finally:
        for lab in labs:
            lab.close()


def test_a_daemon_that_is_killed_wants_nothing(tmp_path: Path) -> None:
    labs = [Lab(tmp_path / name, "sim:1x24GB", leases=tmp_path / "leases") for name in ("a", "b")]
    first, second = labs
    try:
        with all_cards_held(first):
            for lab in labs:
                lab.queue("exit 0", need=ResourceRequest(cards=1))
                lab.start()
            wait_for_wants(first, 1, 1)
            first.kill_daemon()
        assert {task.state for task in second.wait_for_all()} == {SUCCEEDED}
        assert {task.state for task in first.tasks()} == {"pending"}
    finally:
        for lab in labs:
            lab.close()
