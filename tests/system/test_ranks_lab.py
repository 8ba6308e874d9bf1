"""Several ranks of the real program, and what its supervisor does when one of them ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exact
import pytest

from roost.package.checkpoint import ids
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.processes import kill_all_in, living_in
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of a run that ends when it is asked to."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return project(tmp_path / "p", max_epochs="1000000", validate_every="10")


@contextlib.contextmanager
def started(home: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A command that works in this folder; where the test fails it ends, with all that it has started."""
    command, pipes = [*ROOST, *map(str, arguments)], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=home, **pipes, text=True, start_new_session=True) as process:
        try:
            yield process
        except BaseException:
            kill_all_in(home)
            raise


def record(package: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((package / "sessions" / f"{name}.json").read_bytes()))


def has_saved(package: Path, session: int) -> bool:
    return (package / "records" / f"{session}.jsonl").exists() and bool(ids(package / "Checkpoints"))


def pid_of_rank(package: Path, rank: int) -> int:
    """That of a rank which a launcher has started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_here = entry.joinpath("cwd").readlink() == package
            if is_here and f"RANK={rank}".encode() in entry.joinpath("environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"there is no rank {rank}")


def test_a_killed_rank_ends_all_and_the_next_session_goes_on_exactly(tmp_path: Path) -> None:
    """It begins by itself."""
    settings = ["max_epochs=3", "pause=0.02"]
    whole, package = exact.uninterrupted(tmp_path, settings), tmp_path / "one"
    asked = ["-CPU", "-DDP", "--devices", "2", "--restart", "1", "--name", "one", f"save_root={tmp_path}"]
    with started(tmp_path, "run", exact.PROJECT / "config.yaml", *asked, *settings) as run:
        has_come = exact.at_phase("training", 8)
        wait_for(lambda: has_come(package, time.monotonic()), 60)
        os.kill(record(package, "1")["ranks"][1]["pid"], signal.SIGKILL)
        shown, _ = run.communicate(timeout=90)
    assert run.returncode == 0, shown
    assert exact.fingerprint(package) == whole
    first = record(package, "1")
    assert first["error"].startswith("rank 1 was killed by SIGKILL")
    assert (first["ranks"][0]["reason"], first["restarted_as"]) == ("peer", 2)
    assert shown.count("rank 1 was killed by SIGKILL") == 1
    assert shown.count("session 1 crashed; session 2 begins in 1 s (restart 1 of 1)") == 1
    assert "going on from step" in shown
    assert living_in(tmp_path) == []


def test_a_rank_killed_on_another_machine_ends_both(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here two supervisors with a torchrun each on one machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{found.getsockname()[1]}"
    package = endless.parent / "runs" / "one"
    nodes = ["--devices", "1", "--num-nodes", "2", "--rendezvous", meeting]
    with started(endless.parent, "run", endless, "-CPU", "-DDP", *nodes, "--name", "one") as first:
        wait_for((package / "sessions" / "1.json").exists, 60)
        monkeypatch.setenv("ROOST_DEADLINE", str(int(time.time()) + 3600))
        with started(endless.parent, "join", package) as second:
            wait_for(lambda: has_saved(package, 1), 60)
            assert roost("join", package).returncode == 5, "all have come"
            os.kill(pid_of_rank(package, 1), signal.SIGKILL)
            shown, joined = (one.communicate(timeout=60)[0] for one in (first, second))
    assert (first.returncode, second.returncode) == (1, 1), shown + joined
    assert f"roost join {package}" in shown
    assert "its time limit is from ROOST_DEADLINE" in joined and "ends by" in joined, "of that machine alone"
    assert "ends by" not in shown
    for name, told in (("1", shown), ("1.node-1", joined)):
        end = record(package, name)
        assert end["state"] == "crashed"
        assert end["error"].startswith("rank 1 was killed by SIGKILL")
        assert told.count("rank 1 was killed by SIGKILL") == 1
        assert "Traceback" not in told, "neither torchrun's"
    assert living_in(endless.parent) == []
