"""A deadline is met on a slow disk, by the real program."""

from __future__ import annotations

import functools
import json
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from roost.package import live_progress
from roost.package.checkpoints import checkpoint
from tests import processes
from tests.system import limited
from tests.waiting import wait_for


def several(
    folder: Path, number: int, *, every: str, seconds: int = limited.LIMIT_SECONDS
) -> list[limited.Ended]:
    """So many runs with a time limit, side by side, each begun when the start of the one before is over."""
    begun: list[tuple[Path, subprocess.Popen[bytes]]] = []
    try:
        for one in range(number):
            place = folder / str(one)
            process = limited.started(place, every=every, seconds=seconds)
            begun.append((place, process))
            wait_for(functools.partial(limited.has_begun_or_ended, place, process), timeout_seconds=120.0)
        return [limited.ended(place, process, seconds=seconds) for place, process in begun]
    finally:
        for place, process in begun:
            process.kill()
            process.wait()
            processes.kill_all_in(place)


def test_the_last_checkpoint_is_committed_before_the_limit(tmp_path: Path) -> None:
    """A machine so busy that the start takes all of the time is given more of it."""
    for seconds in (limited.LIMIT_SECONDS * factor for factor in (1, 2, 4, 8)):
        ended = several(tmp_path / str(seconds), 3, every="1000000", seconds=seconds)
        for found in ended:
            assert found.in_time(), found
        if saved := [found for found in ended if found.saves]:
            break
    else:
        pytest.fail("no start left time for a save")
    for found in saved:
        said = found.output.splitlines()
        assert len([line for line in said if re.match(r"ends\b.*\(in [\d.]+s\)", line)]) == 1
        assert len([line for line in said if line.startswith("time limit: ")]) == 2


@pytest.mark.soak
def test_twenty_of_twenty(tmp_path: Path) -> None:
    """Half of them save often by themselves."""
    found = [
        one
        for turn in range(10)
        for one in several(tmp_path / str(turn), 2, every="1000000" if turn % 2 else "2s")
    ]
    saved = [one.saves[-1] for one in found if one.saves]
    ended = [one.left_seconds for one in found]
    assert all(one.in_time() for one in found), [one for one in found if not one.in_time()]
    assert saved, "the machine was too busy: no start left time for a save"
    print(
        f"{len(found)} of {len(found)} in time, {len(saved)} trained; the last checkpoint stood "
        f"{min(saved):.1f} to {max(saved):.1f} s (median {statistics.median(saved):.1f}) before the limit, "
        f"the session had ended {min(ended):.1f} to {max(ended):.1f} s before"
    )


def test_a_deadline_that_is_past_is_one_line_and_makes_nothing(tmp_path: Path) -> None:
    config = Path(limited.__file__).parents[2] / "src" / "roost" / "templates" / "clean" / "config.yaml"
    deadline = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 90))
    result = subprocess.run(
        [limited.ROOST, "run", "-c", str(config), f"save_root={tmp_path / 'runs'}"],
        capture_output=True,
        text=True,
        env={**os.environ, "ROOST_DEADLINE": deadline},
    )
    assert result.returncode == 5
    (line,) = result.stderr.strip().splitlines()
    assert "ROOST_DEADLINE: " in line
    assert not (tmp_path / "runs").exists()


def test_a_limit_shorter_than_the_start(tmp_path: Path) -> None:
    config = Path(limited.__file__).parents[2] / "src" / "roost" / "templates" / "clean" / "config.yaml"
    command = [limited.ROOST, "run", "-c", str(config), "--name", "short", "limits.wall_time=0.5s"]
    env = {**os.environ, "ROOST_COLD": "1"}  # a warm one would be done by then
    result = subprocess.run([*command, f"save_root={tmp_path}"], env=env, capture_output=True, text=True)
    assert result.returncode == 75, result.stderr
    assert "time limit" in result.stdout + result.stderr
    assert not list((tmp_path / "short" / "Checkpoints").iterdir())


def test_a_time_that_appears_in_a_file_while_it_runs(tmp_path: Path) -> None:
    """As the daemon of a spot instance writes it. The record has the time, and the last step is saved."""
    config = Path(limited.__file__).parents[2] / "src" / "roost" / "templates" / "clean" / "config.yaml"
    notice = tmp_path / "end"
    settings = ["max_epochs=1000000", "log_every=never", "validate_every=1000000ep"]
    settings += ["checkpoint.every=1000000ep"]
    command = [limited.ROOST, "run", "-c", str(config), "--name", "noticed", "-CPU", *settings]
    process = subprocess.Popen(
        [*command, f"save_root={tmp_path}", f"limits.deadline_file={notice}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    package = tmp_path / "noticed"
    progress = package / "progress"
    try:
        wait_for(lambda: (seen := live_progress.read(progress)) is not None and seen.step > 3, 120.0)
        at = time.time() + 10
        notice.write_text(f"{at:.3f}")
        assert process.wait(120) == 75
    finally:
        process.kill()
        processes.kill_all_in(package)
    record = json.loads((package / "sessions" / "1.json").read_bytes())
    assert record["reason"] == "time limit"
    assert record["deadline"] == pytest.approx(at, abs=0.01)
    saved = checkpoint.read_manifests(package / "Checkpoints")[-1]
    assert saved.step == record["step"] == record["saved_step"]
    assert f"as {notice} says" in (package / "_output.txt").read_text()
