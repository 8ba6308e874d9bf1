"""The last steps before a session runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.config.settings import typed
from roost.config.structs.limits import LimitSettings
from roost.operations import starting
from roost.operations.starting import begin, environment
from tests.operations.packages import VALUES, package


def test_starts_the_worker_and_hands_over_the_lock(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    (made.path / "Model" / "Runner.py").unlink()  # so it ends as soon as it has begun
    made.output.write_bytes(b"before\n")
    lock_fd = made.lock()
    try:
        started = begin(made, lock_fd, {"kind": "train", "device": "cpu"}, typed(VALUES))
    finally:
        os.close(lock_fd)
    with pytest.raises(Refused, match="in use by session 1"):
        made.lock()
    assert started.running is not None and started.running.offset == len(b"before\n")
    assert started.process is not None and started.process.wait(60) == 4
    os.close(made.lock())
    assert made.output.read_bytes().startswith(b"before\nerror: runner: ")
    (found,) = made.sessions()
    assert found.state == "failed" and found.request["device"] == "cpu"


def test_the_environment_is_the_callers_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    made = environment(seed=2**40 + 7, cpu=False)
    assert made["MINE"] == "1" and made["PYTHONHASHSEED"] == "7" and made["CUDA_VISIBLE_DEVICES"] == "3"
    assert made["PYTHONUNBUFFERED"] == "1" and made["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment(seed=0, cpu=True)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment(seed=0, cpu=False, cards=["GPU-a", "GPU-b"])["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_what_is_awaited_is_ended_by_whoever_waits() -> None:
    asked = LimitSettings(wall_time="1s", on_stall="end", stall_timeout="1s", output_mb=3)
    found = starting.limits_awaited(asked)
    assert (found.wall_seconds, found.end_stalled, found.stall_seconds) == (None, False, 1.0)
    assert found.output_bytes == 3 * 2**20 == starting.limits(asked).output_bytes
    assert starting.limits(asked).wall_seconds == 1.0
