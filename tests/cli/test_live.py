"""Following a run: on a terminal, through pipes, to the end and to a stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package import progress
from roost.package.package import Package
from tests.cli.programs import ROOST, Terminal, roost
from tests.operations.packages import project
from tests.waiting import wait_for

ENDLESS = {"max_epochs": "1000000", "validate_every": "200", "log_every": "50"}


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.kill()


def the_package(config: Path) -> Package:
    (path,) = wait_for(lambda: list(config.parent.glob("runs/*/sessions/1.json")), 30)
    return Package.open(path.parent.parent)


def trains(made: Package) -> bool:
    seen = progress.read(made.progress)
    return seen is not None and seen.step > 3


def test_through_pipes(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="2")
    said = roost("run", config, "-d", "piped", cwd=tmp_path)
    made = the_package(config)
    assert said.returncode == 0, said.stderr
    assert said.stdout.encode() == made.output.read_bytes() and "epoch 2/2" in said.stdout
    first, *_, ended, path = said.stderr.splitlines()
    name = made.path.relative_to(tmp_path)
    assert first.startswith(f"{name}: session 1") and "Ctrl-C" in first
    assert re.match(r"succeeded in [\d.]+s  valid/loss", ended) and path == f"package: {name}"


def test_a_failed_run(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    runner = tmp_path / "p" / "Model" / "Runner.py"
    runner.write_text(runner.read_text().replace("x, y = batch", "raise ValueError('no good')"))
    said = roost("run", config)
    assert said.returncode == 1
    assert re.search(r"^failed at step 0 after [\d.]+s$", said.stderr, re.MULTILINE)
    assert "no good" not in said.stderr, "it is told once, by the run itself"
    assert said.stdout.splitlines()[-2] == "ValueError: no good"
    assert "sessions/1.traceback.txt" in said.stdout.splitlines()[-1]
    (row,) = json.loads(roost("ls", tmp_path / "p", "--json").stdout)
    assert row["state"] == "failed" and row["error"] == "ValueError: no good"
    assert "ValueError: no good" in roost("ls", tmp_path / "p").stdout


def test_a_bar_and_ctrl_c(tmp_path: Path, terminals: list[Terminal]) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    terminal = Terminal("run", config, cwd=tmp_path)
    terminals.append(terminal)
    terminal.wait_for("samples/s")
    terminal.wait_for("valid/loss")
    terminal.press_ctrl_c()
    terminal.wait_for("saving at the next step edge")
    code, shown = terminal.end()
    made = the_package(config)
    assert code == 75, shown
    assert f"roost continue {made.path.relative_to(tmp_path)}" in shown
    assert made.state() == "stopped" and made.store().line()[-1].step > 0
    assert "\x1b[?25h" in shown  # the cursor is back
    assert "\x1b[31m" not in shown  # NO_COLOR, which every test sets


def test_a_second_ctrl_c(tmp_path: Path, terminals: list[Terminal]) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    # A hook that hangs in its stop: the first Ctrl-C would wait for ever.
    (tmp_path / "p" / "Hooks.py").write_text(
        "import time, roost\n"
        "class Hang(roost.Hook):\n"
        "    phase = roost.Phase.REPORT\n"
        "    def on_stop(self, trainer, reason): time.sleep(1000)\n"
    )
    with config.open("a") as file:
        file.write("hooks: [Hooks.py:Hang]\n")
    terminal = Terminal("run", config, cwd=tmp_path)
    terminals.append(terminal)
    wait_for(lambda: trains(the_package(config)), 60)
    terminal.press_ctrl_c()
    terminal.wait_for("saving")
    terminal.press_ctrl_c()
    code, shown = terminal.end()
    assert code == 130, shown
    assert the_package(config).state() == "stopped"


@pytest.mark.parametrize("how", ["SIGKILL to the program", "the terminal is gone"])
def test_a_run_survives_whoever_watches_it(tmp_path: Path, how: str, terminals: list[Terminal]) -> None:
    config = project(tmp_path / "p", max_epochs="2")
    terminal = Terminal("run", config, cwd=tmp_path)
    terminals.append(terminal)
    made = the_package(config)
    if how.startswith("SIGKILL"):
        os.kill(terminal.process.pid, signal.SIGKILL)
    else:
        terminal.hang_up()
    assert terminal.process.wait(10) != 0
    assert made.state() == "running"
    wait_for(lambda: made.state() != "running", 60)
    assert made.state() == "succeeded", made.output.read_text()


def test_sigterm_saves_and_stops(tmp_path: Path) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    child = subprocess.Popen([*ROOST, "run", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    made = the_package(config)
    wait_for(lambda: trains(made), 60)
    again = roost("run", config, "--name", made.path.name)
    assert again.returncode == 5 and "in use by session 1" in again.stderr
    second = roost("continue", made.path)
    assert second.returncode == 5 and "in use by session 1" in second.stderr
    child.terminate()
    _, said = child.communicate(timeout=30)
    assert child.returncode == 75 and b"roost continue" in said
    assert made.state() == "stopped"


def test_whoever_reads_the_output_may_go(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="1")
    command = f"{' '.join(ROOST)} run {config} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training: ") and "succeeded" in done.stderr
    assert "Exception ignored" not in done.stderr
