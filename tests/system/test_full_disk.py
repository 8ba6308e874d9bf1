"""A disk that is really full, and a folder without write permission."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounting import may_mount

ROOST = str(Path(sys.executable).parent / "roost")
CLEAN = Path(__file__).parents[2] / "src" / "roost" / "templates" / "clean"


@pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")
@pytest.mark.timeout(120)
def test_a_full_disk_is_said_loses_nothing_and_goes_on_once_there_is_space(tmp_path: Path) -> None:
    script = f"""
    set -u
    mount -t tmpfs -o size=500k tmpfs {tmp_path}
    cp -r {CLEAN} {tmp_path}/project
    {ROOST} run -c {tmp_path}/project/config.yaml save_root={tmp_path}/runs max_epochs=40 checkpoint.fast=100
    echo "run: $?"
    {ROOST} verify {tmp_path}/runs/* > /dev/null; echo "verify: $?"
    mount -o remount,size=20m {tmp_path}
    {ROOST} continue {tmp_path}/runs/*; echo "continue: $?"
    {ROOST} verify {tmp_path}/runs/* > /dev/null; echo "verify again: $?"
    """
    result = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True)
    said = result.stdout + result.stderr
    for line in ("run: 1", "verify: 0", "continue: 0", "verify again: 0"):
        assert f"{line}\n" in said, said
    (error,) = re.findall(r"error: .*\[Errno 28\] No space left on device", said)
    assert "checkpoint" in error
    assert "Traceback" not in said


@pytest.mark.parametrize("root", ["/proc/roost-runs", "/dev/null/runs"])
def test_an_unwritable_place_is_named_at_once(root: str, tmp_path: Path) -> None:
    command = [ROOST, "run", "-c", str(CLEAN / "config.yaml"), f"save_root={root}"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ})
    assert result.returncode == 1
    assert root.split("/")[1] in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
