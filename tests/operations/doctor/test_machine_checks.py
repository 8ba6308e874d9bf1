"""Cores, memory, shared memory, limits, and the clock: each outcome, and the real machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from roost.lab.background import daemon_presence
from roost.operations.doctor import clock_checks
from roost.operations.doctor.clock_checks import ClockFacts, judge_clock, read_clock
from roost.operations.doctor.diagnosis import DoctorSubject
from roost.operations.doctor.machine_checks import (
    CpuFacts,
    LimitFacts,
    MemoryFacts,
    SharedMemoryFacts,
    judge_cpu,
    judge_limits,
    judge_memory,
    judge_shared_memory,
    read_cpu,
    read_limits,
    read_memory,
    read_shared_memory,
)
from tests.operations.doctor.lines import levels, only

GB = 1 << 30


@pytest.fixture
def subject(tmp_path: Path) -> DoctorSubject:
    return DoctorSubject(save_root=tmp_path / "runs", lab_folder=tmp_path / "lab", num_workers=2)


def test_this_machine_can_be_read(subject: DoctorSubject) -> None:
    lines = [
        *judge_cpu(read_cpu(subject)),
        *judge_memory(read_memory(subject)),
        *judge_shared_memory(read_shared_memory(subject)),
        *judge_limits(read_limits(subject)),
        *judge_clock(read_clock(subject)),
    ]
    assert len(levels(lines)) >= 5
    assert read_memory(subject).total and read_cpu(subject).usable >= 1


def test_shared_memory() -> None:
    only(judge_shared_memory(SharedMemoryFacts(size=None)), "problem", "no /dev/shm")
    only(judge_shared_memory(SharedMemoryFacts(size=64 << 20, free=64 << 20)), "problem", "--shm-size=8g")
    only(judge_shared_memory(SharedMemoryFacts(size=8 * GB, free=GB // 4)), "warning", "dead programs")
    only(judge_shared_memory(SharedMemoryFacts(size=8 * GB, free=8 * GB)), "ok")
    loader = SharedMemoryFacts(size=8 * GB, free=8 * GB, num_workers=4, prefetch=2)
    only(judge_shared_memory(loader), "ok", "8 batches", "1.0 GB each")


def test_limits() -> None:
    good = {"files": 65536, "most_files": -1, "processes": -1, "locked": -1, "core": 0}
    only(judge_limits(LimitFacts(**good)), "ok", "any number of processes")
    few = only(judge_limits(LimitFacts(**{**good, "files": 1024})), "warning", "1,024 open files")
    assert few.fix == "ulimit -n 4096"
    only(judge_limits(LimitFacts(**{**good, "files": 256, "most_files": 256})), "warning", "limits.conf")
    only(judge_limits(LimitFacts(**{**good, "processes": 100})), "warning", "nproc")
    dumps = {**good, "core": -1}
    only(judge_limits(LimitFacts(**dumps, core_pattern="core")), "warning", "ulimit -c 0")
    only(judge_limits(LimitFacts(**dumps, core_pattern="|/usr/bin/collect")), "ok")


def test_memory() -> None:
    only(judge_memory(MemoryFacts(total=64 * GB, available=32 * GB)), "ok", "32.0 GB of 64.0 GB")
    only(judge_memory(MemoryFacts(total=64 * GB, available=4 * GB)), "warning")
    only(judge_memory(MemoryFacts(total=64 * GB, available=GB // 2)), "problem", "kills")
    only(judge_memory(MemoryFacts(total=8 * GB, available=6 * GB, machine=64 * GB)), "ok", "control group")
    only(judge_memory(MemoryFacts(total=None, available=None)), "warning")
    swaps = MemoryFacts(total=64 * GB, available=32 * GB, swap=8 * GB, free_swap=GB)
    assert levels(judge_memory(swaps)) == ["ok", "warning"]


def test_the_cpu() -> None:
    only(judge_cpu(CpuFacts(usable=8, machine=8, load=2.0)), "ok", "8 cores")
    only(judge_cpu(CpuFacts(usable=2, machine=8)), "ok", "2 cores of 8")
    only(judge_cpu(CpuFacts(usable=8, machine=8, load=20.0)), "warning", "20.0 processes")
    slow = CpuFacts(usable=8, machine=8, governors=frozenset(["powersave"]))
    assert levels(judge_cpu(slow)) == ["ok", "warning"]
    threads = CpuFacts(usable=2, machine=2, threads={"OMP_NUM_THREADS": "16", "MKL_NUM_THREADS": "2"})
    assert levels(judge_cpu(threads)) == ["ok", "warning"]
    assert levels(judge_cpu(CpuFacts(usable=2, machine=2, num_workers=16))) == ["ok", "warning"]


def test_the_clock() -> None:
    only(judge_clock(ClockFacts(is_synchronized=True)), "ok", "synchronized")
    only(judge_clock(ClockFacts(file_skew=0.01)), "ok")
    only(judge_clock(ClockFacts(is_synchronized=False)), "warning", "set-ntp")
    only(judge_clock(ClockFacts(file_skew=-90.0)), "warning", "1m 30s back")
    only(judge_clock(ClockFacts(steps={"the daemon": 7200.0})), "warning", "2h 00m ahead", "the daemon")
    only(judge_clock(ClockFacts(steps={"the daemon": 0.4})), "ok")


def test_a_clock_that_was_set_shows_in_the_record_of_a_running_daemon(
    subject: DoctorSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = daemon_presence.lock(subject.lab_folder)
    daemon_presence.write_record(subject.lab_folder)
    # This process, which plays the daemon, may have started long ago: its record says now.
    started = time.time() - clock_checks._boot_seconds() + _own_start()
    monkeypatch.setattr(time, "time", lambda: started)
    daemon_presence.write_record(subject.lab_folder)
    monkeypatch.undo()
    assert abs(read_clock(subject).steps["the daemon"]) < 5
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    found = read_clock(subject)
    monkeypatch.undo()
    os.close(fd)
    assert found.steps["the daemon"] == pytest.approx(3600, abs=5)
    assert "warning" in levels(judge_clock(found))


def _own_start() -> float:
    from roost.base.system import process_identity

    ticks = process_identity.start_ticks(os.getpid())
    assert ticks is not None
    return ticks / os.sysconf("SC_CLK_TCK")
