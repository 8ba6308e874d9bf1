"""The last steps before a session runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import Refused
from roost.config.sections.limits import LimitSettings
from roost.config.settings import Settings, parse_settings
from roost.operations.sessions import session_request
from roost.operations.sessions.session_request import session_plan, start_session, worker_environment
from roost.package.session_schema import SessionRequest
from roost.supervisor.limits import SessionLimits
from tests.operations.packages import VALUES, package

CPU = {"kind": "train", "device": "cpu", "strategy": "single", "ranks": 1}


def with_values(**values: Any) -> Settings:
    return parse_settings({**VALUES, **values})


def test_starts_the_worker_and_hands_over_the_lock(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    (made.path / "Model" / "Runner.py").unlink()  # so it ends as soon as it has begun
    made.output.write_bytes(b"before\n")
    lock_fd = made.lock()
    try:
        started = start_session(
            made, lock_fd, SessionRequest(kind="train", device="cpu"), parse_settings(VALUES)
        )
    finally:
        os.close(lock_fd)
    with pytest.raises(Refused, match="session 1"):
        made.lock()
    assert started.running is not None and started.running.offset == len(b"before\n")
    assert started.process is not None and started.process.wait(100) == 4
    os.close(made.lock())
    assert made.output.read_bytes().startswith(b"before\nerror: runner: ")
    (found,) = made.sessions()
    assert found.state == "failed" and found.request["device"] == "cpu"


def test_the_environment_is_the_callers_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    made = worker_environment(cpu=False)
    assert made["MINE"] == "1" and made["PYTHONHASHSEED"] == "0" and made["CUDA_VISIBLE_DEVICES"] == "3"
    assert made["PYTHONUNBUFFERED"] == "1" and made["PYTHONDONTWRITEBYTECODE"] == "1"
    assert worker_environment(cpu=True)["CUDA_VISIBLE_DEVICES"] == ""
    assert worker_environment(cpu=False, cards=["GPU-a", "GPU-b"])["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert made["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "as the leases count"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert worker_environment(cpu=False)["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x24GB")
    assert worker_environment(cpu=False)["CUDA_VISIBLE_DEVICES"] == "", "or torch would find those behind"
    assert "ROOST_DEADLINE" not in worker_environment(cpu=True)
    monkeypatch.setenv("ROOST_DEADLINE", "1795271400")
    assert worker_environment(cpu=True)["ROOST_DEADLINE"] == "1795271400"
    assert worker_environment(cpu=True, deadline=5.0)["ROOST_DEADLINE"] == "5.000"


def test_a_worker_is_ended_by_the_caller_that_waits_for_it() -> None:
    asked = LimitSettings(wall_time="1s", on_stall="end", stall_timeout="1s", output_mb=3)
    found = session_request.limits_of_attended(asked)
    assert (found.wall_seconds, found.end_stalled, found.stall_seconds) == (None, False, 1.0)
    assert found.output_bytes == 3 * 2**20 == session_request.supervisor_limits(asked).output_bytes
    assert session_request.supervisor_limits(asked).wall_seconds == 1.0


def test_a_training_has_the_callers_environment_and_above_it_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("ROOST_DEADLINE", "1795271400")
    monkeypatch.setenv("PYTHONHASHSEED", "9")
    monkeypatch.setenv("JPY_PARENT_PID", "1")  # in the kernel of a notebook
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("FORCE_COLOR", "1")
    body = SessionRequest.from_json(CPU)
    made = session_plan(body, with_values(seed=7, limits={"wall_time": "90s", "grace": "5s"}))
    assert (
        made.env["MINE"] == "1"
        and not {"RANK", "ROOST_DEADLINE", "MPLBACKEND", "FORCE_COLOR"} & made.env.keys()
    )
    assert made.own_env == {
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert made.limits["wall_seconds"] == 90.0 and made.limits["grace_seconds"] == 5.0
    assert made.request == body and made.argv[0] == sys.executable and not made.is_command
    on_gpu = SessionRequest.from_json({**CPU, "device": "cuda"})
    assert "CUDA_VISIBLE_DEVICES" not in session_plan(on_gpu, with_values()).own_env


def test_a_training_of_several_ranks_shares_the_cores() -> None:
    body = SessionRequest.from_json({**CPU, "strategy": "ddp", "ranks": 2})
    made = session_plan(body, with_values(threads=3))
    assert [rank["OMP_NUM_THREADS"] for rank in made.ranks] == ["3", "3"]


def test_a_session_without_settings_has_the_limits_that_they_give_by_default() -> None:
    assert session_request.supervisor_limits(LimitSettings()) == SessionLimits()


def test_a_training_stays_within_its_cores_and_its_memory_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    wanted = {**CPU, "cores": 6, "host_memory_mb": 900}
    made = session_plan(SessionRequest.from_json(wanted), with_values())
    assert made.own_env["OMP_NUM_THREADS"] == "6" and made.limits["host_memory_mb"] == 900
    of_ranks = SessionRequest.from_json({**wanted, "strategy": "ddp", "ranks": 2})
    made = session_plan(of_ranks, with_values())
    assert [rank["OMP_NUM_THREADS"] for rank in made.ranks] == ["3", "3"]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert "OMP_NUM_THREADS" not in session_plan(of_ranks, with_values()).own_env, "the user's own"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be divided")
def test_a_session_at_a_terminal_is_bound_to_its_cores(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    (made.path / "Model" / "Runner.py").unlink()
    lock_fd = made.lock()
    request = SessionRequest(kind="train", device="cpu", cores=1)
    started = start_session(made, lock_fd, request, parse_settings(VALUES))
    os.close(lock_fd)
    assert started.process is not None and started.process.wait(100) == 4
    (found,) = made.sessions()
    (core,) = found.request.core_ids
    assert core in os.sched_getaffinity(0)
