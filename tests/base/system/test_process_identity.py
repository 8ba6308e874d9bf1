from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys

import pytest

from roost.base.system import process_identity
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def python(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE)


def test_ourselves() -> None:
    ticks = process_identity.start_ticks(os.getpid())
    assert ticks is not None
    assert ticks > 0
    assert process_identity.is_alive(os.getpid(), ticks, process_identity.boot_id())
    stat = process_identity.read_stat(os.getpid())
    assert stat is not None
    assert stat.parent_pid == os.getppid()
    assert not stat.ended


def test_another_start_or_another_boot_is_another_process() -> None:
    ticks = process_identity.start_ticks(os.getpid())
    assert ticks is not None
    assert not process_identity.is_alive(os.getpid(), ticks + 1, process_identity.boot_id())
    assert not process_identity.is_alive(os.getpid(), ticks, "another boot")


def test_without_start_ticks_the_pid_decides() -> None:
    assert process_identity.is_alive(os.getpid(), None, process_identity.boot_id())
    assert process_identity.is_alive(1, None, process_identity.boot_id())


def test_a_zombie_is_not_alive_and_a_reaped_process_is_nobody() -> None:
    with python("input()") as child:
        ticks, boot = process_identity.start_ticks(child.pid), process_identity.boot_id()
        assert process_identity.is_alive(child.pid, ticks, boot)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_identity.start_ticks(child.pid) == ticks
        assert not process_identity.is_alive(child.pid, ticks, boot)
    assert process_identity.start_ticks(child.pid) is None
    assert process_identity.read_stat(child.pid) is None
    assert not process_identity.is_alive(child.pid, ticks, boot)
    assert not process_identity.is_alive(child.pid, None, boot)


def test_a_name_full_of_parentheses_is_read() -> None:
    rename = (
        "open('/proc/self/comm','w').write(') R 1 (x')\nprint(1, flush=True)\nimport signal; signal.pause()"
    )
    with python(rename) as child:
        assert child.stdout is not None
        child.stdout.readline()
        stat = process_identity.read_stat(child.pid)
        child.kill()
    assert stat is not None
    assert stat.parent_pid == os.getpid()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a system call by its number")
def test_threads_that_outlive_the_main_thread_are_alive() -> None:
    exit_main_thread = (
        "import ctypes, threading, signal\n"
        "threading.Thread(target=lambda: (print(1, flush=True), threading.Event().wait())).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)"
    )
    with python(exit_main_thread) as child:
        wait_for(lambda: (stat := process_identity.read_stat(child.pid)) is not None and stat.state == "Z")
        assert process_identity.is_alive(
            child.pid, process_identity.start_ticks(child.pid), process_identity.boot_id()
        )
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL


def test_a_signal_goes_to_exactly_this_process() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        ticks, boot = process_identity.start_ticks(child.pid), process_identity.boot_id()
        assert ticks is not None
        assert not process_identity.send_signal(
            signal.SIGTERM, child.pid, ticks + 1, boot
        )  # the pid was given to another one
        assert not process_identity.send_signal(signal.SIGTERM, child.pid, ticks, "another boot")
        assert child.poll() is None
        assert process_identity.send_signal(signal.SIGTERM, child.pid, ticks, boot)
        assert child.wait(100) == -signal.SIGTERM
        assert not process_identity.send_signal(signal.SIGTERM, child.pid, ticks, boot)
