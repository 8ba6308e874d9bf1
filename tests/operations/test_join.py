"""Taking part where nobody waits for it; where somebody does, in tests/system/test_ranks_lab.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roost.base import process
from roost.base.errors import Refused
from roost.operations.join import join
from tests.operations.packages import package


def test_nothing_to_take_part_in(tmp_path: Path) -> None:
    here: dict[str, Any] = {"pid": os.getpid(), "start_ticks": process.start_ticks(os.getpid())}
    for made in (
        package(tmp_path, "ended"),
        package(tmp_path, "one", state="running", **here),
    ):
        with pytest.raises(Refused, match="no session of several machines runs in this package"):
            join(made.path)
        assert not list((made.path / "sessions").glob("*.node-*"))


def test_a_machine_whose_time_is_over_takes_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here: dict[str, Any] = {"pid": os.getpid(), "start_ticks": process.start_ticks(os.getpid())}
    made = package(tmp_path, state="running", **here)
    file = made.path / "sessions" / "1.request.json"
    nodes = {"num_nodes": 2, "ranks": 1, "rendezvous": "127.0.0.1:29500", "devices": 1, "strategy": "ddp"}
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **nodes, "device": "cpu"}))
    monkeypatch.setenv("ROOST_DEADLINE", "1000000000")
    with pytest.raises(Refused, match="ROOST_DEADLINE: the session would have to end before it begins"):
        join(made.path)
    assert not list((made.path / "sessions").glob("*.node-*"))
