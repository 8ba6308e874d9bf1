"""A project of DLNest by the real program: killed and stopped, it ends with the same bits."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

import exact
import soak_dlnest

from roost.base.errors import STOPPED_EXIT_CODE
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import StartedSession
from roost.package.package import PackageFolder
from tests.project.dlnest import loops

CONFIG = loops.PROJECT / "root_config.json"


def start(root: Path, *overrides: str, ranks: int | None = None) -> StartedSession:
    """A new run of the project."""
    return run(
        RunRequest(
            config=CONFIG,
            overrides=[f"save_root={root}", "step_seconds=0.01", "roost.checkpoint.every=5", *overrides],
            device="cpu",
            ranks=RankRequest(devices=ranks) if ranks else RankRequest(),
        )
    )


def terminate(started: StartedSession) -> None:
    """SIGTERM to the supervisor, as `roost stop` sends it."""
    assert started.process is not None
    os.kill(started.process.pid, signal.SIGTERM)


def test_killed_and_stopped_it_goes_on_exactly(tmp_path: Path) -> None:
    started = start(tmp_path / "cut", "num_workers=2")
    assert exact.kill_when(started, exact.at_phase("training", 7))
    started = exact.go_on(started.package, [])
    assert exact.kill_when(started, exact.at_phase("validating", 15))
    started = exact.go_on(started.package, [])
    assert exact.kill_when(started, exact.at_phase("validating", 30), kill=terminate)
    assert exact.wait(started) == STOPPED_EXIT_CODE
    started = exact.go_on(started.package, [])
    assert exact.wait(started) == 0
    whole = start(tmp_path / "whole", "num_workers=2")
    assert exact.wait(whole) == 0
    cut, expected = PackageFolder.open(started.package), PackageFolder.open(whole.package)
    loops.compare(loops.fingerprint(cut), loops.fingerprint(expected))
    assert cut.derived["inexact"] == []
    assert exact.wait(exact.go_on(started.package, [])) == 0
    assert cut.store().lineage()[-1].epoch == 5, "a finished run trains at least one epoch more"
    for lines in ("epoch 0 has ended", "epoch 3 has ended"):
        assert lines in cut.output.read_text()


def test_two_ranks_stop_early_together(tmp_path: Path) -> None:
    """Each rank has another accuracy, and that of rank 0 decides for both."""
    started = start(tmp_path, "patience=0", "epochs=30", ranks=2)
    assert exact.wait(started) == 0, PackageFolder.open(started.package).output.read_text()
    package = PackageFolder.open(started.package)
    assert package.store().lineage()[-1].epoch < 30 and package.store().lineage()[-1].ranks == 2


def test_ranks_with_unlike_numbers_of_batches_fail_instead_of_waiting(tmp_path: Path) -> None:
    started = start(tmp_path, "more_on_rank_1=4", ranks=2)
    assert exact.wait(started) == 1
    package = PackageFolder.open(started.package)
    assert "rank 0 has no more batches in this epoch, but rank 1 has" in package.output.read_text()


def test_a_failure_is_one_with_the_projects_line(tmp_path: Path) -> None:
    started = start(tmp_path, "patience=none")
    assert exact.wait(started) == 1
    package = PackageFolder.open(started.package)
    assert package.sessions()[-1].state == "failed"
    assert "LifeCycle.py" in package.output.read_text()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_of_all_kinds(tmp_path: Path) -> None:
    soak_dlnest.soak(tmp_path, kills=200, seed=0, kinds=list(soak_dlnest.KINDS))
