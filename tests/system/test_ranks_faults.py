"""Real failures in one of several ranks: the run ends, reports the first cause once, leaves nothing behind,
and can be continued."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.supervisor import rendezvous
from tests.processes import kill_all_in, living_in
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

PROJECT = Path(__file__).parent / "ranks_project"
BOUND_SECONDS = 60.0
"""After an error or a death."""
ROOST = [sys.executable, "-m", "roost.cli"]


@pytest.fixture(autouse=True)
def ends(tmp_path: Path) -> Iterator[None]:
    """A test that failed leaves no run to the others."""
    yield
    kill_all_in(tmp_path)


class Run(NamedTuple):
    """A run in a folder of its own, started from there as a person does."""

    home: Path
    process: subprocess.Popen[str]

    @property
    def package(self) -> Path:
        return self.home / "runs" / "faulty"

    def end(self) -> Ended:
        """Waits for the command."""
        terminal, _ = self.process.communicate(timeout=120)
        ended = time.time()
        begun = float((self.package / "fault").read_text()) if (self.package / "fault").exists() else ended
        record = json.loads((self.package / "sessions" / "1.json").read_bytes())
        return Ended(self.process.returncode, terminal, record, ended - begun, self.package)


class Ended(NamedTuple):
    """What came of it."""

    code: int
    terminal: str
    record: dict[str, Any]
    seconds: float
    """From the fault to the end of the command."""
    package: Path

    def output(self, rank: int = 0) -> str:
        return (self.package / ("_output.txt" if rank == 0 else f"_output_{rank}.txt")).read_text()

    def causes(self) -> list[str]:
        """What the supervisor says in the output of rank 0."""
        return [line for line in self.output().splitlines() if line.startswith("roost: ")]


def start(
    home: Path, world: int, where: str, what: str, *, rank: int = 1, at: int = 7, **settings: Any
) -> Run:
    """Starts a run in which this happens once."""
    shutil.copytree(PROJECT, home, dirs_exist_ok=True)
    asked = {"fault": f"{{where: {where}, what: {what}, rank: {rank}, at: {at}}}", **settings}
    command = [*ROOST, "run", "config.yaml", "-CPU", "-DDP", "--devices", str(world), "--name", "faulty"]
    overrides = [f"{key}={value}" for key, value in asked.items()]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return Run(home, subprocess.Popen([*command, *overrides], cwd=home, start_new_session=True, **pipes))


def token_of(package: Path) -> str:
    return str(json.loads((package / "sessions" / "1.request.json").read_bytes())["token"])


def assert_nothing_left(package: Path) -> None:
    assert living_in(package) == [] and not Path(rendezvous.rendezvous_folder(token_of(package))).exists()


def assert_goes_on(ended: Ended) -> None:
    """From the newest checkpoint, to the end."""
    command = [*ROOST, "continue", str(ended.package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    package = PackageFolder.open(ended.package)
    assert package.state == "succeeded" and package.store().lineage()[-1].step == 24


def assert_reported_once(ended: Ended, words: str) -> None:
    """On the terminal and in the output; rank 0, which only lost the other one, names no cause of its own."""
    assert ended.record["error"].startswith(words)
    assert ended.causes() == [f"roost: {ended.record['error']}"]
    assert ended.terminal.count(ended.record["error"]) == 1 and "gloo" not in ended.terminal


def test_a_rank_raises(tmp_path: Path) -> None:
    ended = start(tmp_path, 3, "backward", "raises").end()
    assert (ended.code, ended.record["state"]) == (1, "failed") and ended.seconds < BOUND_SECONDS
    assert_reported_once(ended, "rank 1 ")
    error = ended.record["error"]
    assert "ValueError: the fault of rank 1" in error and "_output_1.txt" in error
    assert "raise ValueError(f" in ended.output(1) and "Traceback" not in ended.output() + ended.output(2)
    assert [rank.get("reason", "peer") for rank in ended.record["ranks"]] == ["peer", "exception", "peer"]
    kept = [path.name for path in ended.package.glob("sessions/*traceback*")]
    assert kept == ["1.rank-1.traceback.txt"], "what another rank keeps is not overwritten"
    assert_nothing_left(ended.package)


def test_a_rank_is_killed_while_it_writes_its_part_of_a_checkpoint(tmp_path: Path) -> None:
    ended = start(tmp_path, 2, "written", "is killed").end()
    assert (ended.code, ended.record["state"]) == (1, "crashed") and ended.seconds < BOUND_SECONDS
    assert_reported_once(ended, "rank 1 ")
    assert "SIGKILL" in ended.record["error"]
    assert not list(ended.package.glob("Checkpoints/state_*")), "it was the first one"
    assert_nothing_left(ended.package)


def test_all_stop_at_one_step_when_one_is_asked_to(tmp_path: Path) -> None:
    ended = start(tmp_path, 2, "loss", "is stopped").end()
    assert (ended.code, ended.record["state"]) == (75, "stopped") and ended.seconds < BOUND_SECONDS
    newest = PackageFolder.open(ended.package).store().lineage()[-1]
    assert newest.reason == "signal" and newest.ranks == 2 and newest.step < 24
    assert ended.causes() == []
    assert_nothing_left(ended.package)


@pytest.mark.soak
def test_a_rank_that_is_silent_is_named(tmp_path: Path) -> None:
    ended = start(tmp_path, 2, "loss", "is paused", rank_timeout="3s").end()
    assert (ended.code, ended.record["reason"]) == (1, "peer") and ended.seconds < BOUND_SECONDS + 3
    assert_reported_once(ended, "rank 1 ")
    assert "3s (rank_timeout)" in ended.record["error"]
    assert_nothing_left(ended.package)


@pytest.mark.soak
def test_a_rank_that_does_not_do_what_the_others_do_is_reported(tmp_path: Path) -> None:
    ended = start(tmp_path, 2, "save alone", "raises").end()
    assert (ended.code, ended.record["state"], ended.record["reason"]) == (1, "failed", "error")
    assert_reported_once(ended, "rank 1 ")
    assert re.search(r"rank 0 .*step 8, rank 1 .*save", ended.record["error"])
    assert "project.py:" in ended.output(1) and 'trainer.save("requested")' in ended.output(1)
    assert_nothing_left(ended.package)


@pytest.mark.soak
def test_ranks_that_wait_for_different_things_are_reported_with_the_place(tmp_path: Path) -> None:
    ended = start(tmp_path, 2, "hook", "waits", rank_timeout="3s").end()
    assert (ended.code, ended.record["reason"]) == (1, "error") and ended.seconds < BOUND_SECONDS + 3
    assert re.search(r"3s \(rank_timeout\).*rank 0 .*, rank 1 .*faults\.py:", ended.record["error"])
    assert_nothing_left(ended.package)


@pytest.mark.soak
def test_the_supervisor_is_killed(tmp_path: Path) -> None:
    run = start(tmp_path, 2, "hook", "waits", rank=0)
    wait_for((run.package / "fault").exists)
    os.kill(json.loads((run.package / "sessions" / "1.json").read_bytes())["pid"], signal.SIGKILL)
    ended = run.end()
    assert ended.code == 1 and re.search("supervisor .*SIGKILL", ended.record["error"])
    assert_nothing_left(ended.package)


# --- the same everywhere -----------------------------------------------------------------------------------


PLACES: dict[str, dict[str, int]] = {
    "prepare": {"rank": 0}, "data": {}, "model": {}, "start": {"at": 0}, "read": {"at": 9}, "collate": {},
    "read of valid": {"at": 4}, "loss": {}, "optimizer": {}, "hook": {}, "evaluate": {"at": 8},
    "summarize": {"at": 8}, "save": {"at": 8}, "written": {},
}  # fmt: skip
ENDS = {"raises": "failed", "exits": "failed", "leaves": "crashed", "is killed": "crashed"}


@pytest.mark.soak
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("where", PLACES)
def test_wherever_it_happens(tmp_path: Path, where: str, what: str, world: int) -> None:
    options: dict[str, Any] = PLACES[where]
    ended = start(tmp_path, world, where, what, **options).end()
    failing = options.get("rank", 1)
    assert ended.record["state"] == ENDS[what] and ended.seconds < BOUND_SECONDS
    assert ended.code == (3 if what in ("exits", "leaves") and where != "written" else ended.code) != 0
    assert "rank_timeout" not in ended.record["error"] and ended.record["reason"] != "peer"
    if failing == 1 and where != "written":  # the error of a writer is reported by all ranks
        assert_reported_once(ended, "rank 1 ")
    assert_nothing_left(ended.package)
    assert_goes_on(ended)


@pytest.mark.soak
@pytest.mark.parametrize("what", ["raises", "exits", "leaves", "is killed"])
def test_in_a_loader_worker(tmp_path: Path, what: str) -> None:
    settings = {"data": "{batch_size: 6, num_workers: 2, valid: {batch_size: 4}}"}
    ended = start(tmp_path, 2, "read", what, at=4, **settings).end()
    assert ended.code != 0 and ended.seconds < BOUND_SECONDS
    assert_reported_once(ended, "rank 1 ")
    assert_nothing_left(ended.package)
    assert_goes_on(ended)


@pytest.mark.soak
@pytest.mark.parametrize("where", ["collate", "hook", "evaluate", "summarize", "save", "written"])
def test_asked_to_stop_wherever_it_is(tmp_path: Path, where: str) -> None:
    options: dict[str, Any] = PLACES[where]
    ended = start(tmp_path, 2, where, "is stopped", **options).end()
    assert (ended.code, ended.record["state"]) == (75, "stopped") and ended.seconds < BOUND_SECONDS
    assert_nothing_left(ended.package)
    assert_goes_on(ended)


@pytest.mark.soak
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("where", ["loss", "evaluate", "summarize", "save"])
def test_silent_wherever_it_is(tmp_path: Path, where: str, rank: int) -> None:
    options: dict[str, Any] = {**PLACES[where], "rank": rank}
    ended = start(tmp_path, 3, where, "is paused", rank_timeout="3s", **options).end()
    assert ended.code == 1 and ended.seconds < BOUND_SECONDS + 3
    assert f"rank {rank} " in ended.record["error"] and "rank_timeout" in ended.record["error"]
    assert_nothing_left(ended.package)
    assert_goes_on(ended)


@pytest.mark.soak
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_has_no_disk(tmp_path: Path, rank: int) -> None:
    """The others hear of each save that it cannot make; the last one fails the run."""
    ended = start(tmp_path, 2, "save", "has no disk", rank=rank, at=8).end()
    assert ended.code == 1 and "checkpoint" in ended.record["error"]
    assert [info.step for info in PackageFolder.open(ended.package).store().lineage()] == [4]
    assert_nothing_left(ended.package)
    assert_goes_on(ended)


@pytest.mark.soak
def test_ctrl_c_twice(tmp_path: Path) -> None:
    run = start(tmp_path, 2, "hook", "waits")
    wait_for((run.package / "fault").exists)
    run.process.send_signal(signal.SIGINT)
    wait_for(lambda: json.loads((run.package / "sessions" / "1.json").read_bytes()).get("pid"))
    time.sleep(1)  # a person's second one
    run.process.send_signal(signal.SIGINT)
    ended = run.end()
    assert (ended.code, ended.record["reason"]) == (130, "killed")
    assert_nothing_left(ended.package)
    assert_goes_on(ended)


@pytest.mark.soak
def test_the_guard_is_killed(tmp_path: Path) -> None:
    """The run goes on without."""
    run = start(tmp_path, 2, "nowhere", "raises", max_steps=3000)
    wait_for(lambda: (seen := live_progress.read(run.package / "progress")) is not None and seen.step > 1)
    os.kill(json.loads((run.package / "sessions" / "1.json").read_bytes())["guard_pid"], signal.SIGKILL)
    ended = run.end()
    assert (ended.code, ended.record["state"]) == (0, "succeeded") and "guard_lost" in ended.record
    assert_nothing_left(ended.package)
