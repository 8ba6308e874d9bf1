"""Joining a session that does not wait for it; one that does, in tests/system/test_ranks_lab.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import Refused, RoostError
from roost.base.system import process_identity
from roost.operations.lifecycle.join import join
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.operations.packages import package


def test_nothing_to_take_part_in(tmp_path: Path, messages: Messages) -> None:
    here: dict[str, Any] = {"pid": os.getpid(), "start_ticks": process_identity.start_ticks(os.getpid())}
    for made in (
        package(tmp_path, "ended"),
        package(tmp_path, "one", state="running", **here),
    ):
        with pytest.raises(Refused) as refused:
            join(made.path)
        assert "--num-nodes 2 --rendezvous HOST:PORT" in str(refused.value)
        assert refused.value.where == made.path
        messages.check(refused.value)
        assert not list((made.path / "sessions").glob("*.node-*"))


def awaiting(folder: Path) -> PackageFolder:
    """One whose session waits for a second machine."""
    made = package(
        folder, state="running", pid=os.getpid(), start_ticks=process_identity.start_ticks(os.getpid())
    )
    file = made.path / "sessions" / "1.request.json"
    nodes: dict[str, Any] = {
        "num_nodes": 2,
        "ranks": 1,
        "rendezvous": "127.0.0.1:29500",
        "devices": 1,
        "strategy": "ddp",
    }
    nodes["token"] = "f" * 32
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **nodes, "device": "cpu"}))
    made.lock()  # until this process ends, as the supervisor of the first machine does
    return made


def test_who_fails_before_it_takes_part_leaves_its_place(tmp_path: Path, messages: Messages) -> None:
    """Here two cannot print, each for itself; one was killed; the fourth is on its way."""
    made = awaiting(tmp_path)
    folder = made.path / "sessions"
    for node in (1, 2):
        (made.path / f"_output_node_{node}.txt").mkdir()
        with pytest.raises(RoostError, match="IsADirectoryError"):
            join(made.path)
        assert json.loads((folder / f"1.node-{node}.json").read_bytes())["state"] == "failed"
    here = {"host": os.uname().nodename, "boot_id": process_identity.boot_id(), "pid": os.getpid()}
    for node, ticks in ((3, -1), (4, process_identity.start_ticks(os.getpid()))):
        fields = {**here, "state": "running", "start_ticks": ticks}
        (folder / f"1.node-{node}.json").write_text(json.dumps(fields))
    with pytest.raises(Refused) as refused:
        join(made.path)
    assert all(fact in str(refused.value) for fact in ("2 ", "session 1", "--num-nodes"))
    assert refused.value.where == made.path
    messages.check(refused.value)
    assert not (folder / "1.node-5.json").exists()


def test_a_machine_whose_time_is_over_takes_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = awaiting(tmp_path)
    monkeypatch.setenv("ROOST_DEADLINE", "1000000000")
    with pytest.raises(Refused) as refused:
        join(made.path)
    assert refused.value.setting == "ROOST_DEADLINE"
    assert not list((made.path / "sessions").glob("*.node-*"))
