"""A worker with a folder of its own below where its result goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.operations.sessions.package_worker import select_checkpoints, worker_on_package
from roost.operations.sessions.running_session import follow
from roost.package import sessions
from roost.package.sessions import Session
from tests.messages import Messages
from tests.operations.packages import package
from tests.waiting import wait_for

ASKED = {
    "kind": "export",
    "chosen": {"kind": "last"},
    "averaged": None,
    "prefix": "nothing.",
    "overwrite": False,
}


def test_its_folder_is_hidden_and_goes_with_the_block(tmp_path: Path) -> None:
    made, parent = package(tmp_path / "runs"), tmp_path / "out"
    parent.mkdir()
    asked = {**ASKED, "output": str(parent / "net.pt")}
    with worker_on_package(made, parent, asked, None, fix="elsewhere") as (running, worker):
        (place,) = parent.iterdir()
        assert place.name.startswith(".roost-unfinished-")
        assert (sessions.load_json(place / analysis_folder.REQUEST) or {})["pid"] == os.getpid()
        *_, ended = follow(running)
        assert isinstance(ended, Session) and ended.state == "failed"
        assert worker.wait(100) == ended.record["exit_code"]  # type: ignore[index]
    assert list(parent.iterdir()) == []


def test_what_still_runs_ends_with_the_block(tmp_path: Path) -> None:
    made, parent = package(tmp_path / "runs"), tmp_path / "out"
    parent.mkdir()
    left = parent / ".roost-unfinished-left"  # of a program that was killed
    left.mkdir()
    (left / "weights").write_text("half")
    asked = {**ASKED, "output": str(parent / "net.pt")}
    with worker_on_package(made, parent, asked, None, fix="elsewhere") as (running, _):
        wait_for(lambda: running.session().state != "starting")
        record = running.session().record
        assert not left.exists()
    assert record is not None and list(parent.iterdir()) == []
    assert not process_identity.is_alive(int(record["pid"]), record["start_ticks"], record["boot_id"])


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    block = worker_on_package(made, Path("/proc/self"), ASKED, None, fix="name another")
    with pytest.raises(Refused) as refused, block:
        raise AssertionError("it began")
    assert refused.value.where == Path("/proc/self") and refused.value.fix == "name another"


def test_which_weights(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    (made.checkpoints / "state_9.ckpt").write_bytes(b"\x80\x02x")
    asked, notes = select_checkpoints(made, "best")
    assert asked["kind"] == "best" and asked["rule"]["monitor"] == "valid/loss"
    (note,) = notes
    assert note.startswith("state_9.ckpt ")
    messages.check(note)
