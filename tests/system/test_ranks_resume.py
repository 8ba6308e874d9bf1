"""Ranks that are killed, together or one alone, go on exactly: by each strategy, however they save."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import exact
import pytest

from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import StartedSession
from roost.package.package import PackageFolder

ONE_RANK = ["weighted kill 0 1 ddp at-once"]
CASES = [
    "cnn kill 2 3 ddp behind",
    "skip rank 0 2 ddp at-once",
    "averages stop 0 3 fsdp at-once",
    "rollback stop-one 2 2 fsdp behind",
]
"""See exact_cases.py. Every pair of a number of ranks, a strategy and a way to save is in one of them, and
every end; `make soak` runs every kind with each."""


def test_the_cases_hold_every_pair_and_every_end() -> None:
    split = [case.split() for case in CASES]
    for a, b in itertools.combinations((3, 4, 5), 2):
        assert len({(case[a], case[b]) for case in split}) == 4
    assert {case[1] for case in split} == {"kill", "rank", "stop", "stop-one"}


@pytest.mark.timeout(300)
def test_each_case_goes_on_exactly() -> None:
    cases = [*ONE_RANK, *CASES]
    script = Path(__file__).with_name("exact_cases.py")
    lines = "".join(f"{case}\n" for case in cases)
    answers = subprocess.run([sys.executable, str(script)], input=lines, stdout=subprocess.PIPE, text=True)
    assert dict(zip(cases, answers.stdout.splitlines(), strict=True)) == dict.fromkeys(cases, "same")


# --- under a supervisor -----------------------------------------------------------------------------------

_SETTINGS = ["max_epochs=3"]


def kill_supervisor(started: StartedSession) -> None:
    """SIGKILL to the supervisor alone: its guard ends the ranks."""
    rank, *_ = exact.ranks_of(started)
    stat = Path(f"/proc/{rank}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    assert exact.wait(started) != 0


def kill_one_rank(started: StartedSession) -> None:
    """SIGKILL to one rank alone: the supervisor ends the other, and says which it was."""
    os.kill(exact.ranks_of(started)[1], signal.SIGKILL)
    assert exact.wait(started) != 0
    assert re.search(r"rank 1 .*SIGKILL", PackageFolder.open(started.package).output.read_text())


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_real_program_goes_on_exactly(tmp_path: Path) -> None:
    """One rank is killed, then the supervisor, then all."""
    whole = exact.uninterrupted(tmp_path, _SETTINGS)
    started = exact.start(tmp_path, _SETTINGS, ranks=RankRequest(devices=2, strategy="ddp"))
    assert exact.kill_when(started, exact.at_phase("training", 8), kill_one_rank)
    assert PackageFolder.open(started.package).state == "crashed"
    started = exact.go_on(started.package, [])
    assert exact.kill_when(started, exact.at_phase("training", 14), kill_supervisor)
    started = exact.go_on(started.package, [])
    assert exact.kill_when(started, exact.at_phase("training", 21))
    started = exact.go_on(started.package, [])
    assert exact.wait(started) == 0
    assert exact.fingerprint(started.package) == whole
