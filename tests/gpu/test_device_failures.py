"""A failure of the card ends the run by its own class, wherever it comes up; a step for which memory ran out
can be skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.device import REHEARSES

pytestmark = pytest.mark.needs_gpu


def outcome(kind: str, place: str, policy: str, folder: Path) -> Any:
    command = [sys.executable, "-m", "tests.gpu.faults", kind, place, policy, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("place", ["forward", "backward", "row", "save"])
def test_memory_runs_out(place: str, policy: str, tmp_path: Path) -> None:
    found = outcome("memory", place, policy, tmp_path)
    if policy == "skip" and place in ("forward", "backward"):
        assert found["end"] == "finished" and found["skipped"] == 1 and found["newest"] == 6
        assert any("memory ran out" in reason for reason in found["inexact"])
        return
    assert found["end"] == ("RuntimeError" if REHEARSES else "OutOfMemoryError")
    assert REHEARSES or (found["is_device"] and not found["breaks"])
    assert found["cause"] is not None and "memory" in found["cause"]
    assert found["boxes"] == (1 if place in ("forward", "backward") else 0)


@pytest.mark.skipif(REHEARSES, reason="the CPU checks an index when it is used")
@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("place", ["forward", "backward", "row", "save"])
def test_an_assert_on_the_device(place: str, policy: str, tmp_path: Path) -> None:
    """It comes up later, at the first call that waits; never as a mistake in a value; it is not skipped."""
    found = outcome("assert", place, policy, tmp_path)
    assert found["breaks"] and found["is_device"] and "device-side assert" in found["text"]
    assert found["skipped"] == 0 and found["newest"] < 3, "nothing after it is saved"
    assert found["cause"] is not None
