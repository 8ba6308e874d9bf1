"""Several ranks of the real program, and what its supervisor does when one of them ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from roost.package.checkpoint import ids
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of a run that ends when it is asked to."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return project(tmp_path / "p", max_epochs="1000000", validate_every="10")


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ROOST, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def record(package: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((package / "sessions" / f"{name}.json").read_bytes()))


def has_saved(package: Path, session: int) -> bool:
    return (package / "records" / f"{session}.jsonl").exists() and bool(ids(package / "Checkpoints"))


def living(package: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.joinpath("cwd").readlink() == package:
                found.append(entry.joinpath("cmdline").read_text())
        except OSError:
            continue
    return found


def test_a_killed_rank_ends_all_and_the_next_session_begins_by_itself(endless: Path) -> None:
    package = endless.parent / "runs" / "one"
    with start("run", endless, "-CPU", "-DDP", "--devices", "2", "--restart", "1", "--name", "one") as run:
        wait_for(lambda: has_saved(package, 1), 60)
        pid = record(package, "1")["ranks"][1]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: (package / "records" / "2.jsonl").exists(), 60)
        assert roost("stop", package).returncode == 0
        shown, _ = run.communicate(timeout=60)
    assert run.returncode == 75, shown
    first = record(package, "1")
    assert first["error"].startswith("rank 1 was killed by SIGKILL")
    assert (first["ranks"][0]["reason"], first["restarted_as"]) == ("peer", 2)
    assert shown.count("rank 1 was killed by SIGKILL") == 1
    assert shown.count("session 1 crashed; session 2 begins in 1 s (restart 1 of 1)") == 1
    assert "going on from step" in shown
    assert living(package) == []


def test_two_machines_stop_together(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here two supervisors with a torchrun each on one machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{found.getsockname()[1]}"
    package = endless.parent / "runs" / "one"
    nodes = ["--devices", "1", "--num-nodes", "2", "--rendezvous", meeting]
    with start("run", endless, "-CPU", "-DDP", *nodes, "--name", "one") as first:
        wait_for((package / "sessions" / "1.json").exists, 60)
        monkeypatch.setenv("ROOST_DEADLINE", str(int(time.time()) + 3600))
        with start("join", package) as second:
            wait_for(lambda: has_saved(package, 1), 60)
            assert roost("join", package).returncode == 5, "all have come"
            assert roost("stop", package).returncode == 0
            shown, joined = (one.communicate(timeout=60)[0] for one in (first, second))
    assert (first.returncode, second.returncode) == (75, 75), shown + joined
    assert f"roost join {package}" in shown
    assert "its time limit is from ROOST_DEADLINE" in joined and "ends by" in joined, "of that machine alone"
    assert "ends by" not in shown
    assert (record(package, "1")["state"], record(package, "1.node-1")["state"]) == ("stopped", "stopped")
    assert living(package) == []
