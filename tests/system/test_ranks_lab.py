"""Several ranks of the real program, and what its supervisor does when one of them ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
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

from roost.package.checkpoints.checkpoint import ids
from roost.package.package import PackageFolder
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
def started(home: Path, *arguments: object, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A command that works in this folder, with more in its environment; where the test fails it ends, with
    all that it has started."""
    command, pipes = [*ROOST, *map(str, arguments)], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    place: dict[str, Any] = {"cwd": home, "env": {**os.environ, **more}}
    with subprocess.Popen(command, **place, **pipes, text=True, start_new_session=True) as process:
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
        wait_for(lambda: has_come(package, time.monotonic()))
        os.kill(record(package, "1")["ranks"][1]["pid"], signal.SIGKILL)
        shown, _ = run.communicate(timeout=90)
    assert run.returncode == 0, shown
    assert exact.fingerprint(package) == whole
    first = record(package, "1")
    assert first["error"].startswith("rank 1 ") and "SIGKILL" in first["error"]
    assert (first["ranks"][0]["reason"], first["restarted_as"]) == ("peer", 2)
    assert shown.count(first["error"]) == 1
    assert len(re.findall(r"session 1 crashed.*session 2 .*\b1 of 1\b", shown)) == 1
    assert "from step" in shown
    assert living_in(tmp_path) == []


@contextlib.contextmanager
def two_machines(config: Path, **of_the_second: str) -> Iterator[tuple[Path, list[subprocess.Popen[str]]]]:
    """A run of two supervisors with a torchrun each, here on one machine, once it has saved; its package, and
    the commands that have started it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{found.getsockname()[1]}"
    home, package = config.parent, config.parent / "runs" / "one"
    nodes = ["--devices", "1", "--num-nodes", "2", "--rendezvous", meeting]
    with started(home, "run", config, "-CPU", "-DDP", *nodes, "--name", "one") as first:
        wait_for((package / "sessions" / "1.json").exists)
        with started(home, "join", package, **of_the_second) as second:
            wait_for(lambda: has_saved(package, 1))
            yield package, [first, second]


@pytest.mark.soak
def test_a_rank_killed_on_another_machine_ends_both(endless: Path) -> None:
    deadline = str(int(time.time()) + 3600)
    with two_machines(endless, ROOST_DEADLINE=deadline) as (package, machines):
        assert roost("join", package).returncode == 5, "all have come"
        os.kill(pid_of_rank(package, 1), signal.SIGKILL)
        shown, joined = (one.communicate(timeout=100)[0] for one in machines)
    assert [one.returncode for one in machines] == [1, 1], shown + joined
    assert shown.count(f"roost join {package}") == 1 and "roost join" not in joined
    ends = re.compile(r"^ends\b.*\(in ", re.MULTILINE)
    assert "ROOST_DEADLINE" in joined and ends.search(joined), "of that machine alone"
    assert not ends.search(shown)
    for name, printed in (("1", shown), ("1.node-1", joined)):
        end = record(package, name)
        assert end["state"] == "crashed"
        assert end["error"].startswith("rank 1 ") and "SIGKILL" in end["error"]
        assert printed.count(end["error"]) == 1
        assert "Traceback" not in printed, "neither torchrun's"
    assert living_in(endless.parent) == []


def test_a_stop_is_saved_and_ends_both_machines(endless: Path) -> None:
    """Their ranks are asked by themselves: torchrun would end them before they have saved."""
    with two_machines(endless) as (package, machines):
        assert roost("stop", package).returncode == 0
        printed = [one.communicate(timeout=100)[0] for one in machines]
    assert [one.returncode for one in machines] == [75, 75], printed
    assert [record(package, name)["state"] for name in ("1", "1.node-1")] == ["stopped", "stopped"]
    newest = PackageFolder.open(package).store().lineage()[-1]
    assert newest.reason == "signal" and re.search(rf" step {newest.step}$", printed[0], re.MULTILINE)
    assert not any("Traceback" in text for text in printed)
    assert living_in(endless.parent) == []
