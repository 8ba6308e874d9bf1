"""The examples run as they are, and keep what they promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import roost

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(name: str, folder: Path, *, kill_at: str | None = None) -> list[str]:
    """Runs an example, to its end or until it prints a line that begins so; gives what it printed."""
    command = [sys.executable, str(EXAMPLES / name), str(folder)]
    lines: list[str] = []
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            if kill_at is not None and line.startswith(kill_at):
                process.kill()
    assert process.returncode == (0 if kill_at is None else -signal.SIGKILL)
    return lines


def plain_loop(folder: Path, *, kill_at: str | None = None) -> list[str]:
    return ran("plain_loop.py", folder, kill_at=kill_at)


def test_the_plain_loop_goes_on_exactly_after_kill_9(tmp_path: Path) -> None:
    whole = plain_loop(tmp_path / "whole")
    assert whole[0].endswith(" step 0")
    plain_loop(tmp_path / "cut", kill_at="step 250 ")
    second = plain_loop(tmp_path / "cut", kill_at="step 450 ")
    assert 0 < int(second[0].split()[-1]) < 450
    third = plain_loop(tmp_path / "cut")
    begin = int(third[0].split()[-1])
    assert 240 <= begin < 500
    # Rows and weights: what comes after the last cut is what the whole run printed.
    assert third[1:] == [
        line for line in whole[1:] if line.startswith("weights") or int(line.split()[1]) > begin
    ]


def package(folder: Path, *, kill_at: str | None = None) -> list[str]:
    return ran("package.py", folder, kill_at=kill_at)


def test_the_package_goes_on_after_kill_9_and_from_the_middle(tmp_path: Path) -> None:
    whole = package(tmp_path / "whole")
    assert whole[0].endswith(" step 0") and whole[7].endswith(" checkpoint 3, step 4000")
    assert [line.split()[-1] for line in whole[8:]] == ["6", "7"]
    package(tmp_path / "cut", kill_at="step 1000 ")
    second = package(tmp_path / "cut")
    begin = int(second[0].split()[-1])
    assert begin in range(1000, 6001, 1000)
    assert second[1:] == [line for line in whole[1:7] if int(line.split()[1]) > begin] + whole[7:]
    again = roost.open_package(tmp_path / "whole" / "line")
    assert again.state == "succeeded" and again.current == 7 and again.load(3)["step"] == 4000
    assert again.records().series["loss"][0] == list(range(1000, 6001, 1000))


def test_the_trainer_without_a_package_and_the_average(tmp_path: Path) -> None:
    assert ran("own_trainer.py", tmp_path / "own")[-1].startswith("finished")
    assert ran("averaged_weights.py", tmp_path)
