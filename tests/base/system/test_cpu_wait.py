from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from roost.base.system import cpu_wait
from roost.base.system.cpu_wait import CpuTime
from tests.messages import Messages

COMPETITION = """
import os, subprocess, sys, time
from roost.base.system import cpu_wait
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    deadline = time.monotonic() + 60
    while cpu_wait.read().computed < 0.5 and time.monotonic() < deadline:
        pass
finally:
    other.kill()
print(cpu_wait.read().wait_share)
"""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="not counted by this kernel")
def test_a_process_that_shares_its_core_waits() -> None:
    found = subprocess.run(
        [sys.executable, "-c", COMPETITION], capture_output=True, text=True, check=True, timeout=120
    )
    assert 0.25 < float(found.stdout) < 1.0, "two processes on one core"


def test_a_thread_that_sleeps_does_not_wait() -> None:
    before, began = cpu_wait.read(), time.monotonic()
    time.sleep(0.2)  # it must do nothing: no event is awaited
    spent = cpu_wait.read().since(before)
    assert spent.computed + spent.waited < time.monotonic() - began


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert (
        cpu_wait.read(tmp_path) == cpu_wait.read(tmp_path / "none") == CpuTime() and not CpuTime().wait_share
    )


def test_of_all_threads(tmp_path: Path) -> None:
    for thread in "78":
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text("1500000000 500000000 12\n")
    found = cpu_wait.read(tmp_path)
    assert found == CpuTime(3.0, 1.0) and found.wait_share == 0.25
    assert found.since(CpuTime(1.0, 2.0)) == CpuTime(2.0, 0.0)


def test_a_busy_machine_is_named(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (11.04, 1.0, 1.0))
    monkeypatch.setattr("roost.base.system.cpu_wait.cpu_cores.usable_cores", lambda: 2)
    texts = [cpu_wait.format_busy(CpuTime(4.0, 6.0), threads=threads) for threads in (1, 2)]
    assert all(fact in text for text in texts for fact in ("40%", "11.0", "2 cores"))
    assert ["threads=1" in text for text in texts] == [False, True]
    for text in texts:
        messages.check(text)
    assert not cpu_wait.format_busy(CpuTime(9.0, 1.0), threads=2), "not busy"
    assert not cpu_wait.format_busy(CpuTime(0.2, 0.3), threads=2), "too early to know"
