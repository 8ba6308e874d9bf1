"""`roost plot --follow` beside a run that trains."""

from __future__ import annotations

import subprocess
from pathlib import Path

import exact
import pytest

from roost.operations.lifecycle.stop import stop
from tests.cli.programs import ROOST, Terminal
from tests.waiting import wait_for

pytestmark = pytest.mark.soak  # half a minute each; CI has the modules' own tests

LONG = ["max_epochs=999", "pause=0.05", "~optimizers.main.scheduler", "checkpoint={every: 5}"]


def followed(package: Path, output: Path) -> subprocess.Popen[str]:
    command = [*ROOST, "plot", str(package), "-o", str(output), "--follow", "--every", "0.1s"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.timeout(180)
def test_the_picture_changes_while_it_trains_and_it_ends_with_the_run(tmp_path: Path) -> None:
    started, output = exact.start(tmp_path / "runs", LONG), tmp_path / "curves.svg"
    program = followed(started.package, output)
    wait_for(output.exists)
    for _ in range(2):
        before = output.read_bytes()
        wait_for(lambda: output.read_bytes() != before)  # noqa: B023  - asked before the next round
        assert output.read_bytes().rstrip().endswith(b"</svg>"), "always a whole picture"
    list(stop(started.package))
    exact.wait(started)
    said, talk = program.communicate(timeout=100)
    assert program.returncode == 0 and said == f"{output}\n"
    assert talk.count(": loss") >= 2 and "Traceback" not in talk


@pytest.mark.timeout(180)
def test_ctrl_c_leaves_the_run_alone(tmp_path: Path) -> None:
    started, output = exact.start(tmp_path / "runs", LONG), tmp_path / "curves.png"
    arguments = ["plot", started.package, "-o", output, "--follow", "--every", "0.1s"]
    screen = Terminal(*arguments)
    try:
        screen.wait_for("2 pictures")
        assert "\r\x1b[K" in screen.seen, "one line, written anew"
        screen.press_ctrl_c()
        code, seen = screen.end()
    finally:
        screen.kill()
    assert code == 130 and "Traceback" not in seen and output.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir() if "curves" in path.name] == ["curves.png"]
    assert started.process is not None and started.process.poll() is None
    exact.kill_group(started)


@pytest.mark.timeout(60)
def test_every_needs_follow(tmp_path: Path) -> None:
    command = [*ROOST, "plot", str(tmp_path), "-o", "a.png", "--every", "1s"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 2 and "--follow" in said.stderr
