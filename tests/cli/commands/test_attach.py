"""Attaching to a run on a terminal, through pipes, and to what does not run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package import live_progress
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST, Terminal, roost
from tests.operations.packages import package, project
from tests.waiting import wait_for

ENDLESS = {"max_epochs": "1000000", "validate_every": "200", "log_every": "50"}


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[PackageFolder]:
    """A run that was started with --detach and would train for days."""
    said = roost("run", project(tmp_path / "p", **ENDLESS), "--detach", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    made = PackageFolder.open(tmp_path / said.stdout.strip())
    try:
        assert "roost attach p/runs/" in said.stderr
        wait_for(lambda: (seen := live_progress.read(made.progress)) and seen.step > 3)
        yield made
    finally:
        roost("stop", made.path, "--now")


@pytest.fixture
def attached(endless: PackageFolder) -> Iterator[Terminal]:
    terminal = Terminal("attach", endless.path)
    try:
        terminal.wait_for("samples/s")
        yield terminal
    finally:
        terminal.kill()


def test_ctrl_c_asks_and_d_detaches(endless: PackageFolder, attached: Terminal) -> None:
    attached.press_ctrl_c()
    attached.wait_for("detach, the run")
    os.write(attached.fd, b"d")
    code, shown = attached.end()
    assert code == 0 and "detached" in shown
    assert endless.state == "running"


def test_ctrl_c_at_the_question_detaches(endless: PackageFolder, attached: Terminal) -> None:
    attached.press_ctrl_c()
    attached.wait_for("detach, the run")
    attached.press_ctrl_c()
    code, _ = attached.end()
    assert code == 0 and endless.state == "running"


def test_ctrl_c_asks_and_goes_on_watching_then_stops(endless: PackageFolder, attached: Terminal) -> None:
    attached.press_ctrl_c()
    attached.wait_for("detach, the run")
    os.write(attached.fd, b"w")
    attached.seen = ""
    attached.wait_for("samples/s")  # the bar is back
    attached.press_ctrl_c()
    attached.wait_for("detach, the run")
    os.write(attached.fd, b"s")
    code, shown = attached.end()
    assert code == 75 and "roost continue" in shown
    assert endless.state == "stopped"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_terminal_it_detaches(endless: PackageFolder, number: signal.Signals) -> None:
    child = subprocess.Popen(
        [*ROOST, "attach", str(endless.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    with child, child.stderr:
        assert "attached" in child.stderr.readline()
        child.send_signal(number)
        assert "detached" in child.stderr.read() and child.wait(100) == 0
    assert endless.state == "running"


def test_shows_the_last_lines_and_gives_the_exit_code_of_the_run(endless: PackageFolder) -> None:
    wait_for(lambda: endless.output.read_bytes().count(b"\n") > 2)
    child = subprocess.Popen([*ROOST, "attach", str(endless.path), "-n", "1"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child, child.stdout:
        shown = child.stdout.read(1)
        assert roost("stop", endless.path).returncode == 0
        shown += child.stdout.read()
        assert child.wait(100) == 75
    printed = endless.output.read_bytes()
    assert printed.endswith(shown) and printed[: -len(shown)].endswith(b"\n")
    assert 1 < shown.count(b"\n") < printed.count(b"\n")


@pytest.mark.parametrize("how", ["SIGKILL to the starter", "the terminal is gone"])
def test_a_run_whose_starter_is_gone_is_attached_where_it_is(tmp_path: Path, how: str) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    starter = Terminal("run", config, cwd=tmp_path)
    starter.wait_for("samples/s")
    if how.startswith("SIGKILL"):
        os.kill(starter.process.pid, signal.SIGKILL)
    else:
        starter.hang_up()  # SIGHUP to everything on it
    starter.process.wait(100)
    starter.kill()
    (path,) = (tmp_path / "p" / "runs").iterdir()
    terminal = Terminal("attach", path)
    try:
        terminal.wait_for("samples/s")
        assert roost("stop", path).returncode == 0
        code, shown = terminal.end()
        assert code == 75 and "starting" not in shown
    finally:
        terminal.kill()


@pytest.mark.parametrize("state", ["succeeded", "crashed"])
def test_what_has_ended_is_one_error(tmp_path: Path, state: str) -> None:
    made = package(tmp_path / "runs", state=state)
    said = roost("attach", made.path)
    assert said.returncode == 5 and said.stdout == ""
    assert said.stderr.count("\n") == 1 and state in said.stderr and "roost logs" in said.stderr
